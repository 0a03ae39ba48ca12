#include "reduced.h"

#include <gradus/layout.h>

namespace gradus::detail {

Reduced::Reduced(const Tensor& x, const Shape& dims, const char* op) {
  const int rank = x.shape().size();
  if (dims.empty()) gone.fill(true);
  for (const std::int64_t dim : dims) {
    const auto d = static_cast<std::size_t>(wrap_dim(dim, rank, op));
    check(!gone[d], op, "dim ", dim, " is named twice in ", dims);
    gone[d] = true;
  }
  for (int i = 0; i < rank; ++i) {
    const bool reduced = gone[static_cast<std::size_t>(i)];
    if (reduced) count *= x.shape()[i];
    if (!reduced) kept.push_back(x.shape()[i]);
    keepdim.push_back(reduced ? 1 : x.shape()[i]);
  }
}

Blocks blocks(const Tensor& x, const Reduced& r) {
  const Shape& s = x.shape();
  std::int64_t outer = 1, n = 1, inner = 1;
  for (int i = 0; i < s.size(); ++i) {
    if (s[i] == 1) continue;
    if (r.gone[static_cast<std::size_t>(i)]) {
      if (inner != 1) return rows(x, r);
      n *= s[i];
    } else {
      (n == 1 ? outer : inner) *= s[i];
    }
  }
  return {packed(x), outer, n, inner};
}

Blocks rows(const Tensor& x, const Reduced& r) {
  Shape order;
  for (const bool reduced : {false, true})
    for (int i = 0; i < x.shape().size(); ++i)
      if (r.gone[static_cast<std::size_t>(i)] == reduced) order.push_back(i);
  const NoGradGuard guard;
  return {packed(permute(x, order)), r.kept.numel(), r.count, 1};
}

Tensor repeat(const Tensor& g, const Shape& keepdim, const Shape& shape) { return expand(reshape(g, keepdim), shape); }

}  // namespace gradus::detail
