// The gradients of attention, tile by tile: the weights of a tile are those that forward kept, or are computed anew
// from what it kept of each query.
#include "attention.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 band_queries = 2 * block_queries;  // longer than forward's, as the sums over queries want them

// A vector of a query's weights before they were divided by their sum, and which of them are dropped.
template <class T>
struct Powers {
  Vec<T> value;
  Int<T> drop;
};
template <class T>
struct TileRow {
  T norm, sum;  // of this query: 1/Σ e^(s - largest), Σ g∘y
  T scale;      // of all scores
  bool drops;
  T growth;  // of what is not dropped: 1/(1-p)
};
// What the products need of a row of n weights; powers_at(j) gives the vector at j. dropout(P) is written into p, and
// dP in d becomes dS = scale·P∘(dropout(dP) - Σ P∘dropout(dP)).
template <class T, class F>
GRADUS_INLINE void weigh(i64 n, const TileRow<T>& row, F powers_at, T* p, T* d) {
  for (i64 j = 0; j < n; j += Lanes<T>::count) {
    const Powers<T> powers = powers_at(j);
    const Vec<T> weight = powers.value * row.norm;
    const Vec<T> dp = load(d + j);
    if (row.drops) {
      store<T>(p + j, powers.drop ? Vec<T>{} : weight * row.growth);
      store<T>(d + j, weight * ((powers.drop ? Vec<T>{} : dp * row.growth) - row.sum) * row.scale);
    } else {
      store<T>(p + j, weight);
      store<T>(d + j, weight * (dp - row.sum) * row.scale);
    }
  }
}

// S = scale·Q·Kᵀ, dV = Pᵀ·G, dP = G·Vᵀ, dS = scale·P∘(dP - Σ P∘dP), dK = dSᵀ·Q, dQ = dS·K. Σ P∘dP of a query is Σ g∘y
// over its result: no second pass over the keys is needed for it.
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
  // Only where weights are computed anew.
  const i64 scaled_size = h.kept ? 0 : h.queries * h.depth, kt_size = h.kept ? 0 : keys_most * h.depth,
            words_size = h.kept || field.none() ? 0 : Field::most_words;

  using S = Space;
  Space space(S::bytes<T>(scaled_size) + S::bytes<T>(h.queries * depth + w) + S::bytes<T>(h.queries * width + w) +
              S::bytes<T>(h.queries) + S::bytes<T>(kt_size) + S::bytes<T>(keys_most * depth + w) +
              S::bytes<T>(keys_most * h.width) + 2 * S::bytes<T>(m_most * tile_keys) +
              S::bytes<std::uint32_t>(words_size));
  T* const scaled_q = space.take<T>(scaled_size);
  T* const q_panels = space.take<T>(h.queries * depth + w);
  T* const g_panels = space.take<T>(h.queries * width + w);
  T* const sums = space.take<T>(h.queries);
  T* const kt_panels = space.take<T>(kt_size);  // of this tile of keys, as are the next two
  T* const k_panels = space.take<T>(keys_most * depth + w);
  T* const vt_panels = space.take<T>(keys_most * h.width);
  T* const p = space.take<T>(m_most * tile_keys);
  T* const ds = space.take<T>(m_most * tile_keys);
  std::uint32_t* const words = space.take<std::uint32_t>(words_size);

  const T* q = static_cast<const T*>(h.q);
  if (!h.kept) scaled_rows(h.queries, h.depth, q, h.q_row, static_cast<T>(h.scale), scaled_q, h.depth);
  const Rows<T> q_rows = as_panels(h.queries, h.depth, q, h.q_row, q_panels);
  const Rows<T> g_rows = as_panels(h.queries, h.width, g, d.g_row, g_panels);
  for (i64 i = 0; i < h.queries; ++i) {
    Sum sum;
    ask_ahead(h.queries - i, h.queries, h.width, y + i * d.y_row, d.y_row);
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
    Rows<T> k_rows{};
    for (i64 i = 0; i < h.queries; i += band_queries) {
      SeenTile seen = h.tiles[i / block_queries * tiles + t];
      if (i + block_queries < h.queries) {
        const SeenTile below = h.tiles[(i / block_queries + 1) * tiles + t];
        seen = {seen.end > below.end ? seen.end : below.end, seen.shown < below.shown ? seen.shown : below.shown};
      }
      const i64 m = least(band_queries, h.queries - i), n = seen.end;
      if (n == 0) {
        if (j == j0) clear(m, h.depth, dq + i * d.dq_row, d.dq_row);
        continue;
      }
      if (!k_rows.from) {
        const T* k = static_cast<const T*>(h.k) + j * h.k_row;
        if (!h.kept) pack_panels(h.depth, keys, k, 1, h.k_row, kt_panels, nr * h.depth);
        k_rows = as_panels(keys, h.depth, k, h.k_row, k_panels);
        pack_panels(h.width, keys, static_cast<const T*>(h.v) + j * h.v_row, 1, h.v_row, vt_panels, nr * h.width);
      }
      if (j == j0) ask_to_write(m, h.depth, dq + i * d.dq_row, d.dq_row);
      if (n > reached) {
        ask_to_write(n - reached, h.depth, dk + reached * d.dk_row, d.dk_row);
        ask_to_write(n - reached, h.width, dv + reached * d.dv_row, d.dv_row);
      }
      multiply_packed(m, up(n, w), h.width, g + i * d.g_row, d.g_row, vt_panels, ds, tile_keys);
      Drawn drawn{};
      if (!h.kept) {
        multiply_packed(m, up(n, w), h.depth, scaled_q + i * h.depth, h.depth, kt_panels, p, tile_keys);
        hide_unseen(h, seen, i, m, j, p, tile_keys);
        if (!field.none()) drawn = field.draw(i, m, j, n, words);
      }
      for (i64 r = 0; r < m; ++r) {
        T* const p_row = p + r * tile_keys;
        const TileRow<T> row{.norm = top_scale[2 * (i + r) + 1],
                             .sum = sums[i + r],
                             .scale = static_cast<T>(h.scale),
                             .drops = !field.none(),
                             .growth = static_cast<T>(field.scale())};
        if (h.kept) {  // then j is 0: all keys are one tile
          const T* kept = static_cast<const T*>(h.kept) + (i + r) * kept_row(h.keys);
          weigh<T>(
              n, row,
              [kept](i64 at) GRADUS_INLINED {
                const Vec<T> power = load(kept + at);
                return Powers<T>{abs<T>(power), (Int<T>)power < 0};
              },
              p_row, ds + r * tile_keys);
        } else {
          const T top = top_scale[2 * (i + r)];
          const std::uint32_t* row_words = drawn.words + r * drawn.row;
          weigh<T>(
              n, row,
              [&](i64 at) GRADUS_INLINED {
                return Powers<T>{normal_exp_of_negative<T>(load(p_row + at) - top),
                                 row.drops ? dropped<T>(row_words + at, field.threshold()) : Int<T>{}};
              },
              p_row, ds + r * tile_keys);
        }
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
                               .b = k_rows.from,
                               .b_row = k_rows.row,
                               .b_panel = k_rows.panel,
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

bool attention_backward(DType dtype, const AttentionHead& head, const AttentionGradients& gradients, i64 j0, i64 j1) {
  return GRADUS_FLOATS(attention_backward_of, dtype, head, gradients, j0, j1);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
