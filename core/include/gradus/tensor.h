#pragma once
#include <gradus/detail/impl.h>
#include <gradus/dtype.h>
#include <gradus/error.h>
#include <gradus/scalar.h>
#include <gradus/shape.h>

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradus {

class Hook;
class Index;

/// How to walk the graph; see Tensor::backward.
struct BackwardOptions {
  std::optional<bool> retain_graph{};  ///< keep the graph for another backward; default: the value of create_graph
  bool create_graph = false;           ///< record the gradients themselves, for derivatives of higher order
};

/// Identifies a hook, for `remove_hook`.
using HookId = std::uint64_t;

/// An n-dimensional array with an optional place in the history of gradients.
///
/// A Tensor is a handle: copying it shares data and gradient, `clone()` copies. Every op is a free function as well as,
/// where PyTorch has one, a method of the same name; the free function's docstring gives shapes, formula and errors.
class GRADUS_API Tensor {
 public:
  /// An undefined tensor, which stands for "none". Asking it for anything but `defined()` throws.
  Tensor() = default;
  explicit Tensor(detail::Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const { return get().shape; }
  /// Distance in elements between neighbours along each dimension.
  const Shape& strides() const { return get().strides; }
  /// The size along `dim`; negative dims count from the back.
  std::int64_t size(std::int64_t dim) const;
  std::int64_t dim() const { return get().shape.size(); }
  std::int64_t numel() const { return get().numel; }
  DType dtype() const { return get().dtype; }
  bool is_contiguous() const { return get().contiguous; }
  /// True where two handles stand for one tensor object.
  bool is_same(const Tensor& other) const { return impl_.get() == other.impl_.get(); }
  bool shares_storage(const Tensor& other) const { return get().storage.get() == other.get().storage.get(); }

  // ---- reading and writing elements
  /// The one element, converted to T. Error where numel() is not 1, and where an integer type T is too small for it.
  template <class T = double>
  T item() const {
    const Scalar value = item_scalar();
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value.to_double());
    if constexpr (std::is_same_v<T, bool>) return value.to_double() != 0;
    const std::int64_t whole = value.to_int();
    if (static_cast<std::int64_t>(static_cast<T>(whole)) != whole || (std::is_unsigned_v<T> && whole < 0)) unfit(whole);
    return static_cast<T>(whole);
  }
  /// All elements in row-major order, converted to T (float, double, int64_t or bool).
  template <class T>
  std::vector<T> to_vector() const;
  /// The first element. T must be the dtype's type: float, double, int64_t, bool. Walk it with strides() where the
  /// tensor is not contiguous. Writes through it are not seen by the check for changed saved tensors.
  template <class T>
  T* data() const {
    return static_cast<T*>(data_as(dtype_of<T>::value));
  }
  /// The element at an index of dim() numbers, as a reference; Error outside the shape. T must be the dtype's type.
  template <class T>
  T& at(const Shape& index) const {
    return data<T>()[offset_of(index)];
  }

  // ---- gradients
  bool requires_grad() const { return static_cast<bool>(get().node); }
  /// Asks for gradients of this leaf (float dtypes only), or takes the wish back. Error on a tensor an op made.
  const Tensor& requires_grad_(bool wanted = true) const;
  /// True for what no recorded op made.
  bool is_leaf() const;
  /// The accumulated gradient: undefined before the first backward. Same shape and dtype as this tensor.
  Tensor grad() const;
  /// Sets (or, with an undefined tensor, removes) the gradient. Error where shape or dtype differ.
  void set_grad(const Tensor& grad) const;
  /// Forgets the gradient.
  void zero_grad() const;
  /// Keeps the gradient of a tensor an op made, as leaves do.
  void retain_grad() const;
  /// The same data without history. In-place changes of either are seen by both, and by the saved-tensor check.
  Tensor detach() const;
  /// Back-propagates from this tensor: adds d(this)/d(leaf) to the grad of each leaf that requires it.
  /// `gradient` is the upstream gradient, of this tensor's shape; it may be left out for one element.
  /// The graph is consumed unless `retain_graph`. Where an Error (or a hook's exception) ends it, no gradient has
  /// changed, but what was walked of the graph is consumed.
  void backward(const Tensor& gradient = {}, const BackwardOptions& options = {}) const;
  /// Calls `hook` once per backward with the complete gradient of this tensor, before it is passed on or accumulated; a
  /// defined result (same shape) replaces it. Hooks run in the order they were registered. The gradient a hook is given
  /// may be held by others: changing it in place is an Error. It may itself walk what is being walked, with
  /// {.retain_graph = true}: what it consumes the walk around it meets with an Error.
  HookId register_hook(Hook hook) const;
  void remove_hook(HookId id) const;
  /// Makes this tensor object, for every handle on it, stand on `data`'s elements, shape and dtype; its gradient is
  /// forgotten, its hooks stay. Leaves only. What was recorded before reaches it still, with the gradient at the old
  /// elements; Error where that gradient would have another shape or dtype.
  /// (What module.to(dtype) uses, so that optimizers keep their hold on the parameters.)
  void set_data(const Tensor& data) const;
  /// A name for teaching and error texts.
  const Tensor& set_name(std::string name) const;
  std::string name() const;

  // ---- copies and conversions
  Tensor clone() const;
  Tensor to(DType dtype) const;
  Tensor contiguous() const;

  // ---- arithmetic (elementwise.h)
  Tensor add(const Tensor& other) const;
  Tensor sub(const Tensor& other) const;
  Tensor mul(const Tensor& other) const;
  Tensor div(const Tensor& other) const;
  Tensor add(Scalar other) const;
  Tensor sub(Scalar other) const;
  Tensor mul(Scalar other) const;
  Tensor div(Scalar other) const;
  Tensor pow(Scalar exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor neg() const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor square() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor relu() const;
  Tensor maximum(const Tensor& other) const;
  Tensor minimum(const Tensor& other) const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor clamp(const Tensor& min, const Tensor& max) const;
  Tensor eq(const Tensor& other) const;
  Tensor ne(const Tensor& other) const;
  Tensor lt(const Tensor& other) const;
  Tensor le(const Tensor& other) const;
  Tensor gt(const Tensor& other) const;
  Tensor ge(const Tensor& other) const;
  Tensor eq(Scalar other) const;
  Tensor ne(Scalar other) const;
  Tensor lt(Scalar other) const;
  Tensor le(Scalar other) const;
  Tensor gt(Scalar other) const;
  Tensor ge(Scalar other) const;

  // ---- reductions (reduce.h)
  Tensor sum() const;
  Tensor sum(const Shape& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const Shape& dims, bool keepdim = false) const;
  Tensor var(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  template <std::same_as<bool> B>
  Tensor var(B unbiased) const {
    return var(Shape(), unbiased ? 1 : 0);
  }
  Tensor std(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  template <std::same_as<bool> B>
  Tensor std(B unbiased) const {
    return this->std(Shape(), unbiased ? 1 : 0);
  }
  Tensor logsumexp(const Shape& dims, bool keepdim = false) const;
  Tensor cumsum(std::int64_t dim) const;
  Tensor amax(const Shape& dims = {}, bool keepdim = false) const;
  Tensor amin(const Shape& dims = {}, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  Tensor argmax() const;
  Tensor argmax(std::int64_t dim, bool keepdim = false) const;

  // ---- products and rows (matmul.h, softmax.h, mask.h)
  Tensor matmul(const Tensor& other) const;
  Tensor bmm(const Tensor& other) const;
  Tensor softmax(std::int64_t dim) const;
  Tensor log_softmax(std::int64_t dim) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor tril(std::int64_t diagonal = 0) const;
  Tensor triu(std::int64_t diagonal = 0) const;

  // ---- shape (layout.h, index.h)
  Tensor reshape(const Shape& shape) const;
  Tensor view(const Shape& shape) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor permute(const Shape& dims) const;
  Tensor unsqueeze(std::int64_t dim) const;
  Tensor squeeze() const;
  Tensor squeeze(std::int64_t dim) const;
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1) const;
  Tensor expand(const Shape& shape) const;
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  Tensor slice(std::int64_t dim, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
               std::int64_t step = 1) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;
  std::vector<Tensor> split(std::int64_t size, std::int64_t dim = 0) const;
  std::vector<Tensor> chunk(std::int64_t chunks, std::int64_t dim = 0) const;
  std::vector<Tensor> unbind(std::int64_t dim = 0) const;
  /// `x.index({0, Slice(1, 4), Ellipsis, None})`: a view; with index tensors or masks among them a copy (index.h).
  Tensor index(std::initializer_list<Index> indices) const;
  /// `x.index(x > 0)`, `x.index(rows)`.
  Tensor index(const Tensor& index) const;

  // ---- in place. Refused where a recorded history would break: on a leaf that requires grad (outside NoGradGuard), on
  // overlapping memory (an expanded tensor), and where a recorded tensor's memory is seen by other tensors.
  Tensor& add_(const Tensor& other);
  Tensor& sub_(const Tensor& other);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& add_(Scalar other);
  Tensor& sub_(Scalar other);
  Tensor& mul_(Scalar other);
  Tensor& div_(Scalar other);
  Tensor& masked_fill_(const Tensor& mask, Scalar value);
  /// Overwrites with the values of `source`, broadcast and converted as by to().
  Tensor& copy_(const Tensor& source);
  Tensor& fill_(Scalar value);
  Tensor& zero_();
  /// x[indices] = value, broadcast; a float value beside integers is refused. Of an element that is named several times
  /// the last in row-major order wins. With `accumulate`, x[indices] += value, each time it is named.
  Tensor& index_put_(std::initializer_list<Index> indices, const Tensor& value, bool accumulate = false);
  Tensor& index_put_(std::initializer_list<Index> indices, Scalar value, bool accumulate = false);

  detail::TensorImpl& impl() const { return get(); }
  const detail::Ref<detail::TensorImpl>& ref() const { return impl_; }

 private:
  detail::TensorImpl& get() const {
    if (!impl_) undefined();
    return *impl_;
  }
  [[noreturn]] static void undefined();
  [[noreturn]] static void unfit(std::int64_t number);
  Scalar item_scalar() const;
  void* data_as(DType wanted) const;
  std::int64_t offset_of(const Shape& index) const;

  detail::Ref<detail::TensorImpl> impl_;
};

namespace detail {

struct HookFunction : Counted {
  virtual ~HookFunction() = default;
  virtual Tensor call(const Tensor& gradient) = 0;
};
inline void destroy(HookFunction* function) { delete function; }

}  // namespace detail

/// What register_hook takes: any function that is called with a gradient (a const Tensor&) and returns a Tensor, one of
/// Tensor's own among them. Copies share it. (A std::function would bring <functional>, the heaviest header of all,
/// into every source.)
class Hook {
 public:
  Hook() = default;
  template <class F>
  requires std::is_invocable_r_v<Tensor, F&, const Tensor&> Hook(F function) {
    // A null pointer or an empty std::function (which can be compared with one) makes an empty hook.
    if constexpr (std::is_pointer_v<F> || std::is_member_pointer_v<F> ||
                  (requires { function == nullptr; } && !std::is_convertible_v<F, Tensor (*)(const Tensor&)>))
      if (function == nullptr) return;
    struct Function final : detail::HookFunction {
      explicit Function(F&& f_) : f(std::move(f_)) {}
      Tensor call(const Tensor& gradient) override {
        if constexpr (std::is_member_pointer_v<F>)
          return (gradient.*f)();
        else
          return f(gradient);
      }
      F f;
    };
    function_ = detail::Ref<detail::HookFunction>::adopt(new Function(std::move(function)));
  }

  explicit operator bool() const { return static_cast<bool>(function_); }
  Tensor operator()(const Tensor& gradient) const { return function_->call(gradient); }

 private:
  detail::Ref<detail::HookFunction> function_;
};

extern template GRADUS_API std::vector<float> Tensor::to_vector<float>() const;
extern template GRADUS_API std::vector<double> Tensor::to_vector<double>() const;
extern template GRADUS_API std::vector<std::int64_t> Tensor::to_vector<std::int64_t>() const;
extern template GRADUS_API std::vector<bool> Tensor::to_vector<bool>() const;

}  // namespace gradus
