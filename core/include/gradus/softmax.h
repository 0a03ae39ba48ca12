#pragma once
#include <gradus/tensor.h>

namespace gradus {

/// y = eˣ/Σeˣ along dim, computed after subtracting the maximum : dx = y∘(G - Σ G∘y). Floats only.
/// A row of nothing but -inf is NaN, as in IEEE arithmetic; see masked_softmax for rows without any choice.
GRADUS_API Tensor softmax(const Tensor& x, std::int64_t dim);
/// y = x - log Σeˣ along dim : dx = G - eʸ·Σ G.
GRADUS_API Tensor log_softmax(const Tensor& x, std::int64_t dim);
/// softmax along the last dim over the places where `mask` (Bool, broadcast to x) is true; 0 elsewhere. A row that may
/// choose nothing is all 0 and sends exactly 0 back. x is never read as a number where the mask hides it: NaN there
/// does no harm. dx = y∘(G - Σ G∘y) where the mask is true, else 0.
GRADUS_API Tensor masked_softmax(const Tensor& x, const Tensor& mask);

}  // namespace gradus
