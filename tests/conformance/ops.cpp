// Every op against the samples that PyTorch's own per-op test suite uses: values and gradients in Float64, values in
// Float32. Prints one line an op; `./run conformance` shows them.
#include <doctest/doctest.h>

#include <cstdio>

#include "../core_values.h"
#include "sample.h"

namespace gradus::test {

namespace {

/// What came of one op's samples.
struct Verdict {
  int agree = 0;
  std::map<std::string, int> not_offered;  // by argument
  std::vector<std::string> differ;
};

/// Agreement to 1e-10 of each number; in Float32, to 1e-5 of the largest, since the inputs were rounded.
double off(const Tensor& actual, const Json& expected, DType floats) {
  const Tensor right = to_tensor(expected.at("tensor"));
  if (actual.dtype() != (is_floating(right.dtype()) ? floats : right.dtype())) return infinity;
  if (floats == Float64) return disagreement(actual, right);
  double largest = 0;
  for (const double number : right.to_vector<double>())
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  return disagreement(actual, right, 1e-5, 1e-5 * largest);
}

/// What is wrong with the call; empty where nothing is.
std::string compare(const Json& sample, const Run& run, DType floats) {
  Call call(sample, floats);
  const std::vector<Tensor> outputs = run(call);
  call.finish();
  const Json& expected = sample.at("outputs");
  if (outputs.size() != expected.size())
    return std::to_string(outputs.size()) + " outputs instead of " + std::to_string(expected.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (off(outputs[i], expected[i], floats) > 1)
      return "output " + std::to_string(i) + " " + outputs[i].shape().str() + " is wrong";
  }
  if (floats != Float64) return {};

  std::vector<Tensor> sources, upstream;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Json& g = sample.at("grad_outputs")[i];
    if (g.is_null()) continue;
    if (!outputs[i].requires_grad()) return "output " + std::to_string(i) + " has no gradient";
    sources.push_back(outputs[i]);
    upstream.push_back(to_tensor(g.at("tensor")));
  }
  const Json& grads = sample.at("grads");
  if (grads.size() != call.leaves().size()) return "not as many gradients as leaves";
  if (sources.empty()) return {};
  const std::vector<Tensor> gradients = grad(sources, call.leaves(), upstream, {.allow_unused = true});
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Tensor g = gradients[i].defined() ? gradients[i] : zeros_like(call.leaves()[i]);
    const Tensor right = grads[i].is_null() ? zeros_like(call.leaves()[i]) : to_tensor(grads[i].at("tensor"));
    if (disagreement(g, right) > 1) return "gradient " + std::to_string(i) + " " + g.shape().str() + " is wrong";
  }
  return {};
}

Verdict judge(const std::string& op, const Run& run) {
  Verdict verdict;
  int number = 0;
  const Json file = conformance("ops/" + op);
  for (const Json& sample : file.at("samples")) {
    ++number;
    for (const DType floats : {Float64, Float32}) {
      std::string wrong;
      try {
        wrong = compare(sample, run, floats);
      } catch (const NotOffered& missing) {
        if (floats == Float64) ++verdict.not_offered[missing.what()];
        break;
      } catch (const Error& error) {
        wrong = error.what();
      }
      if (!wrong.empty()) {
        verdict.differ.push_back("sample " + std::to_string(number) + " in " + name(floats) + ": " + wrong);
        break;
      }
      if (floats == Float32) ++verdict.agree;
    }
  }
  return verdict;
}

}  // namespace

TEST_CASE("ops agree with PyTorch on its own samples") {
  Verdict total;
  std::printf("%-36s %6s  not offered\n", "op", "agree");
  for (const auto& [op, run] : calls()) {
    const Verdict verdict = judge(op, run);
    std::string missing;
    for (const auto& [argument, times] : verdict.not_offered) {
      missing += (missing.empty() ? "" : ", ") + argument + " (" + std::to_string(times) + ")";
      total.not_offered[op + ": " + argument] += times;
    }
    std::printf("%-36s %6d  %s\n", op.c_str(), verdict.agree, missing.c_str());
    for (const std::string& wrong : verdict.differ) {
      std::printf("    differ: %s\n", wrong.c_str());
      FAIL_CHECK(op << ", " << wrong);
    }
    total.agree += verdict.agree;
    total.differ.insert(total.differ.end(), verdict.differ.begin(), verdict.differ.end());
  }
  int not_offered = 0;
  for (const auto& [argument, times] : total.not_offered) not_offered += times;
  std::printf("%zu ops: %d samples agree, %d not offered, %zu differ\n", calls().size(), total.agree, not_offered,
              total.differ.size());
  std::fflush(stdout);
}

}  // namespace gradus::test
