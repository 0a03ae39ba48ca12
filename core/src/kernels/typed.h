#pragma once
// Loops that need no instruction set of their own, for each dtype.
#include <gradus/dtype.h>

#include <cstdint>

namespace gradus::kernels {

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
