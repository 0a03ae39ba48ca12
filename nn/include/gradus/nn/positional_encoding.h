#pragma once
#include <gradus/nn/dropout.h>
#include <gradus/nn/module.h>

namespace gradus::nn {

struct PositionalEncodingOptions {
  double dropout = 0;  ///< on the sum
  std::int64_t max_len = 5000;
};

/// x + pe for x [B, L, d_model], L ≤ max_len: pe[t, 2i] = sin(t/10000^(2i/d_model)), pe[t, 2i+1] = cos of the same.
/// `pe` is a buffer [max_len, d_model], not saved: the constructor computes it. Error for a longer x.
/// (Vaswani et al. 2017, 3.5)
class GRADUS_API PositionalEncoding : public Module {
 public:
  explicit PositionalEncoding(std::int64_t d_model, const PositionalEncodingOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  void fields(Fields& f) override;
  std::string extra() const override;

  Tensor pe;
  Dropout dropout;
};

}  // namespace gradus::nn
