#pragma once
// A look at the recorded history without changing it: as a list, as a picture, and while backward walks it. Not for a
// graph that another thread is walking at the same moment.
#include <gradus/tensor.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace gradus {

/// A tensor that an op keeps for the formula of one of its gradients.
struct TapeSaved {
  std::size_t slot = 0;    ///< of the input whose gradient needs it
  std::uint64_t id = 0;    ///< of the op or leaf that it came from; 0 where it has no place in the history
  bool is_output = false;  ///< the op's own result
  Shape shape;
  DType dtype = Float32;
  std::int64_t bytes = 0;
  Tensor value;  ///< on the same memory, without history
};

/// One recorded op, or a leaf.
struct TapeNode {
  std::uint64_t id = 0;  ///< numbers grow with time: inputs have smaller ones than what is made from them
  std::string op;        ///< "leaf" for a leaf
  bool is_leaf = false;
  Shape shape;  ///< of its result
  DType dtype = Float32;
  std::vector<std::uint64_t> inputs;  ///< ids in slot order; 0 where the op's input requires no gradient
  std::vector<TapeSaved> saved;       ///< nothing any more once backward consumed the node
  bool consumed = false;
  /// What is known of the tensor behind it, for leaves and after retain_grad() and while the tensor is alive: its name,
  /// its values (on the same memory, without history) and its gradient. An output that was saved has its values, too.
  std::string name;
  Tensor value, grad;
};

/// "#7 matmul [2, 4] Float32 from #3 #5, saves [2, 3] [3, 4] (72 bytes)"
GRADUS_API std::string str(const TapeNode& node);
GRADUS_API std::ostream& operator<<(std::ostream& os, const TapeNode& node);

/// Everything that `root` was made from, oldest first, as it was recorded: the last node is root's own, and backward
/// walks the list from its end to its beginning. Empty for a tensor without history.
GRADUS_API std::vector<TapeNode> tape(const Tensor& root);
GRADUS_API std::vector<TapeNode> tape(const std::vector<Tensor>& roots);

struct DotOptions {
  bool values = false;     ///< print the numbers where the tape knows them
  bool gradients = false;  ///< print the gradients where there are any
  bool saved = false;      ///< list the shapes of saved tensors
  std::string title{};
};
/// The history in Graphviz's language, inputs above what is made from them: `dot -Tsvg`. Numbers are printed with this
/// thread's print options. The text depends on the graph and its numbers only.
GRADUS_API std::string to_dot(const Tensor& root, const DotOptions& options = {});

// ---- watching backward

/// An op has computed its gradients.
struct BackwardStep {
  const TapeNode& node;
  const Tensor& upstream;             ///< the complete gradient of its result
  std::span<const Tensor> gradients;  ///< by slot; undefined where none is wanted, or for "zero"
};
/// One of those gradients is added to what its input has gathered.
struct BackwardContribution {
  const TapeNode& node;
  std::size_t slot;
  std::uint64_t input;     ///< the id of the op or leaf that receives it
  const Tensor& gradient;  ///< what is added
  const Tensor& before;    ///< what had been gathered; undefined for the first one
};
/// Either may be empty. They run without recording, in the thread that walks, and are not watched themselves. An
/// exception of theirs ends the backward as one of a hook does: no gradient has changed, and what was walked of the
/// graph is consumed. Tensors they keep are never overwritten; they must not change any in place.
struct BackwardObserver {
  std::function<void(const BackwardStep&)> step{};
  std::function<void(const BackwardContribution&)> contribution{};
};

/// Watches every backward() and grad() of this thread until the end of the scope, in place of an observer around it.
/// Parts (slices, rows by index) then form their gradients one by one, at the cost of a tensor of the whole's size
/// each.
///
///     BackwardObserverGuard watch({.step = [](const BackwardStep& s) {
///       for (const Tensor& g : s.gradients)
///         if (g.defined() && any(g != g)) std::cout << "NaN from " << s.node << '\n';
///     }});
class GRADUS_API BackwardObserverGuard {
 public:
  explicit BackwardObserverGuard(BackwardObserver observer);
  ~BackwardObserverGuard();
  BackwardObserverGuard(const BackwardObserverGuard&) = delete;
  BackwardObserverGuard& operator=(const BackwardObserverGuard&) = delete;

 private:
  BackwardObserver observer_;
  const BackwardObserver* before_;
};

}  // namespace gradus
