#include <gradus/index.h>
#include <gradus/layout.h>

#include <algorithm>

#include "internal.h"

namespace gradus {

using detail::make_view;

namespace {

/// Bounds clipped as Python does: the first element and how many there are.
struct Range {
  std::int64_t start, length;
};

Range clip(const std::optional<std::int64_t>& start, const std::optional<std::int64_t>& stop, std::int64_t step,
           std::int64_t size) {
  const auto bound = [size](std::int64_t b) { return std::clamp<std::int64_t>(b < 0 ? b + size : b, 0, size); };
  const std::int64_t first = bound(start.value_or(0)), last = bound(stop.value_or(size));
  return {first, last > first ? (last - first - 1) / step + 1 : 0};
}

}  // namespace

// y = x[start : : step], length elements :  dx = zeros with G at those places
Tensor slice(const Tensor& x, std::int64_t dim, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
             std::int64_t step) {
  check_defined(x, "slice", "the tensor");
  check(x.dim() > 0, "slice", "a 0-d tensor has nothing to slice");
  check(step >= 1, "slice", "the step must be at least 1, got ", step, "; use flip for the reverse order");
  const std::int64_t d = wrap_dim(dim, x.dim(), "slice"), size = x.shape()[d];
  const Range range = clip(start, stop, step, size);
  Shape shape = x.shape(), strides = x.strides();
  shape[d] = range.length;
  // A step beyond the dim is never taken, and strides that lead nowhere must not overflow.
  const std::int64_t by = std::min(step, std::max<std::int64_t>(size, 1));
  if (range.length > 1 && x.numel() > 0) strides[d] *= by;
  const std::int64_t offset = range.length > 0 && x.numel() > 0 ? range.start * x.strides()[d] : 0;
  const std::int64_t first = range.start, end = first + (range.length > 0 ? (range.length - 1) * by + 1 : 0);
  return record("slice", make_view(x, shape, strides, x.impl().offset + offset),
                wrt_part(
                    x, [d, size, first, by](const Tensor& g) { return slice_scatter(g, d, size, first, by); },
                    [d, first, end, by](const Tensor& dx, const Tensor& g) {
                      detail::accumulate_into(slice(dx, d, first, end, by), g);
                    }));
}

// y = zeros with x at start, start + step, … :  dx = G at those places
Tensor slice_scatter(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t start, std::int64_t step) {
  check_defined(x, "slice_scatter", "the tensor");
  check(x.dim() > 0, "slice_scatter", "a 0-d tensor has no place in a row");
  const std::int64_t d = wrap_dim(dim, x.dim(), "slice_scatter"), n = x.shape()[d];
  check(step >= 1 && start >= 0 && size >= 0 && (n == 0 || (start < size && (n - 1) <= (size - 1 - start) / step)),
        "slice_scatter", "the places from ", start, " in steps of ", step, " for ", x, " lie outside size ", size,
        " of dim ", dim);
  Shape shape = x.shape();
  shape[d] = size;
  Tensor y = zeros(shape, {.dtype = x.dtype()});
  const std::int64_t end = n > 0 ? start + (n - 1) * step + 1 : start;
  {
    const NoGradGuard guard;
    if (x.numel() > 0) detail::write(slice(y, d, start, end, step), x);
  }
  return record("slice_scatter", y,
                wrt(x, [d, start, end, step](const Tensor& g) { return slice(g, d, start, end, step); }));
}

Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  check_defined(x, "narrow", "the tensor");
  check(x.dim() > 0, "narrow", "a 0-d tensor has nothing to narrow");
  const std::int64_t size = x.size(wrap_dim(dim, x.dim(), "narrow"));
  const std::int64_t first = start < 0 ? start + size : start;
  check(first >= 0 && length >= 0 && first <= size && length <= size - first, "narrow", "elements ", start, " to ",
        start, " + ", length, " lie outside dim ", dim, " of ", x);
  return slice(x, dim, first, first + length);
}

Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
  check_defined(x, "select", "the tensor");
  check(x.dim() > 0, "select", "a 0-d tensor has no dim to select from");
  const std::int64_t d = wrap_dim(dim, x.dim(), "select"), size = x.shape()[d];
  check(index >= -size && index < size, "select", "index ", index, " is outside dim ", dim, " of ", x);
  return squeeze(narrow(x, d, index < 0 ? index + size : index, 1), d);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim) {
  check_defined(x, "split", "the tensor");
  check(x.dim() > 0, "split", "a 0-d tensor cannot be split");
  check(size > 0, "split", "the size of a part must be positive, got ", size);
  const std::int64_t n = x.size(wrap_dim(dim, x.dim(), "split"));
  std::vector<Tensor> parts;
  for (std::int64_t start = 0; start == 0 || start < n; start += std::min(size, std::max<std::int64_t>(n - start, 1)))
    parts.push_back(narrow(x, dim, start, std::min(size, n - start)));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  check_defined(x, "chunk", "the tensor");
  check(chunks > 0, "chunk", "the number of chunks must be positive, got ", chunks);
  check(x.dim() > 0, "chunk", "a 0-d tensor cannot be split");
  const std::int64_t n = x.size(wrap_dim(dim, x.dim(), "chunk"));
  return split(x, std::max<std::int64_t>(n / chunks + (n % chunks != 0), 1), dim);
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
  check_defined(x, "unbind", "the tensor");
  check(x.dim() > 0, "unbind", "a 0-d tensor cannot be taken apart");
  const std::int64_t d = wrap_dim(dim, x.dim(), "unbind");
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.shape()[d]; ++i) parts.push_back(select(x, d, i));
  return parts;
}

}  // namespace gradus
