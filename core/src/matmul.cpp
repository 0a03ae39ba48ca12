#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/matmul.h>
#include <gradus/reduce.h>

#include "internal.h"

namespace gradus {

namespace {

void check_operands(const Tensor& a, const Tensor& b, const char* op) {
  check_defined(a, op, "the first operand");
  check_defined(b, op, "the second operand");
  check_floating(a, op);
  check_floating(b, op);
}

enum class Onto { Nothing, Sum };

/// y = a·b or y += a·b by the kernel on the last two dims, with a bias for each column or without. y is row-major and
/// as large as `batch`, the dims before them.
void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Shape& batch, const Tensor& y, Onto onto) {
  const int ra = a.shape().size(), rb = b.shape().size();
  const std::int64_t m = a.shape()[ra - 2], k = a.shape()[ra - 1], n = b.shape()[rb - 1];
  if (y.numel() == 0) return;
  const kernels::Gemm gemm{.m = m,
                           .n = n,
                           .k = k,
                           .a = detail::pointer(a),
                           .a_row = a.strides()[ra - 2],
                           .a_col = a.strides()[ra - 1],
                           .b = detail::pointer(b),
                           .b_row = b.strides()[rb - 2],
                           .b_col = b.strides()[rb - 1],
                           .c = detail::mutable_pointer(y),
                           .c_row = n,
                           .accumulate = onto == Onto::Sum,
                           .bias = bias.defined() ? detail::pointer(bias) : nullptr};
  if (batch.numel() == 1) {
    const std::int64_t none = 0;
    kernels::gemm(a.dtype(), 1, gemm, &none, &none, 0);
  } else {
    const auto a_offsets = detail::batch_offsets(a, batch), b_offsets = detail::batch_offsets(b, batch);
    kernels::gemm(a.dtype(), batch.numel(), gemm, a_offsets.data(), b_offsets.data(), m * n);
  }
}

/// a·b (+ bias) with batch dims that broadcast. No history.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias, const char* op) {
  const Shape batch = detail::broadcast_shapes(detail::batch_of(a), detail::batch_of(b), op);
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  Tensor y = detail::make(shape, a.dtype());
  multiply(a, b, bias, batch, y, Onto::Nothing);
  return y;
}

/// All but the last dim merged.
Tensor as_matrix(const Tensor& x) {
  if (x.dim() == 2) return x;
  return reshape(x, {Shape(x.shape().begin(), x.shape().end() - 1).numel(), x.size(-1)});
}

}  // namespace

// Y = A·B :  dA = G·Bᵀ,  dB = Aᵀ·G
Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands(a, b, "matmul");
  check(a.dim() >= 1 && b.dim() >= 1, "matmul", "needs at least one dim each, got ", a, " and ", b,
        "; use * for a product with a scalar");
  if (a.dtype() != b.dtype()) {
    const DType dtype = promote(a.dtype(), b.dtype());
    return matmul(to(a, dtype), to(b, dtype));
  }
  if (a.dim() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.dim() == 1 ? 0 : -2);
  if (b.dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  check(a.size(-1) == b.size(-2), "matmul", "inner sizes differ: a is ", a, ", b is ", b);
  // One matrix for a whole batch: the batch is more rows, so that dB is one product and not a sum of many.
  if (b.dim() == 2 && a.dim() > 2 && a.numel() > 0) {
    Shape shape = a.shape();
    shape[shape.size() - 1] = b.size(1);
    return reshape(matmul(as_matrix(a), b), shape);
  }
  return record(
      "matmul", product(a, b, {}, "matmul"),
      wrt(a, saving(b),
          [](const Tensor& g, const Tensor& B, const Shape& s) { return sum_to(matmul(g, transpose(B, -2, -1)), s); }),
      wrt(b, saving(a),
          [](const Tensor& g, const Tensor& A, const Shape& s) { return sum_to(matmul(transpose(A, -2, -1), g), s); }));
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_operands(a, b, "bmm");
  check(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0), "bmm", "needs [b, m, k] and [b, k, n], got ", a,
        " and ", b, "; matmul broadcasts");
  check(a.size(2) == b.size(1), "bmm", "inner sizes differ: a is ", a, ", b is ", b);
  return matmul(a, b);
}

// y = x·Wᵀ + b :  dx = G·W,  dW = Gᵀ·x,  db = Σ G
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands(x, weight, "linear");
  check(weight.dim() == 2, "linear", "the weight must be [out, in], got ", weight);
  check(x.dim() >= 1 && x.size(-1) == weight.size(1), "linear", "the input ", x, " does not end in the ",
        weight.size(1), " features of the weight ", weight);
  const std::int64_t out = weight.size(0);
  if (bias.defined())
    check(bias.dim() == 1 && bias.size(0) == out, "linear", "the bias must be [", out, "], got ", bias);
  check(weight.dtype() == x.dtype() && (!bias.defined() || bias.dtype() == x.dtype()), "linear", "dtypes differ: x is ",
        x.dtype(), ", the weight ", weight.dtype(), "; convert one with to()");
  Shape shape = x.shape();
  shape[shape.size() - 1] = out;
  Tensor y;
  {
    const NoGradGuard guard;
    const Tensor added = bias.defined() ? detail::packed(bias) : bias;
    y = reshape(product(as_matrix(x), transpose(weight, 0, 1), added, "linear"), shape);
  }
  return record(
      "linear", y,
      wrt_onto(
          x, saving(weight), [](const Tensor& g, const Tensor& W) { return matmul(g, W); },
          [](const Tensor& dx, const Tensor& g, const Tensor& W) {
            multiply(as_matrix(g), W, {}, {}, as_matrix(dx), Onto::Sum);
          }),
      wrt(weight, saving(x),
          [](const Tensor& g, const Tensor& X) { return matmul(transpose(as_matrix(g), 0, 1), as_matrix(X)); }),
      wrt(bias, [out](const Tensor& g) { return sum_to(g, {out}); }));
}

}  // namespace gradus
