#pragma once
#include <gradus/nn/module.h>

namespace gradus::nn {

/// In training zeroes elements with probability p and multiplies the others by 1/(1-p); in evaluation x itself.
/// Error unless 0 ≤ p ≤ 1. (Srivastava et al. 2014; torch.nn.Dropout)
class GRADUS_API Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor operator()(const Tensor& x) const;
  std::string extra() const override;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace gradus::nn
