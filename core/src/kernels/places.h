#pragma once
// Rows that lie anywhere: element j of row r stands at row[r] + inner[j], offsets in elements.
#include <gradus/dtype.h>

#include <cstdint>

namespace gradus::kernels {

/// y[r, j] = x at row[r] + inner[j], for rows of n elements; y is contiguous.
void gather_places(DType dtype, std::int64_t rows, std::int64_t n, const void* x, const std::int64_t* row,
                   const std::int64_t* inner, void* y);
/// x at row[r] + inner[j] = v[r, j], or += where `add` (not for Bool), in the order of r; v is contiguous.
void put_places(DType dtype, std::int64_t rows, std::int64_t n, const void* v, const std::int64_t* row,
                const std::int64_t* inner, bool add, void* x);

}  // namespace gradus::kernels
