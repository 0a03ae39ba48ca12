#pragma once
#include <gradus/elementwise.h>
#include <gradus/nn/module.h>

namespace gradus::nn {

/// max(x, 0). (torch.nn.ReLU)
class GRADUS_API ReLU : public Module {
 public:
  Tensor operator()(const Tensor& x) const;
};

/// x·Φ(x), exactly or by the tanh formula: `nn::GELU(GeluApproximation::Tanh)`. (torch.nn.GELU)
class GRADUS_API GELU : public Module {
 public:
  explicit GELU(GeluApproximation approximate = GeluApproximation::None) : approximate_(approximate) {}
  Tensor operator()(const Tensor& x) const;
  std::string extra() const override;

 private:
  GeluApproximation approximate_;
};

/// The choice inside feed-forward layers.
enum class Activation { ReLU, GELU };

}  // namespace gradus::nn
