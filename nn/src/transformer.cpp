// The Transformer from tokens to logits, and the two parts that stand around its layers.
#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/index.h>
#include <gradus/nn/init.h>
#include <gradus/nn/transformer.h>

#include <cmath>

#include "check.h"

namespace gradus::nn {

PositionalEncoding::PositionalEncoding(std::int64_t d_model, const PositionalEncodingOptions& options)
    : dropout(options.dropout) {
  check(d_model > 0 && options.max_len > 0, "PositionalEncoding", "sizes must be positive: d_model is ", d_model,
        ", max_len is ", options.max_len);
  pe = empty({options.max_len, d_model});
  float* out = pe.data<float>();
  for (std::int64_t t = 0; t < options.max_len; ++t) {
    for (std::int64_t i = 0; i < d_model; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(d_model);
      const double angle = static_cast<double>(t) / std::pow(10000.0, exponent);
      *out++ = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
}

Tensor PositionalEncoding::operator()(const Tensor& x) const {
  check_defined(x, "PositionalEncoding", "x");
  check(x.dim() == 3 && x.size(2) == pe.size(1), "PositionalEncoding", "needs x [B, L, ", pe.size(1), "], got ", x);
  check(x.size(1) <= pe.size(0), "PositionalEncoding", "the sequence is ", x.size(1), " long, max_len is ", pe.size(0),
        "; construct it with a larger max_len");
  return dropout(x + pe.narrow(0, 0, x.size(1)));
}

void PositionalEncoding::fields(Fields& f) { f.buffer("pe", pe, {.persistent = false})("dropout", dropout); }
std::string PositionalEncoding::extra() const {
  return "d_model=" + std::to_string(pe.size(1)) + ", max_len=" + std::to_string(pe.size(0));
}

PositionwiseFeedForward::PositionwiseFeedForward(std::int64_t d_model, std::int64_t d_ff,
                                                 const FeedForwardOptions& options)
    : linear1(d_model, d_ff), linear2(d_ff, d_model), dropout(options.dropout), activation_(options.activation) {}

Tensor PositionwiseFeedForward::operator()(const Tensor& x) const {
  const Tensor hidden = linear1(x);  // [..., d_ff]
  return linear2(dropout(activation_ == Activation::ReLU ? relu(hidden) : gelu(hidden)));
}

void PositionwiseFeedForward::fields(Fields& f) { f("linear1", linear1)("dropout", dropout)("linear2", linear2); }
std::string PositionwiseFeedForward::extra() const { return activation_ == Activation::ReLU ? "relu" : "gelu"; }

Transformer::Transformer(std::int64_t src_vocab, std::int64_t tgt_vocab, const TransformerOptions& options)
    : src_embed(src_vocab, options.d_model),
      tgt_embed(tgt_vocab, options.d_model),
      position(options.d_model, {.dropout = options.dropout, .max_len = options.max_len}),
      encoder({options.d_model,
               options.heads,
               {.d_ff = options.d_ff,
                .dropout = options.dropout,
                .activation = options.activation,
                .norm_first = options.norm_first}},
              options.layers),
      decoder({options.d_model,
               options.heads,
               {.d_ff = options.d_ff,
                .dropout = options.dropout,
                .activation = options.activation,
                .norm_first = options.norm_first}},
              options.layers),
      generator(options.d_model, tgt_vocab) {
  if (options.share_embedding) {
    check(src_vocab == tgt_vocab, "Transformer", "share_embedding needs equal vocabularies: src_vocab is ", src_vocab,
          ", tgt_vocab is ", tgt_vocab);
    tgt_embed.weight = generator.weight = src_embed.weight;
  }
  init::xavier_uniform_(*this);
}

Tensor Transformer::embed(const Embedding& table, const Tensor& tokens) const {
  check_defined(tokens, "Transformer", "the token tensor");
  check(tokens.dim() == 2, "Transformer", "tokens must be [B, L], are ", tokens);
  const double d_model = static_cast<double>(table.weight.size(1));
  return position(table(tokens) * std::sqrt(d_model));  // [B, L, d_model]
}

Tensor Transformer::encode(const Tensor& src, const Tensor& src_mask) const {
  return encoder(embed(src_embed, src), src_mask);
}

Tensor Transformer::decode(const Tensor& memory, const Tensor& src_mask, const Tensor& tgt,
                           const Tensor& tgt_mask) const {
  return decoder(embed(tgt_embed, tgt), memory, tgt_mask, src_mask);
}

Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt, const Tensor& src_mask,
                               const Tensor& tgt_mask) const {
  return generator(decode(encode(src, src_mask), src_mask, tgt, tgt_mask));
}

void Transformer::fields(Fields& f) {
  f("src_embed", src_embed)("tgt_embed", tgt_embed)("position", position);
  f("encoder", encoder)("decoder", decoder)("generator", generator);
}

}  // namespace gradus::nn
