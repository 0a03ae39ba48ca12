#pragma once
// What the trained model says, one token after the other, and where it looks while it does.
#include <gradus/nn/transformer.h>

#include <functional>
#include <span>
#include <vector>

#include "data.h"

namespace copy_task {

/// The most likely token at each step, the end token included, which is missing where the model did not end in time: an
/// answer may have as many tokens as the longest input, and the end.
std::vector<Sequence> greedy_decode(const gradus::nn::Transformer& model, std::span<const Sequence> inputs);

struct Example {
  Sequence input, output, expected;  ///< without the end
  bool ended = false;                ///< whether the model ended the output
  bool exact() const { return ended && output == expected; }
};
/// The model's answer to each input, in the order of the inputs.
std::vector<Example> answers(const gradus::nn::Transformer& model, const std::vector<Sequence>& inputs, Task task);

/// How much each output token looked at each input token.
struct AttentionMap {
  Sequence rows;                            ///< the output and its end, if it has one
  Sequence columns;                         ///< the input and its end
  std::vector<std::vector<double>> weight;  ///< by row, then column; a row's sum is 1
};
/// The cross-attention of the last decoder layer, the mean of its heads.
AttentionMap attention_map(gradus::nn::Transformer& model, const Example& example);

}  // namespace copy_task
