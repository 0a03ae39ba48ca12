// The tape's nodes and what they save.
#include <gradus/detail/node.h>
#include <gradus/record.h>

#include <algorithm>
#include <new>
#include <string_view>

#include "internal.h"
#include "memory.h"

namespace gradus::detail {

namespace {

std::uint64_t next_order() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Node::Node(const char* op_name, const Tensor& output)
    : op(op_name),
      order(next_order()),
      shape(output.shape()),
      dtype(output.dtype()),
      leaf(std::string_view(op_name) == "leaf") {}

Node::~Node() = default;

void* Node::operator new(std::size_t bytes) {
  void* block = pool_allocate(bytes);
  count(Counter::Nodes, 1);
  return block;
}
void Node::operator delete(void* block, std::size_t bytes) {
  count(Counter::Nodes, -1);
  pool_free(block, bytes);
}

// A node's end releases its inputs' nodes, whose end releases theirs.
void destroy(Node* node) { delete_in_turn(node); }

// ---- saved tensors

Saved::Saved(const Tensor& tensor, bool is_output)
    : tensor_(is_output                                    ? alias(tensor, nullptr)
              : tensor.defined() && tensor.requires_grad() ? alias(tensor, tensor.impl().node)
                                                           : tensor),
      version_(tensor.defined() ? tensor.impl().version() : 0),
      is_output_(is_output) {}

const Tensor& Saved::unpack(const Node& node) const {
  const std::uint32_t now = tensor_.defined() ? tensor_.impl().version() : 0;
  if (now != version_) [[unlikely]] {
    fail("backward", "'", node.op, "' saved a tensor ", tensor_.shape(), " at version ", version_,
         " that an in-place change has brought to version ", now,
         "; change a clone() of it, or change it after backward");
  }
  return tensor_;
}

const Tensor& SavedTensors::operator[](std::size_t i) {
  const Tensor& tensor = saved_[i].unpack(node_);
  if (!saved_[i].is_output() || !recording()) return tensor;
  if (!output_.defined()) output_ = alias(tensor, Ref<Node>::share(&node_));
  return output_;
}

// ---- an op with one formula an input

bool recording(std::span<const Rule> rules) {
  return recording() && std::any_of(rules.begin(), rules.end(), [](const Rule& rule) { return wanted(*rule.input); });
}

std::vector<Node::SavedFor> RuleNode::saved() const {
  std::vector<SavedFor> all;
  for (std::size_t i = 0; i < inputs_; ++i)
    for (const Saved& saved : slots_[i].saved) all.push_back({i, saved.peek(), saved.is_output()});
  return all;
}

void RuleNode::gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* buffers) {
  for (std::size_t i = 0; i < inputs_; ++i) {
    const Slot& slot = slots_[i];
    if (!slot.type) continue;
    SavedTensors saved(*this, slot.saved);
    if (buffers && slot.type->add_into) {
      if (const Tensor* dx = buffers->of(i, slot.type->part)) {
        slot.type->add_into(slot.formula, *dx, g, saved);
        continue;
      }
      if (slot.type->part) continue;  // nobody wants it
    }
    into[i] = slot.type->gradient(slot.formula, g, saved);
  }
}

void RuleNode::keep(std::span<const Rule> rules, const Tensor& output) {
  std::byte* at = room_;
  for (std::size_t i = 0; i < inputs_; ++i) {
    const Rule& rule = rules[i];
    if (!wanted(*rule.input)) continue;
    Slot& slot = slots_[i];
    edges_[i] = rule.input->impl().node;
    // What is here by the time that a copy throws is released with the node.
    Saved* const first = reinterpret_cast<Saved*>(at);
    for (const Tensor* tensor : rule.saved) {
      new (at) Saved(tensor ? *tensor : output, !tensor);
      at += sizeof(Saved);
      slot.saved = {first, slot.saved.size() + 1};
    }
    at = room_ + room_for(static_cast<std::size_t>(at - room_));
    rule.type->copy(at, rule.formula);
    slot.formula = at;
    slot.type = rule.type;
    at += rule.type->bytes;
  }
}

void RuleNode::release_saved() {
  for (std::size_t i = 0; i < inputs_; ++i) {
    Slot& slot = slots_[i];
    if (slot.type && slot.type->destroy) slot.type->destroy(slot.formula);
    slot.type = nullptr;
    for (Saved& saved : std::exchange(slot.saved, {})) saved.~Saved();
  }
}

void place(const Tensor& y, RuleNode* node, std::span<const Rule> rules) {
  auto ref = Ref<Node>::adopt(node);
  node->keep(rules, y);
  y.impl().node = std::move(ref);
}

}  // namespace gradus::detail
