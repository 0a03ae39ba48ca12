// The kernels on rows and on plain runs, cut into pieces.
#include <gradus/threads.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "column_sums.h"
#include "kernels.h"
#include "parallel.h"
#include "prefetch.h"
#include "scratch.h"
#include "typed.h"

namespace gradus::kernels {
namespace {

// Calls f(first row, rows) for bundles of whole rows.
template <class F>
void for_rows(i64 rows, i64 n, F f) {
  if (rows == 0 || n == 0) return;
  const i64 bundle = std::max<i64>(1, piece / n);
  if (rows <= bundle) return f(i64{0}, rows);
  parallel((rows + bundle - 1) / bundle, [&](i64 i) { f(i * bundle, std::min(bundle, rows - i * bundle)); });
}

// Calls f(first, end) for spans of `width` of n things.
template <class F>
void for_spans(i64 n, i64 width, F f) {
  if (n == 0) return;
  parallel((n + width - 1) / width, [&](i64 i) { f(i * width, std::min(n, (i + 1) * width)); });
}

}  // namespace

void softmax(DType dtype, i64 rows, i64 n, const void* x, void* y) {
  for_rows(rows, n,
           [&](i64 r, i64 count) { table().softmax(dtype, count, n, at(x, r * n, dtype), at(y, r * n, dtype)); });
}

void softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().softmax_backward(dtype, count, n, at(g, r * n, dtype), at(y, r * n, dtype), at(dx, r * n, dtype));
  });
}

void masked_softmax(DType dtype, const Shape& shape, const void* x, const bool* mask, const Shape& mask_strides,
                    void* y) {
  const int last = shape.size() - 1;
  const i64 n = shape[last], rows = shape.numel() / std::max<i64>(n, 1);
  for_rows(rows, n, [&](i64 first, i64 count) {
    // Where the mask's row lies: the row's index in the leading dims, taken apart once and then counted up.
    i64 offset = 0, rest = first;
    Shape index = shape;
    for (int d = last - 1; d >= 0; --d) {
      index[d] = rest % shape[d];
      rest /= shape[d];
      offset += index[d] * mask_strides[d];
    }
    for (i64 r = first; r < first + count; ++r) {
      table().masked_softmax(dtype, n, at(x, r * n, dtype), mask + offset, mask_strides[last], at(y, r * n, dtype));
      for (int d = last - 1; d >= 0; --d) {
        offset += mask_strides[d];
        if (++index[d] < shape[d]) break;
        offset -= shape[d] * mask_strides[d];
        index[d] = 0;
      }
    }
  });
}

void masked_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().masked_softmax_backward(dtype, count, n, at(g, r * n, dtype), at(y, r * n, dtype), at(dx, r * n, dtype));
  });
}

void log_softmax(DType dtype, i64 rows, i64 n, const void* x, void* y) {
  for_rows(rows, n,
           [&](i64 r, i64 count) { table().log_softmax(dtype, count, n, at(x, r * n, dtype), at(y, r * n, dtype)); });
}

void log_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().log_softmax_backward(dtype, count, n, at(g, r * n, dtype), at(y, r * n, dtype), at(dx, r * n, dtype));
  });
}

void logsumexp(DType dtype, i64 rows, i64 n, const void* x, void* y) {
  for_rows(rows, n,
           [&](i64 r, i64 count) { table().logsumexp(dtype, count, n, at(x, r * n, dtype), at(y, r, dtype)); });
}

void layer_norm(DType dtype, i64 rows, i64 n, const void* x, const void* gamma, const void* beta, double eps, void* y,
                void* mean, void* rstd) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().layer_norm(dtype, count, n, at(x, r * n, dtype), gamma, beta, eps, at(y, r * n, dtype),
                       at(mean, 2 * r, dtype), at(rstd, r, dtype));
  });
}

void layer_norm_backward(DType dtype, i64 rows, i64 n, const void* g, const void* x, const void* gamma,
                         const void* mean, const void* rstd, void* dx, void* dgamma, void* dbeta) {
  if (n == 0) return;
  const auto part = [&](i64 r, i64 count, double* to) {
    table().layer_norm_backward(dtype, count, n, at(g, r * n, dtype), at(x, r * n, dtype), gamma,
                                at(mean, 2 * r, dtype), at(rstd, r, dtype), at(dx, r * n, dtype), to,
                                to ? to + n : nullptr);
  };
  if (!dgamma) return for_rows(rows, n, [&](i64 r, i64 count) { part(r, count, nullptr); });
  const double* sums = column_sums(rows, n, 2 * n, part);
  store_sums(dtype, n, sums, dgamma);
  store_sums(dtype, n, sums + n, dbeta);
}

void cross_entropy(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                   const void* weight, void* loss, double* top_sum) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().cross_entropy(dtype, count, n, at(x, r * n, dtype), target + r, ignore, smoothing, weight,
                          at(loss, r, dtype), top_sum + 2 * r);
  });
}

void cross_entropy_backward(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                            double smoothing, const void* weight, const double* top_sum, const void* scale, void* dx) {
  for_rows(rows, n, [&](i64 r, i64 count) {
    table().cross_entropy_backward(dtype, count, n, at(x, r * n, dtype), target + r, ignore, smoothing, weight,
                                   top_sum + 2 * r, at(scale, r, dtype), at(dx, r * n, dtype));
  });
}

void dropout(DType dtype, const DropoutField& field, i64 n, const void* x, void* y) {
  static_assert(piece % 4 == 0, "a piece starts with a block of the stream");
  for_spans(n, piece,
            [&](i64 i0, i64 i1) { table().dropout(dtype, field, i0, i1 - i0, at(x, i0, dtype), at(y, i0, dtype)); });
}

void adam(DType dtype, i64 n, const AdamStep& s, void* param, const void* grad, void* m, void* v, void* v_max) {
  for_spans(n, piece, [&](i64 i0, i64 i1) {
    table().adam(dtype, i1 - i0, s, at(param, i0, dtype), at(grad, i0, dtype), at(m, i0, dtype), at(v, i0, dtype),
                 at(v_max, i0, dtype));
  });
}

void sgd(DType dtype, i64 n, const SgdStep& s, void* param, const void* grad, void* buffer) {
  for_spans(n, piece, [&](i64 i0, i64 i1) {
    table().sgd(dtype, i1 - i0, s, at(param, i0, dtype), at(grad, i0, dtype), at(buffer, i0, dtype));
  });
}

void gather_rows(DType dtype, i64 rows, i64 n, const void* x, const i64* index, void* y) {
  if (n == 1) {
    return with_type(dtype, [&]<class T>(T) {
      for_rows(rows, n, [&](i64 r, i64 count) {
        for (i64 i = r; i < r + count; ++i) static_cast<T*>(y)[i] = static_cast<const T*>(x)[index[i]];
      });
    });
  }
  for_rows(rows, n, [&](i64 r, i64 count) {
    const auto bytes = static_cast<std::size_t>(n * size_of(dtype));
    for (i64 i = r; i < r + count; ++i) std::memcpy(at(y, i * n, dtype), at(x, index[i] * n, dtype), bytes);
  });
}

namespace {

// The columns [first, first + count) of so many rows of g, in this order (null: as they lie), added to those of y.
void add_in_order(DType dtype, i64 rows, const i64* order, i64 n, i64 first, i64 count, const void* g, const i64* index,
                  void* y) {
  constexpr i64 step = 128, ahead = 2;
  const BinaryRun add = table().binary(Binary::Add, dtype);
  const i64 line = 64 / size_of(dtype);
  for (i64 k = 0; k < rows; ++k) {
    const auto row = [&](i64 i) { return order ? order[i] : i; };
    const i64 r = row(k), later = k + ahead < rows ? row(k + ahead) : -1;
    // In steps: a row to come, which the processor does not foresee, is asked for little by little.
    for (i64 i = first; i < first + count; i += step) {
      const i64 end = std::min(i + step, first + count);
      for (i64 j = i; later >= 0 && j < end; j += line) prefetch<0>(at(g, later * n + j, dtype));
      void* to = at(y, index[r] * n + i, dtype);
      add(end - i, to, 1, at(g, r * n + i, dtype), 1, to, 1);
    }
  }
}

}  // namespace

// Each element of y gets its terms in the order of the rows of g, whoever adds them up. One thread takes the rows as
// they lie. Several share the rows of y among them, by turns, since neighbours in a table are often looked up equally
// often; and where each is looked up several times, its terms are added up one after the other, while it is in the
// nearest cache.
void scatter_add_rows(DType dtype, i64 rows, i64 n, const void* g, const i64* index, i64 y_rows, void* y) {
  if (n == 1) {
    return with_type(dtype, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, bool>)
        for (i64 r = 0; r < rows; ++r) static_cast<T*>(y)[index[r]] += static_cast<const T*>(g)[r];
    });
  }
  if (rows * n <= piece || num_threads() == 1) return add_in_order(dtype, rows, nullptr, n, 0, n, g, index, y);
  constexpr i64 columns = 512, most_parts = 16;
  const i64 spans = (n + columns - 1) / columns, parts = std::clamp<i64>(n / 32, 1, most_parts);
  // The rows of g in buckets, one for each row of y or for each part; start: where the parts begin.
  const bool often = rows >= 2 * y_rows;
  const i64 buckets = often ? y_rows : parts;
  const auto bucket = [&](i64 r) { return often ? index[r] : index[r] % parts; };
  auto* order = static_cast<i64*>(scratch(2, static_cast<std::size_t>(rows + buckets) * sizeof(i64)));
  i64 *next = order + rows, start[most_parts + 1];
  std::fill_n(next, buckets, 0);
  for (i64 r = 0; r < rows; ++r) ++next[bucket(r)];
  i64 before = 0;
  for (i64 part = 0; part < parts; ++part) {
    start[part] = before;
    for (i64 b = part; b < buckets; b += parts) before += std::exchange(next[b], before);
  }
  start[parts] = rows;
  for (i64 r = 0; r < rows; ++r) order[next[bucket(r)]++] = r;
  parallel(parts * spans, [&](i64 i) {
    const i64 first = i % spans * columns, part = i / spans;
    add_in_order(dtype, start[part + 1] - start[part], order + start[part], n, first, std::min(columns, n - first), g,
                 index, y);
  });
}

}  // namespace gradus::kernels
