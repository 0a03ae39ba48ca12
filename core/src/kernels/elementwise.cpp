// Elementwise work over arbitrary strides: dimensions that lie behind each other in every operand are joined, the
// innermost of those left is a run of the table, and the others are counted through.
#include <array>

#include "kernels.h"
#include "parallel.h"

namespace gradus::kernels {
namespace {

// The joined dimensions, innermost first, with the strides of N operands in bytes.
template <int N>
struct Loop {
  int rank = 0;
  i64 size[Shape::max_rank];
  i64 stride[N][Shape::max_rank];

  Loop(const Shape& shape, const std::array<const Shape*, N>& strides, const std::array<i64, N>& bytes) {
    for (const i64 n : shape) {
      if (n > 0) continue;
      run_of(0, bytes);  // the other sizes may be too large to multiply
      return;
    }
    for (int d = shape.size(); d-- > 0;) {
      const i64 n = shape[d];
      if (n == 1) continue;
      bool joins = rank > 0;
      for (int k = 0; k < N && joins; ++k) joins = (*strides[k])[d] * bytes[k] == stride[k][rank - 1] * size[rank - 1];
      if (joins) {
        size[rank - 1] *= n;
        continue;
      }
      size[rank] = n;
      for (int k = 0; k < N; ++k) stride[k][rank] = (*strides[k])[d] * bytes[k];
      ++rank;
    }
    if (rank == 0) run_of(1, bytes);
  }

  // n neighbours
  void run_of(i64 n, const std::array<i64, N>& bytes) {
    size[0] = n;
    for (int k = 0; k < N; ++k) stride[k][0] = bytes[k];
    rank = 1;
  }
};

// Calls run(length, offsets in bytes) for each run of the loop. A run longer than a piece is cut; shorter ones are
// bundled.
template <int N, class Run>
void for_each_run(const Loop<N>& loop, Run run) {
  using Offsets = std::array<i64, N>;
  const i64 n = loop.size[0];
  if (loop.rank == 1 && n <= piece) {
    if (n > 0) run(n, Offsets{});
    return;
  }
  i64 outer = 1;
  for (int d = 1; d < loop.rank; ++d) outer *= loop.size[d];
  if (n == 0 || outer == 0) return;
  const i64 cuts = (n + piece - 1) / piece;               // of one run
  const i64 bundle = cuts > 1 ? 1 : (piece + n - 1) / n;  // runs in one piece
  const i64 units = outer * cuts;
  parallel((units + bundle - 1) / bundle, [&](i64 part) {
    const i64 first = part * bundle;
    const i64 last = first + bundle < units ? first + bundle : units;
    const i64 start = first % cuts * piece;
    const i64 length = n - start < piece ? n - start : piece;
    // The place of the first run, then onwards like an odometer.
    i64 index[Shape::max_rank];
    Offsets offset;
    for (int k = 0; k < N; ++k) offset[k] = start * loop.stride[k][0];
    i64 rest = first / cuts;
    for (int d = 1; d < loop.rank; ++d) {
      index[d] = rest % loop.size[d];
      rest /= loop.size[d];
      for (int k = 0; k < N; ++k) offset[k] += index[d] * loop.stride[k][d];
    }
    for (i64 u = first; u < last; ++u) {
      run(length, offset);
      for (int d = 1; d < loop.rank; ++d) {
        for (int k = 0; k < N; ++k) offset[k] += loop.stride[k][d];
        if (++index[d] < loop.size[d]) break;
        for (int k = 0; k < N; ++k) offset[k] -= loop.size[d] * loop.stride[k][d];
        index[d] = 0;
      }
    }
  });
}

const void* at(const void* p, i64 bytes) { return static_cast<const char*>(p) + bytes; }
void* at(void* p, i64 bytes) { return static_cast<char*>(p) + bytes; }

}  // namespace

void unary(UnaryRun run, DType in, DType out, const Shape& shape, const void* x, const Shape& sx, void* y,
           const Shape& sy, double p, double q) {
  const i64 bx = size_of(in), by = size_of(out);
  const Loop<2> loop(shape, {&sx, &sy}, {bx, by});
  const i64 rx = loop.stride[0][0] / bx, ry = loop.stride[1][0] / by;
  for_each_run(loop, [&](i64 n, const std::array<i64, 2>& o) { run(n, at(x, o[0]), rx, at(y, o[1]), ry, p, q); });
}

void binary(BinaryRun run, DType in, DType out, const Shape& shape, const void* a, const Shape& sa, const void* b,
            const Shape& sb, void* y, const Shape& sy) {
  const i64 bx = size_of(in), by = size_of(out);
  const Loop<3> loop(shape, {&sa, &sb, &sy}, {bx, bx, by});
  const i64 ra = loop.stride[0][0] / bx, rb = loop.stride[1][0] / bx, ry = loop.stride[2][0] / by;
  for_each_run(loop,
               [&](i64 n, const std::array<i64, 3>& o) { run(n, at(a, o[0]), ra, at(b, o[1]), rb, at(y, o[2]), ry); });
}

void select(DType dtype, const Shape& shape, const bool* c, const Shape& sc, const void* a, const Shape& sa,
            const void* b, const Shape& sb, void* y, const Shape& sy) {
  const SelectRun run = table().select(dtype);
  const i64 bytes = size_of(dtype);
  const Loop<4> loop(shape, {&sc, &sa, &sb, &sy}, {1, bytes, bytes, bytes});
  const i64 rc = loop.stride[0][0], ra = loop.stride[1][0] / bytes, rb = loop.stride[2][0] / bytes,
            ry = loop.stride[3][0] / bytes;
  for_each_run(loop, [&](i64 n, const std::array<i64, 4>& o) {
    run(n, c + o[0], rc, at(a, o[1]), ra, at(b, o[2]), rb, at(y, o[3]), ry);
  });
}

}  // namespace gradus::kernels
