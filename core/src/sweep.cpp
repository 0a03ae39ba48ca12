// The reverse sweep over the tape. It is a loop, as is the end of a graph (memory.h): a chain of a million ops needs no
// more stack than one of ten.
#include "sweep.h"

#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/layout.h>

#include <algorithm>
#include <optional>

#include "internal.h"
#include "kernels/prefetch.h"
#include "observe.h"

namespace gradus::detail {
namespace {

/// Recording on or off, until the end of the scope.
class GradMode {
 public:
  explicit GradMode(bool enabled) {
    if (enabled)
      on_.emplace();
    else
      off_.emplace();
  }

 private:
  std::optional<EnableGradGuard> on_;
  std::optional<NoGradGuard> off_;
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

// So many ops before its turn a node is asked for from memory.
constexpr std::size_t ahead = 8;
void fetch(const Node& node) {
  for (std::size_t line = 0; line < 2; ++line)
    kernels::prefetch<1>(reinterpret_cast<const std::byte*>(&node) + 64 * line);
}

}  // namespace

Sweep::Sweep(const char* caller, bool create_graph, bool retain_graph)
    : caller_(caller), create_graph_(create_graph), retain_graph_(retain_graph) {
  constexpr int most = 100;
  check(under_way < most, caller, "called by a hook or a formula that runs within another, ", most,
        " times over; does a hook call it for its own tensor?");
  ++under_way;
}

Sweep::~Sweep() {
  for (Entry& entry : entries_)
    if (entry.owned) Ref<Node>::adopt(entry.node);
  --under_way;
}

void Sweep::discover(const std::vector<Tensor>& roots) {
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

std::vector<bool> Sweep::restrict_to(const std::vector<Tensor>& inputs) {
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

void Sweep::run() {
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

std::vector<Tensor> Sweep::results() const {
  std::vector<Tensor> all;
  for (const Entry* entry : inputs_) all.push_back(entry ? entry->gradient : Tensor());
  return all;
}

void Sweep::fill_sinks() {
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

void Sweep::check_unconsumed(const Node& node) const {
  if (!node.consumed) [[likely]]
    return;
  fail(caller_, "the graph at '", node.op, "' ", node.shape,
       " was consumed by an earlier backward and cannot be walked a second time; pass {.retain_graph = true} to "
       "the first call, or compute the result anew");
}

Sweep::Entry* Sweep::find(const Node* node) {
  if (node->leaf) {
    const auto position = leaves_.find(node);
    return position ? &entries_[*position] : nullptr;
  }
  return knows(node) ? &entries_[node->position] : nullptr;
}

Sweep::Entry& Sweep::entry_of(const Node* node) {
  Entry* entry = find(node);
  if (!entry) [[unlikely]] {  // a hook or a formula walked the same ops in a sweep of its own
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (Node* op = entries_[i].node; op && !op->leaf) op->position = i;
    entry = find(node);
  }
  return *entry;
}

void Sweep::let_go(Entry& entry) {
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

const Tensor* Sweep::of(std::size_t slot, bool begin) {
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

void Sweep::give(const Node* node, Tensor g) {
  Entry& entry = entry_of(node);
  if (!entry.needed) return;
  if (entry.gradient.defined()) {
    add_to(entry.gradient, g, create_graph_);
  } else {
    entry.gradient = std::move(g);
  }
}

void Sweep::call_hooks(Entry& entry) {
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

void Sweep::check_gradient(const Node& node, const Node& input, const Tensor& g) const {
  check(g.shape() == input.shape && g.dtype() == input.dtype, caller_, "the gradient formula of '", node.op, "' gave ",
        g.shape(), " ", g.dtype(), " for an input of ", input.shape, " ", input.dtype);
}

}  // namespace gradus::detail
