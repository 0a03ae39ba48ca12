#include <gradus/detail/node.h>
#include <gradus/layout.h>
#include <gradus/nn/module.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "check.h"
#include "walk.h"

namespace gradus::nn {
namespace {

/// Parameters, or buffers, each once.
class Collect final : public Fields {
 public:
  Collect(bool buffers, bool names) : buffers_(buffers), names_(names) {}
  std::vector<NamedTensor> found;

 private:
  void on_parameter(std::string_view name, Tensor& parameter) override {
    if (!buffers_) take(name, parameter);
  }
  void on_buffer(std::string_view name, Tensor& buffer, const BufferOptions&) override {
    if (buffers_) take(name, buffer);
  }
  void take(std::string_view name, const Tensor& tensor) {
    if (seen_.insert(&tensor.impl()).second) found.emplace_back(names_ ? path(name) : std::string(), tensor);
  }

  bool buffers_, names_;
  std::unordered_set<const void*> seen_;
};

class SetTraining final : public Fields {
 public:
  explicit SetTraining(const std::function<void(Module&)>& set) : set_(set) {}

 private:
  void on_enter(std::string_view, Module& module) override { set_(module); }
  const std::function<void(Module&)>& set_;
};

/// Puts a new tensor in place of each old one, the same new one wherever the same old one stood.
class Unshare final : public Fields {
  void on_parameter(std::string_view, Tensor& parameter) override { replace(parameter); }
  void on_buffer(std::string_view, Tensor& buffer, const BufferOptions&) override { replace(buffer); }
  void replace(Tensor& tensor) {
    const auto [at, is_new] = made_.try_emplace(&tensor.impl());
    if (is_new) {
      at->second = {tensor, tensor.detach().clone()};
      Tensor& made = at->second.second;
      if (!tensor.name().empty()) made.set_name(tensor.name());
      if (tensor.requires_grad()) made.requires_grad_();
    }
    tensor = at->second.second;
  }

  // The old one is held too, so that its address cannot be given to another tensor meanwhile.
  std::unordered_map<const void*, std::pair<Tensor, Tensor>> made_;
};

class Convert final : public Fields {
 public:
  explicit Convert(DType dtype) : dtype_(dtype) {}

 private:
  void on_parameter(std::string_view, Tensor& parameter) override { convert(parameter); }
  void on_buffer(std::string_view, Tensor& buffer, const BufferOptions&) override { convert(buffer); }
  void convert(const Tensor& tensor) const {
    if (!is_floating(tensor.dtype()) || tensor.dtype() == dtype_) return;
    const Tensor grad = tensor.grad();
    tensor.set_data(tensor.detach().to(dtype_));
    if (grad.defined()) tensor.set_grad(grad.to(dtype_));
  }

  DType dtype_;
};

std::vector<NamedTensor> collect(const Module& module, bool buffers, bool names) {
  Collect collect(buffers, names);
  walk(module, collect);
  return std::move(collect.found);
}

std::vector<Tensor> tensors(std::vector<NamedTensor> named) {
  std::vector<Tensor> tensors;
  tensors.reserve(named.size());
  for (NamedTensor& entry : named) tensors.push_back(std::move(entry.second));
  return tensors;
}

}  // namespace

Module::~Module() = default;
void Module::adopt_names(StateDict& /*state*/, const std::string& /*prefix*/) const {}
void Module::fields(Fields&) {}
std::string Module::extra() const { return {}; }

std::vector<Tensor> Module::parameters() const { return tensors(collect(*this, false, false)); }
std::vector<NamedTensor> Module::named_parameters() const { return collect(*this, false, true); }
std::vector<Tensor> Module::buffers() const { return tensors(collect(*this, true, false)); }
std::vector<NamedTensor> Module::named_buffers() const { return collect(*this, true, true); }

std::int64_t Module::num_parameters() const {
  std::int64_t n = 0;
  for (const Tensor& parameter : parameters()) n += parameter.numel();
  return n;
}

void Module::train(bool on) {
  const std::function<void(Module&)> set = [on](Module& module) { module.training_ = on; };
  SetTraining visitor(set);
  visitor("", *this);
}

void Module::zero_grad() const {
  for (const Tensor& parameter : parameters()) parameter.zero_grad();
}

void Module::requires_grad_(bool wanted) const {
  for (const auto& [name, parameter] : named_parameters())
    check(!wanted || is_floating(parameter.dtype()), "Module::requires_grad_", "parameter ", name, " ", parameter,
          " is ", parameter.dtype(), ", which carries no gradient; list it with buffer()");
  for (const Tensor& parameter : parameters()) parameter.requires_grad_(wanted);
}

void Module::to(DType dtype) {
  check(is_floating(dtype), "Module::to", "a module computes in Float32 or Float64, not ", dtype);
  for (const auto& [name, parameter] : named_parameters())
    check(!parameter.requires_grad() || parameter.dtype() == dtype || parameter.impl().node.unique(), "Module::to",
          "a recorded history still leads to parameter ", name, " ", parameter.shape(), " ", parameter.dtype(),
          "; call backward before, or let go of the results made from it");
  Convert convert(dtype);
  convert("", *this);
}

void unshare(Module& module) {
  Unshare visitor;
  visitor("", module);
}

}  // namespace gradus::nn
