#pragma once
#include <gradus/nn/embedding.h>
#include <gradus/nn/positional_encoding.h>
#include <gradus/nn/transformer_layers.h>

namespace gradus::nn {

struct TransformerOptions {
  std::int64_t d_model = 512;
  std::int64_t heads = 8;
  std::int64_t layers = 6;  ///< of the encoder, and as many of the decoder
  std::int64_t d_ff = 2048;
  double dropout = 0.1;
  bool norm_first = true;  ///< as the tutorials' code; PyTorch's default is false
  Activation activation = Activation::ReLU;
  std::int64_t max_len = 5000;   ///< longest sequence
  bool share_embedding = false;  ///< one matrix for source, target and output; needs equal vocabularies
};

/// The encoder-decoder of "Attention Is All You Need", from tokens to logits.
///
/// Tokens are embedded, scaled by √d_model and given their positions; the generator maps the decoder's result to logits
/// over the target vocabulary. Every matrix starts with Xavier's uniform distribution, drawn after the layers were
/// cloned, so the layers differ. With B sequences of S source and T target tokens, the masks are src_mask [B, 1, S]
/// (`padding_mask`) and tgt_mask [1, T, T] or [B, T, T] (`padding_mask(tgt, pad) && subsequent_mask(T)`); an undefined
/// one hides nothing.
///
/// The last cross-attention, for a look at it: `model.decoder.layers.back().multihead_attn.keep_weights()`, then a
/// call, then its `weights()`, [B, heads, T, S].
class GRADUS_API Transformer : public Module {
 public:
  Transformer(std::int64_t src_vocab, std::int64_t tgt_vocab, const TransformerOptions& options = {});

  /// src Int64 [B, S] → memory [B, S, d_model].
  Tensor encode(const Tensor& src, const Tensor& src_mask = {}) const;
  /// memory [B, S, d_model], tgt Int64 [B, T] → [B, T, d_model], which `generator` turns into logits.
  Tensor decode(const Tensor& memory, const Tensor& src_mask, const Tensor& tgt, const Tensor& tgt_mask = {}) const;
  /// src Int64 [B, S], tgt Int64 [B, T] → logits [B, T, tgt_vocab].
  Tensor operator()(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {},
                    const Tensor& tgt_mask = {}) const;
  void fields(Fields& f) override;

  Embedding src_embed, tgt_embed;
  PositionalEncoding position;
  TransformerEncoder encoder;
  TransformerDecoder decoder;
  Linear generator;

 private:
  Tensor embed(const Embedding& table, const Tensor& tokens) const;
};

}  // namespace gradus::nn
