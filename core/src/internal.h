#pragma once
// What the ops are built from, below the public functions: fresh results, broadcasting, and calls of the kernels.
#include <gradus/autograd.h>
#include <gradus/factories.h>
#include <gradus/random.h>
#include <gradus/record.h>
#include <gradus/tensor.h>

#include <atomic>
#include <vector>

#include "check.h"
#include "kernels/kernels.h"

namespace gradus::detail {

/// Holds a node's lock.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SpinGuard() { flag_.clear(std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  std::atomic_flag& flag_;
};

/// A new row-major tensor with uninitialised memory. Error where its bytes do not fit 63 bits.
Tensor make(const Shape& shape, DType dtype);
/// Makes `to` see the elements that `from` sees: memory, shape, strides and dtype, not history, gradient or name.
void stand_on(TensorImpl& to, const TensorImpl& from);
/// A view of x's memory without history.
Tensor make_view(const Tensor& x, const Shape& shape, const Shape& strides, std::int64_t offset);
/// x's memory read as [1, ..., 1] + shape, repeated to `shape`: the strides alone, 0 where repeated.
Shape broadcast_strides(const Tensor& x, const Shape& shape);
/// The shape in which all operands meet. Error where they do not.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);
/// All dims but the last two.
inline Shape batch_of(const Tensor& x) { return Shape(x.shape().begin(), x.shape().end() - 2); }
/// For each index of `batch`, in row-major order, how far the matrix of x (its last two dims) lies from its first; x's
/// leading dims broadcast to `batch`.
std::vector<std::int64_t> batch_offsets(const Tensor& x, const Shape& batch);
/// Whether a tensor of `shape` can be repeated to `wanted`.
bool broadcasts_to(const Shape& shape, const Shape& wanted);
Shape row_major_strides(const Shape& shape);
/// "does any element share memory with another of the same tensor?"
bool overlaps_itself(const Tensor& x);

inline const void* pointer(const Tensor& x) { return x.impl().bytes(); }
inline void* mutable_pointer(const Tensor& x) { return x.impl().bytes(); }
inline const void* pointer_or_null(const Tensor& x) { return x.defined() ? pointer(x) : nullptr; }

/// y (of shape and dtype given by y) = values of x, broadcast and converted, without history.
void write(const Tensor& y, const Tensor& x);
void fill(const Tensor& y, Scalar value);
/// A number as a 0-d tensor of x's dtype; Error for a fraction beside integers, which would be cut.
Tensor number_like(Scalar value, const Tensor& x, const char* op);
/// Marks y's memory as changed, for the check of saved tensors.
void bump_version(const Tensor& y);
/// Before y is changed in place, with values that come from `sources`. Error where that would break a recorded history
/// or where y overlaps itself.
void check_in_place(const Tensor& y, const char* op, std::initializer_list<const Tensor*> sources = {});
/// Gives x another place in the history; a wish to keep its gradient goes along.
void move_to(Tensor& x, const Ref<Node>& node);
/// y += x, both of one shape and dtype, y nobody else's and without overlap; no history.
void accumulate_into(const Tensor& y, const Tensor& x);
/// x row-major; x itself where it is so already. No history.
Tensor packed(const Tensor& x);

/// y = m∘x/(1-p), m the field.
Tensor drop(const Tensor& x, const kernels::DropoutField& field);
/// The field for `words` weights, from the generator (null: the library's).
kernels::DropoutField draw_field(double p, std::int64_t words, Generator* generator);

/// Elementwise kernels on whole tensors, without history.
Tensor apply(kernels::Unary op, const Tensor& x, const char* name, double p = 0, double q = 0);
Tensor apply(kernels::Binary op, const Tensor& a, const Tensor& b, const char* name);

}  // namespace gradus::detail
