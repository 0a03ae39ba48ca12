#include <gradus/elementwise.h>
#include <gradus/nn/transformer_layers.h>

#include "check.h"

namespace gradus::nn {
namespace {

/// One part of a layer with its dropout, residual and norm.
template <class Part>
Tensor residual(const Tensor& x, const LayerNorm& norm, const Dropout& dropout, bool norm_first, const Part& part) {
  return norm_first ? x + dropout(part(norm(x))) : norm(x + dropout(part(x)));
}

PositionwiseFeedForward make_feed_forward(std::int64_t d_model, const TransformerLayerOptions& options) {
  return {d_model, options.d_ff, {.dropout = options.dropout, .activation = options.activation}};
}

std::optional<LayerNorm> final_norm(bool norm_first, const LayerNorm& like) {
  return norm_first ? std::optional(clone(like)) : std::nullopt;
}

template <class Layer>
std::vector<Layer> stack_of(const Layer& layer, std::int64_t n, const char* op) {
  check(n > 0, op, "needs at least one layer, asked for ", n);
  return clones(layer, n);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t heads,
                                                 const TransformerLayerOptions& options)
    : self_attn(heads, d_model, {.dropout = options.dropout}),
      feed_forward(make_feed_forward(d_model, options)),
      norm1(d_model, {.eps = options.eps}),
      norm2(d_model, {.eps = options.eps}),
      residual_dropout(options.dropout),
      norm_first_(options.norm_first) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& x, const Tensor& mask) const {
  const auto look_at_x = [&](const Tensor& y) { return self_attn(y, y, y, mask); };
  const Tensor seen = residual(x, norm1, residual_dropout, norm_first_, look_at_x);
  return residual(seen, norm2, residual_dropout, norm_first_, feed_forward);
}

void TransformerEncoderLayer::fields(Fields& f) {
  f("self_attn", self_attn)("", feed_forward)("norm1", norm1)("norm2", norm2)("residual_dropout", residual_dropout);
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t heads,
                                                 const TransformerLayerOptions& options)
    : self_attn(heads, d_model, {.dropout = options.dropout}),
      multihead_attn(heads, d_model, {.dropout = options.dropout}),
      feed_forward(make_feed_forward(d_model, options)),
      norm1(d_model, {.eps = options.eps}),
      norm2(d_model, {.eps = options.eps}),
      norm3(d_model, {.eps = options.eps}),
      residual_dropout(options.dropout),
      norm_first_(options.norm_first) {}

Tensor TransformerDecoderLayer::operator()(const Tensor& x, const Tensor& memory, const Tensor& tgt_mask,
                                           const Tensor& memory_mask) const {
  const auto look_at_x = [&](const Tensor& y) { return self_attn(y, y, y, tgt_mask); };
  const auto look_at_memory = [&](const Tensor& y) { return multihead_attn(y, memory, memory, memory_mask); };
  const Tensor seen = residual(x, norm1, residual_dropout, norm_first_, look_at_x);
  const Tensor told = residual(seen, norm2, residual_dropout, norm_first_, look_at_memory);
  return residual(told, norm3, residual_dropout, norm_first_, feed_forward);
}

void TransformerDecoderLayer::fields(Fields& f) {
  f("self_attn", self_attn)("multihead_attn", multihead_attn)("", feed_forward);
  f("norm1", norm1)("norm2", norm2)("norm3", norm3)("residual_dropout", residual_dropout);
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t n)
    : layers(stack_of(layer, n, "TransformerEncoder")), norm(final_norm(layer.norm_first(), layer.norm2)) {}

Tensor TransformerEncoder::operator()(const Tensor& x, const Tensor& mask) const {
  Tensor y = x;
  for (const TransformerEncoderLayer& layer : layers) y = layer(y, mask);
  return norm ? (*norm)(y) : y;
}

void TransformerEncoder::fields(Fields& f) { f("layers", layers)("norm", norm); }

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t n)
    : layers(stack_of(layer, n, "TransformerDecoder")), norm(final_norm(layer.norm_first(), layer.norm3)) {}

Tensor TransformerDecoder::operator()(const Tensor& x, const Tensor& memory, const Tensor& tgt_mask,
                                      const Tensor& memory_mask) const {
  Tensor y = x;
  for (const TransformerDecoderLayer& layer : layers) y = layer(y, memory, tgt_mask, memory_mask);
  return norm ? (*norm)(y) : y;
}

void TransformerDecoder::fields(Fields& f) { f("layers", layers)("norm", norm); }

}  // namespace gradus::nn
