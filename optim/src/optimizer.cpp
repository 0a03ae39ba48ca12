#include <gradus/autograd.h>
#include <gradus/factories.h>
#include <gradus/optim/optimizer.h>

#include <cmath>
#include <unordered_set>

#include "check.h"

namespace gradus::optim {

Parameters::Parameters(std::initializer_list<Tensor> tensors) : Parameters(std::vector<Tensor>(tensors)) {}

Parameters::Parameters(const std::vector<Tensor>& tensors) {
  named_.reserve(tensors.size());
  for (const Tensor& tensor : tensors) named_.emplace_back("", tensor);
}

Optimizer::~Optimizer() = default;

void Optimizer::add_slots(const Parameters& parameters) {
  check(!parameters.named().empty(), kind_, "was given no parameters");
  std::unordered_set<const void*> tensors;
  std::unordered_set<std::string> names;
  for (const Slot& slot : slots_) {
    tensors.insert(&slot.param.impl());
    names.insert(slot.name);
  }
  std::vector<Slot> added;
  for (const auto& [given, tensor] : parameters.named()) {
    const std::string name = given.empty() ? std::to_string(slots_.size() + added.size()) : given;
    check(tensor.defined(), kind_, "parameter ", name, " is an undefined tensor");
    check(tensor.requires_grad(), kind_, "parameter ", name, " ", tensor,
          " does not require a gradient, so it would never move; leave it out or call requires_grad_()");
    check(tensor.is_leaf(), kind_, "parameter ", name, " ", tensor,
          " is the result of an op; optimize the leaves it was made of");
    check(tensor.is_contiguous(), kind_, "parameter ", name, " ", tensor,
          " is not row-major; optimize a contiguous() copy made before requires_grad_()");
    check(tensors.insert(&tensor.impl()).second, kind_, "parameter ", name, " ", tensor,
          " is given more than once and would be updated twice a step");
    check(names.insert(name).second, kind_, "two parameters are named ", name, "; give each a name of its own");
    added.push_back({tensor, name, groups_, 0, {}});
  }
  slots_.insert(slots_.end(), added.begin(), added.end());
  ++groups_;
}

void Optimizer::step() {
  const NoGradGuard no_grad;
  // All that could be refused is refused before the first parameter moves.
  for (const Slot& slot : slots_) {
    check(slot.param.is_contiguous(), kind_, "parameter ", slot.name, " ", slot.param, " is not row-major any more");
    for (const Tensor& state : slot.state)
      check(!state.defined() || state.shape() == slot.param.shape(), kind_, "parameter ", slot.name, " is now ",
            slot.param, ", its state still ", state);
  }
  for (Slot& slot : slots_) {
    if (!slot.param.requires_grad()) continue;
    const Tensor grad = slot.param.grad();
    if (!grad.defined()) continue;
    for (Tensor& state : slot.state)  // the module may have been converted with to(dtype)
      if (state.defined() && state.dtype() != slot.param.dtype()) state = state.to(slot.param.dtype());
    ++slot.step;
    update(slot, grad);
  }
}

void Optimizer::zero_grad() {
  for (const Slot& slot : slots_) slot.param.zero_grad();
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> parameters;
  parameters.reserve(slots_.size());
  for (const Slot& slot : slots_) parameters.push_back(slot.param);
  return parameters;
}

void Optimizer::check_group(const char* op, std::size_t group) const {
  check(group < groups_, op, "there is no group ", group, " among ", groups_);
}

double Optimizer::lr(std::size_t group) const {
  check_group("lr", group);
  double lr = 0;
  const_cast<Optimizer*>(this)->visit_options(group, [&](std::string_view name, double& number) {
    if (name == "lr") lr = number;
  });
  return lr;
}

void Optimizer::set_lr(double lr, std::size_t group) {
  check_group("set_lr", group);
  check(lr >= 0 && std::isfinite(lr), "set_lr", "the rate must be finite and not negative, is ", lr);
  visit_options(group, [&](std::string_view name, double& number) {
    if (name == "lr") number = lr;
  });
}

void Optimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < groups_; ++group) set_lr(lr, group);
}

void Optimizer::visit_flag(const VisitNumber& visit, const char* name, bool& flag) {
  double number = flag ? 1 : 0;
  visit(name, number);
  flag = number != 0;
}

}  // namespace gradus::optim
