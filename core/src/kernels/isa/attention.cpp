// Scaled dot-product attention of one head without the matrix of its weights: a block of queries meets the keys tile by
// tile. Tiles in which nothing is seen are skipped. Of each query two numbers are kept for backward, its largest score
// and 1/Σ e^(score - largest); and the powers themselves where the caller has a place for them.
#include "attention.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

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

template <class T>
struct Row {
  T top;       // the largest element
  double sum;  // Σ e^(s - top); where the largest is -inf 0, or NaN if there is one
};
// The largest may have passed over a NaN.
template <class T>
Row<T> without_largest(i64 n, const T* s) {
  for (i64 j = 0; j < n; ++j)
    if (s[j] != s[j]) return {-Lanes<T>::infinity, static_cast<double>(s[j])};
  return {-Lanes<T>::infinity, 0};
}
// The vector at s + j of a row of n scores: what lies beyond the row is hidden.
template <class T>
GRADUS_INLINE Vec<T> load_tail(const T* s, i64 j, i64 n) {
  return lane_numbers<T>() < static_cast<typename Lanes<T>::Word>(n - j) ? load(s + j) : splat<T>(-Lanes<T>::infinity);
}

// The n scores of a row become e^(s - top). Whole vectors are read and written.
//
// Here for rows of at most two vectors, which stay in registers. Each step waits for the one before, so that several
// rows are taken side by side.
template <class T, int rows>
GRADUS_INLINE void short_exponentials(i64 n, T* s, i64 s_row, Row<T>* results) {
  constexpr i64 w = Lanes<T>::count;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
  Vec<T> a[rows], b[rows], top[rows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const T* row = s + r * s_row;
    a[r] = n <= w ? load_tail(row, 0, n) : load(row);
    b[r] = n <= w ? hidden : load_tail(row, w, n);
    top[r] = largest_in_all<T>(max<T>(a[r], b[r]));
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    a[r] = normal_exp_of_negative<T>(a[r] - top[r]);
    b[r] = normal_exp_of_negative<T>(b[r] - top[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    T* row = s + r * s_row;
    if (top[r][0] == -Lanes<T>::infinity) {
      results[r] = without_largest(n, row);
      continue;
    }
    store<T>(row, a[r]);
    if (n > w) store<T>(row + w, b[r]);
    Sum sum;
    sum.add(a[r] + b[r]);
    results[r] = {top[r][0], sum.total()};
  }
}
// And for one row of any length.
template <class T>
GRADUS_INLINE Row<T> exponentials(i64 n, T* s) {
  constexpr i64 w = Lanes<T>::count;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
  Sum sum;
  const i64 whole = n / w * w;
  Vec<T> tops[4] = {hidden, hidden, hidden, hidden};
  i64 j = 0;
  for (; j + 4 * w <= whole; j += 4 * w)
    for (int v = 0; v < 4; ++v) tops[v] = max<T>(load(s + j + v * w), tops[v]);
  for (; j < whole; j += w) tops[0] = max<T>(load(s + j), tops[0]);
  if (whole < n) {
    const Vec<T> last = load_tail(s, whole, n);
    store<T>(s + whole, last);
    tops[1] = max<T>(last, tops[1]);
  }
  const T top = largest_lane<T>(max<T>(max<T>(tops[0], tops[1]), max<T>(tops[2], tops[3])));
  if (top == -Lanes<T>::infinity) return without_largest(n, s);
  // Two vectors are added before they are widened to double: their sum is as exact as they are.
  const i64 pairs = up(n, w) / (2 * w) * (2 * w);
  for (j = 0; j < pairs; j += 2 * w) {
    const Vec<T> a = normal_exp_of_negative<T>(load(s + j) - top), b = normal_exp_of_negative<T>(load(s + j + w) - top);
    store<T>(s + j, a);
    store<T>(s + j + w, b);
    sum.add(a + b);
  }
  if (j < n) {
    const Vec<T> a = normal_exp_of_negative<T>(load(s + j) - top);
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
  const i64 tiles = up(h.keys, tile_keys) / tile_keys, s_row = h.kept ? kept_row(h.keys) : up(h.keys, w) + w;
  const i64 k_size = up(h.keys, nr) * h.depth, v_size = up(h.width, nr) * h.keys;
  const i64 m_most = least(block_queries, i1 - i0);
  const Field field(h);
  const bool in_kept = h.kept && field.none();  // kept as they are used: computed there

  using S = Space;
  Space space(S::bytes<T>(k_size) + S::bytes<T>(v_size + w) + S::bytes<T>(m_most * h.depth) +
              S::bytes<T>(in_kept ? 0 : m_most * s_row) +
              S::bytes<std::uint32_t>(field.none() ? 0 : Field::most_words));
  T* const k_panels = space.take<T>(k_size);  // of Kᵀ: a tile of keys is whole panels
  T* const v_panels = space.take<T>(v_size + w);
  T* const q = space.take<T>(m_most * h.depth);
  T* const space_of_scores = space.take<T>(in_kept ? 0 : m_most * s_row);
  std::uint32_t* const words = field.none() ? nullptr : space.take<std::uint32_t>(Field::most_words);
  pack_panels(h.depth, h.keys, static_cast<const T*>(h.k), 1, h.k_row, k_panels, nr * h.depth);
  const Rows<T> v = as_panels(h.keys, h.width, static_cast<const T*>(h.v), h.v_row, v_panels);

  Finite<T> finite;
  for (i64 i = i0; i < i1; i += block_queries) {
    const i64 m = least(block_queries, i1 - i);
    const SeenTile* seen = h.tiles + i / block_queries * tiles;
    scaled_rows(m, h.depth, static_cast<const T*>(h.q) + i * h.q_row, h.q_row, static_cast<T>(h.scale), q, h.depth);
    ask_to_write(m, h.width, y + i * y_row, y_row);
    T* const kept_rows = h.kept ? static_cast<T*>(h.kept) + i * s_row : nullptr;
    T* const scores = in_kept ? kept_rows : space_of_scores;  // of the visible tiles, side by side
    i64 n = 0;
    for (i64 t = 0; t < tiles; ++t) {
      if (seen[t].end == 0) continue;
      multiply_packed(m, up(seen[t].end, w), h.depth, q, h.depth, k_panels + t * tile_keys * h.depth, scores + n,
                      s_row);
      hide_unseen(h, seen[t], i, m, t * tile_keys, scores + n, s_row);
      n += seen[t].end;
    }

    // The rows become e^(s - largest); what makes weights of them is left to the rows of the result.
    Row<T> rows[block_queries];
    i64 done = 0;
    if (n <= 2 * w)
      for (; done + 2 <= m; done += 2) short_exponentials<T, 2>(n, scores + done * s_row, s_row, rows + done);
    for (; done < m; ++done) rows[done] = exponentials(n, scores + done * s_row);
    for (i64 r = 0; r < m; ++r) {
      T* const numbers = top_scale + 2 * (i + r);
      numbers[0] = rows[r].top;
      numbers[1] = static_cast<T>(1 / rows[r].sum);
      if (rows[r].top == -Lanes<T>::infinity) {
        if (rows[r].sum != 0 || sees_any<T>(h, i + r)) return false;
        for (i64 j = 0; j < n; ++j) scores[r * s_row + j] = 0;
        numbers[0] = numbers[1] = 0;
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
            const Vec<T> power = load_up_to(e, count);
            if (kept_rows) store_up_to<T>(kept_rows + r * s_row + j, drop ? -power : power, count);
            store_up_to<T>(e, drop ? Vec<T>{} : power, count);
          });
      }
    }
    // Another block of queries may see more keys, and backward reads whole vectors.
    if (kept_rows) clear(m, s_row - n, kept_rows + n, s_row);

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

}  // namespace

AttentionBlocks attention_blocks() { return {block_queries, tile_keys}; }

bool attention(DType dtype, const AttentionHead& head, i64 i0, i64 i1, void* y, i64 y_row, void* top_scale) {
  return GRADUS_FLOATS(attention_of, dtype, head, i0, i1, y, y_row, top_scale);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
