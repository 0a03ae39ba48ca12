#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedules.h>

#include <algorithm>
#include <numbers>

#include "options.h"

namespace gradus::optim {
namespace {

/// 1 at the start, 0 at t = 1, along half a cosine.
double half_cosine(double t) { return (1 + std::cos(std::numbers::pi * t)) / 2; }

}  // namespace

Schedule::~Schedule() = default;

double Schedule::operator()(std::int64_t step) const {
  check(step >= 0, "schedule", "steps count from 0, asked for step ", step);
  return rate(static_cast<double>(step));
}

void Schedule::apply(Optimizer& optimizer, std::int64_t step) const { optimizer.set_lr((*this)(step)); }

StepLR::StepLR(double base_lr, const StepLROptions& options) : base_lr_(base_lr), options_(options) {
  check_not_negative("StepLR", "base_lr", base_lr);
  check_not_negative("StepLR", "gamma", options.gamma);
  check(options.step_size > 0, "StepLR", "step_size must be positive, is ", options.step_size);
}

double StepLR::rate(double step) const {
  return base_lr_ * std::pow(options_.gamma, std::floor(step / static_cast<double>(options_.step_size)));
}

ExponentialLR::ExponentialLR(double base_lr, const ExponentialLROptions& options)
    : base_lr_(base_lr), options_(options) {
  check_not_negative("ExponentialLR", "base_lr", base_lr);
  check_not_negative("ExponentialLR", "gamma", options.gamma);
}

double ExponentialLR::rate(double step) const { return base_lr_ * std::pow(options_.gamma, step); }

CosineAnnealingLR::CosineAnnealingLR(double base_lr, const CosineAnnealingLROptions& options)
    : base_lr_(base_lr), options_(options) {
  check_not_negative("CosineAnnealingLR", "base_lr", base_lr);
  check_not_negative("CosineAnnealingLR", "eta_min", options.eta_min);
  check(options.t_max > 0, "CosineAnnealingLR", "t_max must be positive, is ", options.t_max);
}

double CosineAnnealingLR::rate(double step) const {
  return options_.eta_min + (base_lr_ - options_.eta_min) * half_cosine(step / static_cast<double>(options_.t_max));
}

LinearLR::LinearLR(double base_lr, const LinearLROptions& options) : base_lr_(base_lr), options_(options) {
  check_not_negative("LinearLR", "base_lr", base_lr);
  check_not_negative("LinearLR", "start_factor", options.start_factor);
  check_not_negative("LinearLR", "end_factor", options.end_factor);
  check(options.total_iters > 0, "LinearLR", "total_iters must be positive, is ", options.total_iters);
}

double LinearLR::rate(double step) const {
  const double way = std::min(step / static_cast<double>(options_.total_iters), 1.0);
  return base_lr_ * (options_.start_factor + (options_.end_factor - options_.start_factor) * way);
}

NoamLR::NoamLR(const NoamLROptions& options) : options_(options) {
  check_not_negative("NoamLR", "factor", options.factor);
  check(options.model_size > 0, "NoamLR", "model_size must be positive, is ", options.model_size);
  check(options.warmup >= 0, "NoamLR", "warmup must not be negative, is ", options.warmup);
}

double NoamLR::rate(double step) const {
  const double t = step + 1, falling = 1 / std::sqrt(t);
  const double warmup = static_cast<double>(options_.warmup);
  const double shape = warmup > 0 ? std::min(falling, t * std::pow(warmup, -1.5)) : falling;
  return options_.factor / std::sqrt(static_cast<double>(options_.model_size)) * shape;
}

WarmupCosineLR::WarmupCosineLR(double base_lr, const WarmupCosineLROptions& options)
    : base_lr_(base_lr), options_(options) {
  check_not_negative("WarmupCosineLR", "base_lr", base_lr);
  check_not_negative("WarmupCosineLR", "min_lr", options.min_lr);
  check(options.warmup >= 0 && options.warmup < options.total, "WarmupCosineLR",
        "needs 0 <= warmup < total: warmup is ", options.warmup, ", total is ", options.total);
}

double WarmupCosineLR::rate(double step) const {
  const double warmup = static_cast<double>(options_.warmup), total = static_cast<double>(options_.total);
  if (step < warmup) return base_lr_ * (step + 1) / warmup;
  const double way = std::min((step - warmup) / (total - warmup), 1.0);
  return options_.min_lr + (base_lr_ - options_.min_lr) * half_cosine(way);
}

}  // namespace gradus::optim
