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
// The saving list is all that is kept alive; a lambda captures plain numbers and shapes only. Write `output` in the
// list for the op's own result. Formulas are written with differentiable ops, so that gradients of gradients follow. A
// formula is called only where its input requires a gradient, and may return an undefined tensor for "zero".
//
// Where the gradients of all inputs come out of one computation, `record_together` takes one formula for all of them.
//
// An op whose output is a part of its input (a slice, rows of a table) is written with `wrt_part`: beside the formula
// it says how to add the same gradient to a whole dx in place, so that n parts of one tensor cost n parts, not n
// tensors.
#include <gradus/detail/node.h>
#include <gradus/tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradus {

/// Stands for the op's own output in a saving list.
struct OwnOutput {};
inline constexpr OwnOutput output{};

template <class... S>
struct Saving {
  std::tuple<const S*...> tensors;
};

/// The tensors (or `output`) that a formula needs besides the upstream gradient.
template <class... S>
Saving<S...> saving(const S&... tensors) {
  return {{&tensors...}};
}

template <class F, class... S>
struct Wrt {
  const Tensor& input;
  Saving<S...> saved;
  F formula;
};

template <class F>
Wrt<F> wrt(const Tensor& input, F formula) {
  return {input, {}, std::move(formula)};
}
template <class F, class... S>
Wrt<F, S...> wrt(const Tensor& input, Saving<S...> saved, F formula) {
  return {input, saved, std::move(formula)};
}

template <class F, class A, class... S>
struct WrtPart {
  const Tensor& input;
  Saving<S...> saved;
  F formula;
  A add;
};

/// `wrt` for a part: `add(dx, g, saved…)` must add what `formula(g, saved…)` returns to dx, which has the input's
/// shape, is row-major, without history and seen by nobody else. It is called instead of the formula where the gradient
/// need not be differentiable itself.
template <class F, class A>
WrtPart<F, A> wrt_part(const Tensor& input, F formula, A add) {
  return {input, {}, std::move(formula), std::move(add)};
}
template <class F, class A, class... S>
WrtPart<F, A, S...> wrt_part(const Tensor& input, Saving<S...> saved, F formula, A add) {
  return {input, saved, std::move(formula), std::move(add)};
}

namespace detail {

template <class S>
using SavedAs = std::conditional_t<std::is_same_v<S, OwnOutput>, SavedOutput, Saved>;

inline const Tensor& saved_source(const Tensor* tensor, const Tensor&) { return *tensor; }
inline const Tensor& saved_source(const OwnOutput*, const Tensor& output) { return output; }

/// A formula with its saved tensors.
template <class F, class... S>
struct Formula {
  Formula(const Wrt<F, S...>& w, const Tensor& output)
      : saved(
            std::apply([&](const S*... s) { return std::tuple<SavedAs<S>...>(SavedAs<S>(saved_source(s, output))...); },
                       w.saved.tensors)),
        formula(w.formula) {}
  auto operator()(Node& node, const Tensor& g) const {
    return std::apply([&](const auto&... s) { return formula(g, s.unpack(node)...); }, saved);
  }
  std::tuple<SavedAs<S>...> saved;
  F formula;
};

/// The same with the way to add in place.
template <class F, class A, class... S>
struct PartFormula : Formula<F, S...> {
  PartFormula(const WrtPart<F, A, S...>& w, const Tensor& output)
      : Formula<F, S...>({w.input, w.saved, w.formula}, output), add(w.add) {}
  void add_into(const Tensor& dx, Node& node, const Tensor& g) const {
    std::apply([&](const auto&... s) { add(dx, g, s.unpack(node)...); }, this->saved);
  }
  A add;
};

template <class W>
struct FormulaOf;
template <class F, class... S>
struct FormulaOf<Wrt<F, S...>> {
  using type = Formula<F, S...>;
};
template <class F, class A, class... S>
struct FormulaOf<WrtPart<F, A, S...>> {
  using type = PartFormula<F, A, S...>;
};

inline bool wanted(const Tensor& input) { return input.defined() && input.requires_grad(); }

template <class... W>
class OpNode final : public Node {
 public:
  OpNode(const char* op_name, const Tensor& result, const W&... w) : Node(op_name, result) {
    keep(result, std::index_sequence_for<W...>(), w...);
  }
  std::span<Ref<Node>> edges() override { return edges_; }
  void gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* buffers) override {
    each([&](std::size_t i, auto& formula) {
      if constexpr (requires { formula->add; }) {
        if (buffers) {
          if (const Tensor* dx = buffers->of(i)) formula->add_into(*dx, *this, g);
          return;
        }
      }
      into[i] = (*formula)(*this, g);
    });
  }
  void visit_saved(const std::function<void(std::size_t, const Tensor&, bool)>& visit) const override {
    const_cast<OpNode*>(this)->each([&](std::size_t i, auto& formula) {
      std::apply(
          [&](const auto&... s) { (visit(i, s.peek(), std::is_same_v<std::decay_t<decltype(s)>, SavedOutput>), ...); },
          formula->saved);
    });
  }
  void release_saved() override {
    each([](std::size_t, auto& formula) { formula.reset(); });
  }

 private:
  template <std::size_t... I>
  void keep(const Tensor& output, std::index_sequence<I...>, const W&... w) {
    (
        [&] {
          if (!wanted(w.input)) return;
          edges_[I] = w.input.impl().node;
          std::get<I>(formulas_).emplace(w, output);
        }(),
        ...);
  }
  template <class Visit>
  void each(Visit&& visit) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(formulas_) ? visit(I, std::get<I>(formulas_)) : void()), ...);
    }
    (std::index_sequence_for<W...>());
  }

  std::array<Ref<Node>, sizeof...(W)> edges_;
  std::tuple<std::optional<typename FormulaOf<W>::type>...> formulas_;
};

/// A node whose formula gives the gradients of all N inputs at once.
template <std::size_t N, class F, class... S>
class TogetherNode final : public Node {
 public:
  TogetherNode(const char* op_name, const Tensor& result, const std::array<const Tensor*, N>& inputs,
               const Saving<S...>& saved, F formula)
      : Node(op_name, result) {
    for (std::size_t i = 0; i < N; ++i)
      if (wanted(*inputs[i])) edges_[i] = inputs[i]->impl().node;
    formula_.emplace(Wrt<F, S...>{*inputs[0], saved, std::move(formula)}, result);
  }
  std::span<Ref<Node>> edges() override { return edges_; }
  void gradients(const Tensor& g, std::span<Tensor> into, GradientBuffers* /*buffers*/) override {
    std::array<Tensor, N> all = (*formula_)(*this, g);
    for (std::size_t i = 0; i < N; ++i)
      if (edges_[i]) into[i] = std::move(all[i]);
  }
  void visit_saved(const std::function<void(std::size_t, const Tensor&, bool)>& visit) const override {
    if (!formula_) return;
    std::apply(
        [&](const auto&... s) {
          ((s.peek().defined() ? visit(0, s.peek(), std::is_same_v<std::decay_t<decltype(s)>, SavedOutput>) : void()),
           ...);
        },
        formula_->saved);
  }
  void release_saved() override { formula_.reset(); }

 private:
  std::array<Ref<Node>, N> edges_;
  std::optional<Formula<F, S...>> formula_;
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
Tensor record(const char* op, Tensor y, const W&... w) {
  if (!detail::recording() || !(detail::wanted(w.input) || ...)) return y;
  auto node = detail::Ref<detail::Node>::adopt(new detail::OpNode<W...>(op, y, w...));
  y.impl().node = std::move(node);
  return y;
}

/// The same for ops whose gradients are formed together: formula(g, saved…) returns a std::array with one for each of
/// the `inputs`. A tensor in the saving list may be undefined, and comes back so.
template <std::size_t N, class F, class... S>
Tensor record_together(const char* op, Tensor y, const std::array<const Tensor*, N>& inputs, const Saving<S...>& saved,
                       F formula) {
  if (!detail::recording()) return y;
  for (const Tensor* input : inputs) {
    if (!detail::wanted(*input)) continue;
    y.impl().node = detail::Ref<detail::Node>::adopt(
        new detail::TogetherNode<N, F, S...>(op, y, inputs, saved, std::move(formula)));
    break;
  }
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
