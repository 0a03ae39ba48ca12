#pragma once
// Gradients. Threads: each may record and walk graphs of its own at the same time as others, and all may read tensors
// that nobody changes, a model's parameters too: what several backwards bring to one leaf's gradient adds up, whole
// sums at a time (in the order in which they end, so the last bits may differ from run to run). Not safe without a lock
// of yours: changing a tensor, its gradient or its hooks (an optimizer's step, zero_grad, register_hook) while another
// thread uses it, and walking one graph, or graphs with a common part, in two threads at once.
#include <gradus/tensor.h>

#include <optional>
#include <vector>

namespace gradus {

/// Whether ops on this thread record a history.
GRADUS_API bool grad_enabled();

/// Switches recording off on this thread, until the end of the scope (also when an exception ends it).
class GRADUS_API NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool before_;
};

/// Switches recording on again inside a NoGradGuard.
class GRADUS_API EnableGradGuard {
 public:
  EnableGradGuard();
  ~EnableGradGuard();
  EnableGradGuard(const EnableGradGuard&) = delete;
  EnableGradGuard& operator=(const EnableGradGuard&) = delete;

 private:
  bool before_;
};

struct GradOptions {
  std::optional<bool> retain_graph{};  ///< default: the value of create_graph
  bool create_graph = false;           ///< record the gradients themselves
  bool allow_unused = false;           ///< an input that no output depends on gives an undefined tensor, not an Error
};

/// Σ over outputs of grad_output·d(output)/d(input), one tensor an input, without touching any tensor's grad().
/// A missing or undefined entry of `grad_outputs` stands for ones where the output has one element.
GRADUS_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                    const std::vector<Tensor>& grad_outputs = {}, const GradOptions& options = {});

/// Objects of the library alive in the process, for leak tests.
struct LiveObjects {
  std::int64_t tensors, storages, nodes;
  friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
};
GRADUS_API LiveObjects live_objects();

}  // namespace gradus
