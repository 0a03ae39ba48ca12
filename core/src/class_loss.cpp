// The losses whose targets are classes.
#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>
#include <gradus/softmax.h>

#include "losses.h"

namespace gradus {

using detail::packed;
using detail::pointer_or_null;
using detail::weighted;

namespace {

/// Scores with the classes in their last dim, and a target for each row of them.
struct ClassRows {
  Tensor scores;             // [rows, classes]
  Tensor targets;            // [rows], Int64 and row-major
  Tensor weight;             // [classes] or undefined: a constant
  std::int64_t counted = 0;  // how many rows are not ignored
  double total = 0;          // the sum of their weights
};

Tensor class_weight(const Tensor& weight, const Tensor& scores, std::int64_t classes, const char* op) {
  if (!weight.defined()) return weight;
  check(weight.dim() == 1 && weight.size(0) == classes, op, "the class weight must be [", classes, "], got ", weight);
  return packed(to(weight.detach(), scores.dtype()));
}

/// x [classes], [N, classes] or [N, classes, d1, …] as [rows, classes].
Tensor rows_of_scores(const Tensor& x, std::int64_t classes) {
  if (x.dim() == 2) return x;
  Shape order;
  for (int i = 0; i < x.dim(); ++i)
    if (i != 1) order.push_back(i);
  if (x.dim() > 1) order.push_back(1);
  return reshape(x.dim() > 1 ? permute(x, order) : x, {x.numel() / classes, classes});
}

ClassRows class_rows(const Tensor& x, const Tensor& target, const Tensor& weight, std::int64_t ignore_index,
                     const char* op, const char* what) {
  check(target.dtype() == Int64, op, "targets must be Int64, got ", target.dtype(), " ", target);
  const std::int64_t class_dim = x.dim() > 1 ? 1 : 0;
  Shape places = x.shape();
  if (x.dim() > 0) places.erase(static_cast<int>(class_dim));
  check(x.dim() > 0 && target.shape() == places, op, "needs ", what, " [N, classes, ...] and targets [N, ...], got ", x,
        " and ", target, "; the classes stand in dim 1, bring them there with transpose(1, -1)");
  const std::int64_t classes = x.size(class_dim);
  check(classes > 0, op, "there are no classes in ", x);
  ClassRows rows{rows_of_scores(x, classes), packed(reshape(target, {target.numel()})),
                 class_weight(weight, x, classes, op)};
  const std::int64_t* t = rows.targets.data<std::int64_t>();
  const std::vector<double> weights = rows.weight.defined() ? rows.weight.to_vector<double>() : std::vector<double>();
  for (std::int64_t i = 0; i < rows.targets.numel(); ++i) {
    if (t[i] == ignore_index) continue;
    check(t[i] >= 0 && t[i] < classes, op, "target ", t[i], " at position ", i, " is outside the ", classes,
          " classes of ", x, "; ignore_index is ", ignore_index);
    ++rows.counted;
    rows.total += weights.empty() ? 1 : weights[static_cast<std::size_t>(t[i])];
  }
  return rows;
}

/// What a reduction makes of a loss a row; Mean divides by `total`, or by nothing where nothing counts.
Tensor reduced(const Tensor& losses, const Shape& places, Reduction reduction, double total) {
  switch (reduction) {
    case Reduction::None:
      return reshape(losses, places);
    case Reduction::Sum:
      return sum(losses);
    case Reduction::BatchMean:
      total = places.empty() ? 1 : static_cast<double>(places[0]);
      break;
    case Reduction::Mean:
      break;
  }
  // Where no target counts the sum is 0, and so is the mean.
  return total == 0 ? sum(losses) : sum(losses) / total;
}

}  // namespace

// -w[t]·x[t] :  dx[t] = -w[t]·G
Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& options) {
  check_defined(input, "nll_loss", "the input");
  check_defined(target, "nll_loss", "the target");
  check_floating(input, "nll_loss");
  const auto [x, t, weight, counted, total] =
      class_rows(input, target, options.weight, options.ignore_index, "nll_loss", "log-probabilities");
  // Any class stands in for the ignored one; what it gives is not looked at. Nor is -inf where the weight is 0.
  Tensor ignored = t == options.ignore_index;
  const Tensor index = masked_fill(t, ignored, 0);
  Tensor losses = neg(squeeze(gather(x, 1, unsqueeze(index, 1)), 1));
  if (weight.defined()) {
    const Tensor w = index_select(weight, 0, index);
    losses = losses * w;
    ignored = logical_or(ignored, w == 0);
  }
  return reduced(masked_fill(losses, ignored, 0), target.shape(), options.reduction, total);
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

// loss[r] = Σⱼ q[r, j]·(lse[r] - x[r, j]) :  dx[r, j] = G[r]·(softmax(x)[r, j]·Σq[r] - q[r, j])
Tensor cross_entropy_rows(const Tensor& x, const Tensor& target, const RowTargets& t, const Tensor& weight) {
  const std::int64_t rows = x.size(0), classes = x.size(1);
  const Tensor logits = packed(x);
  Tensor loss = detail::make({rows}, x.dtype()), top_sum = detail::make({rows, 2}, Float64);
  kernels::cross_entropy(x.dtype(), rows, classes, detail::pointer(logits), target.data<std::int64_t>(), t.ignore_index,
                         t.smoothing, pointer_or_null(weight), detail::mutable_pointer(loss), top_sum.data<double>());
  const Tensor weight_or_ones = weight.defined() ? weight : ones({classes}, {.dtype = x.dtype()});
  return record(
      "cross_entropy", loss,
      wrt(x, saving(x, target, top_sum, weight_or_ones),
          [t, rows, classes](const Tensor& g, const Tensor& X, const Tensor& T, const Tensor& L, const Tensor& W) {
            if (!grad_enabled()) {
              const Tensor input = packed(X), scale = packed(g);
              Tensor dx = detail::make(X.shape(), X.dtype());
              kernels::cross_entropy_backward(X.dtype(), rows, classes, detail::pointer(input), T.data<std::int64_t>(),
                                              t.ignore_index, t.smoothing, detail::pointer(W), L.data<double>(),
                                              detail::pointer(scale), detail::mutable_pointer(dx));
              return dx;
            }
            const Tensor q = target_distribution(T, classes, t, W, X.dtype());
            // An ignored row may hold NaN: it is filled, not multiplied away.
            return masked_fill(unsqueeze(g, 1) * (softmax(X, -1) * sum(q, {1}, true) - q),
                               ignored_rows(T, t.ignore_index), 0);
          }));
}

// -Σ w·q·log softmax(x) over the classes
Tensor cross_entropy_of_distributions(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options) {
  check(x.dim() > 0, "cross_entropy", "needs logits [N, classes, ...], got ", x);
  check(options.ignore_index < 0, "cross_entropy", "ignore_index ", options.ignore_index,
        " has no meaning for targets that are distributions");
  const std::int64_t dim = x.dim() > 1 ? 1 : 0, classes = x.size(dim);
  check(classes > 0, "cross_entropy", "there are no classes in ", x);
  Tensor q = to(target, x.dtype());
  if (options.label_smoothing != 0)
    q = q * (1 - options.label_smoothing) + options.label_smoothing / static_cast<double>(classes);
  if (const Tensor weight = class_weight(options.weight, x, classes, "cross_entropy"); weight.defined()) {
    Shape along = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(x.dim() - dim), 1));
    along[0] = classes;
    q = q * reshape(weight, along);
  }
  const Tensor losses = neg(sum(weighted(q, log_softmax(x, dim)), {dim}));
  return reduced(losses, losses.shape(), options.reduction, static_cast<double>(losses.numel()));
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  check_defined(logits, "cross_entropy", "the logits");
  check_defined(target, "cross_entropy", "the target");
  check_floating(logits, "cross_entropy");
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, "cross_entropy",
        "label_smoothing must be in [0, 1], got ", options.label_smoothing);
  if (is_floating(target.dtype()) && target.shape() == logits.shape())
    return cross_entropy_of_distributions(logits, target, options);
  const ClassRows rows = class_rows(logits, target, options.weight, options.ignore_index, "cross_entropy", "logits");
  const Tensor losses =
      cross_entropy_rows(rows.scores, rows.targets, {options.ignore_index, options.label_smoothing}, rows.weight);
  return reduced(losses, target.shape(), options.reduction, rows.counted == 0 ? 0 : rows.total);
}

}  // namespace gradus
