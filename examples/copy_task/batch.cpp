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

Tensor padded(std::span<const Sequence> sequences, Around around) {
  std::size_t longest = 0;
  for (const Sequence& sequence : sequences) longest = std::max(longest, sequence.size() + 1);

  std::vector<std::int64_t> tokens(sequences.size() * longest, pad_token);
  auto row = tokens.begin();
  for (const Sequence& sequence : sequences) {
    if (around == Around::StartBefore) *row = start_token;
    const auto end = std::copy(sequence.begin(), sequence.end(), around == Around::StartBefore ? row + 1 : row);
    if (around == Around::EndAfter) *end = end_token;
    row += static_cast<std::ptrdiff_t>(longest);
  }
  return from_vector(tokens, {std::ssize(sequences), static_cast<std::int64_t>(longest)});
}

Batch make_batch(std::span<const Sequence> inputs, Task task) {
  std::vector<Sequence> targets;
  Batch batch;
  for (const Sequence& input : inputs) {
    targets.push_back(target_of(task, input));
    batch.tokens += std::ssize(input) + 1;
  }
  batch.source = padded(inputs, Around::EndAfter);
  batch.decoder_input = padded(targets, Around::StartBefore);
  batch.expected = padded(targets, Around::EndAfter);
  batch.source_mask = nn::padding_mask(batch.source, pad_token);
  batch.decoder_mask =
      nn::padding_mask(batch.decoder_input, pad_token) && nn::subsequent_mask(batch.decoder_input.size(1));
  return batch;
}

}  // namespace copy_task
