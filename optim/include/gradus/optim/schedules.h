#pragma once
#include <gradus/export.h>

#include <cstdint>

namespace gradus::optim {

class Optimizer;

/// A learning rate as a pure function of the step, counted from 0: step 0 is the first update. There is no state to
/// save.
///
///     optim::NoamLR rate({.model_size = 512, .warmup = 4000});
///     for (int64_t step = 0; step < steps; ++step) { rate.apply(opt, step); …; opt.step(); }
///
/// Every call throws an Error for a negative step; constructors throw for options that make no sense.
class GRADUS_API Schedule {
 public:
  virtual ~Schedule();
  double operator()(std::int64_t step) const;
  /// Sets the rate of all groups. (`opt.set_lr(rate(step), group)` sets that of one.)
  void apply(Optimizer& optimizer, std::int64_t step) const;

 protected:
  Schedule() = default;
  Schedule(const Schedule&) = default;
  Schedule& operator=(const Schedule&) = default;
  virtual double rate(double step) const = 0;
};

struct StepLROptions {
  std::int64_t step_size = 1;
  double gamma = 0.1;
};
/// base_lr·gamma^⌊step/step_size⌋. (torch.optim.lr_scheduler.StepLR)
class GRADUS_API StepLR final : public Schedule {
 public:
  StepLR(double base_lr, const StepLROptions& options);

 private:
  double rate(double step) const override;
  double base_lr_;
  StepLROptions options_;
};

struct ExponentialLROptions {
  double gamma = 0.99;
};
/// base_lr·gamma^step. (torch.optim.lr_scheduler.ExponentialLR)
class GRADUS_API ExponentialLR final : public Schedule {
 public:
  ExponentialLR(double base_lr, const ExponentialLROptions& options);

 private:
  double rate(double step) const override;
  double base_lr_;
  ExponentialLROptions options_;
};

struct CosineAnnealingLROptions {
  std::int64_t t_max = 1;  ///< half a period
  double eta_min = 0;
};
/// eta_min + (base_lr - eta_min)·(1 + cos(π·step/t_max))/2; past t_max it rises again.
/// (Loshchilov & Hutter 2017; torch.optim.lr_scheduler.CosineAnnealingLR)
class GRADUS_API CosineAnnealingLR final : public Schedule {
 public:
  CosineAnnealingLR(double base_lr, const CosineAnnealingLROptions& options);

 private:
  double rate(double step) const override;
  double base_lr_;
  CosineAnnealingLROptions options_;
};

struct LinearLROptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
/// base_lr times a factor that goes straight from start_factor to end_factor in total_iters steps and stays there.
/// (torch.optim.lr_scheduler.LinearLR)
class GRADUS_API LinearLR final : public Schedule {
 public:
  LinearLR(double base_lr, const LinearLROptions& options);

 private:
  double rate(double step) const override;
  double base_lr_;
  LinearLROptions options_;
};

struct NoamLROptions {
  std::int64_t model_size = 512;
  double factor = 1;
  std::int64_t warmup = 4000;  ///< 0: no warm-up
};
/// factor·model_size^-½·min(t^-½, t·warmup^-1½) with t = step + 1, so the first update has a rate and the largest one
/// comes at t = warmup. (Vaswani et al. 2017, 5.3)
class GRADUS_API NoamLR final : public Schedule {
 public:
  explicit NoamLR(const NoamLROptions& options);

 private:
  double rate(double step) const override;
  NoamLROptions options_;
};

struct WarmupCosineLROptions {
  std::int64_t warmup = 0;  ///< updates until base_lr is reached
  std::int64_t total = 1;   ///< updates in all
  double min_lr = 0;
};
/// base_lr·(step + 1)/warmup for the first `warmup` updates, then half a cosine from base_lr down to min_lr, which it
/// reaches at step `total` and keeps. Error unless 0 ≤ warmup < total.
class GRADUS_API WarmupCosineLR final : public Schedule {
 public:
  WarmupCosineLR(double base_lr, const WarmupCosineLROptions& options);

 private:
  double rate(double step) const override;
  double base_lr_;
  WarmupCosineLROptions options_;
};

}  // namespace gradus::optim
