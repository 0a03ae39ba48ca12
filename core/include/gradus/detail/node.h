#pragma once
// A step of the recorded history, and what it saves for its gradient.
#include <gradus/tensor.h>

#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gradus::detail {

/// Where a sweep adds up the gradients of the inputs of the node that it is at.
class GRADUS_API GradientBuffers {
 public:
  /// The gradient so far of the input in `slot`, which may be added to in place: row-major, the sweep's own. Where
  /// there is none yet: zeros if `begin`, else null. Null too where nobody wants it.
  virtual const Tensor* of(std::size_t slot, bool begin) = 0;

 protected:
  ~GradientBuffers() = default;
};

/// A shape in 16 bytes, where it is none of the rare ones with more than four sizes or one of 2^32 and more.
class GRADUS_API CompactShape {
 public:
  explicit CompactShape(const Shape& shape);
  ~CompactShape() {
    if (rank_ == elsewhere) delete whole_;
  }
  CompactShape(const CompactShape&) = delete;
  CompactShape& operator=(const CompactShape&) = delete;

  operator Shape() const;
  bool operator==(const Shape& shape) const;

 private:
  static constexpr std::uint8_t inline_rank = 4, elsewhere = 255;
  union {
    std::uint32_t sizes_[inline_rank];
    const Shape* whole_;
  };
  std::uint8_t rank_;
};

/// One recorded op (or one leaf). It points to the nodes of its inputs, never to their data, and never to its own
/// output.
struct GRADUS_API Node : Counted {
  explicit Node(const Tensor& tensor);              // of a leaf
  Node(const char* op_name, const Tensor& output);  // of an op
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  static void* operator new(std::size_t bytes);
  static void operator delete(void* block, std::size_t bytes);

  /// The inputs' nodes in slot order; null where no gradient is wanted.
  virtual std::span<Ref<Node>> edges() { return {}; }
  /// into[i] = the gradient for slot i, for every slot with an edge, given the complete gradient of the output. Where
  /// there are buffers (not null), a slot may add to its own instead and leave into[i] undefined.
  virtual void gradients(const Tensor& /*g*/, std::span<Tensor> /*into*/, GradientBuffers* /*buffers*/) {}
  struct SavedFor {
    std::size_t slot;
    Tensor tensor;
    bool is_output;  // the op's own
  };
  /// The tensors saved for the slots' formulas.
  virtual std::vector<SavedFor> saved() const { return {}; }
  /// Forgets the saved tensors.
  virtual void release_saved() {}

  // A long history is a million of these, beyond every cache: what a node does not need it does not have.
  std::uint32_t position = 0;  // an op's, in the sweep that found it last
  const char* op;
  union {
    std::uint64_t order;  // of creation: inputs come before what is made from them
    Node* next_dead;      // while waiting to be destroyed
  };
  std::unique_ptr<std::vector<std::pair<HookId, Hook>>> hooks;  // null where there never was one

  /// The tensor whose grad is filled: a leaf, or a tensor with retain_grad. Not counted, so that a gradient with a
  /// history of its own makes no cycle; the tensor clears it when it dies. Guarded by `lock`.
  std::atomic<TensorImpl*> sink{nullptr};

  [[no_unique_address]] const CompactShape shape;
  const DType dtype;
  const bool leaf;
  bool consumed = false;
  std::atomic_flag lock{};
};

/// A tensor (maybe undefined) kept for a gradient formula. It remembers the version of its memory: a later in-place
/// change is an error. What requires a gradient is kept as an alias (same data and history, no grad of its own), again
/// so that no cycle can form; the op's own output is kept without its place in the history, which would be a cycle too.
class GRADUS_API Saved {
 public:
  Saved() = default;
  Saved(const Tensor& tensor, bool is_output);
  /// The tensor, for node's formula. Error where its memory was changed since.
  const Tensor& unpack(const Node& node) const;
  const Tensor& peek() const { return tensor_; }
  bool is_output() const { return is_output_; }

 private:
  Tensor tensor_;
  std::uint32_t version_ = 0;
  bool is_output_ = false;
};

/// The saved tensors as a formula of `node` sees them: its own output has its place in the history again. And the
/// shape of the input whose gradient the formula gives.
class GRADUS_API SavedTensors {
 public:
  SavedTensors(Node& node, std::span<const Saved> saved, const Node* input = nullptr)
      : node_(node), saved_(saved), input_(input) {}
  const Tensor& operator[](std::size_t i);
  Shape input_shape() const { return input_->shape; }

 private:
  Node& node_;
  std::span<const Saved> saved_;
  const Node* input_;
  Tensor output_;
};

/// Another handle object on the same data; with `node` as its place in the history.
GRADUS_API Tensor alias(const Tensor& tensor, Ref<Node> node);

GRADUS_API bool recording();

}  // namespace gradus::detail
