#pragma once
#include <gradus/nn/activation.h>
#include <gradus/nn/dropout.h>
#include <gradus/nn/linear.h>

namespace gradus::nn {

struct FeedForwardOptions {
  double dropout = 0;  ///< between the two maps
  Activation activation = Activation::ReLU;
};

/// linear2(dropout(activation(linear1(x)))), the same for each position: x [..., d_model] → [..., d_model], with d_ff
/// dims between. (Vaswani et al. 2017, 3.3)
class GRADUS_API PositionwiseFeedForward : public Module {
 public:
  PositionwiseFeedForward(std::int64_t d_model, std::int64_t d_ff, const FeedForwardOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  void fields(Fields& f) override;
  std::string extra() const override;

  Linear linear1, linear2;
  Dropout dropout;

 private:
  Activation activation_;
};

}  // namespace gradus::nn
