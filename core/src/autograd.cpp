// Whether ops record, and what asks for gradients: the walk itself is in sweep.cpp.
#include <gradus/autograd.h>
#include <gradus/factories.h>

#include <utility>

#include "check.h"
#include "internal.h"
#include "memory.h"
#include "sweep.h"

namespace gradus {
namespace {

thread_local bool recording_enabled = true;

}  // namespace

bool grad_enabled() { return recording_enabled; }

NoGradGuard::NoGradGuard() : before_(std::exchange(recording_enabled, false)) {}
NoGradGuard::~NoGradGuard() { recording_enabled = before_; }
EnableGradGuard::EnableGradGuard() : before_(std::exchange(recording_enabled, true)) {}
EnableGradGuard::~EnableGradGuard() { recording_enabled = before_; }

LiveObjects live_objects() {
  return {detail::counted(detail::Counter::Tensors), detail::counted(detail::Counter::Storages),
          detail::counted(detail::Counter::Nodes)};
}

namespace detail {

bool recording() { return recording_enabled; }

namespace {

/// The upstream gradient: as given, or 1 for a single element.
Tensor upstream(const Tensor& root, const Tensor& given, const char* caller) {
  check_defined(root, caller, "the result");
  check(root.requires_grad(), caller, "the result ", root,
        " does not require grad: no input of the ops that made it does, or they ran under NoGradGuard");
  if (!given.defined()) {
    check(root.numel() == 1, caller, "only a scalar (one element) needs no gradient, and the result is ", root,
          "; pass a gradient of that shape, or reduce the result to a scalar");
    return ones(root.shape(), {.dtype = root.dtype()});
  }
  check(given.shape() == root.shape() && given.dtype() == root.dtype(), caller, "the gradient is ", given, " ",
        given.dtype(), ", the result ", root, " ", root.dtype());
  return given;
}

}  // namespace
}  // namespace detail

void Tensor::backward(const Tensor& gradient, const BackwardOptions& options) const {
  const Tensor g = detail::upstream(*this, gradient, "backward");
  detail::Sweep sweep("backward", options.create_graph, options.retain_graph.value_or(options.create_graph));
  sweep.discover({*this});
  sweep.seed(*this, g);
  sweep.run();
  sweep.fill_sinks();
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs, const GradOptions& options) {
  check(!outputs.empty() && !inputs.empty(), "grad", "needs at least one output and one input");
  check(grad_outputs.empty() || grad_outputs.size() == outputs.size(), "grad", "got ", outputs.size(), " outputs but ",
        grad_outputs.size(), " grad_outputs");
  std::vector<Tensor> upstream;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    upstream.push_back(detail::upstream(outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i], "grad"));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_defined(inputs[i], "grad", "an input");
    check(inputs[i].requires_grad(), "grad", "input ", i, " does not require grad: ", inputs[i]);
  }

  detail::Sweep sweep("grad", options.create_graph, options.retain_graph.value_or(options.create_graph));
  sweep.discover(outputs);
  const std::vector<bool> used = sweep.restrict_to(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check(used[i] || options.allow_unused, "grad", "no output depends on input ", i, ": ", inputs[i],
          "; pass {.allow_unused = true} to get an undefined tensor for it");
  for (std::size_t i = 0; i < outputs.size(); ++i) sweep.seed(outputs[i], upstream[i]);
  sweep.run();
  return sweep.results();
}

}  // namespace gradus
