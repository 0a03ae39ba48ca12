#include "internal.h"

#include <algorithm>
#include <vector>

#include "kernels/copy.h"

namespace gradus::detail {

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  Shape result = a.size() >= b.size() ? a : b;
  for (int i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const std::int64_t m = a[a.size() - i], n = b[b.size() - i];
    check(m == n || m == 1 || n == 1, op, "shapes ", a, " and ", b, " do not broadcast: ", m, " against ", n,
          " in dim -", i, "; sizes must be equal, or one of them 1");
    result[result.size() - i] = m == 1 ? n : m;
  }
  return result;
}

bool broadcasts_to(const Shape& shape, const Shape& wanted) {
  const int extra = wanted.size() - shape.size();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < shape.size(); ++i) fits = shape[i] == 1 || shape[i] == wanted[extra + i];
  return fits;
}

Shape broadcast_strides(const Tensor& x, const Shape& shape) {
  Shape strides = shape;
  const int extra = shape.size() - x.shape().size();
  for (int i = 0; i < shape.size(); ++i)
    strides[i] = i < extra || x.shape()[i - extra] == 1 ? 0 : x.strides()[i - extra];
  return strides;
}

std::vector<std::int64_t> batch_offsets(const Tensor& x, const Shape& batch) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(batch.numel()), 0);
  const int extra = batch.size() + 2 - x.shape().size();
  std::size_t known = 1;  // offsets[0, known) hold the indices of the dims from i + 1 on
  for (int i = batch.size() - 1; i >= 0; --i) {
    const bool repeated = i < extra || x.shape()[i - extra] == 1;
    const std::int64_t stride = repeated ? 0 : x.strides()[i - extra];
    for (std::size_t k = 1; k < static_cast<std::size_t>(batch[i]); ++k)
      for (std::size_t r = 0; r < known; ++r)
        offsets[k * known + r] = offsets[r] + static_cast<std::int64_t>(k) * stride;
    known *= static_cast<std::size_t>(batch[i]);
  }
  return offsets;
}

void write(const Tensor& y, const Tensor& x) {
  if (x.dtype() == y.dtype()) {
    kernels::copy(x.dtype(), y.shape(), pointer(x), broadcast_strides(x, y.shape()), mutable_pointer(y), y.strides());
    return;
  }
  const auto run = kernels::table().cast(x.dtype(), y.dtype());
  kernels::unary(run, x.dtype(), y.dtype(), y.shape(), pointer(x), broadcast_strides(x, y.shape()), mutable_pointer(y),
                 y.strides());
}

void fill(const Tensor& y, Scalar value) { write(y, full({}, value, {.dtype = y.dtype()})); }

Tensor packed(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor y = make(x.shape(), x.dtype());
  write(y, x);
  return y;
}

void accumulate_into(const Tensor& y, const Tensor& x) {
  const auto run = kernels::table().binary(kernels::Binary::Add, y.dtype());
  kernels::binary(run, y.dtype(), y.dtype(), y.shape(), pointer(y), y.strides(), pointer(x), x.strides(),
                  mutable_pointer(y), y.strides());
}

Tensor apply(kernels::Unary op, const Tensor& x, const char* name, double p, double q) {
  const auto run = kernels::table().unary(op, x.dtype());
  check(run != nullptr, name, "has no meaning for ", x.dtype(), " ", x, "; convert it with to()");
  Tensor y = make(x.shape(), x.dtype());
  kernels::unary(run, x.dtype(), x.dtype(), x.shape(), pointer(x), x.strides(), mutable_pointer(y), y.strides(), p, q);
  return y;
}

Tensor apply(kernels::Binary op, const Tensor& a, const Tensor& b, const char* name) {
  const auto run = kernels::table().binary(op, a.dtype());
  check(run != nullptr, name, "has no meaning for ", a.dtype(), " ", a, "; convert it with to()");
  if (a.shape() == b.shape()) {
    Tensor y = make(a.shape(), a.dtype());
    kernels::binary(run, a.dtype(), a.dtype(), a.shape(), pointer(a), a.strides(), pointer(b), b.strides(),
                    mutable_pointer(y), y.strides());
    return y;
  }
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), name);
  Tensor y = make(shape, a.dtype());
  kernels::binary(run, a.dtype(), a.dtype(), shape, pointer(a), broadcast_strides(a, shape), pointer(b),
                  broadcast_strides(b, shape), mutable_pointer(y), y.strides());
  return y;
}

Tensor number_like(Scalar value, const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  check(is_floating(x.dtype()) || !value.is_floating() || value.to_double() == static_cast<double>(value.to_int()), op,
        "the value ", value.to_double(), " does not fit a tensor of ", x.dtype());
  return full({}, value, {.dtype = x.dtype()});
}

}  // namespace gradus::detail
