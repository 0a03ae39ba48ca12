#include <gradus/optim/sgd.h>
#include <gradus/update.h>

#include "options.h"

namespace gradus::optim {
namespace {

void check_sgd(const SGDOptions& o) {
  check_not_negative("SGD", "lr", o.lr);
  check_not_negative("SGD", "momentum", o.momentum);
  check_not_negative("SGD", "weight_decay", o.weight_decay);
  check(std::isfinite(o.dampening), "SGD", "dampening must be finite, is ", o.dampening);
  check(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD",
        "nesterov needs momentum above 0 and no dampening: momentum is ", o.momentum, ", dampening is ", o.dampening);
}

}  // namespace

SGD::SGD(const Parameters& parameters, const SGDOptions& options) : Optimizer("SGD") {
  add_param_group(parameters, options);
}

void SGD::add_param_group(const Parameters& parameters, const SGDOptions& options) {
  check_sgd(options);
  add_slots(parameters);
  options_.push_back(options);
}

void SGD::update(Slot& slot, const Tensor& grad) {
  const SGDOptions& o = options_[slot.group];
  sgd_update(slot.param, grad, slot.state[0],
             {.lr = o.lr,
              .momentum = o.momentum,
              .dampening = o.dampening,
              .weight_decay = o.weight_decay,
              .nesterov = o.nesterov,
              .maximize = o.maximize});
}

std::span<const char* const> SGD::state_names() const {
  static constexpr const char* names[] = {"momentum_buffer"};
  return names;
}

bool SGD::keeps_state(std::size_t group, std::size_t) const { return options_[group].momentum != 0; }

void SGD::visit_options(std::size_t group, const VisitNumber& visit) {
  SGDOptions& o = options_[group];
  visit("lr", o.lr);
  visit("momentum", o.momentum);
  visit("dampening", o.dampening);
  visit("weight_decay", o.weight_decay);
  visit_flag(visit, "nesterov", o.nesterov);
  visit_flag(visit, "maximize", o.maximize);
}

void SGD::check_options(std::size_t group) const { check_sgd(options_[group]); }

}  // namespace gradus::optim
