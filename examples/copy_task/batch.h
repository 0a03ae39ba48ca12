#pragma once
// Sequences of different lengths as one batch: padding, and the masks that hide it.
#include <gradus/tensor.h>

#include <span>

#include "data.h"

namespace copy_task {

/// What the model shall answer.
Sequence target_of(Task task, Sequence input);

/// B sequences side by side, filled up with padding.
struct Batch {
  gradus::Tensor source;         ///< [B, L]: the input and an end
  gradus::Tensor decoder_input;  ///< [B, L]: a start and the target
  gradus::Tensor expected;       ///< [B, L]: the target and an end, which is what each position shall predict
  gradus::Tensor source_mask;    ///< [B, 1, L]: true where there is no padding
  gradus::Tensor decoder_mask;   ///< [B, L, L]: true where there is neither padding nor the future
  std::int64_t tokens = 0;       ///< how many are to be predicted, padding not counted
};
/// L is the longest input's length plus one, and at least `width`.
Batch make_batch(std::span<const Sequence> inputs, Task task, std::size_t width = 0);

/// [B, L] as above: a start before each sequence or an end after it, then padding.
enum class Around { StartBefore, EndAfter };
gradus::Tensor padded(std::span<const Sequence> sequences, Around around, std::size_t width = 0);

}  // namespace copy_task
