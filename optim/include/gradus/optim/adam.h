#pragma once
#include <gradus/optim/optimizer.h>

#include <utility>
#include <vector>

namespace gradus::optim {

struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  ///< weight_decay·p joins the gradient (L2)
  bool amsgrad = false;
  bool maximize = false;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< p shrinks by lr·weight_decay·p, apart from the moments
  bool amsgrad = false;
  bool maximize = false;
};

/// g = ±grad + weight_decay·p;  m = β₁m + (1-β₁)g;  v = β₂v + (1-β₂)g²;  p ← p - lr·m̂/(√v̂ + eps), with m̂ = m/(1-β₁ᵗ),
/// v̂ = v/(1-β₂ᵗ) and t the parameter's own count of updates; amsgrad takes the largest v so far for v.
/// Error for a negative, infinite or NaN option and for betas outside [0, 1).
/// (Kingma & Ba 2015; Reddi et al. 2018; torch.optim.Adam)
class GRADUS_API Adam : public Optimizer {
 public:
  explicit Adam(const Parameters& parameters, const AdamOptions& options = {});
  /// One more group. Nothing changes where an Error is thrown.
  void add_param_group(const Parameters& parameters, const AdamOptions& options);

 protected:
  Adam(const char* kind, bool decoupled) : Optimizer(kind), kind_(kind), decoupled_(decoupled) {}

 private:
  void update(Slot& slot, const Tensor& grad) override;
  std::span<const char* const> state_names() const override;
  bool keeps_state(std::size_t group, std::size_t i) const override;
  void visit_options(std::size_t group, const VisitNumber& visit) override;
  void check_options(std::size_t group) const override;

  const char* kind_;
  bool decoupled_;
  std::vector<AdamOptions> options_;
};

/// Adam whose weight decay does not pass through the moments: p ← p·(1 - lr·weight_decay) first, then Adam's step.
/// (Loshchilov & Hutter 2019; torch.optim.AdamW)
class GRADUS_API AdamW final : public Adam {
 public:
  explicit AdamW(const Parameters& parameters, const AdamWOptions& options = {});
  void add_param_group(const Parameters& parameters, const AdamWOptions& options);
};

}  // namespace gradus::optim
