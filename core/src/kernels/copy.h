#pragma once
#include "kernels.h"

namespace gradus::kernels {

/// y = x, both of one dtype: dims of `shape`, strides in elements. Transposed where the neighbours in x are not those
/// in y, it goes by square blocks, so that each line of memory is read and written once.
void copy(DType dtype, const Shape& shape, const void* x, const Shape& sx, void* y, const Shape& sy);

}  // namespace gradus::kernels
