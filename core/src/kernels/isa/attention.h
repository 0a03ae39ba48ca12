#pragma once
// What attention needs forward and backward (attention.cpp, attention_backward.cpp): how it is cut, working memory,
// products with packed operands, what is hidden, what is dropped.
//
// Every operand that is read along its columns is packed into panels once (products.h); heads are small beside their
// scores, so that costs little, and the products run from the first cache whatever the strides of the head are.
//
// What is hidden has the score -inf and so weighs exactly 0. A NaN or infinity of a hidden key still turns 0·x into NaN
// here: the result says whether that happened, and the caller then takes the way that skips what is hidden.
#include "../scratch.h"
#include "families.h"
#include "math.h"
#include "products.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 block_queries = 4 * tile_rows;
constexpr i64 tile_keys = 96;  // whole panels, and whole tiles of Pᵀ, for every set and both types

// This thread's working memory, handed out in pieces that start on a cache line.
class Space {
 public:
  explicit Space(i64 bytes) : next_(static_cast<char*>(scratch(4, static_cast<std::size_t>(bytes)))) {}
  template <class T>
  T* take(i64 count) {
    char* piece = next_;
    next_ += bytes<T>(count);
    return reinterpret_cast<T*>(piece);
  }
  template <class T>
  static i64 bytes(i64 count) {
    return (count * static_cast<i64>(sizeof(T)) + 63) / 64 * 64;
  }

 private:
  char* next_;
};

// n as whole steps.
GRADUS_INLINE i64 up(i64 n, i64 step) { return (n + step - 1) / step * step; }
GRADUS_INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

// Whether x - x is 0 everywhere: no NaN, no infinity. Gathered lane by lane, as bits: to add would take longer.
template <class T>
struct Finite {
  Int<T> bits{};
  GRADUS_INLINE void look(Vec<T> x) { bits |= (Int<T>)(x - x); }
  GRADUS_INLINE void look(i64 rows, i64 n, const T* x, i64 row) {
    for (i64 r = 0; r < rows; ++r, x += row)
      each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED { look(load_up_to(x + i, count)); });
  }
  GRADUS_INLINE bool all() const {
    typename Lanes<T>::Word any = 0;
    for (int l = 0; l < Lanes<T>::count; ++l) any |= bits[l];
    return any == 0;
  }
};

// The rows of a head lie far apart, mostly on pages that the processor does not foresee. Few are there soon enough.
constexpr i64 few_rows = 16;
template <class T>
GRADUS_INLINE void ask_to_write(i64 rows, i64 n, const T* x, i64 row) {
  for (i64 r = 0; r < rows && rows > few_rows; ++r) ask_for<1>(n, x + r * row);
}
// While row x is read, with which `left` of all rows begin: for one that comes after it.
template <class T>
GRADUS_INLINE void ask_ahead(i64 left, i64 rows, i64 n, const T* x, i64 row) {
  constexpr i64 ahead = 8;
  if (rows > few_rows && left > ahead) ask_for<0>(n, x + ahead * row);
}

// y = x·scale for rows of n, both with strides.
template <class T>
GRADUS_INLINE void scaled_rows(i64 rows, i64 n, const T* x, i64 x_row, T scale, T* y, i64 y_row) {
  for (i64 r = 0; r < rows; ++r, x += x_row, y += y_row) {
    ask_ahead(rows - r, rows, n, x, x_row);
    each_vector<T>(
        n, [&](i64 i, i64 count) GRADUS_INLINED { store_up_to<T>(y + i, load_up_to(x + i, count) * scale, count); });
  }
}

// C = A·B with the rows of A `a_row` apart, B in panels of k rows, packed one after the other.
template <class T>
GRADUS_INLINE void multiply_packed(i64 m, i64 n, i64 k, const T* a, i64 a_row, const T* panels, T* c, i64 c_row) {
  constexpr i64 nr = tile_cols<T>;
  multiply(PanelProduct<T>{.m = m,
                           .n = n,
                           .k = k,
                           .a = a,
                           .a_row = a_row,
                           .a_col = 1,
                           .b = panels,
                           .b_row = nr,
                           .b_panel = nr * k,
                           .c = c,
                           .c_row = c_row});
}

template <class T>
void clear(i64 rows, i64 n, T* x, i64 x_row) {
  for (i64 r = 0; r < rows; ++r, x += x_row)
    for (i64 c = 0; c < n; ++c) x[c] = 0;
}

// The right operand of products, row by row: packed, or read where it lies.
template <class T>
struct Rows {
  const T* from;
  i64 row, panel;
};
// Few rows are not worth packing, but only whole panels may be read: beyond the last column lies what is not ours.
template <class T>
GRADUS_INLINE bool in_place(i64 rows, i64 columns) {
  return rows <= 16 && columns % tile_cols<T> == 0;
}
template <class T>
Rows<T> as_panels(i64 rows, i64 columns, const T* x, i64 x_row, T* panels) {
  constexpr i64 nr = tile_cols<T>;
  if (in_place<T>(rows, columns)) return {x, x_row, nr};
  pack_panels(rows, columns, x, x_row, 1, panels, nr * rows);
  return {panels, nr, nr * rows};
}

// ---- what is hidden

// Bytes as integers of a vector's width: as many as it has lanes, from the lowest of `word` on. (What g++ makes of
// __builtin_convertvector takes them out one by one.)
#if defined(__AVX512F__)
GRADUS_INLINE VecI64 widened(std::uint64_t word, double) {
  return (VecI64)_mm512_cvtepi8_epi64(_mm_cvtsi64_si128(static_cast<std::int64_t>(word)));
}
#elif defined(__AVX2__)
GRADUS_INLINE VecI32 widened(std::uint64_t word, float) {
  return (VecI32)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<std::int64_t>(word)));
}
GRADUS_INLINE VecI64 widened(std::uint64_t word, double) {
  return (VecI64)_mm256_cvtepi8_epi64(_mm_cvtsi64_si128(static_cast<std::int64_t>(word)));
}
#endif
template <class T>
GRADUS_INLINE Int<T> widened(std::uint64_t word, T) {
  typedef std::int8_t Bytes __attribute__((vector_size(Lanes<T>::count)));
  Bytes bytes;
  __builtin_memcpy(&bytes, &word, sizeof bytes);
  return __builtin_convertvector(bytes, Int<T>);
}

// Which of the bools p[0], p[step], … are false, as a vector: all bits where one is, none where it is true. `count` of
// them are there, and `before` more lie before p.
template <class T>
GRADUS_INLINE Int<T> falsehoods(const bool* p, i64 step, i64 count, i64 before) {
  constexpr i64 w = Lanes<T>::count;
  if constexpr (w > 8) {
#if defined(__AVX512F__)
    if (step == 1 && count >= w)
      return (Int<T>)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))) == Int<T>{};
#endif
  } else if (step == 1 && count >= w) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, p, w);
    return widened(word, T()) == Int<T>{};
  } else if (step == 1 && count + before >= 8) {
    // The last eight, moved down: vectors that are loaded right after their bytes were stored would wait for them.
    std::uint64_t word;
    __builtin_memcpy(&word, p + count - 8, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word <<= 64 - 8 * count;
#else
    word >>= 64 - 8 * count;
#endif
    return widened(word, T()) == Int<T>{};
  }
  Int<T> lanes{};
  for (i64 l = 0; l < w && l < count; ++l) lanes[l] = p[l * step] ? 0 : -1;
  return lanes;
}

// Scores of the queries from i0 on for the keys from j0 on: what is added is added, what is hidden becomes -inf. Whole
// vectors are written; beyond the last column anything may stand.
template <class T>
void hide(const AttentionHead& h, i64 i0, i64 rows, i64 j0, i64 columns, T* s, i64 s_row) {
  constexpr i64 w = Lanes<T>::count;
  using Word = typename Lanes<T>::Word;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
  if (h.seen && h.mask_col == 1 && !h.added &&
      !h.causal) {  // the usual case: short heads spend much of their time here
    const bool* seen = h.seen + i0 * h.mask_row + j0;
    for (i64 r = 0; r < rows; ++r, s += s_row, seen += h.mask_row) {
      i64 j = 0;
      for (; j + w <= columns; j += w) store<T>(s + j, falsehoods<T>(seen + j, 1, w, j) ? hidden : load(s + j));
      if (j < columns) store<T>(s + j, falsehoods<T>(seen + j, 1, columns - j, j) ? hidden : load(s + j));
    }
    return;
  }
  const Int<T> lane = lane_numbers<T>();
  for (i64 r = 0; r < rows; ++r, s += s_row) {
    const i64 at = (i0 + r) * h.mask_row + j0 * h.mask_col;
    const i64 seen_end = h.causal ? i0 + r + h.last - j0 + 1 : columns;  // of the keys up to the last
    for (i64 j = 0; j < columns; j += w) {
      const i64 left = seen_end - j;
      if (left <= 0) {
        store<T>(s + j, hidden);
        continue;
      }
      Vec<T> v = load(s + j);
      if (h.added) {
        const Vec<T> a = load_strided(static_cast<const T*>(h.added) + at + j * h.mask_col, h.mask_col, columns - j);
        v = a == hidden ? hidden : v + a;
      }
      if (h.seen) v = falsehoods<T>(h.seen + at + j * h.mask_col, h.mask_col, columns - j, j) ? hidden : v;
      if (left < w) v = lane < static_cast<Word>(left) ? v : hidden;
      store<T>(s + j, v);
    }
  }
}

// The same for a tile of scores: what all queries see is passed over, in whole vectors.
template <class T>
GRADUS_INLINE void hide_unseen(const AttentionHead& h, SeenTile seen, i64 i0, i64 rows, i64 j0, T* s, i64 s_row) {
  if (seen.shown >= seen.end) return;
  const i64 from = seen.shown / Lanes<T>::count * Lanes<T>::count;
  hide(h, i0, rows, j0 + from, seen.end - from, s + from, s_row);
}

// ---- dropout: the same field that dropping a tensor of all weights would draw

// A vector full of weights: which of them are dropped.
template <class T>
GRADUS_INLINE Int<T> dropped(const std::uint32_t* words, std::uint32_t threshold) {
  if constexpr (sizeof(T) == 4) {
    VecU32 v;
    __builtin_memcpy(&v, words, sizeof v);
    return (Int<T>)(v < threshold);
  } else {
    Int<T> drop{};
    for (int l = 0; l < Lanes<T>::count; ++l) drop[l] = words[l] < threshold ? -1 : 0;
    return drop;
  }
}

struct Drawn {
  const std::uint32_t* words;
  i64 row;
};

class Field {
 public:
  explicit Field(const AttentionHead& h)
      : field_(h.dropout),
        first_(h.first_weight),
        keys_(h.keys),
        threshold_(static_cast<std::uint32_t>(h.dropout.p * 4294967296.0 + 0.5)) {}
  bool none() const { return field_.p == 0; }
  double scale() const { return 1 / (1 - field_.p); }
  std::uint32_t threshold() const { return threshold_; }

  // The words of the weights of `rows` queries from i on and `columns` keys from j on.
  Drawn draw(i64 i, i64 rows, i64 j, i64 columns, std::uint32_t* space) const {
    // The stream is drawn in blocks of four words.
    const i64 at = first_ + i * keys_ + j, skip = at % 4;
    if (columns == keys_) {
      philox(field_.seed, field_.offset, at - skip, rows * keys_ + skip, space);
      return {space + skip, keys_};
    }
    constexpr i64 row = tile_keys;
    std::uint32_t words[tile_keys + 4];
    for (i64 r = 0; r < rows; ++r) {
      const i64 start = at + r * keys_, before = start % 4;
      philox(field_.seed, field_.offset, start - before, columns + before, words);
      __builtin_memcpy(space + r * row, words + before, static_cast<std::size_t>(columns) * sizeof(std::uint32_t));
    }
    return {space, row};
  }
  // For that, with what philox and whole vectors read or write beyond.
  static constexpr i64 most_words = 2 * block_queries * tile_keys + 64;

 private:
  DropoutField field_;
  i64 first_, keys_;
  std::uint32_t threshold_;
};

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
