#pragma once
#include <gradus/nn/module.h>

namespace gradus::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = Float32;
};

/// y = x·Wᵀ + b for x [..., in] → [..., out]; weight [out, in], bias [out].
/// Both start uniform in ±1/√in (Kaiming's for a = √5). Error where x's last size is not `in`. (torch.nn.Linear)
class GRADUS_API Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  void fields(Fields& f) override;
  std::string extra() const override;

  Tensor weight, bias;  ///< bias is undefined where there is none
};

}  // namespace gradus::nn
