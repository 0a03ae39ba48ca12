// Attention of heads with few keys: the scores of a query are one or two vectors. Sequences of ten tokens spend most of
// their time on what surrounds the arithmetic in the way for all heads (attention.cpp, attention_backward.cpp); here
// sizes are whole vectors, there are no tiles, and what is added or hidden is a bias, made once for each mask.
//
// Rows are taken five at a time, the last ones of a head twice where five do not divide them: computed again they are
// the same, and no loop is left for a rest.
#include "attention.h"
#include "packing.h"
#include "tile.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 group = 5;          // rows: with two vectors each, 10 sums run side by side in 16 registers
constexpr i64 most_queries = 96;  // beyond, a bias for each mask would be large beside the heads

// Vectors that hold the keys, 0 where the head is not short. (With two Float64 a vector it never is: there must be a
// group of keys.) One whose powers are not kept is not, since backward would compute their scores in the other way, and
// what that rounds otherwise is multiplied by e^(the difference).
template <class T>
i64 vectors_of_keys(const AttentionHead& h) {
  constexpr i64 w = Lanes<T>::count;
  const bool is_short = h.keys >= group && h.keys <= 2 * w && h.queries >= group && h.queries <= most_queries &&
                        h.depth % w == 0 && h.width % w == 0 && keeps_powers(h);
  return !is_short ? 0 : h.keys <= w ? 1 : 2;
}

template <class T>
i64 bias_row(const AttentionHead& h) {
  return vectors_of_keys<T>(h) * Lanes<T>::count;
}
// What is added to the scores: 0 or the mask's number where a query sees a key, -inf where it does not and where there
// is no such key.
template <class T>
void write_bias(const AttentionHead& h, void* to) {
  T* const bias = static_cast<T*>(to);
  const i64 row = bias_row<T>(h);
  clear(h.queries, row, bias, row);
  hide(h, 0, h.queries, 0, h.keys, bias, row);
  for (i64 i = 0; i < h.queries; ++i)
    for (i64 j = h.keys; j < row; ++j) bias[i * row + j] = -Lanes<T>::infinity;
}

// f(i) for the first of each group of rows.
template <class F>
GRADUS_INLINE void each_group(i64 rows, F f) {
  for (i64 i = 0; i + group < rows; i += group) f(i);
  f(rows - group);
}

template <int n>
struct Vectors {};

template <class T>
struct Product {
  i64 m, n, k;  // n is whole vectors
  const T* a;
  i64 a_row, a_col;
  const T* b;
  i64 b_row;
  T* c;
  i64 c_row;
};
// C = scale·A·B, its row i times scales[2i] too where there are scales. False where C holds NaN or infinity.
template <class T>
[[gnu::noinline]] bool multiply_in_groups(const Product<T>& g, const T* scales, T scale) {
  constexpr i64 w = Lanes<T>::count;
  Finite<T> finite;
  const auto columns = [&]<int vectors>(i64 j, Vectors<vectors>) GRADUS_INLINED {
    each_group(g.m, [&](i64 i) GRADUS_INLINED {
      Vec<T> acc[group][vectors] = {};
      multiply_onto<T, group, vectors>(g.k, g.a + i * g.a_row, g.a_row, g.a_col, g.b + j, g.b_row, acc);
#pragma GCC unroll 5
      for (int r = 0; r < group; ++r) {
        const T row_scale = scales ? scales[2 * (i + r)] * scale : scale;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
          const Vec<T> value = acc[r][v] * row_scale;
          finite.look(value);
          store<T>(g.c + (i + r) * g.c_row + j + v * w, value);
        }
      }
    });
  };
  i64 j = 0;
  for (; j + 2 * w <= g.n; j += 2 * w) columns(j, Vectors<2>{});
  if (j < g.n) columns(j, Vectors<1>{});
  return finite.all();
}

// Rows of scores become e^(s + bias - largest), their sums lie in `sums`, a vector each, not yet folded.
template <class T, int vectors>
GRADUS_INLINE void exponentials(i64 rows, T* s, i64 s_row, const T* bias, T* top_scale, T* sums) {
  constexpr i64 w = Lanes<T>::count;
  const Vec<T> hidden = splat<T>(-Lanes<T>::infinity);
  for (i64 i = 0; i < rows; ++i, s += s_row, bias += vectors * w, sums += w) {
    Vec<T> x[vectors], sum{};
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      const Vec<T> b = load(bias + v * w);
      x[v] = b == hidden ? hidden : load(s + v * w) + b;  // chosen, not added: hidden scores may have overflowed
    }
    const Vec<T> top = largest_in_all<T>(max<T>(x[0], x[vectors - 1]));
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      x[v] = normal_exp_of_negative<T>(x[v] - top);
      sum += x[v];
      store<T>(s + v * w, x[v]);
    }
    top_scale[2 * i] = top[0];
    store<T>(sums, sum);
  }
}

template <class T>
bool short_attention_of(const AttentionHead& h, const void* bias_, i64 i0, i64 i1, void* y, i64 y_row,
                        void* top_scale_) {
  constexpr i64 w = Lanes<T>::count;
  const i64 m = i1 - i0, row = bias_row<T>(h);
  if (m < group) return false;  // the last part of a head that is cut
  const Field field(h);
  const bool in_kept = h.kept && field.none();  // kept as they are used: computed there
  const i64 e_row = in_kept ? kept_row(h.keys) : row;
  Space space(Space::bytes<T>(h.depth * tile_cols<T>) + Space::bytes<T>(m * w) +
              Space::bytes<T>(in_kept ? 0 : m * row) +
              Space::bytes<std::uint32_t>(field.none() ? 0 : Field::most_words));
  T* const panel = space.take<T>(h.depth * tile_cols<T>);
  T* const sums = space.take<T>(m * w);
  T* const kept = h.kept ? static_cast<T*>(h.kept) + i0 * kept_row(h.keys) : nullptr;
  T* const e = in_kept ? kept : space.take<T>(m * row);
  T* const top_scale = static_cast<T*>(top_scale_) + 2 * i0;

  pack_panel(h.depth, h.keys, static_cast<const T*>(h.k), 1, h.k_row, panel);
  multiply_in_groups<T>({.m = m,
                         .n = row,
                         .k = h.depth,
                         .a = static_cast<const T*>(h.q) + i0 * h.q_row,
                         .a_row = h.q_row,
                         .a_col = 1,
                         .b = panel,
                         .b_row = tile_cols<T>,
                         .c = e,
                         .c_row = e_row},
                        nullptr, static_cast<T>(h.scale));
  const T* const bias = static_cast<const T*>(bias_) + i0 * row;
  if (row == w)
    exponentials<T, 1>(m, e, e_row, bias, top_scale, sums);
  else
    exponentials<T, 2>(m, e, e_row, bias, top_scale, sums);
  for (i64 i = 0; i < m; ++i)
    top_scale[2 * i + 1] = 1 / fold<T>(load(sums + i * w), [](Vec<T> a, Vec<T> b) { return a + b; });
  if (!field.none()) {
    const std::uint32_t* words = field.draw(i0, m, 0, h.keys, space.take<std::uint32_t>(Field::most_words)).words;
    for (i64 i = 0; i < m; ++i)
      for (i64 j = 0; j < row; j += w) {
        const auto drop = dropped<T>(words + i * h.keys + j, field.threshold());
        const Vec<T> power = load(e + i * row + j);
        if (kept) store<T>(kept + i * kept_row(h.keys) + j, drop ? -power : power);
        store<T>(e + i * row + j, drop ? Vec<T>{} : power);
      }
  }
  return multiply_in_groups<T>({.m = m,
                                .n = h.width,
                                .k = h.keys,
                                .a = e,
                                .a_row = e_row,
                                .a_col = 1,
                                .b = static_cast<const T*>(h.v),
                                .b_row = h.v_row,
                                .c = static_cast<T*>(y) + i0 * y_row,
                                .c_row = y_row},
                               top_scale + 1, static_cast<T>(field.scale()));
}

// Of rows of kept powers and of dP: P, or what dropout leaves of it, and dS = scale·P∘(dropout(dP) - Σ P∘dropout(dP)).
template <class T, int vectors, bool drops>
void weigh(i64 rows, const T* kept, i64 kept_step, const T* top_scale, T growth, T scale, T* p, T* d) {
  constexpr i64 w = Lanes<T>::count;
  for (i64 i = 0; i < rows; ++i, kept += kept_step, p += vectors * w, d += vectors * w) {
    const Vec<T> norm = splat(top_scale[2 * i + 1]);
    Vec<T> weight[vectors], dp[vectors], sum{};
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      const Vec<T> power = load(kept + v * w);
      dp[v] = load(d + v * w);
      Vec<T> used = weight[v] = (drops ? abs<T>(power) : power) * norm;
      if constexpr (drops) {
        const Int<T> drop = (Int<T>)power < 0;
        used = drop ? Vec<T>{} : used * growth;
        dp[v] = drop ? Vec<T>{} : dp[v] * growth;
      }
      store<T>(p + v * w, used);
      sum += weight[v] * dp[v];
    }
    sum = folded<T>(sum, [](Vec<T> a, Vec<T> b) { return a + b; });
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store<T>(d + v * w, weight[v] * scale * (dp[v] - sum));
  }
}

// dP = G·Vᵀ, then P and dS; dV = dropout(P)ᵀ·G, dK = dSᵀ·Q, dQ = dS·K.
template <class T>
bool short_attention_backward_of(const AttentionHead& h, const AttentionGradients& d) {
  const i64 m = h.queries, n = h.keys, row = bias_row<T>(h);
  Space space(Space::bytes<T>(h.width * tile_cols<T>) + 2 * Space::bytes<T>(m * row));
  T* const panel = space.take<T>(h.width * tile_cols<T>);
  T* const p = space.take<T>(m * row);
  T* const ds = space.take<T>(m * row);
  const auto product = [](i64 rows, i64 columns, i64 k, const void* a, i64 a_row, i64 a_col, const void* b, i64 b_row,
                          void* c, i64 c_row) {
    return multiply_in_groups<T>({.m = rows,
                                  .n = columns,
                                  .k = k,
                                  .a = static_cast<const T*>(a),
                                  .a_row = a_row,
                                  .a_col = a_col,
                                  .b = static_cast<const T*>(b),
                                  .b_row = b_row,
                                  .c = static_cast<T*>(c),
                                  .c_row = c_row},
                                 nullptr, T(1));
  };
  pack_panel(h.width, n, static_cast<const T*>(h.v), 1, h.v_row, panel);
  product(m, row, h.width, d.g, d.g_row, 1, panel, tile_cols<T>, ds, row);
  const Field field(h);
  const bool drops = !field.none();
  const auto weigh_rows = row == Lanes<T>::count ? (drops ? weigh<T, 1, true> : weigh<T, 1, false>)
                                                 : (drops ? weigh<T, 2, true> : weigh<T, 2, false>);
  weigh_rows(m, static_cast<const T*>(h.kept), kept_row(n), static_cast<const T*>(d.top_scale),
             static_cast<T>(field.scale()), static_cast<T>(h.scale), p, ds);
  const bool dv = product(n, h.width, m, p, 1, row, d.g, d.g_row, d.dv, d.dv_row);
  const bool dk = product(n, h.depth, m, ds, 1, row, h.q, h.q_row, d.dk, d.dk_row);
  const bool dq = product(m, h.depth, n, ds, row, 1, h.k, h.k_row, d.dq, d.dq_row);
  return dv && dk && dq;
}

}  // namespace

i64 short_bias_row(DType dtype, const AttentionHead& head) { return GRADUS_FLOATS(bias_row, dtype, head); }
void short_bias(DType dtype, const AttentionHead& head, void* bias) { GRADUS_FLOATS(write_bias, dtype, head, bias); }

bool short_attention(DType dtype, const AttentionHead& head, const void* bias, i64 i0, i64 i1, void* y, i64 y_row,
                     void* top_scale) {
  return GRADUS_FLOATS(short_attention_of, dtype, head, bias, i0, i1, y, y_row, top_scale);
}
bool short_attention_backward(DType dtype, const AttentionHead& head, const AttentionGradients& gradients) {
  return GRADUS_FLOATS(short_attention_backward_of, dtype, head, gradients);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
