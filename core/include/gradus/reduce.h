#pragma once
// Reductions over some dims (all of them where the list is empty). `keepdim` leaves the reduced dims with size 1.
// Sums are blocked and combined in double, in an order that no number of threads changes.
#include <gradus/tensor.h>

#include <concepts>
#include <optional>

namespace gradus {

/// Σ x : dx = G repeated. Bool and Int64 sum to Int64. Of no elements 0.
GRADUS_API Tensor sum(const Tensor& x);
GRADUS_API Tensor sum(const Tensor& x, const Shape& dims, bool keepdim = false);
/// Σ x / n : dx = G/n repeated. Floats only. Of no elements NaN.
GRADUS_API Tensor mean(const Tensor& x);
GRADUS_API Tensor mean(const Tensor& x, const Shape& dims, bool keepdim = false);
/// The variance Σ(x - mean)²/(n - correction) : dx = G·2(x - mean)/(n - correction). Floats only; taken in two passes
/// and in double, so equal elements give exactly 0. `correction` counts the degrees of freedom that the mean takes; a
/// bool is PyTorch's `unbiased` (true is 1). Where n ≤ correction the divisor is 0: of one element NaN, with NaN
/// gradients.
GRADUS_API Tensor var(const Tensor& x, const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false);
template <std::same_as<bool> B>
Tensor var(const Tensor& x, B unbiased) {
  return var(x, {}, unbiased ? 1 : 0);
}
/// The standard deviation √var : dx = G·(x - mean)/((n - correction)·std), and 0 where the deviation is 0, as in
/// PyTorch. After `using namespace gradus` the free function is called as gradus::std, since `std` alone is a namespace
/// too.
GRADUS_API Tensor std(const Tensor& x, const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false);
template <std::same_as<bool> B>
Tensor std(const Tensor& x, B unbiased) {
  return gradus::std(x, {}, unbiased ? 1 : 0);
}
/// log Σ eˣ, computed after subtracting the maximum : dx = G·eˣ/Σeˣ. Floats only. Rows of nothing but -inf (or of
/// nothing at all) give -inf, and the gradient 0. (torch.logsumexp)
GRADUS_API Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim = false);
/// y[i] = x[0] + … + x[i] along dim : dx[i] = G[i] + G[i+1] + …. Floats are summed in double; Bool and Int64 give
/// Int64.
GRADUS_API Tensor cumsum(const Tensor& x, std::int64_t dim);
/// The largest (smallest) element; NaN wins : the gradient is shared evenly among equals. Error for no elements.
GRADUS_API Tensor amax(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
GRADUS_API Tensor amin(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// The index of the largest element along dim (the first of equals), or in the flattened tensor: Int64, no gradient.
GRADUS_API Tensor argmax(const Tensor& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);
/// Values and their indices along one dim.
struct ValuesAndIndices {
  Tensor values, indices;
};
/// The largest (smallest) along dim and where the first of equals stands : the gradient goes to that one place.
GRADUS_API ValuesAndIndices max(const Tensor& x, std::int64_t dim, bool keepdim = false);
GRADUS_API ValuesAndIndices min(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// Of all elements, as amax and amin.
GRADUS_API Tensor max(const Tensor& x);
GRADUS_API Tensor min(const Tensor& x);
/// Whether any (every) element is true, as a C++ bool. Bool tensors only.
GRADUS_API bool any(const Tensor& x);
GRADUS_API bool all(const Tensor& x);
/// x summed over the dims along which `shape` broadcasts to it: the adjoint of expand. dx = G expanded.
/// Error where shape does not broadcast to x's.
GRADUS_API Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace gradus
