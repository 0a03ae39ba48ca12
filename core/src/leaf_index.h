#pragma once
// Where a sweep finds a leaf again.
#include <gradus/detail/node.h>

#include <cstdint>
#include <optional>

#include "memory.h"

namespace gradus::detail {

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

}  // namespace gradus::detail
