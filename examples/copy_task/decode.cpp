#include "decode.h"

#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/nn/masks.h>

#include <algorithm>
#include <numeric>

#include "batch.h"

namespace copy_task {

using namespace gradus;

std::vector<Sequence> greedy_decode(const nn::Transformer& model, std::span<const Sequence> inputs) {
  const NoGradGuard no_grad;
  const Tensor source = padded(inputs, Around::EndAfter);                  // [B, L]
  const Tensor source_mask = nn::padding_mask(source, pad_token);          // [B, 1, L]
  const Tensor memory = model.encode(source, source_mask);                 // [B, L, d_model]
  Tensor said = full({source.size(0), 1}, start_token, {.dtype = Int64});  // [B, t+1]

  std::vector<Sequence> outputs(inputs.size());
  std::vector<bool> ended(inputs.size(), false);
  for (std::int64_t t = 0; t < source.size(1); ++t) {
    const Tensor decoded = model.decode(memory, source_mask, said, nn::subsequent_mask(t + 1));
    const Tensor next = model.generator(decoded.select(1, t)).argmax(-1, /*keepdim=*/true);  // [B, 1]
    const auto tokens = next.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!ended[i]) outputs[i].push_back(tokens[i]);
      ended[i] = ended[i] || tokens[i] == end_token;
    }
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) break;
    said = cat({said, next}, 1);
  }
  return outputs;
}

std::vector<Example> answers(const nn::Transformer& model, const std::vector<Sequence>& inputs, Task task) {
  // By length, so that a batch ends when its sequences do.
  std::vector<std::size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return inputs[a].size() < inputs[b].size(); });

  std::vector<Example> found(inputs.size());
  constexpr std::size_t batch_size = 100;
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    const auto places = std::span(order).subspan(begin, std::min(batch_size, order.size() - begin));
    std::vector<Sequence> batch;
    for (const std::size_t place : places) batch.push_back(inputs[place]);
    auto outputs = greedy_decode(model, batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Example& example = found[places[i]];
      example.ended = outputs[i].back() == end_token;
      if (example.ended) outputs[i].pop_back();
      example.input = batch[i];
      example.output = std::move(outputs[i]);
      example.expected = target_of(task, batch[i]);
    }
  }
  return found;
}

AttentionMap attention_map(nn::Transformer& model, const Example& example) {
  const NoGradGuard no_grad;
  AttentionMap map{.rows = example.output, .columns = example.input, .weight = {}};
  if (example.ended) map.rows.push_back(end_token);
  map.columns.push_back(end_token);

  // Each row's token is written by a position that has the one before it as its input.
  Sequence written(map.rows.begin(), map.rows.end() - 1);
  const Tensor source = padded(std::span(&example.input, 1), Around::EndAfter);
  const Tensor decoder_input = padded(std::span(&written, 1), Around::StartBefore);
  nn::MultiHeadAttention& attention = model.decoder.layers.back().multihead_attn;
  attention.keep_weights();
  model(source, decoder_input, {}, nn::subsequent_mask(decoder_input.size(1)));
  const Tensor weights = attention.weights().mean({0, 1});  // of [1, heads, rows, columns]
  attention.keep_weights(false);

  for (const Tensor& row : weights.unbind(0)) map.weight.push_back(row.to_vector<double>());
  return map;
}

}  // namespace copy_task
