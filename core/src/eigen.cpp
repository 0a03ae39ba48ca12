// What eigen.h refuses. Eigen itself is in that header only, on the user's side.
#include "internal.h"

namespace gradus::detail {

GRADUS_API void check_eigen_map(const Tensor& x, DType dtype, int rank, bool writable, const char* op) {
  check_defined(x, op, "the tensor");
  check(x.dim() == rank, op, "needs a tensor of rank ", rank, ", got ", x, "; reshape or index it");
  check(x.dtype() == dtype, op, "the tensor is ", x.dtype(), ", the map is asked for ", dtype, ": ", x,
        "; convert with to()");
  check(!writable || !overlaps_itself(x), op, "elements of ", x,
        " overlap in memory (it is expanded); clone() it first, or map it as const to read it");
}

}  // namespace gradus::detail
