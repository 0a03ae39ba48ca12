// Every method that is an op forwards to the free function of the same name, where the formula stands.
#include <gradus/core.h>

namespace gradus {

Tensor Tensor::clone() const { return gradus::clone(*this); }
Tensor Tensor::to(DType dtype) const { return gradus::to(*this, dtype); }
Tensor Tensor::contiguous() const { return gradus::contiguous(*this); }
Tensor Tensor::add(const Tensor& other) const { return gradus::add(*this, other); }
Tensor Tensor::sub(const Tensor& other) const { return gradus::sub(*this, other); }
Tensor Tensor::mul(const Tensor& other) const { return gradus::mul(*this, other); }
Tensor Tensor::div(const Tensor& other) const { return gradus::div(*this, other); }
Tensor Tensor::add(Scalar other) const { return gradus::add(*this, other); }
Tensor Tensor::sub(Scalar other) const { return gradus::sub(*this, other); }
Tensor Tensor::mul(Scalar other) const { return gradus::mul(*this, other); }
Tensor Tensor::div(Scalar other) const { return gradus::div(*this, other); }
Tensor Tensor::pow(Scalar exponent) const { return gradus::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return gradus::pow(*this, exponent); }
Tensor Tensor::neg() const { return gradus::neg(*this); }
Tensor Tensor::abs() const { return gradus::abs(*this); }
Tensor Tensor::exp() const { return gradus::exp(*this); }
Tensor Tensor::log() const { return gradus::log(*this); }
Tensor Tensor::sqrt() const { return gradus::sqrt(*this); }
Tensor Tensor::rsqrt() const { return gradus::rsqrt(*this); }
Tensor Tensor::square() const { return gradus::square(*this); }
Tensor Tensor::sin() const { return gradus::sin(*this); }
Tensor Tensor::cos() const { return gradus::cos(*this); }
Tensor Tensor::tanh() const { return gradus::tanh(*this); }
Tensor Tensor::sigmoid() const { return gradus::sigmoid(*this); }
Tensor Tensor::relu() const { return gradus::relu(*this); }
Tensor Tensor::maximum(const Tensor& other) const { return gradus::maximum(*this, other); }
Tensor Tensor::minimum(const Tensor& other) const { return gradus::minimum(*this, other); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return gradus::clamp(*this, min, max);
}
Tensor Tensor::clamp(const Tensor& min, const Tensor& max) const { return gradus::clamp(*this, min, max); }
Tensor Tensor::eq(const Tensor& other) const { return gradus::eq(*this, other); }
Tensor Tensor::ne(const Tensor& other) const { return gradus::ne(*this, other); }
Tensor Tensor::lt(const Tensor& other) const { return gradus::lt(*this, other); }
Tensor Tensor::le(const Tensor& other) const { return gradus::le(*this, other); }
Tensor Tensor::gt(const Tensor& other) const { return gradus::gt(*this, other); }
Tensor Tensor::ge(const Tensor& other) const { return gradus::ge(*this, other); }
Tensor Tensor::eq(Scalar other) const { return gradus::eq(*this, other); }
Tensor Tensor::ne(Scalar other) const { return gradus::ne(*this, other); }
Tensor Tensor::lt(Scalar other) const { return gradus::lt(*this, other); }
Tensor Tensor::le(Scalar other) const { return gradus::le(*this, other); }
Tensor Tensor::gt(Scalar other) const { return gradus::gt(*this, other); }
Tensor Tensor::ge(Scalar other) const { return gradus::ge(*this, other); }
Tensor Tensor::sum() const { return gradus::sum(*this); }
Tensor Tensor::sum(const Shape& dims, bool keepdim) const { return gradus::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return gradus::mean(*this); }
Tensor Tensor::mean(const Shape& dims, bool keepdim) const { return gradus::mean(*this, dims, keepdim); }
Tensor Tensor::var(const Shape& dims, std::int64_t correction, bool keepdim) const {
  return gradus::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Shape& dims, std::int64_t correction, bool keepdim) const {
  return gradus::std(*this, dims, correction, keepdim);
}
Tensor Tensor::logsumexp(const Shape& dims, bool keepdim) const { return gradus::logsumexp(*this, dims, keepdim); }
Tensor Tensor::cumsum(std::int64_t dim) const { return gradus::cumsum(*this, dim); }
Tensor Tensor::amax(const Shape& dims, bool keepdim) const { return gradus::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Shape& dims, bool keepdim) const { return gradus::amin(*this, dims, keepdim); }
Tensor Tensor::max() const { return gradus::max(*this); }
Tensor Tensor::min() const { return gradus::min(*this); }
Tensor Tensor::argmax() const { return gradus::argmax(*this); }
Tensor Tensor::argmax(std::int64_t dim, bool keepdim) const { return gradus::argmax(*this, dim, keepdim); }
Tensor Tensor::matmul(const Tensor& other) const { return gradus::matmul(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return gradus::bmm(*this, other); }
Tensor Tensor::softmax(std::int64_t dim) const { return gradus::softmax(*this, dim); }
Tensor Tensor::log_softmax(std::int64_t dim) const { return gradus::log_softmax(*this, dim); }
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return gradus::masked_fill(*this, mask, value); }
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  return gradus::masked_fill(*this, mask, value);
}
Tensor Tensor::tril(std::int64_t diagonal) const { return gradus::tril(*this, diagonal); }
Tensor Tensor::triu(std::int64_t diagonal) const { return gradus::triu(*this, diagonal); }
Tensor Tensor::reshape(const Shape& shape) const { return gradus::reshape(*this, shape); }
Tensor Tensor::view(const Shape& shape) const { return gradus::view(*this, shape); }
Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const { return gradus::transpose(*this, dim0, dim1); }
Tensor Tensor::permute(const Shape& dims) const { return gradus::permute(*this, dims); }
Tensor Tensor::unsqueeze(std::int64_t dim) const { return gradus::unsqueeze(*this, dim); }
Tensor Tensor::squeeze() const { return gradus::squeeze(*this); }
Tensor Tensor::squeeze(std::int64_t dim) const { return gradus::squeeze(*this, dim); }
Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim) const {
  return gradus::flatten(*this, start_dim, end_dim);
}
Tensor Tensor::expand(const Shape& shape) const { return gradus::expand(*this, shape); }
Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  return gradus::narrow(*this, dim, start, length);
}
Tensor Tensor::slice(std::int64_t dim, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                     std::int64_t step) const {
  return gradus::slice(*this, dim, start, stop, step);
}
Tensor Tensor::select(std::int64_t dim, std::int64_t index) const { return gradus::select(*this, dim, index); }
std::vector<Tensor> Tensor::split(std::int64_t size, std::int64_t dim) const { return gradus::split(*this, size, dim); }
std::vector<Tensor> Tensor::chunk(std::int64_t chunks, std::int64_t dim) const {
  return gradus::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::unbind(std::int64_t dim) const { return gradus::unbind(*this, dim); }

}  // namespace gradus
