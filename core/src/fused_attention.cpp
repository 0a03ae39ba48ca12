// The same numbers as the composed form (attention.cpp) to rounding, in memory that grows with L and not with L·L. (The
// idea: Rabe and Staats 2021, "Self-attention does not need O(n²) memory"; Dao et al. 2022, "FlashAttention")
#include "fused_attention.h"

#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include <algorithm>
#include <array>
#include <vector>

namespace gradus::detail {
namespace {

/// x, or a copy, so that its last dim is neighbours.
Tensor with_rows(const Tensor& x) { return x.strides()[x.dim() - 1] == 1 || x.size(-1) == 1 ? x : packed(x); }

/// A new tensor whose dims lie in memory in the order of x's (so that the heads of [B, L, h·d] stay where they are).
Tensor make_in_order_of(const Tensor& x, const Shape& shape) {
  const int dims = shape.size();
  std::array<int, Shape::max_rank> order{};
  for (int i = 0; i < dims; ++i) order[static_cast<std::size_t>(i)] = i;
  // The last dim stays last: the kernel writes rows of neighbours.
  std::stable_sort(order.begin(), order.begin() + dims - 1,
                   [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  Shape strides = shape;
  std::int64_t stride = 1;
  for (int i = dims - 1; i >= 0; --i) {
    const int d = order[static_cast<std::size_t>(i)];
    strides[d] = stride;
    stride *= shape[d];
  }
  return make_view(make(shape, x.dtype()), shape, strides, 0);
}

/// The job of the kernels, and the offsets that it points to.
struct Job {
  std::vector<std::int64_t> q_at, k_at, v_at, mask_at;
  kernels::AttentionJob job;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Job(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const AttentionNumbers& numbers)
      : q_at(batch_offsets(q, batch_of(q))), k_at(batch_offsets(k, batch_of(q))), v_at(batch_offsets(v, batch_of(q))) {
    const int rank = q.shape().size();
    job = {.first = {.queries = q.size(-2),
                     .keys = k.size(-2),
                     .depth = q.size(-1),
                     .width = v.size(-1),
                     .q = pointer(q),
                     .q_row = q.strides()[rank - 2],
                     .k = pointer(k),
                     .k_row = k.strides()[rank - 2],
                     .v = pointer(v),
                     .v_row = v.strides()[rank - 2],
                     .scale = numbers.scale,
                     .seen = nullptr,
                     .added = nullptr,
                     .mask_row = 0,
                     .mask_col = 0,
                     .causal = numbers.is_causal,
                     // No farther than it matters, so that sums with it stay in range.
                     .last = std::clamp(numbers.causal_offset, -q.size(-2), k.size(-2)),
                     .tiles = nullptr,
                     .dropout = numbers.field,
                     .first_weight = 0,
                     .kept = nullptr},
           .heads = static_cast<std::int64_t>(q_at.size()),
           .q = q_at.data(),
           .k = k_at.data(),
           .v = v_at.data(),
           .mask = nullptr};
    if (!mask.defined()) return;
    Shape pair = q.shape();
    pair[rank - 1] = k.size(-2);
    const Tensor whole = make_view(mask, pair, broadcast_strides(mask, pair), 0);
    mask_at = batch_offsets(whole, batch_of(q));
    job.mask = mask_at.data();
    job.first.mask_row = whole.strides()[rank - 2];
    job.first.mask_col = whole.strides()[rank - 1];
    if (mask.dtype() == Bool)
      job.first.seen = static_cast<const bool*>(pointer(mask));
    else
      job.first.added = pointer(mask);
  }
};

/// The gradients by the ops that attention is composed of, which can be differentiated again and skip what is hidden.
std::array<Tensor, 3> composed_gradient(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v,
                                        const Tensor& mask, const AttentionNumbers& numbers) {
  const auto dropped = [&](const Tensor& x) { return numbers.field.p > 0 ? drop(x, numbers.field) : x; };
  const Tensor p = attention_weights(
      q, k,
      {.mask = mask, .is_causal = numbers.is_causal, .causal_offset = numbers.causal_offset, .scale = numbers.scale});
  const Tensor hidden = p == 0;
  const Tensor dp = masked_fill(dropped(attention_scores(g, v)), hidden, 0);
  // Scaled before the products, whose sums could be too large without.
  const Tensor ds = masked_fill(p * (dp - sum(p * dp, {-1}, true)), hidden, 0) * numbers.scale;
  return {weighted_sum(ds, k), weighted_sum(transpose(ds, -2, -1), q), weighted_sum(transpose(dropped(p), -2, -1), g)};
}

/// The gradients by the kernel, tile by tile.
std::array<Tensor, 3> fused_gradient(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& mask, const Tensor& y, const Tensor& top_scale, const Tensor& kept,
                                     const AttentionNumbers& numbers) {
  const Tensor queries = with_rows(q), keys = with_rows(k), values = with_rows(v), upstream = with_rows(g);
  const Shape batch = batch_of(q);
  const int row = q.shape().size() - 2;
  Job job(queries, keys, values, mask, numbers);
  if (kept.defined()) job.job.first.kept = mutable_pointer(kept);
  const Tensor dq = make_in_order_of(q, q.shape()), dk = make_in_order_of(k, k.shape()),
               dv = make_in_order_of(v, v.shape());
  const auto g_at = batch_offsets(upstream, batch), y_at = batch_offsets(y, batch), dq_at = batch_offsets(dq, batch),
             dk_at = batch_offsets(dk, batch), dv_at = batch_offsets(dv, batch);
  const Tensor workspace = make({kernels::attention_workspace(job.job)}, q.dtype());
  const bool finite = kernels::attention_backward(
      q.dtype(), job.job,
      {.g = pointer(upstream),
       .g_row = upstream.strides()[row],
       .y = pointer(y),
       .y_row = y.strides()[row],
       .top_scale = pointer(top_scale),
       .dq = mutable_pointer(dq),
       .dq_row = dq.strides()[row],
       .dk = mutable_pointer(dk),
       .dk_row = dk.strides()[row],
       .dv = mutable_pointer(dv),
       .dv_row = dv.strides()[row]},
      {.g = g_at.data(), .y = y_at.data(), .dq = dq_at.data(), .dk = dk_at.data(), .dv = dv_at.data()},
      mutable_pointer(workspace));
  if (!finite) return composed_gradient(g, q, k, v, mask, numbers);
  return {dq, dk, dv};
}

}  // namespace

// Y = dropout(P)·V, P = softmax(scale·Q·Kᵀ + mask) :
//   dV = dropout(P)ᵀ·G,  dQ = scale·dS·K,  dK = scale·dSᵀ·Q  with dS = P∘(dP - Σ P∘dP), dP = dropout(G·Vᵀ)
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const AttentionNumbers& numbers) {
  const Tensor queries = with_rows(q), keys = with_rows(k), values = with_rows(v);
  Shape shape = q.shape();
  shape[shape.size() - 1] = v.size(-1);
  const Tensor y = make_in_order_of(q, shape);
  shape[shape.size() - 1] = 2;
  const Tensor top_scale = make(shape, q.dtype());
  Job job(queries, keys, values, mask, numbers);
  Tensor kept;
  const std::array inputs{&q, &k, &v};
  if (const std::int64_t size = kernels::attention_kept(job.job); size > 0 && recording(inputs)) {
    kept = make({size}, q.dtype());
    job.job.first.kept = mutable_pointer(kept);
  }
  const auto y_at = batch_offsets(y, batch_of(q));
  if (!kernels::attention(q.dtype(), job.job, mutable_pointer(y), y_at.data(), y.strides()[y.dim() - 2],
                          mutable_pointer(top_scale)))
    return {};
  return record_together("scaled_dot_product_attention", y, inputs, saving(q, k, v, mask, output, top_scale, kept),
                         [numbers](const Tensor& g, const Tensor& Q, const Tensor& K, const Tensor& V,
                                   const Tensor& mask_, const Tensor& Y, const Tensor& ts, const Tensor& weights) {
                           if (grad_enabled()) return composed_gradient(g, Q, K, V, mask_, numbers);
                           return fused_gradient(g, Q, K, V, mask_, Y, ts, weights, numbers);
                         });
}

}  // namespace gradus::detail
