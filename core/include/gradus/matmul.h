#pragma once
#include <gradus/tensor.h>

namespace gradus {

/// Y = A·B of the last two dims, the leading ones broadcast: [..., m, k]·[..., k, n] → [..., m, n]. A 1-d tensor stands
/// for a row on the left and a column on the right, and that dim is dropped again. Transposed and sliced views are
/// multiplied in place. dA = G·Bᵀ, dB = Aᵀ·G. Floats only. Error where the inner sizes differ. (torch.matmul)
GRADUS_API Tensor matmul(const Tensor& a, const Tensor& b);
/// matmul of [b, m, k] and [b, k, n], nothing broadcast. (torch.bmm)
GRADUS_API Tensor bmm(const Tensor& a, const Tensor& b);
/// y = x·Wᵀ + b for x [..., in], weight [out, in] and bias [out] (or none): dx = G·W, dW = Gᵀ·x, db = Σ G.
/// (torch.nn.functional.linear)
GRADUS_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace gradus
