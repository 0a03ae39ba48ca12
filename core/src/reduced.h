#pragma once
// Which dims a reduction takes away, and its input as the kernels want it.
#include <array>

#include "internal.h"

namespace gradus::detail {

/// Which dims are reduced (all where the list is empty), and the shapes before and after.
struct Reduced {
  std::array<bool, Shape::max_rank> gone{};
  Shape kept;     // the result without the reduced dims
  Shape keepdim;  // the result with them, of size 1
  std::int64_t count = 1;

  Reduced(const Tensor& x, const Shape& dims, const char* op);
  const Shape& result(bool keep) const { return keep ? keepdim : kept; }
};

/// x as [outer, n, inner] row-major, where n counts what is reduced.
struct Blocks {
  Tensor source;
  std::int64_t outer, n, inner;
};
/// Where the reduced dims are not neighbours they are brought to the end. No history.
Blocks blocks(const Tensor& x, const Reduced& r);
/// Always with the reduced dims at the end: inner is 1.
Blocks rows(const Tensor& x, const Reduced& r);

/// The adjoint of a sum: g, the reduced dims of which may be gone, repeated along them.
Tensor repeat(const Tensor& g, const Shape& keepdim, const Shape& shape);

}  // namespace gradus::detail
