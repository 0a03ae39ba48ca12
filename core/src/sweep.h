#pragma once
// The walk from a result back over the ops that made it.
#include <gradus/detail/node.h>
#include <gradus/tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "leaf_index.h"
#include "memory.h"

namespace gradus::detail {

/// One walk over the graph below some roots, from the newest node to the oldest.
class Sweep final : GradientBuffers {
 public:
  /// `caller` is named in errors. Error where sweeps within sweeps do not end.
  Sweep(const char* caller, bool create_graph, bool retain_graph);
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;
  ~Sweep();

  /// Finds everything below the roots, and fills order_: the ops from the newest to the oldest, and then the leaves,
  /// which nothing waits for. Error where a part was consumed before.
  void discover(const std::vector<Tensor>& roots);

  /// Leaves out what leads to none of the inputs; an input's own op is walked only where another input lies below it.
  /// False in the result for an input that the roots do not depend on.
  std::vector<bool> restrict_to(const std::vector<Tensor>& inputs);

  /// The upstream gradient of a root, of its shape and dtype.
  void seed(const Tensor& root, const Tensor& g) { give(root.impl().node.get(), g); }

  /// Back-propagates, and lets go of the history that was walked. What runs on the way, a hook or a formula, may drop
  /// tensors, change them and walk the same ops itself: nothing of the caller's is looked at again. Error where what is
  /// to be walked was consumed meanwhile, or a formula gives another shape or dtype than its input's.
  void run();

  /// The gradient of each of the inputs that the sweep was restricted to; undefined where there is none.
  std::vector<Tensor> results() const;

  /// Adds the gradients to the tensors that keep one.
  void fill_sinks();

 private:
  struct Entry {
    Node* node;  // null once it was let go; until then it lives, since the sweep owns it or an op before it does
    Tensor gradient;
    bool keep = false;
    bool needed = true;   // its gradient is wanted
    bool through = true;  // and so is that of one of its inputs
    bool owned = false;   // a reference is the sweep's: to a root, or one taken over from a walked op with this input
  };
  struct Place {
    std::uint64_t order;
    std::uint32_t entry;
  };

  bool knows(const Node* op) const { return op->position < entries_.size() && entries_[op->position].node == op; }
  void check_unconsumed(const Node& node) const;
  /// Null where the sweep did not find the node.
  Entry* find(const Node* node);
  /// Of a node that it found.
  Entry& entry_of(const Node* node);
  /// Lets go of a walked op's inputs, and of the op itself: all that it was an input of has been walked. The inputs,
  /// still to be walked, are held by the sweep from now on, so a node ends while it is in the cache. Not within another
  /// sweep, which may know the same ops: there they end with what holds them.
  void let_go(Entry& entry);
  const Tensor* of(std::size_t slot, bool begin) override;
  /// Adds to the node's gradient.
  void give(const Node* node, Tensor g);
  void call_hooks(Entry& entry);
  void check_gradient(const Node& node, const Node& input, const Tensor& g) const;

  const char* caller_;
  bool create_graph_, retain_graph_;
  PoolVector<Entry> entries_;
  PoolVector<Place> order_;  // no node before those that it is an input of
  LeafIndex leaves_;
  std::vector<const Entry*> inputs_;  // null for one that was not found
  static inline thread_local int under_way = 0;
  const bool outermost_ = under_way == 0;
  Node* walked_ = nullptr;  // whose gradients are being formed
};

}  // namespace gradus::detail
