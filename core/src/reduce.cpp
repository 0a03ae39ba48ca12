#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include "reduced.h"

namespace gradus {

using detail::packed;
using detail::Reduced;
using detail::repeat;
using kernels::Reduce;

namespace {

/// The kernel over some dims.
Tensor run(Reduce op, const Tensor& x, const Reduced& r, bool keep) {
  if (x.dtype() == Bool) return to(run(op, to(x, Int64), r, keep), Bool);
  const auto [source, outer, n, inner] = detail::blocks(x, r);
  Tensor y = detail::make(r.result(keep), x.dtype());
  if (y.numel() > 0) {
    if (r.count == 0) {
      detail::fill(y, 0);
    } else {
      kernels::reduce(op, x.dtype(), outer, n, inner, detail::pointer(source), detail::mutable_pointer(y));
    }
  }
  return y;
}

/// Σ x. Where all that is summed is one number repeated, it is multiplied instead, which rounds once.
Tensor summed(const Tensor& x, const Reduced& r, bool keep) {
  const std::int64_t exact = x.dtype() == Float32 ? std::int64_t{1} << 24 : std::int64_t{1} << 53;
  Shape once = x.shape();
  bool repeated = is_floating(x.dtype()) && r.count > 1 && r.count <= exact;
  for (int i = 0; i < once.size(); ++i) {
    if (!r.gone[static_cast<std::size_t>(i)]) continue;
    repeated = repeated && (once[i] == 1 || x.strides()[i] == 0);
    once[i] = 1;
  }
  if (!repeated) return run(Reduce::Sum, x, r, keep);
  const Tensor number = detail::make_view(x, once, x.strides(), x.impl().offset);
  const Tensor y = detail::apply(kernels::Unary::MulScalar, number, "sum", static_cast<double>(r.count));
  return reshape(y, r.result(keep));
}

}  // namespace

Tensor sum(const Tensor& x) { return sum(x, {}); }

// y = Σ x :  dx = G repeated
Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(x, "sum", "the tensor");
  if (x.dtype() == Bool) return sum(to(x, Int64), dims, keepdim);
  const Reduced r(x, dims, "sum");
  return record("sum", summed(x, r, keepdim),
                wrt(x, [k = r.keepdim](const Tensor& g, const Shape& s) { return repeat(g, k, s); }));
}

Tensor mean(const Tensor& x) { return mean(x, {}); }

// y = Σ x / n :  dx = G/n repeated
Tensor mean(const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(x, "mean", "the tensor");
  check_floating(x, "mean");
  const Reduced r(x, dims, "mean");
  const auto n = static_cast<double>(r.count);
  return record("mean", detail::apply(kernels::Unary::DivScalar, summed(x, r, keepdim), "mean", n),
                wrt(x, [k = r.keepdim, n](const Tensor& g, const Shape& s) { return repeat(g / n, k, s); }));
}

namespace {

// y = max x :  dx = G/m where x = y, m being how many are equal to y
Tensor extreme(Reduce op, const char* name, const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(x, name, "the tensor");
  const Reduced r(x, dims, name);
  check(r.count > 0, name, "there is no element to choose from in ", x);
  return record(name, run(op, x, r, keepdim),
                wrt(x, saving(x, output), [k = r.keepdim, dims](const Tensor& g, const Tensor& X, const Tensor& Y) {
                  const Tensor ties = X == reshape(Y, k) || X != X;  // where there is NaN, it is what won
                  const Tensor share = reshape(g, k) / to(sum(ties, dims, true), g.dtype());
                  return where(ties, share, 0);
                }));
}

}  // namespace

Tensor amax(const Tensor& x, const Shape& dims, bool keepdim) { return extreme(Reduce::Max, "amax", x, dims, keepdim); }
Tensor amin(const Tensor& x, const Shape& dims, bool keepdim) { return extreme(Reduce::Min, "amin", x, dims, keepdim); }
Tensor max(const Tensor& x) { return amax(x); }
Tensor min(const Tensor& x) { return amin(x); }

namespace {

/// argmax along a dim, in the words of `op`.
Tensor winner_along(const Tensor& x, std::int64_t dim, bool keepdim, const char* op) {
  const NoGradGuard guard;
  if (x.dtype() == Bool) return winner_along(to(x, Int64), dim, keepdim, op);
  const std::int64_t d = wrap_dim(dim, x.dim(), op);
  if (x.dim() == 0) return winner_along(reshape(x, {1}), 0, false, op);
  const std::int64_t n = x.size(d);
  check(n > 0, op, "there is no element to choose from along dim ", dim, " of ", x);
  const Tensor rows = packed(transpose(x, d, -1));
  Shape shape = rows.shape();
  shape[shape.size() - 1] = 1;
  Tensor y = detail::make(shape, Int64);
  kernels::argmax_rows(x.dtype(), y.numel(), n, detail::pointer(rows), y.data<std::int64_t>());
  y = transpose(y, d, -1);
  return keepdim ? y : squeeze(y, d);
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<std::int64_t> dim, bool keepdim) {
  check_defined(x, "argmax", "the tensor");
  if (dim) return winner_along(x, *dim, keepdim, "argmax");
  const Tensor index = winner_along(reshape(x.detach(), {-1}), 0, false, "argmax");
  return keepdim ? reshape(index, Shape(std::vector<std::int64_t>(static_cast<std::size_t>(x.dim()), 1))) : index;
}

namespace {

// The place of the winner is found without history; reading it is a gather, which has a gradient.
ValuesAndIndices extreme_along(const Tensor& x, const Tensor& order, std::int64_t dim, bool keepdim, const char* op) {
  const Tensor indices = winner_along(order, dim, true, op);
  const Tensor values = x.dim() == 0 ? reshape(x, {}) : gather(x, dim, indices);
  if (keepdim || x.dim() == 0) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

}  // namespace

ValuesAndIndices max(const Tensor& x, std::int64_t dim, bool keepdim) {
  check_defined(x, "max", "the tensor");
  return extreme_along(x, x, dim, keepdim, "max");
}

ValuesAndIndices min(const Tensor& x, std::int64_t dim, bool keepdim) {
  check_defined(x, "min", "the tensor");
  // The smallest is the largest of the negated; for bools, of the opposite. Integers become -1 - x: -x may overflow.
  const Tensor order = x.dtype() == Bool ? logical_not(x) : x.dtype() == Int64 ? -1 - x : neg(x.detach());
  return extreme_along(x, order, dim, keepdim, "min");
}

bool any(const Tensor& x) {
  check_defined(x, "any", "the tensor");
  check(x.dtype() == Bool, "any", "needs a Bool tensor, got ", x.dtype(), " ", x);
  return x.numel() > 0 && run(Reduce::Max, x, Reduced(x, {}, "any"), false).item<bool>();
}

bool all(const Tensor& x) {
  check_defined(x, "all", "the tensor");
  check(x.dtype() == Bool, "all", "needs a Bool tensor, got ", x.dtype(), " ", x);
  return x.numel() == 0 || run(Reduce::Min, x, Reduced(x, {}, "all"), false).item<bool>();
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined(x, "sum_to", "the tensor");
  if (x.shape() == shape) return x;
  const int extra = x.shape().size() - shape.size();
  check(extra >= 0, "sum_to", shape, " does not broadcast to ", x);
  Shape dims;
  for (int i = 0; i < x.shape().size(); ++i) {
    const std::int64_t size = x.shape()[i];
    check(i < extra || shape[i - extra] == size || shape[i - extra] == 1, "sum_to", shape, " does not broadcast to ",
          x);
    if (i < extra || shape[i - extra] != size) dims.push_back(i);
  }
  return reshape(dims.empty() ? x : sum(x, dims), shape);
}

}  // namespace gradus
