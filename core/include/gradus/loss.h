#pragma once
#include <gradus/tensor.h>

#include <cstdint>

namespace gradus {

/// What a loss makes of its elements; BatchMean is Σ/input.size(0).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // g++ holds a scoped enumerator against gradus::None
enum class Reduction { Mean, Sum, None, BatchMean };
#pragma GCC diagnostic pop

/// (x - y)², reduced : dx = 2(x - y)·G (/n for Mean). Error unless the shapes are equal.
GRADUS_API Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);

struct NllLossOptions {
  std::int64_t ignore_index = -100;  ///< places with this target count for nothing
  Tensor weight{};                   ///< [classes]: a weight for each class; Mean divides by the targets' weights
  Reduction reduction = Reduction::Mean;
};
/// -w[target]·input[target], reduced, of log-probabilities: input [classes], [N, classes] or [N, classes, d1, …],
/// target Int64 of the shape without the classes (which is the result's for None) : dinput = -w·G at the target, else
/// 0. The mean over no counted target, or over targets without weight, is the sum. Error where a target is neither
/// ignore_index nor in [0, classes). (torch.nn.functional.nll_loss)
GRADUS_API Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& options = {});

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this target count for nothing; their class stays in the softmax
  double label_smoothing = 0;        ///< ε in [0, 1]: the target is (1-ε)·target + ε/classes
  Tensor weight{};                   ///< [classes]: a weight for each class; Mean divides by the targets' weights
  Reduction reduction = Reduction::Mean;
};
/// -log softmax(logits)[target], reduced: logits [classes], [N, classes] or [N, classes, d1, …], target Int64 of the
/// shape without the classes. Or the target is a distribution over the classes, of the logits' shape and a float dtype:
/// then the loss is -Σ w·q·log softmax(logits), Mean divides by the number of distributions, whatever the weights are,
/// and an ignore_index of 0 or more is refused. A probability of 0 beside a logit of -inf counts as 0. dlogits =
/// scale·(softmax·Σwq
/// - wq), dq = -scale·w·log softmax. The mean over no counted target is 0 with gradient 0; where the weights of the
/// counted ones sum to 0 it is the sum. Error where a target is neither ignore_index nor in [0, classes).
/// (torch.nn.functional.cross_entropy)
GRADUS_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

struct KlDivOptions {
  Reduction reduction = Reduction::Mean;  ///< BatchMean is the divergence of the batch's distributions
  bool log_target = false;                ///< the target holds log-probabilities, too
};
/// t·(log t - x), reduced, for log-probabilities x and probabilities t of one shape : dx = -t·G, dt = (log t + 1 -
/// x)·G. With log_target eᵗ·(t - x) : dx = -eᵗ·G, dt = eᵗ·(t - x + 1)·G. Where the probability is 0 the term is 0,
/// whatever x is, and so are both gradients. (torch.nn.functional.kl_div)
GRADUS_API Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options = {});

struct BinaryCrossEntropyOptions {
  Tensor weight{};      ///< broadcast to the input: a factor for each element
  Tensor pos_weight{};  ///< broadcast to the input: a factor for the positive part alone
  Reduction reduction = Reduction::Mean;
};
/// w·(-p·t·log σ(x) - (1 - t)·log(1 - σ(x))), reduced, for logits x and targets t of one shape
/// : dx = w·((1 - t)·σ(x) - p·t·σ(-x))·G, dt = w·(log(1 - σ(x)) - p·log σ(x))·G. The weights are constants. Accurate in
/// both tails. (torch.nn.functional.binary_cross_entropy_with_logits)
GRADUS_API Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                                   const BinaryCrossEntropyOptions& options = {});

}  // namespace gradus
