#pragma once
// Masks say what may be seen: true = may attend. They combine with &&: `padding_mask(tgt, pad) && subsequent_mask(n)`.
#include <gradus/tensor.h>

namespace gradus::nn {

/// Bool [1, n, n]: position i may attend to positions 0 … i. Error for n < 0.
GRADUS_API Tensor subsequent_mask(std::int64_t n);
/// Bool [B, 1, L] for tokens Int64 [B, L]: true where the token is not `pad`. Error for another rank. It hides padding
/// from all queries, but not what padding itself asks for: where that may be NaN, hide both with
/// `mask && mask.transpose(1, 2)`.
GRADUS_API Tensor padding_mask(const Tensor& tokens, std::int64_t pad);

}  // namespace gradus::nn
