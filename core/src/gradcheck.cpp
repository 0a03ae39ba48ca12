#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/gradcheck.h>
#include <gradus/layout.h>
#include <gradus/random.h>
#include <gradus/reduce.h>

#include <algorithm>
#include <cmath>

#include "internal.h"

namespace gradus {

namespace {

struct Tolerances {
  double atol, rtol;
};

Tolerances tolerances(const std::vector<Tensor>& inputs, const GradcheckOptions& options, const char* caller) {
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

/// A fixed direction of y's shape, away from 0, so that no part of y goes unseen.
Tensor direction_like(const Tensor& y, std::uint64_t seed) {
  Generator generator(seed);
  return rand(y.shape(), {.dtype = y.dtype()}, &generator) + 0.5;
}

double project(const TensorFunction& f, const std::vector<Tensor>& inputs, const Tensor& direction) {
  const NoGradGuard guard;
  return sum(to(f(inputs), direction.dtype()) * direction).item();
}

std::vector<Tensor> analytic_gradients(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                       const std::vector<Tensor>& wanted, const Tensor& direction, bool create_graph) {
  const EnableGradGuard guard;
  const Tensor y = f(inputs);
  std::vector<Tensor> gradients(wanted.size());
  if (y.requires_grad())
    gradients = grad({y}, wanted, {direction}, {.create_graph = create_graph, .allow_unused = true});
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

/// Keeps the worst element in `result`.
void compare(GradcheckResult& result, std::size_t input, const Tensor& x, std::int64_t flat, double analytic,
             double numeric, const Tolerances& t, const char* against) {
  double error = std::abs(analytic - numeric) / (t.atol + t.rtol * std::abs(numeric));
  if (std::isnan(error))
    error = std::isnan(analytic) && std::isnan(numeric) ? 0 : std::numeric_limits<double>::infinity();
  if (error <= result.error) return;
  const Shape index = unflatten(flat, x.shape());
  result = {.ok = error <= 1,
            .input = input,
            .name = x.name(),
            .index = index,
            .analytic = analytic,
            .numeric = numeric,
            .error = error,
            .what = {}};
  if (!result.ok) {
    result.what = "input " + std::to_string(input) + " " + detail::describe(x) + " at " + index.str() + ": analytic " +
                  detail::number_text(analytic) + ", " + against + " " + detail::number_text(numeric) +
                  ", relative error " + detail::number_text(std::abs(analytic - numeric) / std::abs(numeric));
  }
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  const Tolerances t = tolerances(inputs, options, "gradcheck");
  Tensor y;
  {
    const NoGradGuard guard;
    y = f(inputs);
  }
  check_floating(y, "gradcheck");
  const Tensor direction = direction_like(y, 20240607);
  std::vector<Tensor> wanted;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    wanted.push_back(inputs[i]);
    which.push_back(i);
  }
  const auto gradients = analytic_gradients(f, inputs, wanted, direction, false);
  const auto recorded = analytic_gradients(f, inputs, wanted, direction, true);

  GradcheckResult result;
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    const std::vector<double> plain = gradients[w].to_vector<double>(), graph = recorded[w].to_vector<double>();
    // The differences move one element at a time of a copy, so that views and expanded inputs are checked too.
    std::vector<Tensor> moved = inputs;
    Tensor copy = inputs[which[w]].detach().clone();
    moved[which[w]] = copy;
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
        const double projected = project(f, moved, direction);
        set(before);
        return projected;
      };
      const double numeric = (shifted(options.eps) - shifted(-options.eps)) / (2 * options.eps);
      const auto at = static_cast<std::size_t>(i);
      compare(result, which[w], inputs[which[w]], i, plain[at], numeric, t, "numeric");
      compare(result, which[w], inputs[which[w]], i, graph[at], plain[at], {1e-3 * t.atol, 1e-3 * t.rtol},
              "without create_graph");
    }
  }
  return result;
}

GradcheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options) {
  tolerances(inputs, options, "gradgradcheck");
  Tensor y;
  {
    const NoGradGuard guard;
    y = f(inputs);
  }
  check_floating(y, "gradgradcheck");
  std::vector<bool> wanted;
  for (const Tensor& input : inputs) wanted.push_back(input.requires_grad());

  // The gradient of <v, f(x)> as a function of x and of v, its parts in one row.
  const TensorFunction gradient = [&f, wanted](const std::vector<Tensor>& all) {
    const EnableGradGuard guard;
    std::vector<Tensor> x(all.begin(), all.end() - 1), leaves;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!wanted[i]) continue;
      // Where the caller moves a plain copy, it is made a leaf here.
      if (!x[i].requires_grad()) x[i] = x[i].detach().requires_grad_();
      leaves.push_back(x[i]);
    }
    const Tensor value = f(x);
    std::vector<Tensor> parts(leaves.size());
    if (value.requires_grad())
      parts = grad({value}, leaves, {all.back()}, {.create_graph = true, .allow_unused = true});
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i] = reshape(parts[i].defined() ? parts[i] : zeros_like(leaves[i]), {-1});
    return cat(parts);
  };
  std::vector<Tensor> all = inputs;
  all.push_back(direction_like(y, 20250811).requires_grad_());
  return gradcheck(gradient, all, options);
}

}  // namespace gradus
