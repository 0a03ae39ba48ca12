#pragma once
// Shapes without arithmetic. Views share memory with x; the gradient of each is its adjoint, named in the docstring.
#include <gradus/tensor.h>

#include <vector>

namespace gradus {

/// The same elements in row-major order under another shape (one size may be -1): a view where strides allow, else a
/// copy. dx = G reshaped back.
GRADUS_API Tensor reshape(const Tensor& x, const Shape& shape);
/// The same as a view; Error where strides do not allow one (use reshape).
GRADUS_API Tensor view(const Tensor& x, const Shape& shape);
/// Two dims swapped (view) : dx = G swapped back.
GRADUS_API Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1);
/// Dim i of the result is dim dims[i] of x (view) : dx = G permuted back.
GRADUS_API Tensor permute(const Tensor& x, const Shape& dims);
/// A dim of size 1 inserted at `dim` (view) : dx = G squeezed.
GRADUS_API Tensor unsqueeze(const Tensor& x, std::int64_t dim);
/// Dims of size 1 dropped: all, or `dim` if its size is 1 (view) : dx = G reshaped.
GRADUS_API Tensor squeeze(const Tensor& x);
GRADUS_API Tensor squeeze(const Tensor& x, std::int64_t dim);
/// Dims start to end merged into one (as reshape).
GRADUS_API Tensor flatten(const Tensor& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
/// Dims of size 1 (and new leading ones) repeated to `shape`, -1 keeps a size (view with stride 0) : dx = sum_to(G).
GRADUS_API Tensor expand(const Tensor& x, const Shape& shape);
/// A row-major copy, or x itself where it is row-major already : dx = G.
GRADUS_API Tensor contiguous(const Tensor& x);
/// A row-major copy, always : dx = G.
GRADUS_API Tensor clone(const Tensor& x);
/// The dim's order reversed : dx = G flipped.
GRADUS_API Tensor flip(const Tensor& x, const Shape& dims);
/// Joined along an existing dim; other sizes must be equal : dxᵢ = its part of G.
GRADUS_API Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);
/// Joined along a new dim; shapes must be equal : dxᵢ = its part of G.
GRADUS_API Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);

}  // namespace gradus
