#pragma once
// What stands behind a Tensor handle: counted references, the storage, and the record of one tensor.
#include <gradus/dtype.h>
#include <gradus/shape.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gradus::detail {

struct Node;
struct Storage;
struct TensorImpl;

/// Base of everything that is shared by counting. A new object starts with one reference.
struct Counted {
  std::atomic<std::uint32_t> refs{1};
};

GRADUS_API void destroy(Node* node);
GRADUS_API void destroy(Storage* storage);
GRADUS_API void destroy(TensorImpl* impl);

/// An intrusive counted pointer: the count lives in the object, so a handle is one word and needs no second allocation.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  /// Takes over the reference that a new object was born with.
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  /// Adds a reference to an object that others hold too.
  static Ref share(T* object) {
    if (object) object->refs.fetch_add(1, std::memory_order_relaxed);
    return adopt(object);
  }
  Ref(const Ref& other) : Ref(share(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(const Ref& other) {
    Ref copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  Ref& operator=(Ref&& other) noexcept {
    Ref taken(std::move(other));
    std::swap(object_, taken.object_);
    return *this;
  }
  ~Ref() { reset(); }

  void reset() {
    T* object = std::exchange(object_, nullptr);
    if (!object) return;
    // The only holder needs no locked subtraction: nobody else can be adding a reference.
    if (object->refs.load(std::memory_order_acquire) == 1 ||
        object->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      destroy(object);
    }
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  /// Gives the reference away; `adopt` takes it.
  T* release() { return std::exchange(object_, nullptr); }
  bool unique() const { return object_ && object_->refs.load(std::memory_order_acquire) == 1; }

 private:
  T* object_ = nullptr;
};

/// Whatever keeps foreign memory alive; see from_blob.
struct Owner {
  virtual ~Owner() = default;
  Owner* next_dead = nullptr;  // while waiting to be destroyed
};

/// A block of memory, shared by every view of it. The version counts in-place changes.
struct Storage : Counted {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::atomic<std::uint32_t> version{0};
  bool pooled = true;      // header and data are one block of the pool
  Owner* owner = nullptr;  // keeps foreign memory alive, and ends with the storage
};

/// What few tensors have.
struct Extras {
  Ref<TensorImpl> grad;
  std::string name;
};

struct TensorImpl : Counted {
  DType dtype = DType::Float32;
  bool contiguous = true;
  Ref<Storage> storage;
  std::int64_t offset = 0;  // in elements
  Shape shape;
  Shape strides;  // in elements
  std::int64_t numel = 1;
  Ref<Node> node;  // where it stands in the history; null where no gradient is wanted
  Extras* extras = nullptr;

  TensorImpl() = default;
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
  ~TensorImpl();

  static void* operator new(std::size_t bytes);
  static void operator delete(void* block, std::size_t bytes);

  std::byte* bytes() const { return static_cast<std::byte*>(storage->data) + offset * size_of(dtype); }
  std::uint32_t version() const { return storage->version.load(std::memory_order_relaxed); }
};

}  // namespace gradus::detail
