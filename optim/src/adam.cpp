#include <gradus/factories.h>
#include <gradus/optim/adam.h>
#include <gradus/update.h>

#include "options.h"

namespace gradus::optim {
namespace {

void check_adam(const char* kind, const AdamOptions& o) {
  check_not_negative(kind, "lr", o.lr);
  check_not_negative(kind, "eps", o.eps);
  check_not_negative(kind, "weight_decay", o.weight_decay);
  const auto [beta1, beta2] = o.betas;
  check(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, kind, "betas must be in [0, 1), are ", beta1, " and ",
        beta2);
}

AdamOptions as_adam(const AdamWOptions& o) {
  return {.lr = o.lr,
          .betas = o.betas,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .amsgrad = o.amsgrad,
          .maximize = o.maximize};
}

}  // namespace

Adam::Adam(const Parameters& parameters, const AdamOptions& options) : Adam("Adam", false) {
  add_param_group(parameters, options);
}

AdamW::AdamW(const Parameters& parameters, const AdamWOptions& options) : Adam("AdamW", true) {
  add_param_group(parameters, options);
}

void Adam::add_param_group(const Parameters& parameters, const AdamOptions& options) {
  check_adam(kind_, options);
  add_slots(parameters);
  options_.push_back(options);
}

void AdamW::add_param_group(const Parameters& parameters, const AdamWOptions& options) {
  Adam::add_param_group(parameters, as_adam(options));
}

void Adam::update(Slot& slot, const Tensor& grad) {
  const AdamOptions& o = options_[slot.group];
  auto& [mean, square, max_square] = slot.state;
  if (!mean.defined()) mean = zeros_like(slot.param);
  if (!square.defined()) square = zeros_like(slot.param);
  if (o.amsgrad && !max_square.defined()) max_square = zeros_like(slot.param);
  adam_update(slot.param, grad, mean, square, max_square,
              {.lr = o.lr,
               .beta1 = o.betas.first,
               .beta2 = o.betas.second,
               .eps = o.eps,
               .weight_decay = o.weight_decay,
               .decoupled_weight_decay = decoupled_,
               .maximize = o.maximize,
               .step = slot.step});
}

std::span<const char* const> Adam::state_names() const {
  static constexpr const char* names[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return names;
}

bool Adam::keeps_state(std::size_t group, std::size_t i) const { return i < 2 || options_[group].amsgrad; }

void Adam::visit_options(std::size_t group, const VisitNumber& visit) {
  AdamOptions& o = options_[group];
  visit("lr", o.lr);
  visit("beta1", o.betas.first);
  visit("beta2", o.betas.second);
  visit("eps", o.eps);
  visit("weight_decay", o.weight_decay);
  visit_flag(visit, "amsgrad", o.amsgrad);
  visit_flag(visit, "maximize", o.maximize);
}

void Adam::check_options(std::size_t group) const { check_adam(kind_, options_[group]); }

}  // namespace gradus::optim
