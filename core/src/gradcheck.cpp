#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/gradcheck.h>
#include <gradus/layout.h>
#include <gradus/random.h>
#include <gradus/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>

#include "internal.h"

namespace gradus {

namespace {

struct Tolerances {
  double atol, rtol;
};

Tolerances tolerances(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options,
                      const char* caller) {
  check(static_cast<bool>(f), caller, "the function is empty");
  check(options.eps > 0 && std::isfinite(options.eps), caller, "eps must be a positive number, got ", options.eps);
  for (const auto& tolerance : {options.atol, options.rtol})
    check(!tolerance || *tolerance >= 0, caller, "tolerances must not be negative, got ", tolerance.value_or(0));
  bool any = false;
  for (const Tensor& input : inputs) {
    check_defined(input, caller, "an input");
    if (!input.requires_grad()) continue;
    any = true;
    check(input.dtype() == Float64 || (options.atol && options.rtol), caller, "input ", input, " is ", input.dtype(),
          ", whose rounding hides errors below the step of the difference; use Float64, or give atol and rtol");
  }
  check(any, caller, "no input requires grad");
  return {options.atol.value_or(1e-7), options.rtol.value_or(1e-5)};
}

void check_result(const Tensor& y, const char* caller) {
  check_defined(y, caller, "what the function returned");
  check(is_floating(y.dtype()), caller, "the function returned ", y.dtype(), " ", y,
        "; only Float32 and Float64 have gradients");
}

/// The inputs, each one that requires a gradient as a leaf of its own on the same memory: the same tensor in two slots,
/// or a view beside what it views, then has a gradient for each.
std::vector<Tensor> own_leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves = inputs;
  for (Tensor& leaf : leaves)
    if (leaf.requires_grad()) leaf = leaf.detach().requires_grad_().set_name(leaf.name());
  return leaves;
}

/// The function's result without history; the function itself may take gradients.
Tensor value_of(const TensorFunction& f, const std::vector<Tensor>& inputs, const char* caller) {
  const EnableGradGuard guard;
  const Tensor y = f(own_leaves(inputs));
  check_result(y, caller);
  return y.detach();
}

/// A fixed direction of y's shape, away from 0, so that no part of y goes unseen.
Tensor direction_like(const Tensor& y, std::uint64_t seed) {
  Generator generator(seed);
  return rand(y.shape(), {.dtype = y.dtype()}, &generator) + 0.5;
}

double project(const TensorFunction& f, const std::vector<Tensor>& inputs, const Tensor& direction,
               const char* caller) {
  const Tensor y = value_of(f, inputs, caller);
  check(y.shape() == direction.shape(), caller, "the function returned ", direction.shape(), " at first and ", y,
        " later; it must be one function of its arguments");
  return sum(to(y, direction.dtype()) * direction).item();
}

std::vector<Tensor> analytic_gradients(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                       const std::vector<Tensor>& leaves, const Tensor& direction, bool create_graph,
                                       const char* caller) {
  const EnableGradGuard guard;
  const Tensor y = f(leaves);
  check_result(y, caller);
  check(y.shape() == direction.shape(), caller, "the function returned ", direction.shape(), " at first and ", y,
        " later; it must be one function of its arguments");
  std::vector<Tensor> wanted, originals;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    wanted.push_back(leaves[i]);
    originals.push_back(inputs[i]);
  }
  std::vector<Tensor> gradients(wanted.size());
  if (y.requires_grad()) {
    const std::vector<Tensor> upstream = {to(direction, y.dtype())};
    const auto captured = grad({y}, originals, upstream, {.retain_graph = true, .allow_unused = true});
    for (std::size_t i = 0; i < captured.size(); ++i) {
      check(!captured[i].defined(), caller, "the function uses the tensor ", originals[i],
            " itself, by capture; it must use the argument in its place, which is what the check moves");
    }
    gradients = grad({y}, wanted, upstream, {.create_graph = create_graph, .allow_unused = true});
  }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = zeros_like(wanted[i]);
  return gradients;
}

Shape unflatten(std::int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int i = shape.size() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index;
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", number);
  return text;
}

double relative_error(const GradcheckResult& result) {
  return std::abs(result.analytic - result.numeric) / std::abs(result.numeric);
}

/// "at [1, 0]: analytic 2, numeric 3, relative error 0.333333"
std::string numbers_of(const GradcheckResult& result, const char* against) {
  return "at " + result.index.str() + ": analytic " + number_text(result.analytic) + ", " + against + " " +
         number_text(result.numeric) + ", relative error " +
         detail::number_text(result.analytic == result.numeric ? 0 : relative_error(result));
}

/// How far two gradients of one element are apart: above 1 fails.
double error_of(double analytic, double numeric, const Tolerances& t) {
  const double error = std::abs(analytic - numeric) / (t.atol + t.rtol * std::abs(numeric));
  if (analytic == numeric || (std::isnan(analytic) && std::isnan(numeric))) return 0;
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

/// Makes this element the worst one.
void take(GradcheckResult& result, std::size_t input, const Tensor& x, const Shape& index, double analytic,
          double numeric, double error, const char* against) {
  result = {.ok = error <= 1,
            .elements = result.elements,
            .input = input,
            .name = x.name(),
            .index = index,
            .analytic = analytic,
            .numeric = numeric,
            .error = error,
            .what = {}};
  if (!result.ok)
    result.what = "input " + std::to_string(input) + " " + detail::describe(x) + " " + numbers_of(result, against);
}

}  // namespace

std::ostream& operator<<(std::ostream& os, const GradcheckResult& result) {
  if (!result.ok) return os << "wrong gradient: " << result.what;
  if (result.elements == 0) return os << "ok, of no elements";
  os << "ok, of " << result.elements << " elements the worst is input " << result.input << " ";
  if (!result.name.empty()) os << "'" << result.name << "' ";
  return os << numbers_of(result, "numeric");
}

namespace {

GradcheckResult check_gradients(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                const GradcheckOptions& options, const char* caller) {
  const Tolerances t = tolerances(f, inputs, options, caller);
  const std::vector<Tensor> leaves = own_leaves(inputs);
  const Tensor direction = direction_like(value_of(f, inputs, caller), 20240607);
  const auto gradients = analytic_gradients(f, inputs, leaves, direction, false, caller);
  const auto recorded = analytic_gradients(f, inputs, leaves, direction, true, caller);

  GradcheckResult result;
  std::size_t wanted = 0;
  for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
    if (!inputs[slot].requires_grad()) continue;
    const std::vector<double> plain = gradients[wanted].to_vector<double>(),
                              graph = recorded[wanted].to_vector<double>();
    ++wanted;
    // The differences move one element at a time of a copy, so that views and expanded inputs are checked too.
    std::vector<Tensor> moved = leaves;
    const Tensor copy = inputs[slot].detach().clone().requires_grad_();
    moved[slot] = copy;
    for (std::int64_t i = 0; i < copy.numel(); ++i) {
      const Shape index = unflatten(i, copy.shape());
      const auto shifted = [&](double by) {
        const bool wide = copy.dtype() == Float64;
        const double before = wide ? copy.at<double>(index) : double{copy.at<float>(index)};
        const auto set = [&](double value) {
          if (wide) {
            copy.at<double>(index) = value;
          } else {
            copy.at<float>(index) = static_cast<float>(value);
          }
        };
        set(before + by);
        const double projected = project(f, moved, direction, caller);
        set(before);
        return projected;
      };
      const double numeric = (shifted(options.eps) - shifted(-options.eps)) / (2 * options.eps);
      const auto at = static_cast<std::size_t>(i);
      const double error = error_of(plain[at], numeric, t);
      if (result.elements++ == 0 || error > result.error)
        take(result, slot, inputs[slot], index, plain[at], numeric, error, "numeric");
      const double apart = error_of(graph[at], plain[at], {1e-3 * t.atol, 1e-3 * t.rtol});
      if (apart > 1 && apart > result.error)
        take(result, slot, inputs[slot], index, graph[at], plain[at], apart, "without create_graph");
    }
  }
  return result;
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  return check_gradients(f, inputs, options, "gradcheck");
}

GradcheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options) {
  tolerances(f, inputs, options, "gradgradcheck");
  const Tensor y = value_of(f, inputs, "gradgradcheck");

  // The gradient of <v, f(x)> as a function of x and of v, its parts in one row.
  const TensorFunction gradient = [&f](const std::vector<Tensor>& all) {
    const EnableGradGuard guard;
    const std::vector<Tensor> x(all.begin(), all.end() - 1);
    std::vector<Tensor> leaves;
    for (const Tensor& input : x)
      if (input.requires_grad()) leaves.push_back(input);
    const Tensor value = f(x);
    check_result(value, "gradgradcheck");
    std::vector<Tensor> parts(leaves.size());
    if (value.requires_grad())
      parts = grad({value}, leaves, {all.back()}, {.create_graph = true, .allow_unused = true});
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i] = reshape(parts[i].defined() ? parts[i] : zeros_like(leaves[i]), {-1});
    return cat(parts);
  };
  std::vector<Tensor> all = inputs;
  all.push_back(direction_like(y, 20250811).requires_grad_());
  return check_gradients(gradient, all, options, "gradgradcheck");
}

}  // namespace gradus
