#pragma once
// One sample of PyTorch's per-op test suite: the arguments with their strides rebuilt, and what must come out.
#include <gradus/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../json.h"

namespace gradus::test {

/// Thrown where a sample uses an argument that the library does not offer.
struct NotOffered : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// x's elements laid out with the given strides: a view of a larger row-major tensor. Size-1 dims keep any stride.
inline Tensor with_strides(const Tensor& x, const Shape& strides) {
  if (x.numel() == 0) return x;
  std::vector<int> dims;  // those that tell something, the farthest apart first
  for (int i = 0; i < x.shape().size(); ++i)
    if (x.shape()[i] != 1 && strides[i] != 0) dims.push_back(i);
  std::sort(dims.begin(), dims.end(), [&](int a, int b) { return strides[a] > strides[b]; });
  // The row-major tensor has the sizes [n₀, s₀/s₁, s₁/s₂, …, s_last] for strides s; the view is a corner of it.
  Shape wide;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::int64_t size = i == 0 ? x.shape()[dims[0]] : strides[dims[i - 1]] / strides[dims[i]];
    if (size < x.shape()[dims[i]] || (i > 0 && strides[dims[i - 1]] % strides[dims[i]] != 0))
      throw std::runtime_error("cannot rebuild strides " + strides.str() + " of shape " + x.shape().str());
    wide.push_back(size);
  }
  const std::int64_t last = dims.empty() ? 1 : strides[dims.back()];
  wide.push_back(last);
  Tensor view = zeros(wide, {.dtype = x.dtype()});
  for (std::size_t i = 0; i < dims.size(); ++i)
    view = narrow(view, static_cast<std::int64_t>(i), 0, x.shape()[dims[i]]);
  view = select(view, -1, 0);
  // Back to the order of x's dims, with the dims that were left out as size 1.
  Shape order(std::vector<std::int64_t>(dims.size(), 0)), sizes = x.shape();
  std::vector<int> sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i)
    order[static_cast<std::int64_t>(i)] = std::find(dims.begin(), dims.end(), sorted[i]) - dims.begin();
  view = permute(view, order);
  Tensor source = x;
  for (int i = 0; i < x.shape().size(); ++i) {
    if (x.shape()[i] != 1 && strides[i] != 0) continue;
    sizes[i] = 1;
    view = unsqueeze(view, i);
    source = narrow(source, i, 0, 1);  // repeated elements are equal
  }
  view.copy_(source);
  return expand(view, x.shape());
}

/// Whether {"dtype": …} and its like; a tensor, slice or list is none.
inline bool is_tagged(const Json& json, const char* tag) { return json.is_object() && json.contains(tag); }

/// The call of an op as a sample asks for it. Arguments are taken by name and place; what nobody takes is not offered.
class Call {
 public:
  Call(const Json& sample, DType floats) : sample_(sample), floats_(floats) {
    read(sample.at("input"));
    for (const Json& arg : sample.at("args")) read(arg);
    for (const auto& [name, arg] : sample.at("kwargs").items()) read(arg);
    taken_.assign(sample.at("args").size(), false);
  }

  /// The tensors that require grad, in the order of the sample's gradients.
  const std::vector<Tensor>& leaves() const { return leaves_; }

  Tensor input() const { return tensor_of(sample_.at("input")); }
  std::vector<Tensor> inputs() const { return tensors_of(sample_.at("input")); }
  bool has(std::size_t place, const char* name) { return find(place, name) != nullptr; }
  Tensor tensor(std::size_t place, const char* name) {
    const Json* arg = find(place, name);
    return arg ? tensor_of(*arg) : Tensor();
  }
  std::int64_t integer(std::size_t place, const char* name, std::int64_t otherwise) {
    const Json* arg = find(place, name);
    return arg ? arg->get<std::int64_t>() : otherwise;
  }
  double real(std::size_t place, const char* name, double otherwise) {
    const Json* arg = find(place, name);
    return arg ? number(*arg) : otherwise;
  }
  bool flag(std::size_t place, const char* name, bool otherwise) {
    const Json* arg = find(place, name);
    return arg ? arg->get<bool>() : otherwise;
  }
  std::string text(std::size_t place, const char* name, const std::string& otherwise) {
    const Json* arg = find(place, name);
    return arg ? arg->get<std::string>() : otherwise;
  }
  /// One integer or a list of them; empty where there is none.
  Shape dims(std::size_t place, const char* name) {
    const Json* arg = find(place, name);
    if (!arg) return {};
    return arg->is_array() ? Shape(arg->get<std::vector<std::int64_t>>()) : Shape(arg->get<std::int64_t>());
  }
  const Json* raw(std::size_t place, const char* name) { return find(place, name); }
  /// The tensor that stands anywhere in the sample.
  Tensor tensor_of(const Json& json) const { return tensors_.at(&json); }

  /// After the call: an argument that it did not look at.
  void finish() const {
    for (std::size_t i = 0; i < taken_.size(); ++i)
      if (!taken_[i]) throw NotOffered("positional " + std::to_string(i));
    for (const auto& [name, arg] : sample_.at("kwargs").items())
      if (!std::count(names_.begin(), names_.end(), name)) throw NotOffered(name);
  }

 private:
  const Json* find(std::size_t place, const char* name) {
    const Json& args = sample_.at("args");
    const Json* arg = nullptr;
    if (place < args.size()) {
      taken_[place] = true;
      arg = &args[place];
    } else if (const auto it = sample_.at("kwargs").find(name); it != sample_.at("kwargs").end()) {
      names_.push_back(name);
      arg = &*it;
    }
    return arg && arg->is_null() ? nullptr : arg;
  }
  std::vector<Tensor> tensors_of(const Json& list) const {
    std::vector<Tensor> tensors;
    for (const Json& json : list) tensors.push_back(tensor_of(json));
    return tensors;
  }
  /// Makes the tensors in an argument, in order.
  void read(const Json& json) {
    if (is_tagged(json, "tensor")) {
      const Json& data = json.at("tensor");
      Tensor x = to_tensor(data);
      if (is_floating(x.dtype())) x = x.to(floats_);
      x = with_strides(x, data.at("strides").get<std::vector<std::int64_t>>());
      if (data.at("requires_grad").get<bool>()) leaves_.push_back(x.requires_grad_());
      tensors_.emplace(&json, x);
    } else if (json.is_array()) {
      for (const Json& part : json) read(part);
    }
  }

  const Json& sample_;
  DType floats_;
  std::map<const Json*, Tensor> tensors_;
  std::vector<Tensor> leaves_;
  std::vector<bool> taken_;
  std::vector<std::string> names_;
};

/// How one op is called: its outputs, in PyTorch's order.
using Run = std::function<std::vector<Tensor>(Call&)>;
/// By the name of the file of samples.
const std::map<std::string, Run>& calls();

}  // namespace gradus::test
