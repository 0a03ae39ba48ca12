#pragma once
#include <gradus/tensor.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::nn {

class Module;

struct BufferOptions {
  bool persistent = true;  ///< part of state_dict; false for what the constructor can compute again
};

/// Takes the list of a module's members: `f("weight", weight)("bias", bias).buffer("pe", pe)("layers", layers)`.
///
/// A Tensor is a parameter (an undefined one is skipped), `buffer` one that is not trained. A module's own members come
/// under its name and a dot ("norm.weight"), or under no name of its own where that is "". The i-th module of a vector
/// is called "layers.i". Whatever walks over modules derives from Fields and fills in the protected hooks.
class GRADUS_API Fields {
 public:
  virtual ~Fields();

  Fields& operator()(std::string_view name, Tensor& parameter);
  Fields& operator()(std::string_view name, Module& module);
  template <std::derived_from<Module> M>
  Fields& operator()(std::string_view name, std::vector<M>& modules) {
    for (std::size_t i = 0; i < modules.size(); ++i) (*this)(item(name, i), modules[i]);
    return *this;
  }
  template <std::derived_from<Module> M>
  Fields& operator()(std::string_view name, std::optional<M>& module) {
    return module ? (*this)(name, *module) : *this;
  }
  Fields& buffer(std::string_view name, Tensor& buffer, const BufferOptions& options = {});
  /// "name.i"
  static std::string item(std::string_view name, std::size_t i);

 protected:
  Fields() = default;
  Fields(const Fields&) = default;
  Fields& operator=(const Fields&) = default;

  virtual void on_parameter(std::string_view /*name*/, Tensor& /*parameter*/) {}
  virtual void on_buffer(std::string_view /*name*/, Tensor& /*buffer*/, const BufferOptions& /*options*/) {}
  /// Around the members of a module.
  virtual void on_enter(std::string_view /*name*/, Module& /*module*/) {}
  virtual void on_leave(Module& /*module*/) {}
  /// The name with those of all the modules around it: "encoder.layers.0.norm1.weight".
  std::string path(std::string_view name) const;

 private:
  std::vector<std::string_view> around_;
};

}  // namespace gradus::nn
