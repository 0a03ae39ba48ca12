// Comparisons, logic, and conversions between dtypes.
#include "operands.h"

namespace gradus {

using detail::apply;
using detail::meeting;
using kernels::Binary;
using kernels::Compare;

namespace {

Tensor compare(Compare op, const Tensor& a, const Tensor& b, const char* name) {
  if (const auto dtype = meeting(a, b, name)) {
    const NoGradGuard guard;
    return compare(op, to(a, *dtype), to(b, *dtype), name);
  }
  const Shape shape = detail::broadcast_shapes(a.shape(), b.shape(), name);
  Tensor y = detail::make(shape, Bool);
  kernels::binary(kernels::table().compare(op, a.dtype()), a.dtype(), Bool, shape, detail::pointer(a),
                  detail::broadcast_strides(a, shape), detail::pointer(b), detail::broadcast_strides(b, shape),
                  detail::mutable_pointer(y), y.strides());
  return y;
}

Tensor compare(Compare op, const Tensor& a, Scalar b, const char* name) {
  check_defined(a, name, "the first operand");
  // An integer tensor against a fraction is compared in Float64, so that the fraction is not lost.
  const DType dtype = is_floating(a.dtype()) ? a.dtype() : b.is_floating() ? Float64 : Int64;
  const NoGradGuard guard;
  return compare(op, to(a, dtype), full({}, b, {.dtype = dtype}), name);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare(Compare::Eq, a, b, "eq"); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare(Compare::Ne, a, b, "ne"); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare(Compare::Lt, a, b, "lt"); }
Tensor le(const Tensor& a, const Tensor& b) { return compare(Compare::Le, a, b, "le"); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare(Compare::Gt, a, b, "gt"); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare(Compare::Ge, a, b, "ge"); }
Tensor eq(const Tensor& a, Scalar b) { return compare(Compare::Eq, a, b, "eq"); }
Tensor ne(const Tensor& a, Scalar b) { return compare(Compare::Ne, a, b, "ne"); }
Tensor lt(const Tensor& a, Scalar b) { return compare(Compare::Lt, a, b, "lt"); }
Tensor le(const Tensor& a, Scalar b) { return compare(Compare::Le, a, b, "le"); }
Tensor gt(const Tensor& a, Scalar b) { return compare(Compare::Gt, a, b, "gt"); }
Tensor ge(const Tensor& a, Scalar b) { return compare(Compare::Ge, a, b, "ge"); }

namespace {

void check_bool(const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  check(x.dtype() == Bool, op, "needs Bool tensors, got ", x.dtype(), " ", x, "; compare it first (x != 0)");
}

}  // namespace

Tensor logical_and(const Tensor& a, const Tensor& b) {
  check_bool(a, "logical_and");
  check_bool(b, "logical_and");
  return apply(Binary::Minimum, a, b, "logical_and");
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  check_bool(a, "logical_or");
  check_bool(b, "logical_or");
  return apply(Binary::Maximum, a, b, "logical_or");
}

Tensor logical_not(const Tensor& a) {
  check_bool(a, "logical_not");
  return a == 0;
}

// y = x in another dtype :  dx = G in x's
Tensor to(const Tensor& x, DType dtype) {
  check_defined(x, "to", "the tensor");
  if (x.dtype() == dtype) return x;
  Tensor y = detail::make(x.shape(), dtype);
  detail::write(y, x);
  if (!is_floating(dtype)) return y;
  return record("to", y, wrt(x, [from = x.dtype()](const Tensor& g) { return to(g, from); }));
}

}  // namespace gradus
