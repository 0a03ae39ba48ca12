#pragma once
// Recycled memory: a training step that repeats stops asking the system for any.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradus::detail {

/// A block aligned to 64 bytes. Free it with the same size, on any thread. Error where the system has none left.
void* pool_allocate(std::size_t bytes);
void pool_free(void* block, std::size_t bytes) noexcept;

/// Deletes an object whose end may release others of its kind, and theirs: those wait in a list instead of recursing.
/// T has a member next_dead.
template <class T>
void delete_in_turn(T* object) {
  thread_local T* waiting = nullptr;
  thread_local bool draining = false;
  object->next_dead = waiting;
  waiting = object;
  if (draining) return;
  draining = true;
  while (T* dead = waiting) {
    waiting = dead->next_dead;
    delete dead;
  }
  draining = false;
}

/// Lists in recycled memory.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(pool_allocate(n * sizeof(T))); }
  void deallocate(T* block, std::size_t n) noexcept { pool_free(block, n * sizeof(T)); }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};
template <class T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

enum class Counter : std::uint8_t { Tensors, Storages, Nodes };
/// Counts live objects, without a locked instruction.
void count(Counter counter, std::int64_t by) noexcept;
std::int64_t counted(Counter counter);

}  // namespace gradus::detail
