// What an optimizer remembers, by name.
#include <gradus/autograd.h>
#include <gradus/factories.h>
#include <gradus/layout.h>
#include <gradus/optim/optimizer.h>

#include <set>

#include "check.h"

namespace gradus::optim {
namespace {

std::string option_name(std::size_t group, std::string_view name) {
  return "groups." + std::to_string(group) + "." + std::string(name);
}
std::string state_name(const std::string& parameter, std::string_view name) {
  return "state." + parameter + "." + std::string(name);
}

/// The one number under a name; 0 where it is not there, which check_names reports.
double number(const StateDict& state, const std::string& name) {
  const auto found = state.find(name);
  return found != state.end() && found->second.defined() && found->second.numel() == 1 ? found->second.item() : 0;
}

}  // namespace

StateDict Optimizer::options_dict() const {
  StateDict state;
  for (std::size_t group = 0; group < groups_; ++group) {
    const_cast<Optimizer*>(this)->visit_options(group, [&](std::string_view name, double& value) {
      state[option_name(group, name)] = full(Shape{}, value, {.dtype = Float64});
    });
  }
  return state;
}

StateDict Optimizer::state_dict() const {
  StateDict state = options_dict();
  const auto names = state_names();
  for (const Slot& slot : slots_) {
    state[state_name(slot.name, "step")] = full(Shape{}, slot.step, {.dtype = Int64});
    for (std::size_t i = 0; i < names.size(); ++i)
      if (slot.state[i].defined()) state[state_name(slot.name, names[i])] = slot.state[i].clone();
  }
  return state;
}

void Optimizer::check_names(const StateDict& state) {
  std::string wrong;
  std::set<std::string, std::less<>> known;
  const auto expect = [&](const std::string& name, const Shape& shape, bool needed) {
    known.insert(name);
    const auto given = state.find(name);
    if (given == state.end() || !given->second.defined()) {
      if (needed) wrong += "\n  missing: " + name + " " + shape.str();
    } else if (given->second.shape() != shape) {
      wrong +=
          "\n  wrong shape: " + name + " is " + given->second.shape().str() + ", the optimizer's is " + shape.str();
    }
  };
  for (std::size_t group = 0; group < groups_; ++group)
    visit_options(group, [&](std::string_view name, double&) { expect(option_name(group, name), {}, true); });
  const auto names = state_names();
  for (const Slot& slot : slots_) {
    expect(state_name(slot.name, "step"), {}, true);
    const double step = number(state, state_name(slot.name, "step"));
    if (step < 0) wrong += "\n  negative: " + state_name(slot.name, "step");
    const bool started = step > 0;
    for (std::size_t i = 0; i < names.size(); ++i)
      expect(state_name(slot.name, names[i]), slot.param.shape(), started && keeps_state(slot.group, i));
  }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name)) wrong += "\n  unexpected: " + name;
  check(wrong.empty(), "load_state_dict", "these entries do not fit this ", kind_, ", and nothing was loaded:", wrong);
}

void Optimizer::load_options(const StateDict& state) {
  for (std::size_t group = 0; group < groups_; ++group) {
    visit_options(group,
                  [&](std::string_view name, double& value) { value = number(state, option_name(group, name)); });
  }
}

void Optimizer::load_state_dict(const StateDict& state) {
  const StateDict before = options_dict();
  try {
    load_options(state);  // first, since they say what state there must be
    check_names(state);
    for (std::size_t group = 0; group < groups_; ++group) check_options(group);
  } catch (...) {
    load_options(before);
    throw;
  }
  const NoGradGuard no_grad;
  const auto names = state_names();
  for (Slot& slot : slots_) {
    slot.step = state.find(state_name(slot.name, "step"))->second.item<std::int64_t>();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto given = state.find(state_name(slot.name, names[i]));
      const bool there = given != state.end() && given->second.defined();
      slot.state[i] = there ? given->second.detach().to(slot.param.dtype()).clone() : Tensor();
    }
  }
}

}  // namespace gradus::optim
