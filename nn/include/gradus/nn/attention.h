#pragma once
#include <gradus/nn/dropout.h>
#include <gradus/nn/linear.h>
#include <gradus/nn/masks.h>
#include <gradus/nn/module.h>

#include <vector>

namespace gradus::nn {

struct Attention {
  Tensor output;   ///< [..., Lq, dv]
  Tensor weights;  ///< [..., Lq, Lk], as they met the values: after dropout
};

namespace functional {
/// Scaled dot-product attention: weights = softmax(Q·Kᵀ/√d), output = weights·V.
///
/// query [..., Lq, d], key [..., Lk, d], value [..., Lk, dv]; the mask (if defined) broadcasts to [..., Lq, Lk], true
/// or non-zero where a query may attend to a key. A query that may attend to nothing gives exactly 0 and sends exactly
/// 0 back. What is hidden is skipped: NaN or inf in a hidden key or value reaches neither output nor gradients. With P
/// the weights and G upstream: dV = PᵀG, dS = P∘(GVᵀ - rowsum(P∘GVᵀ)), dQ = dS·K/√d, dK = dSᵀ·Q/√d. (Vaswani et al.
/// 2017; see attention_weights and weighted_sum of <gradus/attention.h>)
GRADUS_API Attention attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {},
                               const Dropout* dropout = nullptr);
}  // namespace functional
// A directive and not a declaration: so an `attention` of your own, called with an nn::Dropout, is never ambiguous.
using namespace functional;

struct MultiHeadAttentionOptions {
  double dropout = 0;  ///< on the attention weights, in training (the tutorials' 0.1 must be asked for, as in PyTorch)
  bool bias = true;    ///< of the four linear maps
};

/// h attentions side by side, each in d_model/h of the dims, between four linear maps: linears[0] for the query, [1]
/// the key, [2] the value, [3] the joined heads. The maps start as clones of one; see `clones`. (Vaswani et al.
/// 2017, 3.2.2; the form of The Annotated Transformer)
class GRADUS_API MultiHeadAttention : public Module {
 public:
  /// Error unless h divides d_model.
  MultiHeadAttention(std::int64_t h, std::int64_t d_model, const MultiHeadAttentionOptions& options = {});

  /// query [B, Lq, d_model], key and value [B, Lk, d_model] → [B, Lq, d_model].
  /// The mask, true or non-zero = may attend, is [B, Lq, Lk], [B, 1, Lk] or [1, Lq, Lk], one for all heads; [Lq, Lk],
  /// one for the whole batch (refused where Lq = B > 1, since it might mean [B, Lk]); or [B or 1, h or 1, Lq or 1, Lk].
  /// A query that may attend to nothing has attention 0: its output is the bias of linears[3].
  /// Error where the sizes or the mask do not fit, and for a mask of numbers below 0, which was made to be added.
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {}) const;

  /// Whether calls keep their attention weights, with their history. Else the weights are never held as a tensor, and
  /// memory grows with the length and not with its square (scaled_dot_product_attention).
  void keep_weights(bool keep = true);
  /// The weights [B, h, Lq, Lk] of the last call. Error where none were kept.
  const Tensor& weights() const;

  void fields(Fields& f) override;
  /// torch.nn.MultiheadAttention's `in_proj_*` and `out_proj.*`.
  void adopt_names(StateDict& state, const std::string& prefix) const override;
  std::string extra() const override;
  std::int64_t heads() const { return h_; }

  std::vector<Linear> linears;
  Dropout dropout;

 private:
  std::int64_t h_;
  std::int64_t d_model_;
  bool keep_ = false;
  mutable Tensor weights_;
};

}  // namespace gradus::nn
