#pragma once
#include <gradus/nn/fields.h>
#include <gradus/tensor.h>

#include <concepts>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradus::nn {

/// Tensors by name, in the order of the names.
using StateDict = std::map<std::string, Tensor, std::less<>>;

using NamedTensor = std::pair<std::string, Tensor>;

struct LoadOptions {
  bool strict = true;  ///< a missing or an unexpected name is an Error; a wrong shape always is
};

/// Base of everything with parameters. A module of your own holds its members by value, lists them once in `fields`,
/// and has an `operator()` of any signature:
///
///     class Net : public nn::Module {
///      public:
///       Tensor operator()(const Tensor& x) const { return out_(relu(in_(x))); }
///       void fields(nn::Fields& f) override { f("in", in_)("out", out_); }
///      private:
///       nn::Linear in_{2, 16}, out_{16, 1};
///     };
///
/// Copying a module copies the C++ object, and its tensors are handles: **the copy shares the parameters**.
/// `clone(module)` gives one with parameters of its own.
class GRADUS_API Module {
 public:
  virtual ~Module();

  /// The one list of the members. parameters, state_dict, train, clone, printing and all the rest follow from it.
  /// A tensor or module that is not listed is not trained, saved or cloned.
  virtual void fields(Fields& f);
  /// Before values are loaded: brings the entries of `state` that lie under `prefix` ("encoder.layers.0.self_attn.")
  /// and go by another library's names under those of `fields`. Called for every module, the outer ones first.
  virtual void adopt_names(StateDict& state, const std::string& prefix) const;
  /// What printing adds to the type's name, such as "in=2, out=16".
  virtual std::string extra() const;

  /// The parameters in the order of `fields`, each tensor once, also where it has several names.
  std::vector<Tensor> parameters() const;
  /// The same with names ("layers.0.weight"); a tensor with several has its first one.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<Tensor> buffers() const;
  std::vector<NamedTensor> named_buffers() const;
  /// The number of elements in parameters().
  std::int64_t num_parameters() const;

  /// Parameters and persistent buffers under all their names: handles on the same data, without history.
  /// Error where one name is listed twice.
  StateDict state_dict() const;
  /// Copies values in, converting the dtype, so that every handle on a parameter (an optimizer's too) sees them.
  /// PyTorch's names of its attention's parameters (`in_proj_weight`, `out_proj.weight`) are understood.
  /// Everything is checked first: one Error lists every missing, unexpected and mis-shaped name, and then nothing has
  /// changed.
  void load_state_dict(const StateDict& state, const LoadOptions& options = {});

  /// Training mode, in which modules start, or evaluation mode, here and in all modules below: dropout obeys it.
  /// A module that is put in later keeps its own mode.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Forgets the gradients of all parameters.
  void zero_grad() const;
  /// Asks for gradients of all parameters, or freezes them.
  void requires_grad_(bool wanted = true) const;
  /// Converts floating parameters (with their gradients) and buffers where they are, so that every handle on them sees
  /// it: an optimizer goes on, and converts its moments at its next step. Tensors that shared their memory (detach,
  /// views) keep the old one. Error unless dtype is Float32 or Float64, and where a result that is still to be walked
  /// back leads to a parameter; nothing is converted then.
  void to(DType dtype);

  /// The type's name without namespaces: "Linear".
  std::string type_name() const;

 protected:
  Module() = default;
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;

 private:
  bool training_ = true;
};

/// The module as a tree: name, type, parameters with shapes and counts, and the total.
GRADUS_API std::ostream& operator<<(std::ostream& os, const Module& module);

/// Gives a copied module tensors of its own: equal values, and one new tensor for each old one, so that ties survive.
GRADUS_API void unshare(Module& module);

/// A module of the same type with parameters and buffers of its own, equal in value. Two names for one tensor stay two
/// names for one tensor. requires_grad, tensor names and the training mode are kept; gradients and hooks are not.
template <std::derived_from<Module> M>
M clone(const M& module) {
  M copy(module);
  unshare(copy);
  return copy;
}

/// n clones. They start equal to `module` and to each other, as in the papers' tutorials: where layers must start
/// different, initialise after cloning (`init::xavier_uniform_(module)`).
template <std::derived_from<Module> M>
std::vector<M> clones(const M& module, std::int64_t n) {
  std::vector<M> made;
  for (std::int64_t i = 0; i < n; ++i) made.push_back(clone(module));
  return made;
}

}  // namespace gradus::nn
