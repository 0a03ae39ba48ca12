#pragma once
// Attention as one op that holds no weights, or only those of few keys.
#include <gradus/attention.h>

#include <cstdint>

#include "internal.h"

namespace gradus::detail {

/// What attention is told besides its tensors: numbers only.
struct AttentionNumbers {
  double scale;
  bool is_causal;
  std::int64_t causal_offset;
  kernels::DropoutField field;  // of the weights; none where p = 0
};

/// scaled_dot_product_attention with its history. All of q, k and v have one float dtype, the same leading dims and no
/// size 0; the mask (undefined, Bool, or of that dtype and without history) broadcasts to [..., Lq, Lk]. Undefined
/// where the result holds NaN or inf: those may come from hidden keys, which only the composed form skips.
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const AttentionNumbers& numbers);

}  // namespace gradus::detail
