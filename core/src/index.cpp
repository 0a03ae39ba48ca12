#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>

#include <algorithm>

#include "internal.h"

namespace gradus {

using detail::make_view;
using detail::packed;

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
  // A step beyond the dim is never taken, and its product must not overflow.
  const std::int64_t by = std::min(step, std::max<std::int64_t>(size, 1));
  strides[d] *= by;
  return record(
      "slice", make_view(x, shape, strides, x.impl().offset + range.start * x.strides()[d]),
      wrt(x, [d, size, first = range.start, by](const Tensor& g) { return slice_scatter(g, d, size, first, by); }));
}

// y = zeros with x at start, start + step, … :  dx = G at those places
Tensor slice_scatter(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t start, std::int64_t step) {
  check_defined(x, "slice_scatter", "the tensor");
  check(x.dim() > 0, "slice_scatter", "a 0-d tensor has no place in a row");
  const std::int64_t d = wrap_dim(dim, x.dim(), "slice_scatter"), n = x.shape()[d];
  check(step >= 1 && start >= 0 && size >= 0 && (n == 0 || (start < size && (n - 1) <= (size - 1 - start) / step)),
        "slice_scatter", "places ", start, ", ", start + step, ", … for ", x, " lie outside size ", size, " of dim ",
        dim);
  Shape shape = x.shape();
  shape[d] = size;
  Tensor y = zeros(shape, {.dtype = x.dtype()});
  Shape strides = y.strides();
  strides[d] *= step;
  if (x.numel() > 0) detail::write(make_view(y, x.shape(), strides, start * y.strides()[d]), x);
  return record("slice_scatter", y, wrt(x, [d, start, step, n](const Tensor& g) {
                  return slice(g, d, start, start + (n - 1) * step + 1, step);
                }));
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

Tensor index(const Tensor& x, const std::vector<Index>& indices) {
  check_defined(x, "index", "the tensor");
  std::int64_t named = 0, ellipses = 0;
  for (const Index& i : indices) {
    named += i.kind() == Index::Kind::Integer || i.kind() == Index::Kind::Range;
    ellipses += i.kind() == Index::Kind::Rest;
  }
  check(ellipses <= 1, "index", "more than one Ellipsis");
  check(named <= x.dim(), "index", "too many indices (", named, ") for ", x);
  Tensor y = x;
  std::int64_t dim = 0;
  for (const Index& i : indices) {
    switch (i.kind()) {
      case Index::Kind::Integer: {
        const std::int64_t size = y.size(dim);
        check(i.integer() >= -size && i.integer() < size, "index", "index ", i.integer(), " is outside size ", size,
              " in ", x);
        y = select(y, dim, i.integer());
        break;
      }
      case Index::Kind::Range:
        y = slice(y, dim++, i.slice().start, i.slice().stop, i.slice().step);
        break;
      case Index::Kind::Rest:
        dim += x.dim() - named;
        break;
      case Index::Kind::NewDim:
        y = unsqueeze(y, dim++);
        break;
    }
  }
  return y;
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim) {
  check_defined(x, "split", "the tensor");
  check(x.dim() > 0, "split", "a 0-d tensor cannot be split");
  check(size > 0, "split", "the size of a part must be positive, got ", size);
  const std::int64_t n = x.size(wrap_dim(dim, x.dim(), "split"));
  std::vector<Tensor> parts;
  for (std::int64_t start = 0; start == 0 || start < n; start += size)
    parts.push_back(narrow(x, dim, start, std::min(size, n - start)));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  check_defined(x, "chunk", "the tensor");
  check(chunks > 0, "chunk", "the number of chunks must be positive, got ", chunks);
  check(x.dim() > 0, "chunk", "a 0-d tensor cannot be split");
  const std::int64_t n = x.size(wrap_dim(dim, x.dim(), "chunk"));
  return split(x, std::max<std::int64_t>((n + chunks - 1) / chunks, 1), dim);
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
  check_defined(x, "unbind", "the tensor");
  check(x.dim() > 0, "unbind", "a 0-d tensor cannot be taken apart");
  const std::int64_t d = wrap_dim(dim, x.dim(), "unbind");
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.shape()[d]; ++i) parts.push_back(select(x, d, i));
  return parts;
}

// ---- by index tensors. All of them read rows of a table and add rows back: embedding and its adjoint.

namespace {

/// The indices row-major, each checked to be in [0, rows).
Tensor checked_indices(const Tensor& indices, std::int64_t rows, const char* op) {
  check_defined(indices, op, "the index tensor");
  check(indices.dtype() == Int64, op, "indices must be Int64, got ", indices.dtype(), " ", indices);
  Tensor list = packed(indices);
  const std::int64_t* p = list.data<std::int64_t>();
  for (std::int64_t i = 0; i < list.numel(); ++i)
    check(p[i] >= 0 && p[i] < rows, op, "index ", p[i], " at position ", i, " is outside a table of ", rows, " rows");
  return list;
}

}  // namespace

// y = W[i] :  dW = the rows of G added up at their indices
Tensor embedding(const Tensor& weight, const Tensor& indices, std::optional<std::int64_t> padding_idx) {
  check_defined(weight, "embedding", "the weight");
  check(weight.dim() == 2, "embedding", "the weight must be [num, dim], got ", weight);
  const std::int64_t num = weight.size(0), dim = weight.size(1);
  const Tensor list = checked_indices(indices, num, "embedding");
  check(!padding_idx || (*padding_idx >= 0 && *padding_idx < num), "embedding", "padding_idx ", padding_idx.value_or(0),
        " is outside a table of ", num, " rows");
  Shape shape = indices.shape();
  shape.push_back(dim);
  Tensor y = detail::make(shape, weight.dtype());
  const Tensor table = packed(weight);
  kernels::gather_rows(weight.dtype(), list.numel(), dim, detail::pointer(table), list.data<std::int64_t>(),
                       detail::mutable_pointer(y));
  return record("embedding", y, wrt(weight, saving(list), [num, padding_idx](const Tensor& g, const Tensor& I) {
                  return embedding_scatter(g, I, num, padding_idx);
                }));
}

// y = zeros with the rows of x added at i :  dx = G[i] (0 for the padding row)
Tensor embedding_scatter(const Tensor& x, const Tensor& indices, std::int64_t num,
                         std::optional<std::int64_t> padding_idx) {
  check_defined(x, "embedding_scatter", "the rows");
  check_defined(indices, "embedding_scatter", "the index tensor");
  check(x.dim() == indices.dim() + 1 && Shape(x.shape().begin(), x.shape().end() - 1) == indices.shape(),
        "embedding_scatter", "rows ", x, " do not fit the indices ", indices);
  check(x.dtype() != Bool, "embedding_scatter", "has no meaning for Bool ", x, "; convert it with to()");
  const Tensor list = checked_indices(indices, num, "embedding_scatter");
  const Tensor rows = packed(x);
  const std::int64_t dim = x.size(-1);
  Tensor y = zeros({num, dim}, {.dtype = x.dtype()});
  kernels::scatter_add_rows(x.dtype(), list.numel(), dim, detail::pointer(rows), list.data<std::int64_t>(), num,
                            detail::mutable_pointer(y));
  if (padding_idx && *padding_idx >= 0 && *padding_idx < num)
    detail::fill(make_view(y, {dim}, {1}, *padding_idx * dim), 0);
  return record("embedding_scatter", y, wrt(x, saving(list), [padding_idx](const Tensor& g, const Tensor& I) {
                  const Tensor back = embedding(g, I);
                  return padding_idx ? masked_fill(back, unsqueeze(I == *padding_idx, -1), 0) : back;
                }));
}

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_defined(x, "index_select", "the tensor");
  check_defined(index, "index_select", "the index");
  check(index.dim() <= 1, "index_select", "the index must be 1-d, got ", index);
  const Tensor list = index.dim() == 0 ? reshape(index, {1}) : index;
  if (x.dim() == 0) return reshape(index_select(reshape(x, {1}), 0, list), {});
  const std::int64_t d = wrap_dim(dim, x.dim(), "index_select");
  const Tensor front = transpose(x, 0, d);
  Shape shape = front.shape();
  shape[0] = list.numel();
  std::int64_t width = 1;
  for (int i = 1; i < shape.size(); ++i) width *= shape[i];
  checked_indices(list, x.size(d), "index_select");
  return transpose(reshape(embedding(reshape(front, {x.size(d), width}), list), shape), 0, d);
}

namespace {

/// For gather and scatter_add: where each element of `index` points in x's row-major elements.
Tensor flat_positions(const Tensor& x, std::int64_t d, const Tensor& index, const char* op) {
  check_defined(index, op, "the index");
  check(index.dtype() == Int64, op, "indices must be Int64, got ", index.dtype(), " ", index);
  check(index.dim() == x.dim(), op, "the ranks of ", x, " and of the index ", index, " differ");
  for (int i = 0; i < x.shape().size(); ++i)
    check(i == d || index.shape()[i] <= x.shape()[i], op, "the index ", index, " is larger than ", x, " in dim ", i);
  checked_indices(index, x.size(d), op);
  const NoGradGuard guard;
  const Shape steps = detail::row_major_strides(x.shape());
  Tensor flat = index * steps[d];
  for (int i = 0; i < x.shape().size(); ++i) {
    if (i == d) continue;
    Shape column = x.shape();
    std::fill(column.begin(), column.end(), 1);
    column[i] = index.shape()[i];
    flat = flat + reshape(arange(index.shape()[i]) * steps[i], column);
  }
  return flat;
}

}  // namespace

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_defined(x, "gather", "the tensor");
  if (x.dim() == 0) return reshape(gather(reshape(x, {1}), 0, reshape(index, {-1})), index.shape());
  const Tensor flat = flat_positions(x, wrap_dim(dim, x.dim(), "gather"), index, "gather");
  return reshape(embedding(reshape(x, {x.numel(), 1}), flat), index.shape());
}

Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src) {
  check_defined(x, "scatter_add", "the tensor");
  check_defined(src, "scatter_add", "the source");
  check(src.dtype() == x.dtype(), "scatter_add", "the dtypes of ", x, " ", x.dtype(), " and the source ", src, " ",
        src.dtype(), " differ");
  if (x.dim() == 0) return reshape(scatter_add(reshape(x, {1}), 0, reshape(index, {-1}), reshape(src, {-1})), {});
  const Tensor flat = flat_positions(x, wrap_dim(dim, x.dim(), "scatter_add"), index, "scatter_add");
  check(src.dim() == index.dim(), "scatter_add", "the ranks of the source ", src, " and of the index ", index,
        " differ");
  Tensor part = src;
  for (int i = 0; i < index.shape().size(); ++i) {
    check(index.shape()[i] <= src.shape()[i], "scatter_add", "the index ", index, " is larger than the source ", src);
    part = narrow(part, i, 0, index.shape()[i]);
  }
  Shape column = index.shape();
  column.push_back(1);
  return add(x, reshape(embedding_scatter(reshape(part, column), flat, x.numel()), x.shape()));
}

}  // namespace gradus
