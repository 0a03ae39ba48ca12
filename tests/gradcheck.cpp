// gradcheck and gradgradcheck: what they find, what they refuse, and what they say. Third derivatives of the smooth
// ops.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <sstream>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

using Inputs = std::vector<Tensor>;

std::string text_of(const GradcheckResult& result) {
  std::ostringstream text;
  text << result;
  return text.str();
}

void check_both(const TensorFunction& f, const Inputs& inputs) {
  const auto first = gradcheck(f, inputs);
  CHECK_MESSAGE(first.ok, first);
  const auto second = gradgradcheck(f, inputs, {.atol = 1e-6, .rtol = 1e-4});
  CHECK_MESSAGE(second.ok, second);
  CHECK(first.elements > 0);
  CHECK(second.elements > first.elements);
}

/// The gradient of Σ v∘f, v fixed, with respect to every input, in one row: what gradgradcheck then takes to the third
/// order.
TensorFunction gradient_function(const TensorFunction& f) {
  return [f](const Inputs& given) {
    const EnableGradGuard guard;
    Inputs x = given;
    for (Tensor& t : x)
      if (!t.requires_grad()) t = t.detach().requires_grad_();
    const Tensor y = f(x);
    Inputs parts = grad({y}, x, {uniform(y.shape(), 0.5, 1.5, 9)}, {.create_graph = true});
    for (Tensor& part : parts) part = reshape(part, {-1});
    return cat(parts);
  };
}

/// x³ with a gradient of (3 + off)·x².
Tensor cube(const Tensor& x, double off) {
  return record("cube", pow(x.detach(), 3),
                wrt(x, saving(x), [off](const Tensor& g, const Tensor& X) { return g * X * X * (3 + off); }));
}

/// x³ with the right gradient, which hides from the tape that it depends on x twice.
Tensor forgetful_cube(const Tensor& x) {
  return record("forgetful_cube", pow(x.detach(), 3),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * X * X.detach() * 3; }));
}

/// x³ with a fused first-order gradient, and another one under create_graph.
Tensor two_faced_cube(const Tensor& x) {
  return record("two_faced_cube", pow(x.detach(), 3), wrt(x, saving(x), [](const Tensor& g, const Tensor& X) {
                  return grad_enabled() ? g * X * X * 3.00001 : g * square(X) * 3;
                }));
}

}  // namespace

TEST_CASE("third derivatives") {
  const std::pair<const char*, Tensor (*)(const Tensor&)> one[] = {
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
      {"gelu, tanh", [](const Tensor& t) { return gelu(t, GeluApproximation::Tanh); }},
      {"pow", [](const Tensor& t) { return pow(t, 3.5); }},
      {"pow of a number", [](const Tensor& t) { return pow(1.7, t); }},
      {"softmax", [](const Tensor& t) { return softmax(t, -1); }},
      {"log_softmax", [](const Tensor& t) { return log_softmax(t, 0); }},
      {"layer_norm", [](const Tensor& t) { return layer_norm(t, {}, {}, 0.5); }},
      {"cross_entropy", [](const Tensor& t) {
         return cross_entropy(t, tensor({1, 0}), {.label_smoothing = 0.2});
       }}};
  for (const auto& [name, f] : one) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const auto function = f;
    check_both(gradient_function([function](const Inputs& i) { return function(i[0]); }),
               {uniform({2, 3}, 0.5, 1.5).requires_grad_()});
  }
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> two[] = {
      {"matmul", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
      {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
      {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
      {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
      {"mse_loss", [](const Tensor& a, const Tensor& b) { return mse_loss(exp(a), b); }},
      {"layer_norm with a weight",
       [](const Tensor& a, const Tensor& b) { return layer_norm(a, b.select(0, 0), b.select(0, 1), 0.5); }}};
  for (const auto& [name, f] : two) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const auto function = f;
    check_both(gradient_function([function](const Inputs& i) { return function(i[0], i[1]); }),
               {uniform({2, 2}, 0.5, 1.5).requires_grad_(), uniform({2, 2}, 0.5, 1.5, 2).requires_grad_()});
  }
}

TEST_CASE("one tensor given in several slots: each counts on its own") {
  const Tensor x = uniform({3, 3}, 0.5, 1.5).requires_grad_().set_name("x");
  const auto product = [](const Inputs& i) { return i[0] * exp(i[1]); };
  check_both(product, {x, x});
  check_both([](const Inputs& i) { return matmul(i[0], i[1]); }, {x, x.transpose(0, 1)});
  check_both([](const Inputs& i) { return i[0] * i[1].select(0, 1); }, {x.narrow(0, 0, 2), x});
  const TensorFunction attend = [](const Inputs& i) { return nn::attention(i[0], i[1], i[2]).output; };
  check_both(attend, {x, x, x});
  // As one input in three slots: q = k = v.
  check_both([](const Inputs& i) { return nn::attention(i[0], i[0], i[0]).output; }, {x});
  check_both([](const Inputs& i) { return nn::attention(i[0], i[0], i[0], tril(ones({3, 3}))).output; }, {x});
  check_both([](const Inputs& i) { return softmax(i[0], -1) * softmax(i[0], 0) * i[0]; }, {x});
  check_both([](const Inputs& i) { return mse_loss(i[0], i[0].transpose(0, 1)); }, {x});
  check_both([](const Inputs& i) { return cross_entropy(matmul(i[0], i[0]), tensor({0, 2, 1})); }, {x});
  // A wrong second slot is told as such.
  const auto wrong = gradcheck([](const Inputs& i) { return i[0] + cube(i[1], 0.1); }, {x, x});
  CHECK_FALSE(wrong.ok);
  CHECK(wrong.input == 1);
  CHECK(wrong.name == "x");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a wrong gradient is caught by both, with name, place and numbers") {
  const Tensor x = leaf({{0.5, 1}, {-3, 2}}).set_name("weight");
  const Tensor other = leaf({{1, 1}, {1, 1}});
  const TensorFunction right = [](const Inputs& i) { return i[0] + cube(i[1], 0); };
  check_both(right, {other, x});
  const TensorFunction f = [](const Inputs& i) { return i[0] + cube(i[1], 0.03); };
  const auto first = gradcheck(f, {other, x});
  CHECK_FALSE(first.ok);
  CHECK_FALSE(static_cast<bool>(first));
  CHECK(first.input == 1);
  CHECK(first.name == "weight");
  CHECK(first.analytic / first.numeric == doctest::Approx(1.01));
  CHECK(first.error > 100);
  CHECK(first.elements == 8);
  CHECK(mentions(first.what, "input 1 'weight' [2, 2] at " + first.index.str() + ": analytic "));
  CHECK(mentions(first.what, ", numeric "));
  CHECK(mentions(first.what, ", relative error 0.01"));
  CHECK(text_of(first) == "wrong gradient: " + first.what);
  // Right in the first order and wrong in the second.
  const auto hidden = gradgradcheck([](const Inputs& i) { return forgetful_cube(i[0]); }, {x});
  CHECK(gradcheck([](const Inputs& i) { return forgetful_cube(i[0]); }, {x}).ok);
  CHECK_FALSE(hidden.ok);
  CHECK(hidden.name == "weight");
  CHECK(hidden.analytic / hidden.numeric == doctest::Approx(0.5).epsilon(1e-3));
}

TEST_CASE("a gradient that differs under create_graph is caught by both") {
  const TensorFunction f = [](const Inputs& i) { return two_faced_cube(i[0]); };
  const auto first = gradcheck(f, {leaf({1, 2})}, {.atol = 1e-4, .rtol = 1e-4});
  CHECK_FALSE(first.ok);
  CHECK(mentions(first.what, "without create_graph "));
  CHECK(mentions(first.what, "relative error 3.33"));
  CHECK_FALSE(gradcheck(f, {leaf({1, 2})}).ok);
  // The same one order up: x⁴/4, whose gradient is right and made with that cube.
  const TensorFunction up = [](const Inputs& i) {
    return record("quarter", pow(i[0].detach(), 4) / 4,
                  wrt(i[0], saving(i[0]), [](const Tensor& g, const Tensor& X) { return g * two_faced_cube(X); }));
  };
  CHECK(gradcheck(up, {leaf({1, 2})}).ok);
  const auto second = gradgradcheck(up, {leaf({1, 2})}, {.atol = 1e-4, .rtol = 1e-4});
  CHECK_FALSE(second.ok);
  CHECK(mentions(second.what, "without create_graph "));
}

TEST_CASE("what a result says when all is well") {
  const auto ok = gradcheck([](const Inputs& i) { return square(i[0]); }, {leaf({1, 2}).set_name("x")});
  CHECK(ok.ok);
  CHECK(ok.what.empty());
  CHECK(ok.elements == 2);
  CHECK(mentions(text_of(ok), "ok, of 2 elements the worst is input 0 'x' at ["));
  CHECK(mentions(text_of(ok), ", relative error "));
  const auto none = gradcheck([](const Inputs& i) { return square(i[0]); },
                              {zeros({0, 3}, {.dtype = Float64, .requires_grad = true})});
  CHECK(none.ok);
  CHECK(text_of(none) == "ok, of no elements");
}

TEST_CASE("gradcheck and gradgradcheck refuse what they cannot judge") {
  const Tensor x = leaf({1, 2});
  const TensorFunction square_of = [](const Inputs& i) { return square(i[0]); };
  const auto both = [](const TensorFunction& f, const Inputs& inputs, const std::string& text,
                       const GradcheckOptions& options = {}) {
    CHECK(error_of([&] { gradcheck(f, inputs, options); }) == "gradcheck: " + text);
    CHECK(error_of([&] { gradgradcheck(f, inputs, options); }) == "gradgradcheck: " + text);
  };
  both({}, {x}, "the function is empty");
  both([](const Inputs&) { return Tensor(); }, {x}, "what the function returned is an undefined tensor");
  both(
      [](const Inputs&) {
        return tensor({1, 2});
      },
      {x}, "the function returned Int64 [2]; only Float32 and Float64 have gradients");
  both([](const Inputs& i) { return i[0] > 1; }, {x},
       "the function returned Bool [2]; only Float32 and Float64 have gradients");
  both(square_of, {}, "no input requires grad");
  both(square_of, {f64({1, 2})}, "no input requires grad");
  both(square_of, {x, Tensor()}, "an input is an undefined tensor");
  both(square_of, {tensor({1.0, 2.0}, {.requires_grad = true})},
       "input [2] is Float32, whose rounding hides errors below the step of the difference; use Float64, or give atol "
       "and rtol");
  both(square_of, {x}, "eps must be a positive number, got 0", {.eps = 0});
  both(square_of, {x}, "tolerances must not be negative, got -1", {.rtol = -1});
  // It reads what cannot be moved.
  const Tensor named = leaf({1, 2}).set_name("captured");
  CHECK(mentions(error_of([&] { gradcheck([&](const Inputs&) { return square(named); }, {named}); }),
                 "gradcheck: the function uses the tensor 'captured' [2] itself, by capture"));
  CHECK(mentions(error_of([&] { gradgradcheck([&](const Inputs& i) { return i[0] * pow(named, 3); }, {named}); }),
                 "gradgradcheck: the function uses the tensor 'captured' [2] itself, by capture"));
  int calls = 0;
  CHECK(mentions(error_of([&] { gradcheck([&](const Inputs& i) { return ++calls > 3 ? sum(i[0]) : i[0]; }, {x}); }),
                 "it must be one function of its arguments"));
  // An exception of the function's own comes through, and nothing has changed.
  CHECK_THROWS_AS(gradcheck([](const Inputs&) -> Tensor { throw std::logic_error("mine"); }, {x}), std::logic_error);
  CHECK_FALSE(x.grad().defined());
  CHECK(grad_enabled());
}

TEST_CASE("what the function may return: any shape, a narrower float, an input itself, a constant") {
  const Tensor x = leaf({{1, 2}, {3, 4}});
  CHECK(gradcheck([](const Inputs& i) { return i[0]; }, {x}).ok);
  CHECK(gradgradcheck([](const Inputs& i) { return i[0]; }, {x}).ok);
  CHECK(gradcheck([](const Inputs&) { return f64({1, 2}); }, {x}).ok);
  CHECK(gradgradcheck([](const Inputs&) { return f64({1, 2}); }, {x}).ok);
  CHECK(gradcheck([](const Inputs& i) { return square(i[0]).reshape({2, 1, 2}); }, {x}).ok);
  CHECK(gradcheck([](const Inputs& i) { return square(i[0]).to(Float32); }, {x},
                  {.eps = 1e-2, .atol = 1e-3, .rtol = 1e-3})
            .ok);
  const Tensor narrow = tensor({1.0, 2.0}, {.requires_grad = true});
  CHECK(gradcheck([](const Inputs& i) { return exp(i[0]); }, {narrow}, {.eps = 1e-2, .atol = 1e-3, .rtol = 1e-2}).ok);
  CHECK(
      gradgradcheck([](const Inputs& i) { return exp(i[0]); }, {narrow}, {.eps = 1e-2, .atol = 1e-2, .rtol = 1e-2}).ok);
  // A constant that should not be one is caught, and so is a NaN.
  CHECK_FALSE(gradcheck([](const Inputs& i) { return square(i[0].detach()); }, {x}).ok);
  CHECK_FALSE(gradcheck([](const Inputs& i) { return i[0] * i[1].detach(); }, {x, leaf(3)}).ok);
  const auto nan = gradcheck(
      [](const Inputs& i) {
        return record("nan", i[0].detach() * 2, wrt(i[0], [](const Tensor& g) { return g * nan_value; }));
      },
      {x});
  CHECK_FALSE(nan.ok);
  CHECK(mentions(nan.what, "analytic nan, numeric "));
}

TEST_CASE("gradcheck follows functions that take gradients themselves") {
  const Tensor x = uniform({2, 3}, 0.5, 1.5).requires_grad_();
  const auto penalty = [](const Inputs& in) {
    const Tensor y = (in[0] * in[0] * in[0]).sum();
    return grad({y}, {in[0]}, {}, {.create_graph = true})[0].square().sum();
  };
  CHECK(gradcheck(penalty, {x}));
  CHECK(gradgradcheck(penalty, {x}));
}
