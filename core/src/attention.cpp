#include <gradus/attention.h>
#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/matmul.h>
#include <gradus/reduce.h>
#include <gradus/softmax.h>

#include <cmath>
#include <limits>
#include <optional>

#include "fused_attention.h"

namespace gradus {

namespace {

/// Neither NaN nor infinite, each.
Tensor is_finite(const Tensor& x) { return x - x == 0; }

/// P·V. A large P whose columns are neighbours in memory is multiplied as (Vᵀ·Pᵀ)ᵀ, which reads it in the order in
/// which it lies; for a small one that is not worth a result that lies transposed.
Tensor product(const Tensor& p, const Tensor& v) {
  constexpr std::int64_t large = 1 << 16;
  const bool columns = p.strides()[p.dim() - 2] == 1 && p.strides()[p.dim() - 1] != 1;
  if (!columns || p.size(-2) * p.size(-1) < large) return matmul(p, v);
  return transpose(matmul(transpose(v, -2, -1), transpose(p, -2, -1)), -2, -1);
}

/// P·V where 0·x = 0. No history.
Tensor skipping_product(const Tensor& p, const Tensor& v) {
  const NoGradGuard guard;
  Tensor y = product(p, v);
  // A NaN or inf of v that met a 0 shows as NaN; without one the plain product was right.
  if (std::isfinite(sum(y).item())) return y;
  y = product(p, where(is_finite(v), v, 0));
  for (std::int64_t j = 0; j < v.size(-2); ++j) {
    const Tensor row = narrow(v, -2, j, 1), finite = is_finite(row);
    if (all(finite)) continue;
    const Tensor weight = narrow(p, -1, j, 1);
    y = y + where(weight != 0 && !finite, weight * row, 0);
  }
  return y;
}

void check_pair(const Tensor& a, const Tensor& b, const char* op, const char* wanted) {
  check_defined(a, op, "the first operand");
  check_defined(b, op, "the second operand");
  check_floating(a, op);
  check(a.dim() >= 2 && b.dim() >= 2, op, "needs ", wanted, ", got ", a, " and ", b);
  check(a.dtype() == b.dtype(), op, "dtypes differ: ", a.dtype(), " and ", b.dtype(), "; convert one with to()");
}

}  // namespace

// S = A·Bᵀ :  dA = G·B,  dB = Gᵀ·A, skipping where G is 0
Tensor attention_scores(const Tensor& a, const Tensor& b) {
  check_pair(a, b, "attention_scores", "[..., m, d] and [..., n, d]");
  check(a.size(-1) == b.size(-1), "attention_scores", "last sizes differ: ", a, " and ", b);
  const auto product = [&] {
    const NoGradGuard guard;
    return matmul(a, transpose(b, -2, -1));
  };
  return record(
      "attention_scores", product(),
      wrt(a, saving(b), [](const Tensor& g, const Tensor& B, const Shape& s) { return sum_to(weighted_sum(g, B), s); }),
      wrt(b, saving(a), [](const Tensor& g, const Tensor& A, const Shape& s) {
        return sum_to(weighted_sum(transpose(g, -2, -1), A), s);
      }));
}

// Y = P·V, 0·x = 0 :  dP = G·Vᵀ,  dV = Pᵀ·G, skipping where P is 0
Tensor weighted_sum(const Tensor& p, const Tensor& v) {
  check_pair(p, v, "weighted_sum", "[..., m, n] and [..., n, d]");
  check(p.size(-1) == v.size(-2), "weighted_sum", "inner sizes differ: the weights are ", p, ", the values ", v);
  return record("weighted_sum", skipping_product(p, v),
                wrt(p, saving(v),
                    [](const Tensor& g, const Tensor& V, const Shape& s) { return sum_to(attention_scores(g, V), s); }),
                wrt(v, saving(p), [](const Tensor& g, const Tensor& P, const Shape& s) {
                  return sum_to(weighted_sum(transpose(P, -2, -1), g), s);
                }));
}

namespace {

/// Both masks' meaning, either of which may be undefined.
Tensor both(const Tensor& a, const Tensor& b) { return a.defined() && b.defined() ? a && b : a.defined() ? a : b; }

/// True where query i may attend to key j: j ≤ i + offset.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, std::int64_t offset) {
  const NoGradGuard guard;
  return arange(keys) - arange(queries).unsqueeze(1) <= offset;
}

void check_query_and_key(const Tensor& query, const Tensor& key, const char* op) {
  check_defined(query, op, "the query");
  check_defined(key, op, "the key");
  check(query.dim() >= 2 && key.dim() >= 2 && query.size(-1) == key.size(-1), op,
        "needs query [..., Lq, d] and key [..., Lk, d], got ", query, " and ", key);
}

double scale_of(const Tensor& query, const AttentionOptions& options, const char* op) {
  const double d = static_cast<double>(query.size(-1));
  const double scale = options.scale.value_or(d > 0 ? 1 / std::sqrt(d) : 1);
  check(std::isfinite(scale), op, "the scale must be finite, got ", scale);
  return scale;
}

/// The mask must be of a kind that there is, and broadcast with the scores' shape `pair`.
void check_mask(const Tensor& mask, const Shape& pair, const char* op) {
  check(mask.dtype() == Bool || is_floating(mask.dtype()), op, "the mask must be Bool (true = may attend) or a float ",
        "to add, got ", mask.dtype(), " ", mask, "; compare it (mask != 0)");
  const int rank = pair.size();
  bool fits = true;
  for (int i = 1; i <= std::min(rank, mask.shape().size()); ++i) {
    const std::int64_t size = mask.shape()[mask.shape().size() - i];
    fits &= size == pair[rank - i] || size == 1 || (i > 2 && pair[rank - i] == 1);
  }
  check(fits, op, "mask shape ", mask.shape(),
        " does not fit; expected shape: one that broadcasts to [..., Lq, Lk] = ", pair,
        "; the last dim is always the keys");
}

/// attention_weights, in the words of `op`.
Tensor weights_of(const Tensor& query, const Tensor& key, const AttentionOptions& options, const char* op) {
  check_query_and_key(query, key, op);
  // The queries are scaled, not the scores: the same numbers, on the smaller tensor.
  Tensor scores = attention_scores(query * scale_of(query, options, op), key);

  Tensor seen;  // Bool: by every mask
  if (options.is_causal) seen = causal_mask(query.size(-2), key.size(-2), options.causal_offset);
  if (const Tensor& mask = options.mask; mask.defined()) {
    check_mask(mask, scores.shape(), op);
    if (mask.dtype() == Bool) {
      seen = both(seen, mask);
    } else {
      scores = scores + to(mask, scores.dtype());
      const NoGradGuard guard;
      const double lowest = -std::numeric_limits<double>::infinity();
      // Sums may underflow to -inf, and NaN behind a -inf mask stays NaN: both are hidden.
      seen = both(seen, scores != lowest && mask != lowest);
    }
    if (!detail::broadcasts_to(mask.shape(), scores.shape()))
      scores = expand(scores, detail::broadcast_shapes(scores.shape(), mask.shape(), op));
  }
  return seen.defined() ? masked_softmax(scores, seen) : softmax(scores, -1);
}

/// x with the leading dims `batch`.
Tensor with_batch(const Tensor& x, Shape batch) {
  batch.push_back(x.size(-2));
  batch.push_back(x.size(-1));
  return x.shape() == batch ? x : expand(x, batch);
}

/// The fused form, or undefined where there is none for these operands: it takes neither a mask that learns or that
/// brings leading dims of its own, nor NaN and infinities. `field` is drawn where the weights are dropped.
Tensor fused(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options,
             std::optional<kernels::DropoutField>& field, const char* op) {
  constexpr double almost_all = 1 - 1e-9;
  if (!is_floating(query.dtype()) || key.dtype() != query.dtype() || value.dtype() != query.dtype()) return {};
  const double scale = scale_of(query, options, op);
  const Shape batch = detail::broadcast_shapes(detail::batch_of(query), detail::batch_of(key), op);
  if (!detail::broadcasts_to(detail::batch_of(value), batch) || options.dropout_p > almost_all) return {};
  const Tensor q = with_batch(query, batch), k = with_batch(key, batch), v = with_batch(value, batch);
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return {};
  Tensor mask = options.mask;
  if (mask.defined()) {
    Shape pair = batch;
    pair.push_back(q.size(-2));
    pair.push_back(k.size(-2));
    check_mask(mask, pair, op);
    if (!detail::broadcasts_to(mask.shape(), pair) || (mask.requires_grad() && grad_enabled())) return {};
    if (mask.dtype() != Bool) mask = to(mask.detach(), q.dtype());
  }
  if (options.dropout_p > 0)
    field = detail::draw_field(options.dropout_p, batch.numel() * q.size(-2) * k.size(-2), options.generator);
  return detail::fused_attention(q, k, v, mask,
                                 {.scale = scale,
                                  .is_causal = options.is_causal,
                                  .causal_offset = options.causal_offset,
                                  .field = field.value_or(kernels::DropoutField{})});
}

}  // namespace

// P = softmax(scale·Q·Kᵀ + mask) over what may be seen
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  return weights_of(query, key, options, "attention_weights");
}

// Y = dropout(P)·V
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  constexpr const char* op = "scaled_dot_product_attention";
  check_query_and_key(query, key, op);
  check_defined(value, op, "the value");
  check(value.dim() >= 2 && value.size(-2) == key.size(-2), op, "needs key [..., Lk, d] and value [..., Lk, dv], got ",
        key, " and ", value);
  check(options.dropout_p >= 0 && options.dropout_p <= 1, op, "dropout_p must be in [0, 1], got ", options.dropout_p);
  std::optional<kernels::DropoutField> field;
  if (Tensor y = fused(query, key, value, options, field, op); y.defined()) return y;
  Tensor weights = weights_of(query, key, options, op);
  if (field)
    weights = detail::drop(weights, *field);
  else if (options.dropout_p > 0)
    weights = dropout(weights, options.dropout_p, true, options.generator);
  return weighted_sum(weights, value);
}

}  // namespace gradus
