#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/loss.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>
#include <gradus/softmax.h>

#include "internal.h"

namespace gradus {

using detail::packed;

// (x - y)², reduced
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_defined(input, "mse_loss", "the input");
  check_defined(target, "mse_loss", "the target");
  check(input.shape() == target.shape(), "mse_loss", "shapes differ: input is ", input, ", target is ", target,
        "; a silent broadcast would compare every row with every other");
  const Tensor squares = square(input - target);
  switch (reduction) {
    case Reduction::Mean:
      return mean(squares);
    case Reduction::Sum:
      return sum(squares);
    case Reduction::None:
      break;
  }
  return squares;
}

namespace {

/// [rows, 1], true where a row counts for nothing.
Tensor ignored_rows(const Tensor& target, std::int64_t ignore_index) {
  const NoGradGuard guard;
  return unsqueeze(target == ignore_index, 1);
}

/// What a row of cross_entropy is compared with, beside the logits.
struct RowTargets {
  std::int64_t ignore_index;
  double smoothing;
};

/// q[r, j], the weighted target distribution of each counted row (0 for ignored ones): the loss of a row is Σ q·(lse -
/// x).
Tensor target_distribution(const Tensor& target, std::int64_t classes, const RowTargets& t, const Tensor& weight,
                           DType dtype) {
  const NoGradGuard guard;
  const Tensor one_hot = to(unsqueeze(target, 1) == arange(classes), dtype);
  Tensor q = one_hot * (1 - t.smoothing) + t.smoothing / static_cast<double>(classes);
  if (weight.defined()) q = q * weight;
  return masked_fill(q, ignored_rows(target, t.ignore_index), 0);
}

const void* pointer_or_null(const Tensor& x) { return x.defined() ? detail::pointer(x) : nullptr; }

// loss[r] = Σⱼ q[r, j]·(lse[r] - x[r, j]) :  dx[r, j] = G[r]·(softmax(x)[r, j]·Σq[r] - q[r, j])
Tensor cross_entropy_rows(const Tensor& x, const Tensor& target, const RowTargets& t, const Tensor& weight) {
  const std::int64_t rows = x.size(0), classes = x.size(1);
  const Tensor logits = packed(x);
  Tensor loss = detail::make({rows}, x.dtype()), lse = detail::make({rows}, x.dtype());
  kernels::cross_entropy(x.dtype(), rows, classes, detail::pointer(logits), target.data<std::int64_t>(), t.ignore_index,
                         t.smoothing, pointer_or_null(weight), detail::mutable_pointer(loss),
                         detail::mutable_pointer(lse));
  const Tensor weight_or_ones = weight.defined() ? weight : ones({classes}, {.dtype = x.dtype()});
  return record(
      "cross_entropy", loss,
      wrt(x, saving(x, target, lse, weight_or_ones),
          [t, rows, classes](const Tensor& g, const Tensor& X, const Tensor& T, const Tensor& L, const Tensor& W) {
            if (!grad_enabled()) {
              const Tensor input = packed(X), scale = packed(g);
              Tensor dx = detail::make(X.shape(), X.dtype());
              kernels::cross_entropy_backward(X.dtype(), rows, classes, detail::pointer(input), T.data<std::int64_t>(),
                                              t.ignore_index, t.smoothing, detail::pointer(W), detail::pointer(L),
                                              detail::pointer(scale), detail::mutable_pointer(dx));
              return dx;
            }
            const Tensor q = target_distribution(T, classes, t, W, X.dtype());
            // An ignored row may hold NaN: it is filled, not multiplied away.
            return masked_fill(unsqueeze(g, 1) * (softmax(X, -1) * sum(q, {1}, true) - q),
                               ignored_rows(T, t.ignore_index), 0);
          }));
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  check_defined(logits, "cross_entropy", "the logits");
  check_defined(target, "cross_entropy", "the target");
  check_floating(logits, "cross_entropy");
  if (logits.dim() == 1 && target.dim() == 0) {
    const Tensor loss = cross_entropy(unsqueeze(logits, 0), unsqueeze(target, 0), options);
    return options.reduction == Reduction::None ? squeeze(loss, 0) : loss;
  }
  check(logits.dim() == 2 && target.dim() == 1 && logits.size(0) == target.size(0), "cross_entropy",
        "needs logits [N, classes] and targets [N], got ", logits, " and ", target,
        "; flatten the leading dims with reshape({-1, classes}) and reshape({-1})");
  check(target.dtype() == Int64, "cross_entropy", "targets must be Int64, got ", target.dtype(), " ", target);
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  check(classes > 0, "cross_entropy", "there are no classes in ", logits);
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, "cross_entropy",
        "label_smoothing must be in [0, 1], got ", options.label_smoothing);
  Tensor weight = options.weight;
  if (weight.defined()) {
    check(weight.dim() == 1 && weight.size(0) == classes, "cross_entropy", "the class weight must be [", classes,
          "], got ", weight);
    weight = packed(to(weight.detach(), logits.dtype()));
  }
  const Tensor targets = packed(target);
  const std::int64_t* t = targets.data<std::int64_t>();
  double counted = 0;
  const std::vector<double> weights = weight.defined() ? weight.to_vector<double>() : std::vector<double>();
  for (std::int64_t i = 0; i < rows; ++i) {
    if (t[i] == options.ignore_index) continue;
    check(t[i] >= 0 && t[i] < classes, "cross_entropy", "target ", t[i], " at position ", i, " is outside the ",
          classes, " classes of ", logits, "; ignore_index is ", options.ignore_index);
    counted += weights.empty() ? 1 : weights[static_cast<std::size_t>(t[i])];
  }

  const Tensor losses = cross_entropy_rows(logits, targets, {options.ignore_index, options.label_smoothing}, weight);
  switch (options.reduction) {
    case Reduction::None:
      return losses;
    case Reduction::Sum:
      return sum(losses);
    case Reduction::Mean:
      break;
  }
  // Where no target counts the sum is 0, and so is the mean.
  return counted == 0 ? sum(losses) : sum(losses) / counted;
}

}  // namespace gradus
