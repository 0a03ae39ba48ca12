#include "places.h"

#include <type_traits>

#include "typed.h"

namespace gradus::kernels {

using i64 = std::int64_t;

void gather_places(DType dtype, i64 rows, i64 n, const void* x, const i64* row, const i64* inner, void* y) {
  with_type(dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    for (i64 r = 0; r < rows; ++r)
      for (i64 j = 0; j < n; ++j) *to++ = from[row[r] + inner[j]];
  });
}

void put_places(DType dtype, i64 rows, i64 n, const void* v, const i64* row, const i64* inner, bool add, void* x) {
  with_type(dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(v);
    T* to = static_cast<T*>(x);
    if constexpr (!std::is_same_v<T, bool>) {
      for (i64 r = 0; add && r < rows; ++r)
        for (i64 j = 0; j < n; ++j) to[row[r] + inner[j]] += *from++;
    }
    for (i64 r = 0; !add && r < rows; ++r)
      for (i64 j = 0; j < n; ++j) to[row[r] + inner[j]] = *from++;
  });
}

}  // namespace gradus::kernels
