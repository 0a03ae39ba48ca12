#pragma once
// Elements of a dtype that is known when the program runs: where they lie, and loops that need no instruction set.
#include <gradus/dtype.h>

#include <cstdint>

namespace gradus::kernels {

/// p moved on by so many elements; null stays null.
inline const void* at(const void* p, std::int64_t elements, DType dtype) {
  return p ? static_cast<const char*>(p) + elements * size_of(dtype) : nullptr;
}
inline void* at(void* p, std::int64_t elements, DType dtype) {
  return p ? static_cast<char*>(p) + elements * size_of(dtype) : nullptr;
}

/// run(T()) with the element type of the dtype; that of Int64 is unsigned, so that sums wrap around.
template <class Run>
void with_type(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::Float32:
      return run(float());
    case DType::Float64:
      return run(double());
    case DType::Int64:
      return run(std::uint64_t());
    case DType::Bool:
      return run(bool());
  }
}

}  // namespace gradus::kernels
