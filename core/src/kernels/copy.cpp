#include "copy.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"
#include "prefetch.h"

namespace gradus::kernels {
namespace {

// Blocks of block × block elements of `bytes` bytes are transposed; a line of memory holds 64 bytes.
template <class T>
constexpr i64 block = 64 / sizeof(T);

#if defined(__GNUC__)
// Vectors that every x86-64 and ARMv8 processor has; the compiler makes do elsewhere.
typedef float Four __attribute__((vector_size(16)));
typedef double Two __attribute__((vector_size(16)));

inline void transpose_square(const float* x, i64 x_row, float* y, i64 y_row) {
  Four v[4];
  for (i64 i = 0; i < 4; ++i) std::memcpy(&v[i], x + i * x_row, sizeof v[i]);
  const Four a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
  for (i64 i = 0; i < 4; ++i) std::memcpy(y + i * y_row, &v[i], sizeof v[i]);
}
inline void transpose_square(const double* x, i64 x_row, double* y, i64 y_row) {
  Two v[2];
  for (i64 i = 0; i < 2; ++i) std::memcpy(&v[i], x + i * x_row, sizeof v[i]);
  const Two a = __builtin_shufflevector(v[0], v[1], 0, 2), b = __builtin_shufflevector(v[0], v[1], 1, 3);
  std::memcpy(y, &a, sizeof a);
  std::memcpy(y + y_row, &b, sizeof b);
}
template <class T>
constexpr i64 square = 16 / sizeof(T);
#else
template <class T>
void transpose_square(const T* x, i64, T* y, i64) {
  *y = *x;
}
template <class T>
constexpr i64 square = 1;
#endif

// y[j, i] = x[i, j] for i < rows, j < cols. A block is first gathered: rows whose distance is a power of two fall into
// the same few places of a cache, and would push each other out before a line is written.
template <class T>
void transpose_tile(i64 rows, i64 cols, const T* x, i64 x_row, T* y, i64 y_row) {
  constexpr i64 n = block<T>;
  for (i64 j = 0; j < cols; j += n) {
    for (i64 i = 0; i < rows; i += n) {
      const T* from = x + i * x_row + j;
      T* to = y + j * y_row + i;
      const i64 height = std::min(n, rows - i), width = std::min(n, cols - j);
      if (height == n && width == n) {
        alignas(64) T lines[n * n];
        // The lines of the next block are asked for: the processor does not foresee them.
        for (i64 r = 0; r < n; ++r) {
          std::memcpy(lines + r * n, from + r * x_row, 64);
          prefetch<0>(from + (n + r) * x_row);
          prefetch<1>(to + r * y_row + n);
        }
        for (i64 c = 0; c < n; c += square<T>)
          for (i64 r = 0; r < n; r += square<T>) transpose_square(lines + r * n + c, n, to + c * y_row + r, y_row);
      } else {
        for (i64 c = 0; c < width; ++c)
          for (i64 r = 0; r < height; ++r) to[c * y_row + r] = from[r * x_row + c];
      }
    }
  }
}

// What is left of a copy's dims once those that lie behind each other in both are joined, innermost first.
struct Dims {
  int rank = 0;
  i64 size[Shape::max_rank], x[Shape::max_rank], y[Shape::max_rank];

  Dims(const Shape& shape, const Shape& sx, const Shape& sy) {
    for (int d = shape.size(); d-- > 0;) {
      if (shape[d] == 1) continue;
      if (rank > 0 && sx[d] == x[rank - 1] * size[rank - 1] && sy[d] == y[rank - 1] * size[rank - 1]) {
        size[rank - 1] *= shape[d];
      } else {
        size[rank] = shape[d], x[rank] = sx[d], y[rank] = sy[d];
        ++rank;
      }
    }
  }
};

// Tiles of the dims 0 (neighbours in y) and `d` (neighbours in x), for every index of the others.
template <class T>
void transpose_dims(const Dims& dims, int d, const T* x, T* y) {
  constexpr i64 tile = 128;
  const i64 rows = dims.size[0], cols = dims.size[d];
  const i64 down = (rows + tile - 1) / tile, across = (cols + tile - 1) / tile;
  i64 outer = 1;
  for (int k = 1; k < dims.rank; ++k)
    if (k != d) outer *= dims.size[k];
  const i64 tiles = down * across * outer, bundle = std::max<i64>(1, piece / std::min(rows * cols, tile * tile));
  parallel((tiles + bundle - 1) / bundle, [&](i64 part) {
    for (i64 t = part * bundle; t < std::min(tiles, (part + 1) * bundle); ++t) {
      const i64 i = t % down * tile, j = t / down % across * tile;
      const T* from = x + i * dims.x[0] + j;
      T* to = y + j * dims.y[d] + i;
      i64 rest = t / (down * across);
      for (int k = 1; k < dims.rank; ++k) {
        if (k == d) continue;
        const i64 index = rest % dims.size[k];
        rest /= dims.size[k];
        from += index * dims.x[k];
        to += index * dims.y[k];
      }
      transpose_tile(std::min(tile, rows - i), std::min(tile, cols - j), from, dims.x[0], to, dims.y[d]);
    }
  });
}

// Runs of neighbours in both, of which the processor foresees each but not the next.
void copy_runs(const Dims& dims, i64 bytes, const char* x, char* y) {
  const i64 length = dims.size[0] * bytes;
  i64 runs = 1;
  for (int k = 1; k < dims.rank; ++k) runs *= dims.size[k];
  const i64 bundle = (piece + dims.size[0] - 1) / dims.size[0];
  parallel((runs + bundle - 1) / bundle, [&](i64 part) {
    i64 index[Shape::max_rank], rest = part * bundle, from = 0, to = 0;
    for (int k = 1; k < dims.rank; ++k) {
      index[k] = rest % dims.size[k];
      rest /= dims.size[k];
      from += index[k] * dims.x[k];
      to += index[k] * dims.y[k];
    }
    for (i64 r = part * bundle; r < std::min(runs, (part + 1) * bundle); ++r) {
      for (i64 line = 0; line < length; line += 64) prefetch<0>(x + (from + 4 * dims.x[1]) * bytes + line);
      std::memcpy(y + to * bytes, x + from * bytes, static_cast<std::size_t>(length));
      for (int k = 1; k < dims.rank; ++k) {
        from += dims.x[k];
        to += dims.y[k];
        if (++index[k] < dims.size[k]) break;
        from -= dims.size[k] * dims.x[k];
        to -= dims.size[k] * dims.y[k];
        index[k] = 0;
      }
    }
  });
}

}  // namespace

void copy(DType dtype, const Shape& shape, const void* x, const Shape& sx, void* y, const Shape& sy) {
  const i64 bytes = size_of(dtype), n = shape.numel();
  if (n > 0) {
    const Dims dims(shape, sx, sy);
    if (dims.rank > 1 && dims.y[0] == 1) {
      if (dims.x[0] == 1 && dims.size[0] * bytes >= 64 && dims.size[0] * bytes <= 4096)
        return copy_runs(dims, bytes, static_cast<const char*>(x), static_cast<char*>(y));
      for (int d = 1; d < dims.rank && bytes >= 4 && dims.x[0] > 1; ++d) {
        if (dims.x[d] != 1 || dims.size[0] < 4 || dims.size[d] < 4) continue;
        if (bytes == 4) return transpose_dims(dims, d, static_cast<const float*>(x), static_cast<float*>(y));
        return transpose_dims(dims, d, static_cast<const double*>(x), static_cast<double*>(y));
      }
    }
  }
  unary(table().cast(dtype, dtype), dtype, dtype, shape, x, sx, y, sy);
}

}  // namespace gradus::kernels
