// First and second derivatives of every op against central differences. The checks themselves are in gradcheck.cpp.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "ops_table.h"

using namespace gradus;
using namespace gradus::test;

namespace {

using Inputs = std::vector<Tensor>;

void check_both(const TensorFunction& f, const Inputs& inputs) {
  const auto first = gradcheck(f, inputs);
  CHECK_MESSAGE(first.ok, "first order: " << first.what);
  const auto second = gradgradcheck(f, inputs, {.atol = 1e-6, .rtol = 1e-4});
  CHECK_MESSAGE(second.ok, "second order: " << second.what);
}

Inputs inputs_of(const OpRow& row, Layout layout) {
  Inputs inputs;
  for (std::size_t i = 0; i < row.shapes.size(); ++i)
    inputs.push_back(laid_out(row.shapes[i], layout, row.low, row.high, 10 * i + 1));
  return inputs;
}

}  // namespace

TEST_CASE("every op, in every layout of its inputs") {
  for (const OpRow& row : ops_table()) {
    CAPTURE(row.op);
    CAPTURE(row.about);
    for (const Layout layout : layouts) {
      // Equal rows are ties to the ops that choose one.
      const std::string op = row.op;
      const bool chooses = op == "amax" || op == "amin" || row.about.find("along a dim") != std::string::npos;
      if (layout == Layout::Expanded && chooses) continue;
      CAPTURE(name_of(layout));
      check_both(row.f, inputs_of(row, layout));
    }
  }
}

TEST_CASE("every op, in every layout of its upstream gradient") {
  for (const OpRow& row : ops_table()) {
    CAPTURE(row.op);
    CAPTURE(row.about);
    const Inputs inputs = inputs_of(row, Layout::Contiguous);
    if (row.f(inputs).dim() == 0) continue;
    const std::pair<const char*, TensorFunction> uses[] = {
        {"transposed", [&](const Inputs& x) { return transpose(row.f(x), 0, -1); }},
        {"with a step",
         [&](const Inputs& x) {
           const Tensor y = row.f(x);
           return stack({y, zeros_like(y)}, -1);
         }},
        {"expanded", [&](const Inputs& x) { return sum(row.f(x), {0}); }},
    };
    for (const auto& use : uses) {
      CAPTURE(use.first);
      check_both(use.second, inputs);
    }
  }
}

TEST_CASE("one tensor in several slots") {
  const Tensor x = uniform({3, 3}, 0.5, 2).requires_grad_();
  const std::pair<const char*, TensorFunction> functions[] = {
      {"add", [](const Inputs& i) { return i[0] + i[0]; }},
      {"sub", [](const Inputs& i) { return i[0] - i[0].transpose(0, 1); }},
      {"mul", [](const Inputs& i) { return i[0] * i[0]; }},
      {"div", [](const Inputs& i) { return i[0] / i[0].transpose(0, 1); }},
      {"pow", [](const Inputs& i) { return pow(i[0], i[0]); }},
      {"maximum", [](const Inputs& i) { return maximum(i[0], i[0].transpose(0, 1) * 1.1); }},
      {"matmul", [](const Inputs& i) { return matmul(i[0], i[0]); }},
      {"linear", [](const Inputs& i) { return linear(i[0], i[0], i[0].select(0, 1)); }},
      {"layer_norm", [](const Inputs& i) { return layer_norm(i[0], i[0].select(1, 0), i[0].select(0, 2)); }},
      {"where", [](const Inputs& i) { return where(i[0] > 1, i[0] * 2, i[0]); }},
      {"cat",
       [](const Inputs& i) {
         return cat({i[0], i[0], i[0] * i[0]}, 1);
       }},
      {"scatter_add",
       [](const Inputs& i) {
         return scatter_add(i[0], 0, tensor({{0, 0, 1}}), i[0]);
       }},
      {"attention",
       [](const Inputs& i) {
         const Tensor& q = i[0];
         return matmul(softmax(matmul(q, q.transpose(-2, -1)) / std::sqrt(3.0), -1), q);
       }},
      {"masked attention",
       [](const Inputs& i) {
         const Tensor& q = i[0];
         const Tensor mask = tril(ones({3, 3})) - eye(3) > 0;
         return matmul(masked_softmax(matmul(q, q.transpose(-2, -1)), mask), q);
       }},
      {"reuse",
       [](const Inputs& i) {
         const Tensor h = tanh(i[0]);
         return h * h + exp(h) * i[0];
       }},
  };
  for (const auto& function : functions) {
    CAPTURE(function.first);
    check_both(function.second, {x});
  }
}
