// The handle, the record behind it, and its memory. The ops are in files of their own; methods.cpp forwards to them.
#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/tensor.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "internal.h"
#include "memory.h"

namespace gradus {
namespace detail {
namespace {

// Header and elements share one block, so that a tensor costs two allocations, not three.
constexpr std::size_t storage_header = 64;
static_assert(sizeof(Storage) <= storage_header);

Ref<Storage> make_storage(std::size_t bytes) {
  void* block = pool_allocate(storage_header + bytes);
  auto* storage = new (block) Storage;
  storage->data = static_cast<std::byte*>(block) + storage_header;
  storage->bytes = bytes;
  count(Counter::Storages, 1);
  return Ref<Storage>::adopt(storage);
}

}  // namespace

void destroy(Storage* storage) {
  count(Counter::Storages, -1);
  const std::size_t bytes = storage->bytes;
  const bool pooled = storage->pooled;
  Owner* owner = storage->owner;
  storage->~Storage();
  pool_free(storage, storage_header + (pooled ? bytes : 0));
  if (owner) delete_in_turn(owner);  // it may hold tensors on foreign memory, whose owners hold others
}

void destroy(TensorImpl* impl) { delete impl; }

TensorImpl::~TensorImpl() {
  if (node && node->sink == this) {
    SpinGuard guard(node->lock);
    node->sink = nullptr;
  }
  if (extras) {
    // Gradients that have gradients end one after the other.
    for (Ref<TensorImpl> next = std::move(extras->grad); next.unique() && next->extras;)
      next = Ref<TensorImpl>(std::move(next->extras->grad));
    delete extras;
  }
  count(Counter::Tensors, -1);
}

void* TensorImpl::operator new(std::size_t bytes) {
  void* block = pool_allocate(bytes);
  count(Counter::Tensors, 1);
  return block;
}
void TensorImpl::operator delete(void* block, std::size_t bytes) { pool_free(block, bytes); }

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const std::string name = tensor.name();
  return name.empty() ? tensor.shape().str() : "'" + name + "' " + tensor.shape().str();
}

void Part::append_to(std::string& text) const {
  switch (kind_) {
    case Kind::Text:
      text += text_;
      break;
    case Kind::String:
      text += *string_;
      break;
    case Kind::Shape:
      text += shape_->str();
      break;
    case Kind::Tensor:
      text += describe(*tensor_);
      break;
    case Kind::Floating:
      text += number_text(floating_);
      break;
    case Kind::Signed:
      text += std::to_string(signed_);
      break;
    case Kind::Unsigned:
      text += std::to_string(unsigned_);
      break;
  }
}

void fail_with(const char* op, std::initializer_list<Part> parts) {
  std::string text = op;
  text += ": ";
  for (const Part& part : parts) part.append_to(text);
  throw Error(text);
}

std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank, const char* op) {
  const std::int64_t dims = std::max<std::int64_t>(rank, 1);
  check(dim >= -dims && dim < dims, op, "dim ", dim, " is outside a tensor of rank ", rank, "; it must be in [", -dims,
        ", ", dims - 1, "]");
  return dim < 0 ? dim + dims : dim;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    // What does not fit belongs to a tensor of no elements, whose strides lead nowhere.
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(shape[i], 1), &step)) step = 1;
  }
  return strides;
}

namespace {

bool is_row_major(const Shape& shape, const Shape& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

}  // namespace

Tensor make(const Shape& shape, DType dtype) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) {
    check(size >= 0, "empty", "negative size in ", shape);
    if (__builtin_mul_overflow(numel, size, &numel)) numel = shape.numel();  // 0 after all, or an Error
    if (numel == 0) break;
  }
  std::int64_t bytes = 0;
  check(!__builtin_mul_overflow(numel, size_of(dtype), &bytes) && bytes <= INT64_MAX / 2, "empty", "the bytes of ",
        shape, " ", dtype, " do not fit 63 bits");
  for (const std::int64_t size : shape) check(size >= 0, "empty", "negative size in ", shape);
  auto storage = [&] {
    try {
      return make_storage(static_cast<std::size_t>(bytes));
    } catch (const Error& error) {
      throw Error(std::string(error.what()) + " for " + shape.str() + " " + name(dtype));
    }
  }();
  auto* impl = new TensorImpl;
  auto ref = Ref<TensorImpl>::adopt(impl);
  impl->storage = std::move(storage);
  impl->shape = shape;
  impl->strides = row_major_strides(shape);
  impl->numel = numel;
  impl->dtype = dtype;
  return Tensor(std::move(ref));
}

void stand_on(TensorImpl& to, const TensorImpl& from) {
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.numel = from.numel;
  to.dtype = from.dtype;
  to.contiguous = from.contiguous;
}

Tensor make_view(const Tensor& x, const Shape& shape, const Shape& strides, std::int64_t offset) {
  auto* impl = new TensorImpl;
  auto ref = Ref<TensorImpl>::adopt(impl);
  impl->storage = x.impl().storage;
  impl->offset = offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->numel = shape.numel();
  impl->dtype = x.dtype();
  impl->contiguous = is_row_major(shape, strides);
  return Tensor(std::move(ref));
}

Tensor alias(const Tensor& tensor, Ref<Node> node) {
  auto result = Ref<TensorImpl>::adopt(new TensorImpl);
  stand_on(*result, tensor.impl());
  result->node = std::move(node);
  return Tensor(std::move(result));
}

bool overlaps_itself(const Tensor& x) {
  for (int i = 0; i < x.shape().size(); ++i)
    if (x.shape()[i] > 1 && x.strides()[i] == 0) return true;
  return false;
}

void bump_version(const Tensor& y) { y.impl().storage->version.fetch_add(1, std::memory_order_relaxed); }

void check_in_place(const Tensor& y, const char* op, std::initializer_list<const Tensor*> sources) {
  check_defined(y, op, "the tensor to change");
  check(!overlaps_itself(y), op, "elements of ", y, " overlap in memory (it is expanded); clone() it first");
  if (!grad_enabled()) return;
  bool recorded = y.requires_grad();
  for (const Tensor* source : sources) recorded |= source->requires_grad();
  if (!recorded) return;
  check(!(y.is_leaf() && y.requires_grad()), op, "a leaf that requires grad cannot be changed in place: ", y,
        "; change it inside a NoGradGuard, or use the out-of-place op");
  check(
      y.impl().storage.unique(), op, "the memory of ", y,
      " is seen by other tensors (views, detached or saved ones), whose history would break; use the out-of-place op");
}

}  // namespace detail

void Tensor::unfit(std::int64_t number) {
  detail::fail("item", "the number ", number, " does not fit the type asked for");
}
void Tensor::undefined() { throw Error("Tensor: this tensor is undefined; only defined() may be asked of it"); }

std::int64_t Tensor::size(std::int64_t dim) const {
  const Shape& s = shape();
  check(dim >= -s.size() && dim < s.size(), "size", "dim ", dim, " is outside ", *this);
  return s[dim < 0 ? dim + s.size() : dim];
}

Scalar Tensor::item_scalar() const {
  check(numel() == 1, "item", "needs exactly one element, got ", *this, "; index it or reduce it first");
  const void* p = impl().bytes();
  switch (dtype()) {
    case DType::Float32:
      return *static_cast<const float*>(p);
    case DType::Float64:
      return *static_cast<const double*>(p);
    case DType::Int64:
      return *static_cast<const std::int64_t*>(p);
    case DType::Bool:
      return *static_cast<const bool*>(p);
  }
  return 0;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  NoGradGuard guard;
  const Tensor values = detail::packed(gradus::to(*this, dtype_of<T>::value));
  const T* p = values.data<T>();
  return std::vector<T>(p, p + values.numel());
}
template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<std::int64_t> Tensor::to_vector<std::int64_t>() const;
template std::vector<bool> Tensor::to_vector<bool>() const;

void* Tensor::data_as(DType wanted) const {
  check(dtype() == wanted, "data", "the tensor is ", dtype(), ", not ", wanted, ": ", *this, "; convert with to()");
  return impl().bytes();
}

std::int64_t Tensor::offset_of(const Shape& index) const {
  check(index.size() == dim(), "at", "needs ", dim(), " indices for ", *this, ", got ", index);
  std::int64_t offset = 0;
  for (int i = 0; i < index.size(); ++i) {
    check(index[i] >= 0 && index[i] < shape()[i], "at", "index ", index, " is outside ", *this);
    offset += index[i] * strides()[i];
  }
  return offset;
}

// ---- gradients (backward itself is in autograd.cpp)

namespace {

detail::Extras& extras(const Tensor& x) {
  auto& extras = x.impl().extras;
  if (!extras) extras = new detail::Extras;
  return *extras;
}

}  // namespace

const Tensor& Tensor::requires_grad_(bool wanted) const {
  check(is_leaf(), "requires_grad_", "only leaves can be asked, and ", *this, " was made by '",
        requires_grad() ? impl().node->op : "", "'; use detach() first");
  if (wanted == requires_grad()) return *this;
  if (wanted) {
    check(is_floating(dtype()), "requires_grad_", "only Float32 and Float64 carry gradients, got ", dtype(), " ",
          *this);
    impl().node = detail::Ref<detail::Node>::adopt(new detail::Node(*this));
    impl().node->sink = &impl();
  } else {
    const detail::SpinGuard guard(impl().node->lock);
    impl().node->sink = nullptr;
  }
  if (!wanted) impl().node.reset();
  return *this;
}

bool Tensor::is_leaf() const { return !impl().node || impl().node->leaf; }

Tensor Tensor::grad() const {
  const auto& e = get().extras;
  return e ? Tensor(e->grad) : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!grad.defined()) return zero_grad();
  check(grad.shape() == shape() && grad.dtype() == dtype(), "set_grad", "the gradient is ", grad, " ", grad.dtype(),
        ", the tensor ", *this, " ", dtype());
  extras(*this).grad = grad.ref();
}

void Tensor::zero_grad() const {
  if (get().extras) get().extras->grad.reset();
}

void Tensor::retain_grad() const {
  check(requires_grad(), "retain_grad", "the tensor does not require grad: ", *this);
  const detail::SpinGuard guard(impl().node->lock);
  impl().node->sink = &impl();
}

Tensor Tensor::detach() const { return detail::alias(*this, nullptr); }

HookId Tensor::register_hook(Hook hook) const {
  check(requires_grad(), "register_hook", "the tensor does not require grad: ", *this);
  check(static_cast<bool>(hook), "register_hook", "the hook is empty");
  static std::atomic<HookId> next{1};
  auto& hooks = impl().node->hooks;
  if (!hooks) hooks = std::make_unique<std::vector<std::pair<HookId, Hook>>>();
  hooks->emplace_back(next.fetch_add(1), std::move(hook));
  return hooks->back().first;
}

void Tensor::remove_hook(HookId id) const {
  if (!impl().node || !impl().node->hooks) return;
  std::erase_if(*impl().node->hooks, [id](const auto& hook) { return hook.first == id; });
}

void Tensor::set_data(const Tensor& data) const {
  check(is_leaf(), "set_data", "only a leaf's data can be replaced, and ", *this, " was made by an op");
  check_defined(data, "set_data", "the data");
  const bool wanted = requires_grad();
  check(!wanted || is_floating(data.dtype()), "set_data", "a tensor that requires grad cannot be ", data.dtype());
  const bool fits = data.shape() == shape() && data.dtype() == dtype();
  check(!wanted || fits || impl().node.unique(), "set_data", "a recorded history still leads to ", *this, " ", dtype(),
        ", whose gradient would not fit ", data, " ", data.dtype(),
        "; call backward before, or let go of the results made from it");
  zero_grad();
  auto& to = impl();
  detail::stand_on(to, data.impl());
  if (!wanted || fits) return;
  // The place in the history knows shape and dtype: a new one, with the old one's hooks.
  const auto before = to.node;
  requires_grad_(false);
  requires_grad_();
  to.node->hooks = std::move(before->hooks);
}

const Tensor& Tensor::set_name(std::string name) const {
  extras(*this).name = std::move(name);
  return *this;
}

std::string Tensor::name() const { return get().extras ? get().extras->name : std::string(); }

}  // namespace gradus
