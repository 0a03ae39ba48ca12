#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/reduce.h>

#include <algorithm>
#include <optional>

#include "internal.h"

namespace gradus {

using detail::make_view;

namespace {

/// `shape` with a -1 replaced by what is left of x's elements.
Shape resolve(const Tensor& x, const Shape& shape, const char* op) {
  Shape result = shape;
  int unknown = -1;
  Shape known;
  for (int i = 0; i < shape.size(); ++i) {
    check(shape[i] >= -1, op, "negative size in ", shape);
    if (shape[i] == -1) {
      check(unknown < 0, op, "more than one -1 in ", shape);
      unknown = i;
    } else {
      known.push_back(shape[i]);
    }
  }
  const std::int64_t rest = known.numel();
  if (unknown >= 0) {
    check(rest > 0 && x.numel() % rest == 0, op, "cannot give ", x, " (", x.numel(), " elements) the shape ", shape);
    result[unknown] = x.numel() / rest;
  } else {
    check(rest == x.numel(), op, "cannot give ", x, " (", x.numel(), " elements) the shape ", shape, " (", rest,
          " elements)");
  }
  return result;
}

/// Strides that show x's elements, in row-major order, under another shape; none where that takes a copy.
std::optional<Shape> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return detail::row_major_strides(shape);
  if (x.numel() == 0) return detail::row_major_strides(shape);
  // From the back, dims of x that lie at one common distance form a block; each block must be a whole run of new dims.
  Shape strides = shape;
  int j = shape.size() - 1;
  std::int64_t step = x.strides().back(), block = 1, covered = 1;
  for (int i = x.shape().size() - 1; i >= 0; --i) {
    block *= x.shape()[i];
    if (i > 0 && (x.shape()[i - 1] == 1 || x.strides()[i - 1] == block * step)) continue;
    for (; j >= 0 && (covered < block || shape[j] == 1); --j) {
      strides[j] = covered * step;
      covered *= shape[j];
    }
    if (covered != block) return {};
    if (i > 0) step = x.strides()[i - 1];
    block = covered = 1;
  }
  return strides;
}

}  // namespace

// y = x under another shape :  dx = G under x's
Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined(x, "reshape", "the tensor");
  if (x.shape() == shape) return x;
  const Shape wanted = resolve(x, shape, "reshape");
  const auto strides = view_strides(x, wanted);
  const Tensor source = strides ? x : detail::packed(x);
  return record("reshape",
                make_view(source, wanted, strides ? *strides : detail::row_major_strides(wanted), source.impl().offset),
                wrt(x, [](const Tensor& g, const Shape& s) { return reshape(g, s); }));
}

Tensor view(const Tensor& x, const Shape& shape) {
  check_defined(x, "view", "the tensor");
  const Shape wanted = resolve(x, shape, "view");
  check(view_strides(x, wanted).has_value(), "view", "the strides ", x.strides(), " of ", x, " allow no view of shape ",
        wanted, "; use reshape, which copies where it must, or contiguous() before");
  return reshape(x, wanted);
}

// y = two dims swapped :  dx = G swapped back
Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  check_defined(x, "transpose", "the tensor");
  const std::int64_t d0 = wrap_dim(dim0, x.dim(), "transpose"), d1 = wrap_dim(dim1, x.dim(), "transpose");
  Shape shape = x.shape(), strides = x.strides();
  if (x.dim() > 0) {
    std::swap(shape[d0], shape[d1]);
    std::swap(strides[d0], strides[d1]);
  }
  return record("transpose", make_view(x, shape, strides, x.impl().offset),
                wrt(x, [d0, d1](const Tensor& g) { return transpose(g, d0, d1); }));
}

// y[i…] = x, dims in a new order :  dx = G in the old order
Tensor permute(const Tensor& x, const Shape& dims) {
  check_defined(x, "permute", "the tensor");
  check(dims.size() == x.dim(), "permute", "needs each dim of ", x, " once, got ", dims);
  Shape shape = x.shape(), strides = x.strides(), inverse = x.shape();
  std::fill(inverse.begin(), inverse.end(), -1);
  for (int i = 0; i < dims.size(); ++i) {
    const std::int64_t d = wrap_dim(dims[i], x.dim(), "permute");
    check(inverse[d] == -1, "permute", "needs each dim of ", x, " once, got ", dims);
    inverse[d] = i;
    shape[i] = x.shape()[d];
    strides[i] = x.strides()[d];
  }
  return record("permute", make_view(x, shape, strides, x.impl().offset),
                wrt(x, [inverse](const Tensor& g) { return permute(g, inverse); }));
}

namespace {

// y = x with dims of size 1 added or dropped :  dx = G under x's shape
Tensor same_elements(const char* op, const Tensor& x, const Shape& shape, const Shape& strides) {
  return record(op, make_view(x, shape, strides, x.impl().offset),
                wrt(x, [](const Tensor& g, const Shape& s) { return reshape(g, s); }));
}

}  // namespace

Tensor unsqueeze(const Tensor& x, std::int64_t dim) {
  check_defined(x, "unsqueeze", "the tensor");
  check(x.dim() < Shape::max_rank, "unsqueeze", x, " has as many dims as a tensor can have");
  const auto d = static_cast<int>(wrap_dim(dim, x.dim() + 1, "unsqueeze"));
  Shape shape = x.shape(), strides = x.strides();
  std::int64_t stride = 1;
  if (d < x.dim() && __builtin_mul_overflow(x.strides()[d], x.shape()[d], &stride)) stride = 1;
  strides.insert(d, stride);
  shape.insert(d, 1);
  return same_elements("unsqueeze", x, shape, strides);
}

Tensor squeeze(const Tensor& x) {
  check_defined(x, "squeeze", "the tensor");
  Shape shape, strides;
  for (int i = 0; i < x.shape().size(); ++i) {
    if (x.shape()[i] == 1) continue;
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return same_elements("squeeze", x, shape, strides);
}

Tensor squeeze(const Tensor& x, std::int64_t dim) {
  check_defined(x, "squeeze", "the tensor");
  const auto d = static_cast<int>(wrap_dim(dim, x.dim(), "squeeze"));
  if (x.dim() == 0 || x.shape()[d] != 1) return x;
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  return same_elements("squeeze", x, shape, strides);
}

Tensor flatten(const Tensor& x, std::int64_t start_dim, std::int64_t end_dim) {
  check_defined(x, "flatten", "the tensor");
  const std::int64_t first = wrap_dim(start_dim, x.dim(), "flatten"), last = wrap_dim(end_dim, x.dim(), "flatten");
  check(first <= last, "flatten", "start_dim ", start_dim, " lies behind end_dim ", end_dim, " in ", x);
  Shape shape;
  std::int64_t merged = 1;
  for (int i = 0; i < x.shape().size(); ++i) {
    if (i >= first && i <= last) merged *= x.shape()[i];
    if (i == last) shape.push_back(merged);
    if (i < first || i > last) shape.push_back(x.shape()[i]);
  }
  if (x.dim() == 0) shape.push_back(1);
  return reshape(x, shape);
}

// y = x repeated :  dx = sum_to(G)
Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined(x, "expand", "the tensor");
  if (x.shape() == shape) return x;
  Shape wanted = shape;
  const int extra = shape.size() - x.shape().size();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < shape.size(); ++i) {
    if (i >= extra && shape[i] == -1) wanted[i] = x.shape()[i - extra];
    fits = wanted[i] >= 0 && (i < extra || x.shape()[i - extra] == 1 || x.shape()[i - extra] == wanted[i]);
  }
  check(fits, "expand", "cannot expand ", x, " to ", shape,
        "; only dims of size 1 and new leading dims can be repeated");
  return record("expand", make_view(x, wanted, detail::broadcast_strides(x, wanted), x.impl().offset),
                wrt(x, [](const Tensor& g, const Shape& s) { return sum_to(g, s); }));
}

namespace {

// y = x in memory of its own :  dx = G
Tensor copied(const char* op, const Tensor& x) {
  Tensor y = detail::make(x.shape(), x.dtype());
  detail::write(y, x);
  return record(op, y, wrt(x, [](const Tensor& g) { return g; }));
}

}  // namespace

Tensor contiguous(const Tensor& x) {
  check_defined(x, "contiguous", "the tensor");
  return x.is_contiguous() ? x : copied("contiguous", x);
}

Tensor clone(const Tensor& x) {
  check_defined(x, "clone", "the tensor");
  return copied("clone", x);
}

// y = order of some dims reversed :  dx = G, the same dims reversed
Tensor flip(const Tensor& x, const Shape& dims) {
  check_defined(x, "flip", "the tensor");
  Shape strides = x.strides();
  std::int64_t offset = x.impl().offset;
  Shape seen = x.shape();
  for (const std::int64_t dim : dims) {
    const std::int64_t d = wrap_dim(dim, x.dim(), "flip");
    if (x.dim() == 0) continue;
    check(seen[d] != -1, "flip", "dim ", dim, " is named twice in ", dims);
    seen[d] = -1;
    if (x.shape()[d] == 0) continue;
    offset += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  Tensor y = detail::make(x.shape(), x.dtype());
  detail::write(y, make_view(x, x.shape(), strides, offset));
  return record("flip", y, wrt(x, [dims](const Tensor& g) { return flip(g, dims); }));
}

// y = x₁ … xₙ end to end along dim :  dxᵢ = the part of G where xᵢ stands
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim) {
  check(!tensors.empty(), "cat", "needs at least one tensor");
  DType dtype = Bool;
  for (const Tensor& t : tensors) {
    check_defined(t, "cat", "one of the tensors");
    dtype = promote(dtype, t.dtype());
  }
  const Tensor& first = tensors.front();
  check(first.dim() > 0, "cat", "0-d tensors cannot be joined; use stack");
  const std::int64_t d = wrap_dim(dim, first.dim(), "cat");
  std::vector<Tensor> parts;
  std::vector<std::int64_t> starts;
  Shape shape = first.shape();
  shape[d] = 0;
  for (const Tensor& t : tensors) {
    Shape rest = t.shape();
    check(rest.size() == shape.size(), "cat", "ranks differ: ", first, " and ", t);
    rest[d] = shape[d];
    check(rest == shape, "cat", "sizes other than dim ", dim, " differ: ", first, " and ", t);
    starts.push_back(shape[d]);
    check(!__builtin_add_overflow(shape[d], t.shape()[d], &shape[d]), "cat", "the sizes of dim ", dim,
          " do not fit 63 bits together");
    parts.push_back(to(t, dtype));
  }
  Tensor y = detail::make(shape, dtype);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].numel() == 0) continue;
    detail::write(make_view(y, parts[i].shape(), y.strides(), starts[i] * y.strides()[d]), parts[i]);
  }
  std::vector<std::int64_t> sizes;
  for (const Tensor& part : parts) sizes.push_back(part.shape()[d]);
  return record_list("cat", y, parts,
                     [d, starts, sizes](const Tensor& g, std::size_t i) { return narrow(g, d, starts[i], sizes[i]); });
}

Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim) {
  check(!tensors.empty(), "stack", "needs at least one tensor");
  std::vector<Tensor> slices;
  for (const Tensor& t : tensors) {
    check_defined(t, "stack", "one of the tensors");
    check(t.shape() == tensors.front().shape(), "stack", "shapes differ: ", tensors.front(), " and ", t);
    check(t.dim() < Shape::max_rank, "stack", t, " has as many dims as a tensor can have");
    slices.push_back(unsqueeze(t, wrap_dim(dim, t.dim() + 1, "stack")));
  }
  return cat(slices, wrap_dim(dim, tensors.front().dim() + 1, "stack"));
}

}  // namespace gradus
