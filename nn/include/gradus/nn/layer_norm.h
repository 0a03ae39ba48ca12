#pragma once
#include <gradus/nn/module.h>

namespace gradus::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  DType dtype = Float32;
};

/// y = (x - mean)/√(var + eps)·weight + bias along the last dim: x [..., dim] → [..., dim], var biased. weight [dim]
/// starts as ones, bias [dim] as zeros. Error where x's last size is not `dim`. (Ba et al. 2016; torch.nn.LayerNorm)
class GRADUS_API LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t dim, const LayerNormOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  void fields(Fields& f) override;
  std::string extra() const override;

  Tensor weight, bias;

 private:
  double eps_;
};

}  // namespace gradus::nn
