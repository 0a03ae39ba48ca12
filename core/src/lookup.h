#pragma once
// Rows of a tensor by index: what embedding, index_select, gather, scatter_add and index share.
#include <gradus/tensor.h>

namespace gradus::detail {

/// Which rows of a tensor an op reads or writes: its first `dims` dims, row-major, number the rows, the others make one
/// up. `list` (Int64, row-major) has the number of each row; `result` is the shape of all those rows together.
struct Rows {
  int dims;
  Tensor list;
  Shape result;
};

/// y = the rows of x :  dx = G added up at the rows
Tensor lookup(const char* op, const Tensor& x, const Rows& rows);
/// y = x with v added at the rows :  dx = G, dv = the rows of G.
Tensor rows_added(const char* op, const Tensor& x, const Tensor& v, const Rows& rows);

/// How many elements a row of x has.
std::int64_t row_length(const Shape& shape, int dims);
/// The rows' values v (of the shape rows.result) written, or added, to x in place; x may have any strides. No history,
/// no checks.
void put_rows(const Tensor& x, const Tensor& v, const Rows& rows, bool accumulate);

}  // namespace gradus::detail
