// The losses that compare element by element.
#include <gradus/elementwise.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include <limits>

#include "losses.h"

namespace gradus {

namespace detail {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::Mean:
      return mean(losses);
    case Reduction::Sum:
      return sum(losses);
    case Reduction::BatchMean:
      return losses.dim() == 0 ? losses : sum(losses) / losses.size(0);
    case Reduction::None:
      break;
  }
  return losses;
}

// y = q·v, 0 where q = 0 :  dq = G·v,  dv = q·G
Tensor weighted(const Tensor& q, const Tensor& v) {
  const auto product = [&] {
    const NoGradGuard guard;
    return where(q == 0, 0, q * v);
  };
  return record("weighted", product(),
                wrt(q, saving(v), [](const Tensor& g, const Tensor& V) { return weighted(g, V); }),
                wrt(v, saving(q), [](const Tensor& g, const Tensor& Q) { return weighted(Q, g); }));
}

}  // namespace detail

using detail::reduced;
using detail::weighted;

namespace {

void check_pair(const Tensor& input, const Tensor& target, const char* op) {
  check_defined(input, op, "the input");
  check_defined(target, op, "the target");
  check(input.shape() == target.shape(), op, "shapes differ: input is ", input, ", target is ", target,
        "; a silent broadcast would compare every row with every other");
}

}  // namespace

// (x - y)², reduced
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_pair(input, target, "mse_loss");
  return reduced(square(input - target), reduction);
}

// t·(log t - x), reduced. Where the probability is 0 another stands in for it, and what comes of that is not looked at.
Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
  check_pair(input, target, "kl_div");
  check_floating(input, "kl_div");
  check_floating(target, "kl_div");
  const Tensor none = target == (options.log_target ? -std::numeric_limits<double>::infinity() : 0.0);
  const Tensor t = masked_fill(target, none, 1);
  const Tensor terms = options.log_target ? exp(t) * (t - input) : t * (log(t) - input);
  return reduced(masked_fill(terms, none, 0), options.reduction);
}

// w·(p·t·log(1 + e⁻ˣ) + (1 - t)·log(1 + eˣ)), reduced
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr const char* op = "binary_cross_entropy_with_logits";
  check_pair(input, target, op);
  check_floating(input, op);
  const auto factor = [&](const Tensor& weight, const char* what) {
    check(detail::broadcasts_to(weight.shape(), input.shape()), op, what, " ", weight, " does not broadcast to ",
          input);
    return to(weight.detach(), input.dtype());
  };
  const Tensor t = to(target, input.dtype());
  const Tensor positive = options.pos_weight.defined() ? t * factor(options.pos_weight, "the pos_weight") : t;
  const Tensor losses = weighted(positive, softplus(-input)) + weighted(1 - t, softplus(input));
  return reduced(options.weight.defined() ? losses * factor(options.weight, "the weight") : losses, options.reduction);
}

}  // namespace gradus
