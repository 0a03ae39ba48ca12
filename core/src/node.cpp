// The tape's nodes and what they save.
#include <gradus/detail/node.h>

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

Saved::Saved(const Tensor& tensor)
    : tensor_(tensor.defined() && tensor.requires_grad() ? alias(tensor, tensor.impl().node) : tensor),
      version_(tensor.defined() ? tensor.impl().version() : 0) {}

const Tensor& Saved::unpack(const Node& node) const {
  const std::uint32_t now = tensor_.defined() ? tensor_.impl().version() : 0;
  if (now != version_) [[unlikely]] {
    fail("backward", "'", node.op, "' saved a tensor ", tensor_.shape(), " at version ", version_,
         " that an in-place change has brought to version ", now,
         "; change a clone() of it, or change it after backward");
  }
  return tensor_;
}

SavedOutput::SavedOutput(const Tensor& output) : data_(alias(output, nullptr)) {}

Tensor SavedOutput::unpack(Node& node) const {
  const Tensor& data = data_.unpack(node);
  return recording() ? alias(data, Ref<Node>::share(&node)) : data;
}

}  // namespace gradus::detail
