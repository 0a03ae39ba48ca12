#pragma once
// How an op meets the tape. Every op of this library is written with `record`, and so can yours be:
//
//   // Y = A·B :  dA = G·Bᵀ,  dB = Aᵀ·G
//   return record("matmul", product(a, b),
//                 wrt(a, saving(b), [](const Tensor& g, const Tensor& B) { return matmul(g, B.transpose(-2, -1)); }),
//                 wrt(b, saving(a), [](const Tensor& g, const Tensor& A) { return matmul(A.transpose(-2, -1), g); }));
//
// Each `wrt` names one input and the formula of its gradient, given the upstream gradient `g` and the saved tensors (by
// custom under the op's own names in capitals).
// The saving list is all that is kept alive; a lambda captures plain numbers and shapes only, and few of them, for it
// is kept in the history. The input's shape is at hand: a formula that takes a `const Shape&` behind the saved tensors
// is given it. Write `output` in the list for the op's own result. Formulas are written with differentiable ops, so
// that gradients of gradients follow. A formula is called only where its input requires a gradient, and may return an
// undefined tensor for "zero".
//
// Where the gradients of all inputs come out of one computation, `record_together` takes one formula for all of them.
//
// An op whose output is a part of its input (a slice, rows of a table) is written with `wrt_part`: beside the formula
// it says how to add the same gradient to a whole dx in place, so that n parts of one tensor cost n parts, not n
// tensors. Where an op can add the gradient of a whole input to another one at less than the cost of a sum, `wrt_onto`
// says how. (What adds is not given the shape: dx has it.)
#include <gradus/detail/node.h>
#include <gradus/tensor.h>

#include <array>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradus {

/// Stands for the op's own output in a saving list.
struct OwnOutput {};
inline constexpr OwnOutput output{};

/// What a formula needs besides the upstream gradient; null stands for the op's own output.
template <std::size_t n>
struct Saving {
  std::array<const Tensor*, n> tensors;
};

namespace detail {
inline const Tensor* saved_source(const Tensor& tensor) { return &tensor; }
inline const Tensor* saved_source(const OwnOutput&) { return nullptr; }
}  // namespace detail

/// The tensors (or `output`) that a formula needs besides the upstream gradient.
template <class... S>
Saving<sizeof...(S)> saving(const S&... tensors) {
  return {{detail::saved_source(tensors)...}};
}

template <class F, std::size_t n>
struct Wrt {
  const Tensor& input;
  Saving<n> saved;
  F formula;
};

template <class F>
Wrt<F, 0> wrt(const Tensor& input, F formula) {
  return {input, {}, std::move(formula)};
}
template <class F, std::size_t n>
Wrt<F, n> wrt(const Tensor& input, Saving<n> saved, F formula) {
  return {input, saved, std::move(formula)};
}

template <class F, class A, bool part>
struct AddingFormula {
  F formula;
  A add;
};

/// `wrt` for a part: `add(dx, g, saved…)` must add what `formula(g, saved…)` returns to dx, which has the input's
/// shape, is row-major, without history and seen by nobody else. It is called instead of the formula where the gradient
/// need not be differentiable itself.
template <class F, class A>
Wrt<AddingFormula<F, A, true>, 0> wrt_part(const Tensor& input, F formula, A add) {
  return {input, {}, {std::move(formula), std::move(add)}};
}
template <class F, class A, std::size_t n>
Wrt<AddingFormula<F, A, true>, n> wrt_part(const Tensor& input, Saving<n> saved, F formula, A add) {
  return {input, saved, {std::move(formula), std::move(add)}};
}

/// The same for a gradient of all of the input: `add` is only called where dx holds the gradient of another op already.
template <class F, class A, std::size_t n>
Wrt<AddingFormula<F, A, false>, n> wrt_onto(const Tensor& input, Saving<n> saved, F formula, A add) {
  return {input, saved, {std::move(formula), std::move(add)}};
}

namespace detail {

// Each formula is of a type of its own, and there is one for every input of every op. What they have in common is
// written without their types (in node.cpp), so that the compiler makes no more than these few functions for each.
struct FormulaType {
  std::size_t bytes, alignment;  // what it takes in a node's room
  Tensor (*gradient)(const void* formula, const Tensor& g, SavedTensors& saved);
  void (*add_into)(const void* formula, const Tensor& dx, const Tensor& g, SavedTensors& saved);  // or null
  bool part;                                    // which is added to zeros where there is no gradient yet
  void (*copy)(void* to, const void* formula);  // null where there is nothing in it
  void (*destroy)(void* formula);               // null where there is nothing to do
};

// What is kept behind a node begins at whole steps, a formula that is aligned to more at the next place that suits it.
inline constexpr std::size_t room_step = 8;
constexpr std::size_t room_for(std::size_t bytes) { return (bytes + room_step - 1) / room_step * room_step; }

template <class F, std::size_t... I>
Tensor call_with(const F& formula, const Tensor& g, [[maybe_unused]] SavedTensors& saved) {
  if constexpr (std::is_invocable_v<const F&, const Tensor&, decltype(saved[I])...>)
    return formula(g, saved[I]...);
  else
    return formula(g, saved[I]..., saved.input_shape());
}
template <class F, std::size_t... I>
Tensor call_formula(const void* formula, const Tensor& g, SavedTensors& saved) {
  return call_with<F, I...>(*static_cast<const F*>(formula), g, saved);
}
template <class F, class A, bool part, std::size_t... I>
Tensor call_adding_formula(const void* formula, const Tensor& g, SavedTensors& saved) {
  return call_with<F, I...>(static_cast<const AddingFormula<F, A, part>*>(formula)->formula, g, saved);
}
template <class F, std::size_t... I>
void call_add(const void* formula, const Tensor& dx, const Tensor& g, [[maybe_unused]] SavedTensors& saved) {
  static_cast<const F*>(formula)->add(dx, g, saved[I]...);
}
template <class F>
inline constexpr bool nothing_in = std::is_empty_v<F>&& std::is_trivially_copyable_v<F>;
template <class F>
constexpr auto copy_formula() -> void (*)(void*, const void*) {
  if constexpr (nothing_in<F>)
    return nullptr;
  else
    return [](void* to, const void* formula) { new (to) F(*static_cast<const F*>(formula)); };
}
template <class F>
constexpr auto destroy_formula() -> void (*)(void*) {
  if constexpr (std::is_trivially_destructible_v<F>)
    return nullptr;
  else
    return [](void* formula) { static_cast<F*>(formula)->~F(); };
}

template <class F, std::size_t... I>
constexpr FormulaType type_of(const F*, std::index_sequence<I...>) {
  return {nothing_in<F> ? 0 : sizeof(F), alignof(F), call_formula<F, I...>, nullptr, false, copy_formula<F>(),
          destroy_formula<F>()};
}
template <class F, class A, bool part, std::size_t... I>
constexpr FormulaType type_of(const AddingFormula<F, A, part>*, std::index_sequence<I...>) {
  using Both = AddingFormula<F, A, part>;
  return {sizeof(Both),           alignof(Both), call_adding_formula<F, A, part, I...>,
          call_add<Both, I...>,   part,          copy_formula<Both>(),
          destroy_formula<Both>()};
}
template <class F, std::size_t n>
inline constexpr FormulaType formula_type = type_of(static_cast<const F*>(nullptr), std::make_index_sequence<n>());

/// A `wrt` whose types are forgotten.
struct Rule {
  const Tensor* input;
  std::span<const Tensor* const> saved;  // as in Saving
  const FormulaType* type;
  const void* formula;
};
template <class F, std::size_t n>
Rule rule_of(const Wrt<F, n>& w) {
  return {&w.input, {w.saved.tensors.data(), n}, &formula_type<F, n>, &w.formula};
}
/// The room that a rule takes at most, wherever in a node it comes to lie.
template <class W>
constexpr std::size_t rule_room = 0;
template <class F, std::size_t n>
constexpr std::size_t rule_room<Wrt<F, n>> =
    room_for(n * sizeof(Saved)) +
    (nothing_in<F> ? 0 : room_for(sizeof(F)) + (alignof(F) > room_step ? alignof(F) - room_step : 0));

inline bool wanted(const Tensor& input) { return input.defined() && input.requires_grad(); }
/// Whether an op with these rules, or these inputs, has to be recorded.
GRADUS_API bool recording(std::span<const Rule> rules);
template <std::size_t N>
bool recording(const std::array<const Tensor*, N>& inputs) {
  if (!recording()) return false;
  for (const Tensor* input : inputs)
    if (wanted(*input)) return true;
  return false;
}

/// The node of an op with a formula for each input. Behind it, in one block, stand the edges, the slots, and the room
/// for what the slots keep.
class GRADUS_API RuleNode : public Node {
 public:
  ~RuleNode() override;
  std::span<Ref<Node>> edges() final { return {std::launder(reinterpret_cast<Ref<Node>*>(this + 1)), inputs_}; }
  void gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* buffers) final;
  std::vector<SavedFor> saved() const final;
  void release_saved() final;

  /// Keeps the formulas, and what they need, for the inputs whose gradients are wanted.
  void keep(std::span<const Rule> rules, const Tensor& output);

 protected:
  struct Slot {
    const FormulaType* type = nullptr;                // null where no gradient is wanted, or none any more
    std::uint16_t formula = 0, saved = 0, count = 0;  // the formula, and `count` tensors: bytes behind the node
  };
  static constexpr std::size_t for_input = sizeof(Ref<Node>) + sizeof(Slot);
  RuleNode(const char* op_name, const Tensor& result, std::size_t inputs, std::size_t bytes);

 private:
  template <class T>
  T* behind(std::size_t bytes) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(const_cast<RuleNode*>(this) + 1) + bytes);
  }
  Slot& slot(std::size_t i) const { return *behind<Slot>(inputs_ * sizeof(Ref<Node>) + i * sizeof(Slot)); }
  std::span<Saved> saved_for(const Slot& slot) const { return {behind<Saved>(slot.saved), slot.count}; }

  std::uint16_t inputs_, bytes_;  // those behind the node
};

template <std::size_t inputs, std::size_t bytes>
class RuleNodeWithRoom final : public RuleNode {
 public:
  RuleNodeWithRoom(const char* op_name, const Tensor& result) : RuleNode(op_name, result, inputs, sizeof(behind_)) {
    static_assert(sizeof(RuleNodeWithRoom) == sizeof(RuleNode) + sizeof(behind_) && sizeof(behind_) < 65536);
  }

 private:
  alignas(room_step) std::byte behind_[inputs * for_input + bytes];
};

/// Gives y the node as its place in the history, with these rules.
GRADUS_API void place(const Tensor& y, RuleNode* node, std::span<const Rule> rules);

/// A node whose formula gives the gradients of all N inputs at once.
template <std::size_t N, class F, std::size_t n>
class TogetherNode final : public Node {
 public:
  TogetherNode(const char* op_name, const Tensor& result, const std::array<const Tensor*, N>& inputs,
               const Saving<n>& saved, F formula)
      : Node(op_name, result), formula_(std::move(formula)) {
    for (std::size_t i = 0; i < N; ++i)
      if (wanted(*inputs[i])) edges_[i] = inputs[i]->impl().node;
    for (std::size_t i = 0; i < n; ++i)
      saved_[i] = saved.tensors[i] ? Saved(*saved.tensors[i], false) : Saved(result, true);
  }
  std::span<Ref<Node>> edges() override { return edges_; }
  void gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* /*buffers*/) override {
    std::array<Tensor, N> all = call(g, std::make_index_sequence<n>());
    for (std::size_t i = 0; i < N; ++i)
      if (edges_[i]) into[i] = std::move(all[i]);
  }
  std::vector<SavedFor> saved() const override {
    std::vector<SavedFor> all;
    for (const Saved& s : saved_)
      if (s.peek().defined()) all.push_back({0, s.peek(), s.is_output()});
    return all;
  }
  void release_saved() override {
    formula_.reset();
    saved_.fill({});
  }

 private:
  template <std::size_t... I>
  std::array<Tensor, N> call(const Tensor& g, std::index_sequence<I...>) {
    SavedTensors saved(*this, saved_);
    return (*formula_)(g, saved[I]...);
  }

  std::array<Ref<Node>, N> edges_;
  std::array<Saved, n> saved_;
  std::optional<F> formula_;
};

/// A node with any number of like inputs: formula(g, i) is the gradient for the i-th.
template <class F>
class ListNode final : public Node {
 public:
  ListNode(const char* op_name, const Tensor& result, const std::vector<Tensor>& inputs, F formula)
      : Node(op_name, result), edges_(inputs.size()), formula_(std::move(formula)) {
    for (std::size_t i = 0; i < inputs.size(); ++i) edges_[i] = inputs[i].impl().node;
  }
  std::span<Ref<Node>> edges() override { return edges_; }
  void gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* /*buffers*/) override {
    for (std::size_t i = 0; i < edges_.size(); ++i)
      if (edges_[i]) into[i] = formula_(g, i);
  }

 private:
  std::vector<Ref<Node>> edges_;
  F formula_;
};

}  // namespace detail

/// Gives `y`, a fresh result of `op`, its place in the history: one `wrt` an input. Keeps nothing where gradients are
/// off or no input requires one. `op` must outlive the tensor (a literal).
template <class... W>
requires(sizeof...(W) > 0) Tensor record(const char* op, Tensor y, const W&... w) {
  const detail::Rule rules[] = {detail::rule_of(w)...};
  if (detail::recording(rules))
    detail::place(y, new detail::RuleNodeWithRoom<sizeof...(W), (detail::rule_room<W> + ...)>(op, y), rules);
  return y;
}

/// The same for ops whose gradients are formed together: formula(g, saved…) returns a std::array with one for each of
/// the `inputs`. A tensor in the saving list may be undefined, and comes back so.
template <std::size_t N, class F, std::size_t n>
Tensor record_together(const char* op, Tensor y, const std::array<const Tensor*, N>& inputs, const Saving<n>& saved,
                       F formula) {
  if (detail::recording(inputs))
    y.impl().node =
        detail::Ref<detail::Node>::adopt(new detail::TogetherNode<N, F, n>(op, y, inputs, saved, std::move(formula)));
  return y;
}

/// The same for ops with a list of like inputs (all defined); formula(g, i) is the gradient for the i-th.
template <class F>
Tensor record_list(const char* op, Tensor y, const std::vector<Tensor>& inputs, F formula) {
  if (!detail::recording()) return y;
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    y.impl().node = detail::Ref<detail::Node>::adopt(new detail::ListNode<F>(op, y, inputs, std::move(formula)));
    break;
  }
  return y;
}

}  // namespace gradus
