#pragma once
// Masks say what may be seen: true = may attend. They combine with &&: `padding_mask(tgt, pad) && subsequent_mask(n)`.
#include <gradus/tensor.h>

namespace gradus::nn {

/// Bool [1, n, n]: position i may attend to positions 0 … i. Error for n < 0.
GRADUS_API Tensor subsequent_mask(std::int64_t n);
/// Bool [B, 1, L] for tokens Int64 [B, L]: true where the token is not `pad`. Error for another rank.
GRADUS_API Tensor padding_mask(const Tensor& tokens, std::int64_t pad);

}  // namespace gradus::nn
