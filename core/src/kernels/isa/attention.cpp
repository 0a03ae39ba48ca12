// Scaled dot-product attention of one head without the matrix of its weights: a block of queries meets the keys tile by
// tile. Tiles in which nothing is seen are skipped. Of each query two numbers are kept for backward, its largest score
// and 1/Σ e^(score - largest).
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
    if (top == -Lanes<T>::infinity) return without_largest(n, s);
    a = normal_exp_of_negative<T>(a - top);
    b = normal_exp_of_negative<T>(b - top);
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
      multiply_packed(m, up(seen[t].end, w), h.depth, q, h.depth, k_panels + t * tile_keys * h.depth, scores + n,
                      s_row);
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
        if (row.sum != 0 || sees_any<T>(h, i + r)) return false;
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

}  // namespace

AttentionBlocks attention_blocks() { return {block_queries, tile_keys}; }

bool attention(DType dtype, const AttentionHead& head, i64 i0, i64 i1, void* y, i64 y_row, void* top_scale) {
  return GRADUS_FLOATS(attention_of, dtype, head, i0, i1, y, y_row, top_scale);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
