#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>
#include <gradus/softmax.h>

#include "internal.h"

namespace gradus {

using detail::packed;

namespace {

using RowKernel = void (*)(DType, std::int64_t rows, std::int64_t n, const void* x, void* y);
using RowBackward = void (*)(DType, std::int64_t rows, std::int64_t n, const void* g, const void* y, void* dx);

std::int64_t rows_of(const Tensor& x) { return x.numel() / std::max<std::int64_t>(x.size(-1), 1); }

/// A kernel over the last dim. No history.
Tensor by_rows(RowKernel kernel, const Tensor& x) {
  const Tensor source = packed(x);
  Tensor y = detail::make(x.shape(), x.dtype());
  if (y.numel() > 0) kernel(x.dtype(), rows_of(x), x.size(-1), detail::pointer(source), detail::mutable_pointer(y));
  return y;
}

Tensor by_rows(RowBackward kernel, const Tensor& g, const Tensor& y) {
  const Tensor upstream = packed(g), result = packed(y);
  Tensor dx = detail::make(y.shape(), y.dtype());
  if (dx.numel() > 0) {
    kernel(y.dtype(), rows_of(y), y.size(-1), detail::pointer(upstream), detail::pointer(result),
           detail::mutable_pointer(dx));
  }
  return dx;
}

/// Brings dim to the end and back, where it is not there already.
template <class Op>
Tensor along(const Tensor& x, std::int64_t dim, const char* name, Op op) {
  check_defined(x, name, "the tensor");
  check_floating(x, name);
  if (x.dim() == 0) return reshape(op(reshape(x, {1})), {});
  const std::int64_t d = wrap_dim(dim, x.dim(), name);
  return d == x.dim() - 1 ? op(x) : transpose(op(transpose(x, d, -1)), d, -1);
}

// dx = y∘(G - Σ G∘y)
Tensor softmax_gradient(const Tensor& g, const Tensor& y) {
  if (!grad_enabled()) return by_rows(kernels::softmax_backward, g, y);
  return y * (g - sum(g * y, {-1}, true));
}

}  // namespace

// y = eˣ/Σeˣ :  dx = y∘(G - Σ G∘y)
Tensor softmax(const Tensor& x, std::int64_t dim) {
  return along(x, dim, "softmax", [](const Tensor& rows) {
    return record("softmax", by_rows(kernels::softmax, rows), wrt(rows, saving(output), softmax_gradient));
  });
}

// y = x - log Σeˣ :  dx = G - eʸ·Σ G
Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return along(x, dim, "log_softmax", [](const Tensor& rows) {
    return record("log_softmax", by_rows(kernels::log_softmax, rows),
                  wrt(rows, saving(output), [](const Tensor& g, const Tensor& Y) {
                    if (!grad_enabled()) return by_rows(kernels::log_softmax_backward, g, Y);
                    return g - exp(Y) * sum(g, {-1}, true);
                  }));
  });
}

// y = softmax x where the mask is true, else 0 :  dx = y∘(G - Σ G∘y) where y is not 0, else 0
Tensor masked_softmax(const Tensor& x, const Tensor& mask) {
  check_defined(x, "masked_softmax", "the tensor");
  check_floating(x, "masked_softmax");
  check_defined(mask, "masked_softmax", "the mask");
  check(mask.dtype() == Bool, "masked_softmax", "the mask must be Bool, got ", mask.dtype(), " ", mask,
        "; compare it (mask != 0)");
  check(x.dim() >= 1, "masked_softmax", "needs at least one dim");
  check(detail::broadcasts_to(mask.shape(), x.shape()), "masked_softmax", "the mask ", mask, " does not broadcast to ",
        x);
  const Tensor source = packed(x);
  Tensor y = detail::make(x.shape(), x.dtype());
  if (y.numel() > 0) {
    kernels::masked_softmax(x.dtype(), x.shape(), detail::pointer(source),
                            static_cast<const bool*>(detail::pointer(mask)), detail::broadcast_strides(mask, x.shape()),
                            detail::mutable_pointer(y));
  }
  return record("masked_softmax", y, wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) {
                  if (!grad_enabled()) return by_rows(kernels::masked_softmax_backward, g, Y);
                  // Selected before and after: neither g nor, a derivative later, what comes from below may bring NaN.
                  const Tensor hidden = Y == 0;
                  return masked_fill(softmax_gradient(masked_fill(g, hidden, 0), Y), hidden, 0);
                }));
}

}  // namespace gradus
