#include <gradus/dtype.h>
#include <gradus/scalar.h>

#include <ostream>

#include "check.h"

namespace gradus {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return "Float32";
    case DType::Float64:
      return "Float64";
    case DType::Int64:
      return "Int64";
    case DType::Bool:
      return "Bool";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& os, DType dtype) { return os << name(dtype); }

std::int64_t Scalar::truncated() const {
  // 2^63 itself does not fit; NaN fails both comparisons.
  check(number_ >= -0x1p63 && number_ < 0x1p63, "Scalar", number_, " does not fit a 64-bit integer");
  return static_cast<std::int64_t>(number_);
}

}  // namespace gradus
