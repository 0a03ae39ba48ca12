#pragma once
// Recycled memory: a training step that repeats stops asking the system for any.
#include <cstddef>
#include <cstdint>

namespace gradus::detail {

/// A block aligned to 64 bytes. Free it with the same size, on any thread. Error where the system has none left.
void* pool_allocate(std::size_t bytes);
void pool_free(void* block, std::size_t bytes) noexcept;

enum class Counter : std::uint8_t { Tensors, Storages, Nodes };
/// Counts live objects, without a locked instruction.
void count(Counter counter, std::int64_t by) noexcept;
std::int64_t counted(Counter counter);

}  // namespace gradus::detail
