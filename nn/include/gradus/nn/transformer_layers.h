#pragma once
#include <gradus/nn/attention.h>
#include <gradus/nn/feed_forward.h>
#include <gradus/nn/layer_norm.h>

#include <optional>
#include <vector>

namespace gradus::nn {

struct TransformerLayerOptions {
  std::int64_t d_ff = 2048;
  double dropout = 0.1;  ///< on attention weights, inside the feed-forward part, and on each part's result
  Activation activation = Activation::ReLU;
  bool norm_first = false;  ///< x + part(norm(x)) rather than norm(x + part(x))
  double eps = 1e-5;        ///< of the layer norms
};

/// Self-attention, then the feed-forward part, each with dropout, residual and layer norm: x [B, L, d_model] → the
/// same. Masks as in MultiHeadAttention. Members have PyTorch's names, `self_attn` those of MultiHeadAttention.
/// (torch.nn.TransformerEncoderLayer)
class GRADUS_API TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t heads, const TransformerLayerOptions& options = {});
  Tensor operator()(const Tensor& x, const Tensor& mask = {}) const;
  void fields(Fields& f) override;
  bool norm_first() const { return norm_first_; }

  MultiHeadAttention self_attn;
  PositionwiseFeedForward feed_forward;  ///< listed as linear1, linear2 and dropout
  LayerNorm norm1, norm2;
  Dropout residual_dropout;

 private:
  bool norm_first_;
};

/// Self-attention of the target, attention to the encoder's output, the feed-forward part, each with dropout, residual
/// and layer norm: x [B, T, d_model], memory [B, S, d_model] → [B, T, d_model]. tgt_mask ([1, T, T] or as in
/// MultiHeadAttention) says what x may see of itself, memory_mask ([B, 1, S]) what of memory.
/// (torch.nn.TransformerDecoderLayer)
class GRADUS_API TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t heads, const TransformerLayerOptions& options = {});
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& tgt_mask = {},
                    const Tensor& memory_mask = {}) const;
  void fields(Fields& f) override;
  bool norm_first() const { return norm_first_; }

  MultiHeadAttention self_attn, multihead_attn;
  PositionwiseFeedForward feed_forward;  ///< listed as linear1, linear2 and dropout
  LayerNorm norm1, norm2, norm3;
  Dropout residual_dropout;

 private:
  bool norm_first_;
};

/// n clones of a layer one after the other, and a layer norm at the end where the layers normalise first (else their
/// last step is a norm already). The layers start equal; `init::xavier_uniform_(encoder)` makes them differ. Error for
/// n < 1.
class GRADUS_API TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t n);
  Tensor operator()(const Tensor& x, const Tensor& mask = {}) const;
  void fields(Fields& f) override;

  std::vector<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
};

/// The same of decoder layers.
class GRADUS_API TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t n);
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& tgt_mask = {},
                    const Tensor& memory_mask = {}) const;
  void fields(Fields& f) override;

  std::vector<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
};

}  // namespace gradus::nn
