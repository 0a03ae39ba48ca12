#pragma once
// Working memory of a thread, kept between calls.
#include <cstddef>

namespace gradus::kernels {

/// At least `bytes` bytes of this thread's buffer number `slot` (0 to 4), aligned to 64. What it held is lost when it
/// grows.
void* scratch(int slot, std::size_t bytes);

}  // namespace gradus::kernels
