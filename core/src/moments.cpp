// Variances and their roots, log Σ eˣ, and running sums.
#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include <algorithm>
#include <limits>

#include "reduced.h"

namespace gradus {

using detail::Reduced;

namespace {

/// n - correction, but not below 0: with too few elements the variance is 0/0 or more/0.
double divisor(const Reduced& r, std::int64_t correction) {
  return std::max(static_cast<double>(r.count) - static_cast<double>(correction), 0.0);
}

/// Σ(x - mean)²/(n - correction), or its root. No history.
Tensor spread(const Tensor& x, const Reduced& r, std::int64_t correction, bool keepdim, bool root) {
  const auto [source, outer, n, inner] = detail::blocks(x, r);
  Tensor y = detail::make(r.result(keepdim), x.dtype());
  if (r.count == 0) {
    detail::fill(y, std::numeric_limits<double>::quiet_NaN());
  } else {
    kernels::variance(x.dtype(), outer, n, inner, divisor(r, correction), root, detail::pointer(source),
                      detail::mutable_pointer(y));
  }
  return y;
}

/// x - mean. Beside a mean far greater than the differences its own rounding shows: it is taken away as well.
Tensor centered(const Tensor& x, const Shape& dims) {
  const Tensor near = x - mean(x, dims, true), rest = mean(near, dims, true);
  return near - masked_fill(rest, rest != rest, 0);  // an infinity is its own affair
}

}  // namespace

// y = Σ(x - mean)²/d, d = n - correction :  dx = G·2(x - mean)/d
Tensor var(const Tensor& x, const Shape& dims, std::int64_t correction, bool keepdim) {
  check_defined(x, "var", "the tensor");
  check_floating(x, "var");
  const Reduced r(x, dims, "var");
  return record("var", spread(x, r, correction, keepdim, false),
                wrt(x, saving(x), [dims, k = r.keepdim, d = divisor(r, correction)](const Tensor& g, const Tensor& X) {
                  return centered(X, dims) * (reshape(g, k) * (2 / d));
                }));
}

// y = √var x :  dx = G·(x - mean)/(d·y), and 0 where y = 0
Tensor std(const Tensor& x, const Shape& dims, std::int64_t correction, bool keepdim) {
  check_defined(x, "std", "the tensor");
  check_floating(x, "std");
  const Reduced r(x, dims, "std");
  return record(
      "std", spread(x, r, correction, keepdim, true),
      wrt(x, saving(x, output),
          [dims, k = r.keepdim, d = divisor(r, correction)](const Tensor& g, const Tensor& X, const Tensor& Y) {
            const Tensor still = Y == 0;
            const Tensor slope = masked_fill(g, still, 0) / masked_fill(Y, still, 1);
            return centered(X, dims) * (reshape(slope, k) * (1 / d));
          }));
}

namespace {

/// eˣ/Σeˣ over dims; exactly 0 in a row of nothing but -inf.
Tensor shares(const Tensor& x, const Shape& dims) {
  if (x.numel() == 0) return x;
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor top = amax(x.detach(), dims, true);
  const Tensor power = exp(x - masked_fill(top, top == -infinity, 0));
  return power / masked_fill(sum(power, dims, true), abs(top) == infinity, 1);
}

}  // namespace

// y = log Σeˣ :  dx = G·eˣ/Σeˣ
Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(x, "logsumexp", "the tensor");
  check_floating(x, "logsumexp");
  const Reduced r(x, dims, "logsumexp");
  const auto [source, rows, n, one] = detail::rows(x, r);
  Tensor y = detail::make(r.result(keepdim), x.dtype());
  if (r.count == 0)
    detail::fill(y, -std::numeric_limits<double>::infinity());
  else
    kernels::logsumexp(x.dtype(), rows, n, detail::pointer(source), detail::mutable_pointer(y));
  return record("logsumexp", y, wrt(x, saving(x), [dims, k = r.keepdim](const Tensor& g, const Tensor& X) {
                  return shares(X, dims) * reshape(g, k);
                }));
}

// y[i] = Σ x[j] over j ≤ i :  dx[j] = Σ G[i] over i ≥ j
Tensor cumsum(const Tensor& x, std::int64_t dim) {
  check_defined(x, "cumsum", "the tensor");
  if (x.dtype() == Bool) return cumsum(to(x, Int64), dim);
  const std::int64_t d = wrap_dim(dim, x.dim(), "cumsum");
  const Tensor source = detail::packed(x);
  Tensor y = detail::make(x.shape(), x.dtype());
  if (y.numel() > 0) {
    const Shape& s = x.shape();
    const std::int64_t n = x.dim() == 0 ? 1 : s[d];
    const std::int64_t outer = Shape(s.begin(), s.begin() + d).numel();
    kernels::cumsum(x.dtype(), outer, n, x.numel() / (outer * n), detail::pointer(source), detail::mutable_pointer(y));
  }
  return record("cumsum", y, wrt(x, [d, rank = x.dim()](const Tensor& g) {
                  return rank == 0 ? g : flip(cumsum(flip(g, d), d), d);
                }));
}

}  // namespace gradus
