#include "lookup.h"

#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>

#include <algorithm>

#include "internal.h"
#include "kernels/places.h"

namespace gradus {

using detail::packed;
using detail::Rows;

namespace {

/// The indices row-major, each checked to be in [0, size).
Tensor checked_indices(const Tensor& indices, std::int64_t size, const char* op) {
  check_defined(indices, op, "the index tensor");
  check(indices.dtype() == Int64, op, "indices must be Int64, got ", indices.dtype(), " ", indices);
  Tensor list = packed(indices);
  const std::int64_t* p = list.data<std::int64_t>();
  for (std::int64_t i = 0; i < list.numel(); ++i)
    check(p[i] >= 0 && p[i] < size, op, "index ", p[i], " at position ", i, " is outside a table of ", size, " rows");
  return list;
}

}  // namespace

namespace detail {

std::int64_t row_length(const Shape& shape, int dims) { return Shape(shape.begin() + dims, shape.end()).numel(); }

namespace {

/// Where the elements of the rows lie in x's memory.
struct Offsets {
  std::vector<std::int64_t> row, inner;
};

Offsets offsets_of(const Tensor& x, const Rows& rows) {
  const Shape &shape = x.shape(), &strides = x.strides();
  const auto offset = [&](std::int64_t number, int first, int last) {
    std::int64_t sum = 0;
    for (int i = last - 1; i >= first; --i) {
      sum += number % shape[i] * strides[i];
      number /= shape[i];
    }
    return sum;
  };
  Offsets offsets;
  const std::int64_t *list = rows.list.data<std::int64_t>(), n = row_length(shape, rows.dims);
  if (n == 0) return offsets;
  for (std::int64_t r = 0; r < rows.list.numel(); ++r) offsets.row.push_back(offset(list[r], 0, rows.dims));
  for (std::int64_t j = 0; j < n; ++j) offsets.inner.push_back(offset(j, rows.dims, shape.size()));
  return offsets;
}

/// dx += v at the rows, dx row-major.
void add_rows(const Tensor& dx, const Tensor& v, const Tensor& list, int dims) {
  if (v.numel() == 0) return;
  const Tensor values = packed(v);
  const std::int64_t n = row_length(dx.shape(), dims);
  kernels::scatter_add_rows(dx.dtype(), list.numel(), n, pointer(values), list.data<std::int64_t>(), dx.numel() / n,
                            mutable_pointer(dx));
}

}  // namespace

Tensor lookup(const char* op, const Tensor& x, const Rows& rows) {
  Tensor y = make(rows.result, x.dtype());
  const std::int64_t count = rows.list.numel();
  if (y.numel() > 0 && x.is_contiguous()) {
    kernels::gather_rows(x.dtype(), count, y.numel() / count, pointer(x), rows.list.data<std::int64_t>(),
                         mutable_pointer(y));
  } else if (y.numel() > 0) {
    const Offsets at = offsets_of(x, rows);
    kernels::gather_places(x.dtype(), count, y.numel() / count, pointer(x), at.row.data(), at.inner.data(),
                           mutable_pointer(y));
  }
  return record(
      op, y,
      wrt_part(
          x, saving(rows.list),
          [dims = rows.dims](const Tensor& g, const Tensor& L, const Shape& shape) {
            return rows_added("scatter_add", zeros(shape, {.dtype = g.dtype()}), g, {dims, L, g.shape()});
          },
          [dims = rows.dims](const Tensor& dx, const Tensor& g, const Tensor& L) { add_rows(dx, g, L, dims); }));
}

Tensor rows_added(const char* op, const Tensor& x, const Tensor& v, const Rows& rows) {
  check(x.dtype() != Bool, op, "has no meaning for Bool ", x, "; convert it with to()");
  Tensor y = make(x.shape(), x.dtype());
  write(y, x);
  add_rows(y, v, rows.list, rows.dims);
  return record(op, y, wrt(x, [](const Tensor& g) { return g; }),
                wrt(v, saving(rows.list), [dims = rows.dims](const Tensor& g, const Tensor& L, const Shape& s) {
                  return lookup("gather", g, {dims, L, s});
                }));
}

void put_rows(const Tensor& x, const Tensor& v, const Rows& rows, bool accumulate) {
  if (v.numel() == 0) return;
  const Tensor values = packed(v);
  const Offsets at = offsets_of(x, rows);
  const std::int64_t count = rows.list.numel();
  kernels::put_places(x.dtype(), count, v.numel() / count, pointer(values), at.row.data(), at.inner.data(), accumulate,
                      mutable_pointer(x));
}

}  // namespace detail

// y = W[i] :  dW = the rows of G added up at their indices
Tensor embedding(const Tensor& weight, const Tensor& indices, std::optional<std::int64_t> padding_idx) {
  check_defined(weight, "embedding", "the weight");
  check(weight.dim() == 2, "embedding", "the weight must be [num, dim], got ", weight);
  const std::int64_t num = weight.size(0), dim = weight.size(1);
  const Tensor list = checked_indices(indices, num, "embedding");
  check(!padding_idx || (*padding_idx >= 0 && *padding_idx < num), "embedding", "padding_idx ", padding_idx.value_or(0),
        " is outside a table of ", num, " rows");
  Shape shape = indices.shape();
  check(shape.size() < Shape::max_rank, "embedding", "the indices ", indices, " have no room for one more dim");
  shape.push_back(dim);
  Tensor y = detail::make(shape, weight.dtype());
  const Tensor table = packed(weight);
  kernels::gather_rows(weight.dtype(), list.numel(), dim, detail::pointer(table), list.data<std::int64_t>(),
                       detail::mutable_pointer(y));
  return record("embedding", y,
                wrt_part(
                    weight, saving(list),
                    [padding_idx](const Tensor& g, const Tensor& I, const Shape& s) {
                      return embedding_scatter(g, I, s[0], padding_idx);
                    },
                    [padding_idx](const Tensor& dW, const Tensor& g, const Tensor& I) {
                      if (!padding_idx) return detail::add_rows(dW, g, I, 1);
                      const Tensor row = select(dW, 0, *padding_idx), before = clone(row);
                      detail::add_rows(dW, g, I, 1);
                      detail::write(row, before);
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
  Tensor y = zeros({num, x.size(-1)}, {.dtype = x.dtype()});
  detail::add_rows(y, x, list, 1);
  if (padding_idx && *padding_idx >= 0 && *padding_idx < num) detail::fill(select(y, 0, *padding_idx), 0);
  return record("embedding_scatter", y, wrt(x, saving(list), [padding_idx](const Tensor& g, const Tensor& I) {
                  const Tensor back = embedding(g, I);
                  return padding_idx ? masked_fill(back, unsqueeze(I == *padding_idx, -1), 0) : back;
                }));
}

namespace {

/// The numbers of the rows of a tensor of `shape` (whose dims all number rows) whose index along d is given by `list`
/// and along the others by the place in `result`; `list` and `result` have one rank.
Tensor row_numbers(const Shape& shape, std::int64_t d, const Tensor& list, const Shape& result) {
  if (result.numel() == 0) return detail::make({0}, Int64);
  const NoGradGuard guard;
  const Shape steps = detail::row_major_strides(shape);
  Tensor numbers = list * steps[d];
  for (int i = 0; i < shape.size(); ++i) {
    if (i == d) continue;
    Shape column = shape;
    std::fill(column.begin(), column.end(), 1);
    column[i] = result[i];
    numbers = numbers + reshape(arange(result[i]) * steps[i], column);
  }
  return packed(numbers);
}

}  // namespace

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_defined(x, "index_select", "the tensor");
  check_defined(index, "index_select", "the index");
  check(index.dim() <= 1, "index_select", "the index must be 1-d, got ", index);
  const std::int64_t d = wrap_dim(dim, x.dim(), "index_select");
  if (x.dim() == 0) {
    check(index.numel() == 1, "index_select", "a 0-d tensor has one element to select, the index is ", index);
    return reshape(index_select(reshape(x, {1}), 0, index), {});
  }
  checked_indices(index, x.size(d), "index_select");
  const auto dims = static_cast<int>(d) + 1;
  Shape front = Shape(x.shape().begin(), x.shape().begin() + dims), column = front, result = x.shape();
  std::fill(column.begin(), column.end(), 1);
  column[d] = result[d] = index.numel();
  Shape numbered = front;
  numbered[d] = index.numel();
  // Without elements the other dims may be too large to number.
  const bool nothing = result.numel() == 0;
  const Tensor list = nothing ? detail::make({0}, Int64) : row_numbers(front, d, reshape(index, column), numbered);
  return detail::lookup("index_select", x, {dims, list, result});
}

namespace {

/// For gather and scatter_add: where each element of `index` points in x's row-major elements.
Rows elements_at(const Tensor& x, std::int64_t d, const Tensor& index, const char* op) {
  if (index.numel() == 0) return {x.shape().size(), detail::make({0}, Int64), index.shape()};
  check(index.dtype() == Int64, op, "indices must be Int64, got ", index.dtype(), " ", index);
  check(index.dim() == x.dim(), op, "the ranks of ", x, " and of the index ", index, " differ");
  for (int i = 0; i < x.shape().size(); ++i)
    check(i == d || index.shape()[i] <= x.shape()[i], op, "the index ", index, " is larger than ", x, " in dim ", i);
  checked_indices(index, x.size(d), op);
  return {x.shape().size(), row_numbers(x.shape(), d, index, index.shape()), index.shape()};
}

/// A 0-d tensor as the 1-d tensor that it counts as.
Tensor as_row(const Tensor& x) { return x.dim() == 0 ? reshape(x, {1}) : x; }

}  // namespace

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_defined(x, "gather", "the tensor");
  check_defined(index, "gather", "the index");
  const std::int64_t d = wrap_dim(dim, x.dim(), "gather");
  Rows rows = elements_at(as_row(x), d, as_row(index), "gather");
  rows.dims = x.shape().size();
  rows.result = index.shape();
  return detail::lookup("gather", x, rows);
}

Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src) {
  check_defined(x, "scatter_add", "the tensor");
  check_defined(index, "scatter_add", "the index");
  check_defined(src, "scatter_add", "the source");
  check(src.dtype() == x.dtype(), "scatter_add", "the dtypes of ", x, " ", x.dtype(), " and the source ", src, " ",
        src.dtype(), " differ");
  const std::int64_t d = wrap_dim(dim, x.dim(), "scatter_add");
  const Tensor places = as_row(index);
  Rows rows = elements_at(as_row(x), d, places, "scatter_add");
  rows.dims = x.shape().size();
  if (places.numel() == 0) {  // adds nothing, whatever the source is
    rows.result = {0};
    return detail::rows_added("scatter_add", x, narrow(reshape(src, {-1}), 0, 0, 0), rows);
  }
  Tensor part = as_row(src);
  check(part.dim() == places.dim(), "scatter_add", "the ranks of the source ", src, " and of the index ", index,
        " differ");
  for (int i = 0; i < places.shape().size(); ++i) {
    check(places.shape()[i] <= part.shape()[i], "scatter_add", "the index ", index, " is larger than the source ", src);
    if (places.shape()[i] < part.shape()[i]) part = narrow(part, i, 0, places.shape()[i]);
  }
  return detail::rows_added("scatter_add", x, part, rows);
}

}  // namespace gradus
