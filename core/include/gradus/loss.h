#pragma once
#include <gradus/tensor.h>

#include <cstdint>

namespace gradus {

/// What a loss makes of its elements.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // g++ holds a scoped enumerator against gradus::None
enum class Reduction { Mean, Sum, None };
#pragma GCC diagnostic pop

/// (x - y)², reduced : dx = 2(x - y)·G (/n for Mean). Error unless the shapes are equal.
GRADUS_API Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this target count for nothing
  double label_smoothing = 0;        ///< ε in [0, 1]: the target is (1-ε)·one-hot + ε/classes
  Tensor weight{};                   ///< [classes]: a weight for each class; Mean divides by the targets' weights
  Reduction reduction = Reduction::Mean;
};
/// -log softmax(logits)[target] over rows: logits [N, classes] (or [classes]), target Int64 [N] (or []).
/// dlogits = scale·(softmax - target distribution). The mean over no counted target is 0 with gradient 0.
/// Error where a target is neither ignore_index nor in [0, classes). (torch.nn.functional.cross_entropy)
GRADUS_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

}  // namespace gradus
