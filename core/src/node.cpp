// The tape's nodes and what they save.
#include <gradus/detail/node.h>
#include <gradus/record.h>

#include <algorithm>
#include <cassert>
#include <new>

#include "internal.h"
#include "memory.h"

namespace gradus::detail {

namespace {

std::uint64_t next_order() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

CompactShape::CompactShape(const Shape& shape) : sizes_{}, rank_(static_cast<std::uint8_t>(shape.size())) {
  const auto fits = [](std::int64_t size) { return static_cast<std::uint64_t>(size) >> 32 == 0; };
  if (shape.size() <= inline_rank && std::all_of(shape.begin(), shape.end(), fits)) {
    std::copy(shape.begin(), shape.end(), sizes_);
  } else {
    whole_ = new Shape(shape);
    rank_ = elsewhere;
  }
}

CompactShape::operator Shape() const {
  if (rank_ == elsewhere) return *whole_;
  const std::int64_t sizes[] = {sizes_[0], sizes_[1], sizes_[2], sizes_[3]};
  return Shape(sizes, sizes + rank_);
}

bool CompactShape::operator==(const Shape& shape) const {
  if (rank_ == elsewhere) return *whole_ == shape;
  return rank_ == shape.size() && std::equal(shape.begin(), shape.end(), sizes_);
}

Node::Node(const Tensor& tensor)
    : op("leaf"), order(next_order()), shape(tensor.shape()), dtype(tensor.dtype()), leaf(true) {}

Node::Node(const char* op_name, const Tensor& output)
    : op(op_name), order(next_order()), shape(output.shape()), dtype(output.dtype()), leaf(false) {}

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
    for (const Saved& saved : saved_for(slot(i))) all.push_back({i, saved.peek(), saved.is_output()});
  return all;
}

void RuleNode::gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* buffers) {
  for (std::size_t i = 0; i < inputs_; ++i) {
    const Slot& at = slot(i);
    if (!at.type) continue;
    const void* formula = behind<void>(at.formula);
    SavedTensors saved(*this, saved_for(at), edges()[i].get());
    if (buffers && at.type->add_into) {
      if (const Tensor* dx = buffers->of(i, at.type->part)) {
        at.type->add_into(formula, *dx, g, saved);
        continue;
      }
      if (at.type->part) continue;  // nobody wants it
    }
    into[i] = at.type->gradient(formula, g, saved);
  }
}

RuleNode::RuleNode(const char* op_name, const Tensor& result, std::size_t inputs, std::size_t bytes)
    : Node(op_name, result), inputs_(static_cast<std::uint16_t>(inputs)), bytes_(static_cast<std::uint16_t>(bytes)) {
  for (std::size_t i = 0; i < inputs; ++i) {
    new (behind<Ref<Node>>(i * sizeof(Ref<Node>))) Ref<Node>;
    new (&slot(i)) Slot;
  }
}

RuleNode::~RuleNode() {
  release_saved();
  for (Ref<Node>& edge : edges()) edge.~Ref();
}

void RuleNode::keep(std::span<const Rule> rules, const Tensor& output) {
  std::size_t at = inputs_ * for_input;
  for (std::size_t i = 0; i < inputs_; ++i) {
    const Rule& rule = rules[i];
    if (!wanted(*rule.input)) continue;
    Slot& to = slot(i);
    edges()[i] = rule.input->impl().node;
    // What is here by the time that a copy throws is released with the node.
    to.saved = static_cast<std::uint16_t>(at);
    for (const Tensor* tensor : rule.saved) {
      new (behind<Saved>(at)) Saved(tensor ? *tensor : output, !tensor);
      at += sizeof(Saved);
      ++to.count;
    }
    at = room_for(at);
    if (rule.type->copy) {
      while (reinterpret_cast<std::uintptr_t>(behind<std::byte>(at)) % rule.type->alignment != 0) at += room_step;
      rule.type->copy(behind<void>(at), rule.formula);
    }
    to.formula = static_cast<std::uint16_t>(at);
    to.type = rule.type;
    at += room_for(rule.type->bytes);
  }
  assert(at <= bytes_);
}

void RuleNode::release_saved() {
  for (std::size_t i = 0; i < inputs_; ++i) {
    Slot& at = slot(i);
    if (at.type && at.type->destroy) at.type->destroy(behind<void>(at.formula));
    at.type = nullptr;
    const std::span<Saved> saved = saved_for(at);
    at.count = 0;
    for (Saved& one : saved) one.~Saved();
  }
}

void place(const Tensor& y, RuleNode* node, std::span<const Rule> rules) {
  auto ref = Ref<Node>::adopt(node);
  node->keep(rules, y);
  y.impl().node = std::move(ref);
}

}  // namespace gradus::detail
