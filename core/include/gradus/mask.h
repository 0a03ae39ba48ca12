#pragma once
#include <gradus/tensor.h>

namespace gradus {

/// x with `value` where mask (Bool; the two broadcast) is true : dx = 0 there and G elsewhere, by selection (never a
/// product, so NaN and inf behind the mask do not spread). (torch.masked_fill)
GRADUS_API Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// The same with a 0-d tensor, which must fit x's dtype (a float beside integers is refused) : dvalue = Σ G where the
/// mask is true.
GRADUS_API Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// a where condition (Bool) is true, else b; all three broadcast : da = G where true, db = G where false, else exactly
/// 0.
GRADUS_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
GRADUS_API Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
GRADUS_API Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
/// x with zeros above (below) the given diagonal of the last two dims : dx = tril(G) (triu(G)).
GRADUS_API Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
GRADUS_API Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace gradus
