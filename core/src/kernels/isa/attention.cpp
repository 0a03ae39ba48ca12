// Scaled dot-product attention of one head, forward and backward, without the matrix of its weights: a block of queries
// meets the keys tile by tile, and backward computes the weights of a tile anew from what forward kept of each query,
// its largest score and 1/Σ e^(score - largest). Tiles in which nothing is seen are skipped.
//
// Every operand that is read along its columns is packed into panels once (products.h); heads are small beside their
// scores, so that costs little, and the products run from the first cache whatever the strides of the head are.
//
// What is hidden has the score -inf and so weighs exactly 0. A NaN or infinity of a hidden key still turns 0·x into NaN
// here: the result says whether that happened, and the caller then takes the way that skips what is hidden.
#include "../scratch.h"
#include "families.h"
#include "products.h"
#include "rows.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 block_queries = 4 * tile_rows;
constexpr i64 band_queries = 2 * block_queries;  // of backward, whose sums over queries want them longer
constexpr i64 tile_keys = 96;                    // whole panels, and whole tiles of Pᵀ, for every set and both types

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

// Whether x - x is 0 everywhere: no NaN, no infinity. Gathered lane by lane.
template <class T>
struct Finite {
  Vec<T> sum{};
  GRADUS_INLINE void look(Vec<T> x) { sum += x - x; }
  GRADUS_INLINE void look(i64 rows, i64 n, const T* x, i64 row) {
    for (i64 r = 0; r < rows; ++r, x += row)
      each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED { look(load_up_to(x + i, count)); });
  }
  GRADUS_INLINE bool all() const {
    const T total = fold<T>(sum, [](Vec<T> a, Vec<T> b) { return a + b; });
    return total == T(0);
  }
};

// y = x·scale for rows of n, both with strides.
template <class T>
GRADUS_INLINE void scaled_rows(i64 rows, i64 n, const T* x, i64 x_row, T scale, T* y, i64 y_row) {
  for (i64 r = 0; r < rows; ++r, x += x_row, y += y_row)
    each_vector<T>(
        n, [&](i64 i, i64 count) GRADUS_INLINED { store_up_to<T>(y + i, load_up_to(x + i, count) * scale, count); });
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

// The bools p[0], p[step], … as a vector: true as all bits, false as none. `count` of them are there, and `before` more
// lie before p.
template <class T>
GRADUS_INLINE Int<T> truths(const bool* p, i64 step, i64 count, i64 before) {
  constexpr i64 w = Lanes<T>::count;
  typedef std::int8_t Bytes __attribute__((vector_size(w)));
  Bytes bytes;
  if (step == 1 && count >= w) {
    __builtin_memcpy(&bytes, p, sizeof bytes);
  } else if (step == 1 && w <= 8 && count + before >= 8) {
    // The last eight, moved down: vectors that are loaded right after their bytes were stored would wait for them.
    std::uint64_t word;
    __builtin_memcpy(&word, p + count - 8, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word <<= 64 - 8 * count;
#else
    word >>= 64 - 8 * count;
#endif
    __builtin_memcpy(&bytes, &word, sizeof bytes);
  } else {
    Int<T> lanes{};
    for (i64 l = 0; l < w && l < count; ++l) lanes[l] = p[l * step] ? -1 : 0;
    return lanes;
  }
  return __builtin_convertvector(bytes, Int<T>) != Int<T>{};
}

// Scores of the queries from i0 on for the keys from j0 on: what is added is added, what is hidden becomes -inf. Whole
// vectors are written.
template <class T>
void hide(const AttentionHead& h, i64 i0, i64 rows, i64 j0, i64 columns, T* s, i64 s_row) {
  constexpr i64 w = Lanes<T>::count;
  using Word = typename Lanes<T>::Word;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
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
      if (h.seen) v = truths<T>(h.seen + at + j * h.mask_col, h.mask_col, columns - j, j) ? v : hidden;
      if (left < w) v = lane < static_cast<Word>(left) ? v : hidden;
      store<T>(s + j, v);
    }
  }
}

// Whether query i sees any key at all: asked only where every score is -inf.
template <class T>
bool sees_any(const AttentionHead& h, i64 i) {
  for (i64 j = 0; j < h.keys; ++j) {
    if (h.causal && j > i + h.last) break;
    const i64 at = i * h.mask_row + j * h.mask_col;
    // A score that an addition brought to -inf counts as hidden.
    if (h.added || (h.seen && !h.seen[at])) continue;
    return true;
  }
  return false;
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
  static constexpr i64 most_words = band_queries * tile_keys + 64;

 private:
  DropoutField field_;
  i64 first_, keys_;
  std::uint32_t threshold_;
};

// ---- forward

template <class T>
struct Row {
  T top;       // the largest element
  double sum;  // Σ e^(s - top)
};
// The n scores of a row become e^(s - top). Whole vectors are read and written.
template <class T>
GRADUS_INLINE Row<T> exponentials(i64 n, T* s) {
  constexpr i64 w = Lanes<T>::count;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
  const auto tail = [&](i64 j) GRADUS_INLINED {
    return lane_numbers<T>() < static_cast<typename Lanes<T>::Word>(n - j) ? load(s + j) : hidden;
  };
  Sum sum;
  if (n <= 2 * w) {  // stays in registers
    Vec<T> a = n <= w ? tail(0) : load(s), b = n <= w ? hidden : tail(w);
    const T top = largest_lane<T>(max<T>(a, b));
    a = exp_of_negative<T>(a - top);
    b = exp_of_negative<T>(b - top);
    store<T>(s, a);
    if (n > w) store<T>(s + w, b);
    sum.add(a);
    sum.add(b);
    return {top, sum.total()};
  }
  const i64 whole = n / w * w;
  Vec<T> tops[4] = {hidden, hidden, hidden, hidden};
  i64 j = 0;
  for (; j + 4 * w <= whole; j += 4 * w)
    for (int v = 0; v < 4; ++v) tops[v] = max<T>(load(s + j + v * w), tops[v]);
  for (; j < whole; j += w) tops[0] = max<T>(load(s + j), tops[0]);
  if (whole < n) {
    const Vec<T> last = tail(whole);
    store<T>(s + whole, last);
    tops[1] = max<T>(last, tops[1]);
  }
  const T top = largest_lane<T>(max<T>(max<T>(tops[0], tops[1]), max<T>(tops[2], tops[3])));
  // Two vectors are added before they are widened to double: their sum is as exact as they are.
  const i64 pairs = up(n, w) / (2 * w) * (2 * w);
  for (j = 0; j < pairs; j += 2 * w) {
    const Vec<T> a = exp_of_negative<T>(load(s + j) - top), b = exp_of_negative<T>(load(s + j + w) - top);
    store<T>(s + j, a);
    store<T>(s + j + w, b);
    sum.add(a + b);
  }
  if (j < n) {
    const Vec<T> a = exp_of_negative<T>(load(s + j) - top);
    store<T>(s + j, a);
    sum.add(a);
  }
  return {top, sum.total()};
}

template <class T>
bool attention_of(const AttentionHead& h, i64 i0, i64 i1, void* y_, i64 y_row, void* top_scale_) {
  constexpr i64 nr = tile_cols<T>, w = Lanes<T>::count;
  T* y = static_cast<T*>(y_);
  T* top_scale = static_cast<T*>(top_scale_);
  const i64 tiles = up(h.keys, tile_keys) / tile_keys, s_row = up(h.keys, w) + w;
  const i64 k_size = up(h.keys, nr) * h.depth, v_size = up(h.width, nr) * h.keys;
  const i64 m_most = least(block_queries, i1 - i0);
  const Field field(h);

  using S = Space;
  Space space(S::bytes<T>(k_size) + S::bytes<T>(v_size + w) + S::bytes<T>(m_most * h.depth) +
              S::bytes<T>(m_most * s_row) + S::bytes<std::uint32_t>(field.none() ? 0 : Field::most_words));
  T* const k_panels = space.take<T>(k_size);  // of Kᵀ: a tile of keys is whole panels
  T* const v_panels = space.take<T>(v_size + w);
  T* const q = space.take<T>(m_most * h.depth);
  T* const scores = space.take<T>(m_most * s_row);  // of the visible tiles, side by side
  std::uint32_t* const words = field.none() ? nullptr : space.take<std::uint32_t>(Field::most_words);
  pack_panels(h.depth, h.keys, static_cast<const T*>(h.k), 1, h.k_row, k_panels, nr * h.depth);
  const Rows<T> v = as_panels(h.keys, h.width, static_cast<const T*>(h.v), h.v_row, v_panels);

  Finite<T> finite;
  for (i64 i = i0; i < i1; i += block_queries) {
    const i64 m = least(block_queries, i1 - i);
    const SeenTile* seen = h.tiles + i / block_queries * tiles;
    scaled_rows(m, h.depth, static_cast<const T*>(h.q) + i * h.q_row, h.q_row, static_cast<T>(h.scale), q, h.depth);
    i64 n = 0;
    for (i64 t = 0; t < tiles; ++t) {
      if (seen[t].end == 0) continue;
      multiply(PanelProduct<T>{.m = m,
                               .n = up(seen[t].end, w),
                               .k = h.depth,
                               .a = q,
                               .a_row = h.depth,
                               .a_col = 1,
                               .b = k_panels + t * tile_keys * h.depth,
                               .b_row = nr,
                               .b_panel = nr * h.depth,
                               .c = scores + n,
                               .c_row = s_row});
      if (!seen[t].all) hide(h, i, m, t * tile_keys, seen[t].end, scores + n, s_row);
      n += seen[t].end;
    }

    // The rows become e^(s - largest); what makes weights of them is left to the rows of the result.
    for (i64 r = 0; r < m; ++r) {
      const Row<T> row = exponentials(n, scores + r * s_row);
      T* kept = top_scale + 2 * (i + r);
      kept[0] = row.top;
      kept[1] = static_cast<T>(1 / row.sum);
      if (row.top == -Lanes<T>::infinity) {
        if (sees_any<T>(h, i + r)) return false;
        for (i64 j = 0; j < n; ++j) scores[r * s_row + j] = 0;
        kept[0] = kept[1] = 0;
      }
    }
    if (!field.none()) {
      T* s = scores;
      for (i64 t = 0; t < tiles; s += seen[t++].end) {
        if (seen[t].end == 0) continue;
        const Drawn drawn = field.draw(i, m, t * tile_keys, seen[t].end, words);
        for (i64 r = 0; r < m; ++r)
          each_vector<T>(seen[t].end, [&](i64 j, i64 count) GRADUS_INLINED {
            T* e = s + r * s_row + j;
            const auto drop = dropped<T>(drawn.words + r * drawn.row + j, field.threshold());
            store_up_to<T>(e, drop ? Vec<T>{} : load_up_to(e, count), count);
          });
      }
    }

    // Neighbouring tiles are one run of keys.
    T* const out = y + i * y_row;
    bool add = false;
    const T* run = scores;
    for (i64 t = 0; t < tiles;) {
      if (seen[t].end == 0) {
        ++t;
        continue;
      }
      const i64 j = t * tile_keys;
      i64 k = seen[t].end;
      while (seen[t++].end == tile_keys && t < tiles) k += seen[t].end;
      multiply(PanelProduct<T>{.m = m,
                               .n = h.width,
                               .k = k,
                               .a = run,
                               .a_row = s_row,
                               .a_col = 1,
                               .b = v.from + j * v.row,
                               .b_row = v.row,
                               .b_panel = v.panel,
                               .c = out,
                               .c_row = y_row,
                               .add = add});
      add = true;
      run += k;
    }
    for (i64 r = 0; r < m; ++r) {
      T* row = out + r * y_row;
      const T scale = top_scale[2 * (i + r) + 1] * static_cast<T>(field.scale());
      each_vector<T>(h.width, [&](i64 c, i64 count) GRADUS_INLINED {
        const Vec<T> value = add ? load_up_to(row + c, count) * scale : Vec<T>{};
        finite.look(value);
        store_up_to<T>(row + c, value, count);
      });
      finite.look(splat(scale));
    }
  }
  return finite.all();
}

// ---- backward

// P and dP of a tile become what the products need: dropout(P) and dS = P∘(dropout(dP) - Σ P∘dropout(dP)).
template <class T>
struct TileRow {
  T top, scale, sum;           // of this query: its largest score, 1/Σ e^(s - largest), Σ g∘y
  const std::uint32_t* words;  // of dropout, or null
  std::uint32_t threshold;
  T kept;  // what is kept is multiplied by 1/(1-p)
};
template <class T>
GRADUS_INLINE void weigh(i64 n, const TileRow<T>& row, T* s, T* d) {
  constexpr i64 w = Lanes<T>::count;
  for (i64 j = 0; j < n; j += w) {
    const Vec<T> p = exp_of_negative<T>(load(s + j) - row.top) * row.scale;
    Vec<T> dp = load(d + j), weight = p;
    if (row.words) {
      const auto drop = dropped<T>(row.words + j, row.threshold);
      weight = drop ? Vec<T>{} : weight * row.kept;
      dp = drop ? Vec<T>{} : dp * row.kept;
    }
    store<T>(s + j, weight);
    store<T>(d + j, p * (dp - row.sum));
  }
}

// With Q scaled: S = Q·Kᵀ, dV = Pᵀ·G, dP = G·Vᵀ, dS = P∘(dP - Σ P∘dP), dK = dSᵀ·Q, dQ = scale·dS·K. Σ P∘dP of a query
// is Σ g∘y over its result: no second pass over the keys is needed for it.
template <class T>
bool attention_backward_of(const AttentionHead& h, const AttentionGradients& d, i64 j0, i64 j1) {
  constexpr i64 nr = tile_cols<T>, w = Lanes<T>::count;
  const T* g = static_cast<const T*>(d.g);
  const T* y = static_cast<const T*>(d.y);
  const T* top_scale = static_cast<const T*>(d.top_scale);
  T* dq = static_cast<T*>(d.dq);
  const i64 tiles = up(h.keys, tile_keys) / tile_keys;
  const i64 depth = up(h.depth, nr), width = up(h.width, nr);
  const i64 keys_most = up(least(tile_keys, j1 - j0), nr), m_most = least(band_queries, h.queries);
  const Field field(h);

  using S = Space;
  Space space(S::bytes<T>(h.queries * h.depth) + S::bytes<T>(h.queries * depth + w) +
              S::bytes<T>(h.queries * width + w) + S::bytes<T>(h.queries) + S::bytes<T>(keys_most * h.depth) +
              S::bytes<T>(keys_most * depth + w) + S::bytes<T>(keys_most * h.width) +
              2 * S::bytes<T>(m_most * tile_keys) + S::bytes<std::uint32_t>(field.none() ? 0 : Field::most_words));
  T* const q = space.take<T>(h.queries * h.depth);
  T* const q_panels = space.take<T>(h.queries * depth + w);
  T* const g_panels = space.take<T>(h.queries * width + w);
  T* const sums = space.take<T>(h.queries);
  T* const kt_panels = space.take<T>(keys_most * h.depth);  // of this tile of keys, as are the next two
  T* const k_panels = space.take<T>(keys_most * depth + w);
  T* const vt_panels = space.take<T>(keys_most * h.width);
  T* const p = space.take<T>(m_most * tile_keys);
  T* const ds = space.take<T>(m_most * tile_keys);
  std::uint32_t* const words = field.none() ? nullptr : space.take<std::uint32_t>(Field::most_words);

  scaled_rows(h.queries, h.depth, static_cast<const T*>(h.q), h.q_row, static_cast<T>(h.scale), q, h.depth);
  const Rows<T> q_rows = as_panels(h.queries, h.depth, q, h.depth, q_panels);
  const Rows<T> g_rows = as_panels(h.queries, h.width, g, d.g_row, g_panels);
  for (i64 i = 0; i < h.queries; ++i) {
    Sum sum;
    each_vector<T>(h.width, [&](i64 c, i64 count) GRADUS_INLINED {
      sum.add(load_up_to(g + i * d.g_row + c, count) * load_up_to(y + i * d.y_row + c, count));
    });
    sums[i] = static_cast<T>(sum.total());
  }

  Finite<T> finite;
  for (i64 j = j0; j < j1; j += tile_keys) {
    const i64 keys = least(tile_keys, j1 - j), t = j / tile_keys;
    T* const dk = static_cast<T*>(d.dk) + j * d.dk_row;
    T* const dv = static_cast<T*>(d.dv) + j * d.dv_row;
    i64 reached = 0;  // keys of which dK and dV hold something
    bool packed = false;
    for (i64 i = 0; i < h.queries; i += band_queries) {
      SeenTile seen = h.tiles[i / block_queries * tiles + t];
      if (i + block_queries < h.queries) {
        const SeenTile below = h.tiles[(i / block_queries + 1) * tiles + t];
        seen = {seen.end > below.end ? seen.end : below.end, seen.all && below.all && seen.end == below.end};
      }
      const i64 m = least(band_queries, h.queries - i), n = seen.end;
      if (n == 0) {
        if (j == j0) clear(m, h.depth, dq + i * d.dq_row, d.dq_row);
        continue;
      }
      if (!packed) {
        const T* k = static_cast<const T*>(h.k) + j * h.k_row;
        pack_panels(h.depth, keys, k, 1, h.k_row, kt_panels, nr * h.depth);
        pack_panels(keys, h.depth, k, h.k_row, 1, k_panels, nr * keys);
        scaled_rows(1, keys * depth, k_panels, 0, static_cast<T>(h.scale), k_panels, 0);
        pack_panels(h.width, keys, static_cast<const T*>(h.v) + j * h.v_row, 1, h.v_row, vt_panels, nr * h.width);
        packed = true;
      }
      multiply(PanelProduct<T>{.m = m,
                               .n = up(n, w),
                               .k = h.depth,
                               .a = q + i * h.depth,
                               .a_row = h.depth,
                               .a_col = 1,
                               .b = kt_panels,
                               .b_row = nr,
                               .b_panel = nr * h.depth,
                               .c = p,
                               .c_row = tile_keys});
      if (!seen.all) hide(h, i, m, j, n, p, tile_keys);
      multiply(PanelProduct<T>{.m = m,
                               .n = up(n, w),
                               .k = h.width,
                               .a = g + i * d.g_row,
                               .a_row = d.g_row,
                               .a_col = 1,
                               .b = vt_panels,
                               .b_row = nr,
                               .b_panel = nr * h.width,
                               .c = ds,
                               .c_row = tile_keys});
      Drawn drawn{};
      if (!field.none()) drawn = field.draw(i, m, j, n, words);
      for (i64 r = 0; r < m; ++r) {
        weigh<T>(n,
                 {.top = top_scale[2 * (i + r)],
                  .scale = top_scale[2 * (i + r) + 1],
                  .sum = sums[i + r],
                  .words = drawn.words ? drawn.words + r * drawn.row : nullptr,
                  .threshold = field.threshold(),
                  .kept = static_cast<T>(field.scale())},
                 p + r * tile_keys, ds + r * tile_keys);
      }
      // Of the keys that this block sees, the first `reached` have sums to add to.
      const auto onto = [&](const T* a, const Rows<T>& b, i64 columns, T* c, i64 c_row) {
        PanelProduct<T> product{.m = 0,
                                .n = columns,
                                .k = m,
                                .a = a,
                                .a_row = 1,
                                .a_col = tile_keys,
                                .b = b.from + i * b.row,
                                .b_row = b.row,
                                .b_panel = b.panel,
                                .c = c,
                                .c_row = c_row,
                                .add = true};
        product.m = least(reached, n);
        if (product.m > 0) multiply(product);
        if (n > reached) {
          product.m = n - reached;
          product.a += reached;
          product.c += reached * c_row;
          product.add = false;
          multiply(product);
        }
      };
      onto(p, g_rows, h.width, dv, d.dv_row);
      onto(ds, q_rows, h.depth, dk, d.dk_row);
      reached = reached < n ? n : reached;
      multiply(PanelProduct<T>{.m = m,
                               .n = h.depth,
                               .k = n,
                               .a = ds,
                               .a_row = tile_keys,
                               .a_col = 1,
                               .b = k_panels,
                               .b_row = nr,
                               .b_panel = nr * keys,
                               .c = dq + i * d.dq_row,
                               .c_row = d.dq_row,
                               .add = j > j0});
    }
    finite.look(reached, h.depth, dk, d.dk_row);
    finite.look(reached, h.width, dv, d.dv_row);
    clear(keys - reached, h.depth, dk + reached * d.dk_row, d.dk_row);
    clear(keys - reached, h.width, dv + reached * d.dv_row, d.dv_row);
  }
  finite.look(h.queries, h.depth, dq, d.dq_row);
  return finite.all();
}

}  // namespace

AttentionBlocks attention_blocks() { return {block_queries, tile_keys}; }

bool attention(DType dtype, const AttentionHead& head, i64 i0, i64 i1, void* y, i64 y_row, void* top_scale) {
  return GRADUS_FLOATS(attention_of, dtype, head, i0, i1, y, y_row, top_scale);
}

bool attention_backward(DType dtype, const AttentionHead& head, const AttentionGradients& gradients, i64 j0, i64 j1) {
  return GRADUS_FLOATS(attention_backward_of, dtype, head, gradients, j0, j1);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
