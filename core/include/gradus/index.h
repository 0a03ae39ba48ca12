#pragma once
// Parts of a tensor, and the ops that put parts back.
#include <gradus/tensor.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace gradus {

/// start:stop:step as in Python; a missing bound means "from the beginning" or "to the end". step ≥ 1.
struct Slice {
  constexpr Slice() = default;
  constexpr Slice(std::optional<std::int64_t> from, std::optional<std::int64_t> to, std::int64_t by = 1)
      : start(from), stop(to), step(by) {}
  std::optional<std::int64_t> start{}, stop{};
  std::int64_t step = 1;
};
struct EllipsisType {};
struct NewAxis {};
inline constexpr EllipsisType Ellipsis{};  ///< as many whole dims as are left
inline constexpr NewAxis None{};           ///< a new dim of size 1

/// One entry of `x.index({...})`: an integer (drops the dim), a Slice, Ellipsis, None, an index tensor (Int64; from a
/// list of integers too) or a mask (Bool, over as many dims as it has).
class GRADUS_API Index {
 public:
  enum class Kind { Integer, Range, Rest, NewDim, List };
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(T integer)
      : kind_(Kind::Integer), integer_(static_cast<std::int64_t>(integer)) {}
  Index(gradus::Slice range) : kind_(Kind::Range), slice_(range) {}
  Index(EllipsisType) : kind_(Kind::Rest) {}
  Index(NewAxis) : kind_(Kind::NewDim) {}
  Index(Tensor list) : kind_(Kind::List), list_(std::move(list)) {}
  Index(const std::vector<std::int64_t>& list);
  Index(std::initializer_list<std::int64_t> list) : Index(std::vector<std::int64_t>(list)) {}

  Kind kind() const { return kind_; }
  std::int64_t integer() const { return integer_; }
  const gradus::Slice& slice() const { return slice_; }
  const Tensor& list() const { return list_; }

 private:
  Kind kind_;
  std::int64_t integer_ = 0;
  gradus::Slice slice_{};
  Tensor list_;
};

/// x[indices] as in PyTorch : dx = G in its place, zeros elsewhere, repeated elements added up.
/// Integers, Slices, Ellipsis and None come first and give a view. Where index tensors or masks remain, the result is a
/// copy: they are broadcast against each other to a shape B, element b of which names an element of each of their dims
/// (-1 the last); B stands where these dims stood, or in front where other dims lie between them. A mask stands for the
/// index tensors of the places where it is true, in row-major order; a 0-d index tensor is an integer.
/// Error for an index outside its dim, a mask that does not fit, and index tensors that do not broadcast.
GRADUS_API Tensor index(const Tensor& x, const std::vector<Index>& indices);
/// x with x[indices] = value, in memory of its own; value broadcasts to x[indices] and must fit x's dtype
/// : dx = G, 0 at the places; dvalue = G at the places. Where an element is named several times the last in row-major
/// order wins (and alone has a gradient); with `accumulate` all are added, and dx = G.
/// Error where value does not broadcast, and as for index.
GRADUS_API Tensor index_put(const Tensor& x, const std::vector<Index>& indices, const Tensor& value,
                            bool accumulate = false);
GRADUS_API Tensor index_put(const Tensor& x, const std::vector<Index>& indices, Scalar value, bool accumulate = false);
/// Every step-th element of dim from start to stop (view); bounds are clipped as in Python.
GRADUS_API Tensor slice(const Tensor& x, std::int64_t dim, std::optional<std::int64_t> start,
                        std::optional<std::int64_t> stop, std::int64_t step = 1);
/// `length` elements of dim from start (view). Error outside the dim.
GRADUS_API Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length);
/// One element of dim, which is dropped (view).
GRADUS_API Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
/// Parts of `size` along dim (the last may be smaller); `chunks` parts of equal size; each element of dim (views).
GRADUS_API std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
GRADUS_API std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
GRADUS_API std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim = 0);
/// Zeros of size `size` along dim with x at start, start + step, … : dx = slice(G). The adjoint of slice.
GRADUS_API Tensor slice_scatter(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t start,
                                std::int64_t step = 1);
/// y[..., i, ...] = x[..., index[i], ...] along dim, index 1-d Int64 : dx = scatter of G, repeated indices add up.
/// Error for an index outside [0, x.size(dim)).
GRADUS_API Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
/// Rows of a table: weight [num, dim], indices Int64 of any shape → [*indices, dim] : dweight = G's rows added up at
/// their indices (row `padding_idx` stays 0). Error for an index outside [0, num). (torch.nn.functional.embedding)
GRADUS_API Tensor embedding(const Tensor& weight, const Tensor& indices, std::optional<std::int64_t> padding_idx = {});
/// Zeros of shape [num, dim] with the rows of x added at `indices` : dx = G's rows. The adjoint of embedding.
GRADUS_API Tensor embedding_scatter(const Tensor& x, const Tensor& indices, std::int64_t num,
                                    std::optional<std::int64_t> padding_idx = {});
/// y[i][j] = x[index[i][j]][j] (dim 0), likewise along other dims; index is no larger than x in the other dims
/// : dx = scatter_add of G.
GRADUS_API Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);
/// x with y[index[i][j]][j] += src[i][j] (dim 0), likewise along other dims : dx = G, dsrc = gather(G).
GRADUS_API Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);

}  // namespace gradus
