// The reverse sweep over the tape. It is a loop, as is the end of a graph (memory.h): a chain of a million ops needs no
// more stack than one of ten.
#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/layout.h>

#include <algorithm>
#include <bit>

#include "internal.h"
#include "kernels/prefetch.h"
#include "memory.h"
#include "observe.h"

namespace gradus {
namespace {

thread_local bool recording_enabled = true;

}  // namespace

bool grad_enabled() { return recording_enabled; }

NoGradGuard::NoGradGuard() : before_(std::exchange(recording_enabled, false)) {}
NoGradGuard::~NoGradGuard() { recording_enabled = before_; }
EnableGradGuard::EnableGradGuard() : before_(std::exchange(recording_enabled, true)) {}
EnableGradGuard::~EnableGradGuard() { recording_enabled = before_; }

LiveObjects live_objects() {
  return {detail::counted(detail::Counter::Tensors), detail::counted(detail::Counter::Storages),
          detail::counted(detail::Counter::Nodes)};
}

namespace detail {

bool recording() { return recording_enabled; }

namespace {

/// Leaf → position, by open addressing. An op knows its position itself, but a leaf may be in several threads' sweeps.
class LeafIndex {
 public:
  LeafIndex() : slots_(64) {}
  /// The position of node; `next` if it is new (and then remembered).
  std::uint32_t find_or_add(const Node* node, std::uint32_t next) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = locate(node);
    if (!slot.node) {
      slot = {node, next};
      ++size_;
    }
    return slot.position;
  }
  /// The position of node, which may be absent.
  std::optional<std::uint32_t> find(const Node* node) {
    const Slot& slot = locate(node);
    if (!slot.node) return {};
    return slot.position;
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    std::uint32_t position = 0;
  };
  Slot& locate(const Node* node) {
    const std::size_t mask = slots_.size() - 1;
    auto i = static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(node) >> 6) * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (slots_[i].node && slots_[i].node != node) i = (i + 1) & mask;
    return slots_[i];
  }
  void grow() {
    PoolVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.node) locate(slot.node) = slot;
  }
  PoolVector<Slot> slots_;
  std::size_t size_ = 0;
};

class GradMode {
 public:
  explicit GradMode(bool enabled) : before_(std::exchange(recording_enabled, enabled)) {}
  ~GradMode() { recording_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

/// Nobody else sees this tensor's memory, and no history hangs on it.
bool exclusively_held(const Tensor& x) {
  return x.ref().unique() && x.impl().storage.unique() && x.impl().storage->pooled && x.is_contiguous() &&
         !x.requires_grad();
}

/// sum + g, in place where nobody can notice.
void add_to(Tensor& sum, const Tensor& g, bool create_graph) {
  if (!create_graph && exclusively_held(sum)) {
    accumulate_into(sum, g);
  } else {
    sum = add(sum, g);
  }
}

/// One walk over the graph below some roots, from the newest node to the oldest.
class Sweep final : GradientBuffers {
 public:
  Sweep(const char* caller, bool create_graph, bool retain_graph)
      : caller_(caller), create_graph_(create_graph), retain_graph_(retain_graph) {
    constexpr int most = 100;
    check(under_way < most, caller, "called by a hook or a formula that runs within another, ", most,
          " times over; does a hook call it for its own tensor?");
    ++under_way;
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;
  ~Sweep() {
    for (Entry& entry : entries_)
      if (entry.owned) Ref<Node>::adopt(entry.node);
    --under_way;
  }

  /// Finds everything below the roots, and fills order_: the ops from the newest to the oldest, and then the leaves,
  /// which nothing waits for. Error where a part was consumed before.
  void discover(const std::vector<Tensor>& roots) {
    PoolVector<std::uint32_t> stack, leaves;
    // Most graphs are found nearly in order: each op then moves up past a few others only. Of some, most do not.
    std::size_t moves = 64;
    const auto visit = [&](Node* node) {
      const auto next = static_cast<std::uint32_t>(entries_.size());
      if (node->leaf) {
        if (leaves_.find_or_add(node, next) != next) return;
        leaves.push_back(next);
        entries_.push_back({node, {}});
        return;
      }
      if (knows(node)) return;
      check_unconsumed(*node);
      node->position = next;
      entries_.push_back({node, {}});
      stack.push_back(next);
      order_.push_back({node->order, next});
      moves += moves > 0 ? 8 : 0;
      for (std::size_t k = order_.size() - 1; k > 0 && moves > 0 && order_[k - 1].order < order_[k].order; --k, --moves)
        std::swap(order_[k - 1], order_[k]);
    };
    for (const Tensor& root : roots) {
      Node* const node = root.impl().node.get();
      visit(node);
      if (!std::exchange(entry_of(node).owned, true)) Ref<Node>::share(node).release();
    }
    while (!stack.empty()) {
      Node* node = entries_[stack.back()].node;
      stack.pop_back();
      for (const Ref<Node>& edge : node->edges())
        if (edge) visit(edge.get());
    }
    const auto newer = [](const Place& a, const Place& b) { return a.order > b.order; };
    if (moves == 0) std::sort(order_.begin(), order_.end(), newer);
    for (const std::uint32_t leaf : leaves) order_.push_back({0, leaf});
  }

  /// Leaves out what leads to none of the inputs; an input's own op is walked only where another input lies below it.
  /// False in the result for an input that the roots do not depend on.
  std::vector<bool> restrict_to(const std::vector<Tensor>& inputs) {
    for (Entry& entry : entries_) entry.needed = entry.through = false;
    std::vector<bool> found;
    for (const Tensor& input : inputs) {
      Entry* entry = find(input.impl().node.get());
      found.push_back(entry != nullptr);
      inputs_.push_back(entry);
      if (entry) entry->needed = entry->keep = true;
    }
    for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
      Entry& entry = entries_[i->entry];
      for (const Ref<Node>& edge : entry.node->edges())
        if (edge && entry_of(edge.get()).needed) entry.needed = entry.through = true;
    }
    return found;
  }

  void seed(const Tensor& root, const Tensor& g) { give(root.impl().node.get(), g); }

  /// Back-propagates, and lets go of the history that was walked. What runs on the way, a hook or a formula, may drop
  /// tensors, change them and walk the same ops itself: nothing of the caller's is looked at again.
  void run() {
    const GradMode mode(create_graph_);
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (i + ahead < order_.size()) fetch(*entries_[order_[i + ahead].entry].node);
      Entry& entry = entries_[order_[i].entry];
      if (!entry.needed || !entry.gradient.defined()) continue;
      Node& node = *entry.node;
      if (node.hooks) call_hooks(entry);
      if (node.leaf || !entry.through) continue;
      check_unconsumed(node);  // by a hook
      Tensor g = std::move(entry.gradient);
      if (entry.keep || node.sink) entry.gradient = g;
      const auto edges = node.edges();
      gradients.assign(edges.size(), {});
      walked_ = &node;
      // An observer sees each gradient on its own, so none is added to a buffer unseen.
      node.gradients(g, gradients, create_graph_ || observer ? nullptr : this);
      std::optional<TapeNode> seen;
      if (observer) [[unlikely]]
        seen = show_step(node, g, gradients);
      if (!retain_graph_) {
        node.consumed = true;
        node.release_saved();
      }
      g = {};
      for (std::size_t slot = 0; slot < edges.size(); ++slot) {
        if (!edges[slot] || !gradients[slot].defined()) continue;
        check_gradient(node, *edges[slot], gradients[slot]);
        if (seen && entry_of(edges[slot].get()).needed)
          show_contribution(*seen, slot, *edges[slot], gradients[slot], entry_of(edges[slot].get()).gradient);
        give(edges[slot].get(), std::move(gradients[slot]));
      }
      if (!retain_graph_ && outermost_) let_go(entry);
    }
  }

  /// The gradient of each of the inputs that the sweep was restricted to; undefined where there is none.
  std::vector<Tensor> results() const {
    std::vector<Tensor> all;
    for (const Entry* entry : inputs_) all.push_back(entry ? entry->gradient : Tensor());
    return all;
  }

  /// Adds the gradients to the tensors that keep one.
  void fill_sinks() {
    const GradMode mode(create_graph_);
    for (const Place& place : order_) {
      Entry& entry = entries_[place.entry];
      if (!entry.gradient.defined() || !entry.node->sink) continue;
      const SpinGuard guard(entry.node->lock);
      TensorImpl* sink = entry.node->sink;
      if (!sink) continue;
      if (!sink->extras) sink->extras = new Extras;
      Tensor sum(std::move(sink->extras->grad));
      if (!sum.defined()) {
        sum = create_graph_ || exclusively_held(entry.gradient) ? std::move(entry.gradient) : entry.gradient.clone();
      } else {
        add_to(sum, entry.gradient, create_graph_);
      }
      sink->extras->grad = sum.ref();
    }
  }

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

  // So many ops before its turn a node is asked for from memory.
  static constexpr std::size_t ahead = 8;
  static void fetch(const Node& node) {
    for (std::size_t line = 0; line < 2; ++line)
      kernels::prefetch<1>(reinterpret_cast<const std::byte*>(&node) + 64 * line);
  }

  bool knows(const Node* op) const { return op->position < entries_.size() && entries_[op->position].node == op; }
  void check_unconsumed(const Node& node) const {
    if (!node.consumed) [[likely]]
      return;
    fail(caller_, "the graph at '", node.op, "' ", node.shape,
         " was consumed by an earlier backward and cannot be walked a second time; pass {.retain_graph = true} to "
         "the first call, or compute the result anew");
  }

  /// Null where the sweep did not find the node.
  Entry* find(const Node* node) {
    if (node->leaf) {
      const auto position = leaves_.find(node);
      return position ? &entries_[*position] : nullptr;
    }
    return knows(node) ? &entries_[node->position] : nullptr;
  }
  /// Of a node that it found.
  Entry& entry_of(const Node* node) {
    Entry* entry = find(node);
    if (!entry) [[unlikely]] {  // a hook or a formula walked the same ops in a sweep of its own
      for (std::uint32_t i = 0; i < entries_.size(); ++i)
        if (Node* op = entries_[i].node; op && !op->leaf) op->position = i;
      entry = find(node);
    }
    return *entry;
  }

  /// Lets go of a walked op's inputs, and of the op itself: all that it was an input of has been walked. The inputs,
  /// still to be walked, are held by the sweep from now on, so a node ends while it is in the cache. Not within another
  /// sweep, which may know the same ops: there they end with what holds them.
  void let_go(Entry& entry) {
    for (Ref<Node>& edge : entry.node->edges()) {
      if (!edge) continue;
      Entry& input = entry_of(edge.get());
      if (!std::exchange(input.owned, true))
        edge.release();
      else
        edge.reset();
    }
    if (entry.owned && !entry.gradient.defined()) {
      entry.owned = false;
      Ref<Node>::adopt(std::exchange(entry.node, nullptr));
    }
  }

  const Tensor* of(std::size_t slot, bool begin) override {
    const Node& input = *walked_->edges()[slot];
    Entry& entry = entry_of(&input);
    if (!entry.needed) return nullptr;
    Tensor& sum = entry.gradient;
    if (!sum.defined()) {
      if (!begin) return nullptr;
      sum = zeros(input.shape, {.dtype = input.dtype});
    } else if (!exclusively_held(sum)) {
      sum = clone(sum);
    }
    return &sum;
  }

  void give(const Node* node, Tensor g) {
    Entry& entry = entry_of(node);
    if (!entry.needed) return;
    if (entry.gradient.defined()) {
      add_to(entry.gradient, g, create_graph_);
    } else {
      entry.gradient = std::move(g);
    }
  }

  void call_hooks(Entry& entry) {
    const auto hooks = *entry.node->hooks;  // a copy: a hook may remove itself
    for (const auto& [id, hook] : hooks) {
      const std::uint32_t version = entry.gradient.impl().version();
      Tensor changed = hook(entry.gradient);
      check(entry.gradient.impl().version() == version, "register_hook", "a hook on ", entry.node->shape,
            " changed the gradient in place, which others may hold; return the new gradient instead");
      if (!changed.defined()) continue;
      check(changed.shape() == entry.node->shape && changed.dtype() == entry.node->dtype, "register_hook", "a hook on ",
            entry.node->shape, " ", entry.node->dtype, " returned ", changed, " ", changed.dtype());
      entry.gradient = std::move(changed);
    }
  }

  void check_gradient(const Node& node, const Node& input, const Tensor& g) const {
    check(g.shape() == input.shape && g.dtype() == input.dtype, caller_, "the gradient formula of '", node.op,
          "' gave ", g.shape(), " ", g.dtype(), " for an input of ", input.shape, " ", input.dtype);
  }

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

/// The upstream gradient: as given, or 1 for a single element.
Tensor upstream(const Tensor& root, const Tensor& given, const char* caller) {
  check_defined(root, caller, "the result");
  check(root.requires_grad(), caller, "the result ", root,
        " does not require grad: no input of the ops that made it does, or they ran under NoGradGuard");
  if (!given.defined()) {
    check(root.numel() == 1, caller, "only a scalar (one element) needs no gradient, and the result is ", root,
          "; pass a gradient of that shape, or reduce the result to a scalar");
    return ones(root.shape(), {.dtype = root.dtype()});
  }
  check(given.shape() == root.shape() && given.dtype() == root.dtype(), caller, "the gradient is ", given, " ",
        given.dtype(), ", the result ", root, " ", root.dtype());
  return given;
}

}  // namespace
}  // namespace detail

void Tensor::backward(const Tensor& gradient, const BackwardOptions& options) const {
  const Tensor g = detail::upstream(*this, gradient, "backward");
  detail::Sweep sweep("backward", options.create_graph, options.retain_graph.value_or(options.create_graph));
  sweep.discover({*this});
  sweep.seed(*this, g);
  sweep.run();
  sweep.fill_sinks();
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs, const GradOptions& options) {
  check(!outputs.empty() && !inputs.empty(), "grad", "needs at least one output and one input");
  check(grad_outputs.empty() || grad_outputs.size() == outputs.size(), "grad", "got ", outputs.size(), " outputs but ",
        grad_outputs.size(), " grad_outputs");
  std::vector<Tensor> upstream;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    upstream.push_back(detail::upstream(outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i], "grad"));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_defined(inputs[i], "grad", "an input");
    check(inputs[i].requires_grad(), "grad", "input ", i, " does not require grad: ", inputs[i]);
  }

  detail::Sweep sweep("grad", options.create_graph, options.retain_graph.value_or(options.create_graph));
  sweep.discover(outputs);
  const std::vector<bool> used = sweep.restrict_to(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check(used[i] || options.allow_unused, "grad", "no output depends on input ", i, ": ", inputs[i],
          "; pass {.allow_unused = true} to get an undefined tensor for it");
  for (std::size_t i = 0; i < outputs.size(); ++i) sweep.seed(outputs[i], upstream[i]);
  sweep.run();
  return sweep.results();
}

}  // namespace gradus
