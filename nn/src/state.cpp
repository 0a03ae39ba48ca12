// state_dict and load_state_dict.
#include <gradus/autograd.h>
#include <gradus/nn/module.h>

#include "check.h"
#include "walk.h"

namespace gradus::nn {
namespace {

/// Everything that is saved, under all its names.
class CollectState final : public Fields {
 public:
  explicit CollectState(const char* op) : op_(op) {}
  StateDict found;

 private:
  void on_parameter(std::string_view name, Tensor& parameter) override { take(name, parameter); }
  void on_buffer(std::string_view name, Tensor& buffer, const BufferOptions& options) override {
    if (options.persistent) take(name, buffer);
  }
  void take(std::string_view name, const Tensor& tensor) {
    const auto [at, is_new] = found.emplace(path(name), tensor);
    check(is_new, op_, "fields() lists the name ", at->first, " more than once; give each member a name of its own");
  }

  const char* op_;
};

StateDict collect(const Module& module, const char* op) {
  CollectState collect(op);
  walk(module, collect);
  return std::move(collect.found);
}

/// Lets every module rename what it knows by other names.
class AdoptNames final : public Fields {
 public:
  explicit AdoptNames(StateDict& state) : state_(state) {}

 private:
  void on_enter(std::string_view name, Module& module) override {
    std::string prefix = path(name);
    if (!name.empty()) prefix += '.';
    module.adopt_names(state_, prefix);
  }
  StateDict& state_;
};

}  // namespace

StateDict Module::state_dict() const {
  StateDict state = collect(*this, "state_dict");
  for (auto& [name, tensor] : state) tensor = tensor.detach();
  return state;
}

void Module::load_state_dict(const StateDict& given_state, const LoadOptions& options) {
  StateDict state = given_state;
  AdoptNames adopt(state);
  walk(*this, adopt);
  const StateDict own = collect(*this, "load_state_dict");
  std::string missing, unexpected, mis_shaped;
  for (const auto& [name, tensor] : own) {
    const auto given = state.find(name);
    if (given == state.end() || !given->second.defined()) {
      if (options.strict) missing += "\n  missing: " + name + " " + tensor.shape().str();
    } else if (given->second.shape() != tensor.shape()) {
      mis_shaped += "\n  wrong shape: " + name + " is " + given->second.shape().str() + ", the module's is " +
                    tensor.shape().str();
    }
  }
  if (options.strict) {
    for (const auto& [name, tensor] : state)
      if (!own.contains(name)) unexpected += "\n  unexpected: " + name;
  }
  check(missing.empty() && unexpected.empty() && mis_shaped.empty(), "load_state_dict", "these entries do not fit ",
        type_name(), ", and nothing was loaded:", missing, unexpected, mis_shaped);

  const NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    const auto given = state.find(name);
    if (given == state.end() || !given->second.defined()) continue;
    Tensor mine = tensor;
    mine.copy_(given->second);
  }
}

}  // namespace gradus::nn
