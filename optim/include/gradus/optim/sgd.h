#pragma once
#include <gradus/optim/optimizer.h>

#include <vector>

namespace gradus::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum and no dampening
  bool maximize = false;
};

/// g = ±grad + weight_decay·p;  b = momentum·b + (1 - dampening)·g, in the first step b = g;
/// p ← p - lr·b, for nesterov p - lr·(g + momentum·b), without momentum p - lr·g.
/// Error for a negative, infinite or NaN option and for nesterov without momentum or with dampening. (torch.optim.SGD)
class GRADUS_API SGD final : public Optimizer {
 public:
  explicit SGD(const Parameters& parameters, const SGDOptions& options = {});
  /// One more group. Nothing changes where an Error is thrown.
  void add_param_group(const Parameters& parameters, const SGDOptions& options);

 private:
  void update(Slot& slot, const Tensor& grad) override;
  std::span<const char* const> state_names() const override;
  bool keeps_state(std::size_t group, std::size_t i) const override;
  void visit_options(std::size_t group, const VisitNumber& visit) override;
  void check_options(std::size_t group) const override;

  std::vector<SGDOptions> options_;
};

}  // namespace gradus::optim
