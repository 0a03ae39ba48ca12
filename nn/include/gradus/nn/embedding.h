#pragma once
#include <gradus/nn/module.h>

#include <optional>

namespace gradus::nn {

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx{};  ///< this row starts as zeros and gets no gradient
  DType dtype = Float32;
};

/// Row i of weight [num, dim] for each index i: Int64 of any shape → [*shape, dim]. The rows start standard normal.
/// Error for an index outside [0, num). (torch.nn.Embedding)
class GRADUS_API Embedding : public Module {
 public:
  Embedding(std::int64_t num, std::int64_t dim, const EmbeddingOptions& options = {});
  Tensor operator()(const Tensor& indices) const;
  void fields(Fields& f) override;
  std::string extra() const override;

  Tensor weight;

 private:
  std::optional<std::int64_t> padding_idx_;
};

}  // namespace gradus::nn
