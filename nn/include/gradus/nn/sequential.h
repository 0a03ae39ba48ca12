#pragma once
#include <gradus/nn/module.h>

#include <concepts>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace gradus::nn {

/// What Sequential takes: a module or any other copyable thing that maps a Tensor to a Tensor.
template <class L>
concept Layer = std::copy_constructible<L> && requires(const L& layer, const Tensor& x) {
  { layer(x) } -> std::convertible_to<Tensor>;
};

/// Layers to make an S of; one S alone is copied instead.
template <class S, class First, class... Rest>
concept LayersOf = (sizeof...(Rest) > 0 || !std::same_as<First, S>)&&Layer<First> && (Layer<Rest> && ...);

/// Layers applied one after the other: `nn::Sequential(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 1))`.
/// The members are called "0", "1", … and are held by value: copying a Sequential copies its layers (which share
/// tensors with the originals, like any copied module). Functions such as lambdas may stand between modules.
class GRADUS_API Sequential : public Module {
 public:
  Sequential() = default;
  template <class First, class... Rest>
  requires LayersOf<Sequential, First, Rest...>
  explicit Sequential(First first, Rest... rest) {
    push_back(std::move(first));
    (push_back(std::move(rest)), ...);
  }

  template <Layer L>
  Sequential& push_back(L layer) {
    steps_.emplace_back(new HeldLayer<L>(std::move(layer)));
    return *this;
  }
  std::size_t size() const { return steps_.size(); }
  /// The i-th layer as an L. Error outside the list or where it is another type.
  template <class L>
  L& get(std::size_t i) {
    return *static_cast<L*>(find(i, typeid(L)));
  }
  template <class L>
  const L& get(std::size_t i) const {
    return *static_cast<const L*>(find(i, typeid(L)));
  }

  /// The last layer's result; x itself where there is no layer.
  Tensor operator()(const Tensor& x) const;
  void fields(Fields& f) override;

 private:
  struct Held {
    virtual ~Held() = default;
    virtual Held* copy() const = 0;
    virtual Tensor call(const Tensor& x) const = 0;
    virtual Module* module() = 0;
    virtual void* get(const std::type_info& type) = 0;
  };
  template <class L>
  struct HeldLayer final : Held {
    explicit HeldLayer(L l) : layer(std::move(l)) {}
    Held* copy() const override { return new HeldLayer(layer); }
    Tensor call(const Tensor& x) const override { return layer(x); }
    Module* module() override {
      if constexpr (std::derived_from<L, Module>) return &layer;
      return nullptr;
    }
    void* get(const std::type_info& type) override { return type == typeid(L) ? &layer : nullptr; }
    L layer;
  };
  /// A layer of any type with the value semantics of that type.
  class Step {
   public:
    explicit Step(Held* layer) : held_(layer) {}
    Step(const Step& other) : held_(other.held_->copy()) {}
    Step(Step&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    Step& operator=(Step other) noexcept {
      std::swap(held_, other.held_);
      return *this;
    }
    ~Step() { delete held_; }
    Held* operator->() const { return held_; }

   private:
    Held* held_;
  };

  void* find(std::size_t i, const std::type_info& type) const;

  std::vector<Step> steps_;
};

}  // namespace gradus::nn
