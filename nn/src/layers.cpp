// The modules that are one op with its parameters.
#include <gradus/autograd.h>
#include <gradus/index.h>
#include <gradus/matmul.h>
#include <gradus/nn/activation.h>
#include <gradus/nn/dropout.h>
#include <gradus/nn/embedding.h>
#include <gradus/nn/init.h>
#include <gradus/nn/layer_norm.h>
#include <gradus/nn/linear.h>
#include <gradus/norm.h>
#include <gradus/random.h>

#include <cmath>

#include "check.h"

namespace gradus::nn {
namespace {

Tensor parameter(const Shape& shape, DType dtype, const char* op) {
  check(is_floating(dtype), op, "parameters are Float32 or Float64, not ", dtype);
  return empty(shape, {.dtype = dtype, .requires_grad = true});
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  check(in > 0 && out > 0, "Linear", "sizes must be positive: in is ", in, ", out is ", out);
  weight = parameter({out, in}, options.dtype, "Linear");
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  init::uniform_(weight, -bound, bound);
  if (!options.bias) return;
  bias = parameter({out}, options.dtype, "Linear");
  init::uniform_(bias, -bound, bound);
}

Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }
void Linear::fields(Fields& f) { f("weight", weight)("bias", bias); }
std::string Linear::extra() const {
  return "in=" + std::to_string(weight.size(1)) + ", out=" + std::to_string(weight.size(0));
}

Embedding::Embedding(std::int64_t num, std::int64_t dim, const EmbeddingOptions& options)
    : padding_idx_(options.padding_idx) {
  check(num > 0 && dim > 0, "Embedding", "sizes must be positive: num is ", num, ", dim is ", dim);
  if (padding_idx_) {
    check(*padding_idx_ >= 0 && *padding_idx_ < num, "Embedding", "padding_idx is ", *padding_idx_,
          ", the rows are 0 to ", num - 1);
  }
  weight = parameter({num, dim}, options.dtype, "Embedding");
  init::normal_(weight);
  if (padding_idx_) init::zeros_(weight.detach().select(0, *padding_idx_));
}

Tensor Embedding::operator()(const Tensor& indices) const { return embedding(weight, indices, padding_idx_); }
void Embedding::fields(Fields& f) { f("weight", weight); }
std::string Embedding::extra() const {
  return "num=" + std::to_string(weight.size(0)) + ", dim=" + std::to_string(weight.size(1)) +
         (padding_idx_ ? ", padding_idx=" + std::to_string(*padding_idx_) : "");
}

LayerNorm::LayerNorm(std::int64_t dim, const LayerNormOptions& options) : eps_(options.eps) {
  check(dim > 0, "LayerNorm", "dim must be positive, is ", dim);
  check(eps_ >= 0 && std::isfinite(eps_), "LayerNorm", "eps must be finite and not negative, is ", eps_);
  weight = parameter({dim}, options.dtype, "LayerNorm");
  bias = parameter({dim}, options.dtype, "LayerNorm");
  init::ones_(weight);
  init::zeros_(bias);
}

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps_); }
void LayerNorm::fields(Fields& f) { f("weight", weight)("bias", bias); }
std::string LayerNorm::extra() const { return "dim=" + std::to_string(weight.size(0)); }

Dropout::Dropout(double p) : p_(p) {
  check(p >= 0 && p <= 1, "Dropout", "p must be in [0, 1], is ", p);  // so that NaN is refused too
}

Tensor Dropout::operator()(const Tensor& x) const { return dropout(x, p_, training()); }
std::string Dropout::extra() const { return "p=" + gradus::detail::number_text(p_); }

Tensor ReLU::operator()(const Tensor& x) const { return relu(x); }

Tensor GELU::operator()(const Tensor& x) const { return gelu(x, approximate_); }
std::string GELU::extra() const { return approximate_ == GeluApproximation::Tanh ? "tanh" : ""; }

}  // namespace gradus::nn
