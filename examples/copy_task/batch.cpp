#include "batch.h"

#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/nn/masks.h>

#include <algorithm>

namespace copy_task {

using namespace gradus;

Sequence target_of(Task task, Sequence input) {
  if (task == Task::Reverse) std::reverse(input.begin(), input.end());
  if (task == Task::Sort) std::sort(input.begin(), input.end());
  return input;
}

Tensor padded(std::span<const Sequence> sequences, Around around, std::size_t width) {
  for (const Sequence& sequence : sequences) width = std::max(width, sequence.size() + 1);

  std::vector<std::int64_t> tokens(sequences.size() * width, pad_token);
  auto row = tokens.begin();
  for (const Sequence& sequence : sequences) {
    if (around == Around::StartBefore) *row = start_token;
    const auto end = std::copy(sequence.begin(), sequence.end(), around == Around::StartBefore ? row + 1 : row);
    if (around == Around::EndAfter) *end = end_token;
    row += static_cast<std::ptrdiff_t>(width);
  }
  return from_vector(tokens, {std::ssize(sequences), static_cast<std::int64_t>(width)});
}

Batch make_batch(std::span<const Sequence> inputs, Task task, std::size_t width) {
  std::vector<Sequence> targets;
  Batch batch;
  for (const Sequence& input : inputs) {
    targets.push_back(target_of(task, input));
    batch.tokens += std::ssize(input) + 1;
  }
  batch.source = padded(inputs, Around::EndAfter, width);
  batch.decoder_input = padded(targets, Around::StartBefore, width);
  batch.expected = padded(targets, Around::EndAfter, width);
  batch.source_mask = nn::padding_mask(batch.source, pad_token);
  batch.decoder_mask =
      nn::padding_mask(batch.decoder_input, pad_token) && nn::subsequent_mask(batch.decoder_input.size(1));
  return batch;
}

}  // namespace copy_task
