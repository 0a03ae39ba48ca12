// First and second derivatives of every op against central differences, and the checks themselves.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "ops_table.h"
#include "throws.h"

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

TEST_CASE("third derivatives of the smooth ops") {
  const Tensor x = uniform({2, 2}, 0.5, 1.5).requires_grad_();
  const std::pair<const char*, Tensor (*)(const Tensor&)> functions[] = {
      {"exp", exp},
      {"log", log},
      {"sqrt", sqrt},
      {"rsqrt", rsqrt},
      {"reciprocal", reciprocal},
      {"sin", sin},
      {"cos", cos},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
      {"silu", silu},
      {"gelu", [](const Tensor& t) { return gelu(t); }},
      {"softmax", [](const Tensor& t) { return softmax(t, -1); }},
      {"layer_norm", [](const Tensor& t) { return layer_norm(t, {}, {}, 0.5); }}};
  for (const auto& function : functions) {
    CAPTURE(function.first);
    const auto f = function.second;
    const TensorFunction slope = [f](const Inputs& i) {
      const EnableGradGuard guard;
      const Tensor at = i[0].requires_grad() ? i[0] : i[0].detach().requires_grad_();
      return grad({f(at)}, {at}, {uniform({2, 2}, 0.5, 1.5, 9)}, {.create_graph = true})[0];
    };
    check_both(slope, {x});
  }
}

// ---- the checks themselves

namespace {

/// x² with a slope that is `factor` times too large at second sight: the formula is used in both orders.
Tensor crooked_square(const Tensor& x, double factor) {
  return record("crooked_square", square(x.detach()),
                wrt(x, saving(x), [factor](const Tensor& g, const Tensor& X) { return g * X * (2 * factor); }));
}

/// Right in the first order; its gradient leaves a factor out of the history.
Tensor forgetful_cube(const Tensor& x) {
  return record("forgetful_cube", pow(x.detach(), 3),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * X * X.detach() * 3; }));
}

/// Another gradient with create_graph than without.
Tensor two_faced(const Tensor& x) {
  return record("two_faced", x.detach() * 2,
                wrt(x, [](const Tensor& g) { return grad_enabled() ? g * 2.0001 : g * 2; }));
}

}  // namespace

TEST_CASE("gradcheck finds a formula that is one percent off, and says where") {
  const Tensor x = leaf({{0.5, 1}, {-3, 2}});
  CHECK(gradcheck([](const Inputs& i) { return crooked_square(i[0], 1); }, {x}).ok);
  x.set_name("x");
  const auto result =
      gradcheck([](const Inputs& i) { return crooked_square(i[1], 1.01) + i[0]; }, {leaf({{1, 1}, {1, 1}}), x});
  CHECK_FALSE(result.ok);
  CHECK(result.input == 1);
  CHECK(result.name == "x");
  CHECK(result.index == Shape{1, 0});  // the steepest element is the worst one
  CHECK(result.analytic / result.numeric == doctest::Approx(1.01));
  CHECK(result.error > 100);
  CHECK(mentions(result.what, "input 1 'x' [2, 2] at [1, 0]: analytic -"));
  CHECK(mentions(result.what, "relative error 0.01"));
}

TEST_CASE("gradgradcheck finds what gradcheck cannot") {
  const Inputs inputs = {leaf({0.5, 1, -2})};
  const auto f = [](const Inputs& i) { return forgetful_cube(i[0]); };
  CHECK(gradcheck(f, inputs).ok);
  const auto result = gradgradcheck(f, inputs);
  CHECK_FALSE(result.ok);
  CHECK(result.analytic / result.numeric == doctest::Approx(0.5).epsilon(1e-3));
}

TEST_CASE("gradcheck compares create_graph on against off") {
  const auto result = gradcheck([](const Inputs& i) { return two_faced(i[0]); }, {leaf({1, 2})});
  CHECK_FALSE(result.ok);
  CHECK(mentions(result.what, "without create_graph"));
}

TEST_CASE("gradcheck finds a NaN, and an input that the gradient forgets") {
  CHECK_FALSE(gradcheck(
                  [](const Inputs& i) {
                    return record("nan", i[0].detach() * 2, wrt(i[0], [](const Tensor& g) { return g * nan_value; }));
                  },
                  {leaf({1, 2})})
                  .ok);
  CHECK_FALSE(gradcheck([](const Inputs& i) { return i[0] * i[1].detach(); }, {leaf({1, 2}), leaf({3, 4})}).ok);
}

TEST_CASE("gradcheck refuses what it cannot judge") {
  const auto f = [](const Inputs& i) { return square(i[0]); };
  const Tensor narrow = tensor({1.0, 2.0}, {.requires_grad = true});
  CHECK(
      error_of([&] { gradcheck(f, {narrow}); }) ==
      "gradcheck: input [2] is Float32, whose rounding hides errors below the step of the difference; use Float64, or "
      "give atol and rtol");
  CHECK(error_of([&] { gradgradcheck(f, {narrow}); }).starts_with("gradgradcheck: input [2] is Float32"));
  CHECK(gradcheck(f, {narrow}, {.eps = 1e-2, .atol = 1e-3, .rtol = 1e-3}).ok);
  CHECK(error_of([&] { gradcheck(f, {f64({1, 2})}); }) == "gradcheck: no input requires grad");
  CHECK(error_of([&] {
          gradcheck([](const Inputs& i) { return i[0] > 1; }, {leaf({1, 2})});
        }) == "gradcheck: needs Float32 or Float64, got Bool [2]; convert with to(Float32)");
}
