#include <gradus/autograd.h>
#include <gradus/nn/init.h>
#include <gradus/nn/module.h>

#include <cmath>

#include "check.h"

namespace gradus::nn::init {
namespace {

struct Fans {
  double in, out;
};

Fans fans(const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  check(x.dim() >= 2, op, "fans need at least 2 dims [out, in, ...]: the tensor is ", x);
  const double out = static_cast<double>(x.size(0)), in = static_cast<double>(x.size(1));
  double rest = 1;
  for (int i = 2; i < x.shape().size(); ++i) rest *= static_cast<double>(x.shape()[i]);
  return {in * rest, out * rest};
}

double xavier_std(const Tensor& x, double gain, const char* op) {
  const Fans fan = fans(x, op);
  check(gain >= 0 && std::isfinite(gain), op, "gain must be finite and not negative, is ", gain);
  return gain * std::sqrt(2 / (fan.in + fan.out));
}

double kaiming_std(const Tensor& x, const KaimingOptions& options, const char* op) {
  const Fans fan = fans(x, op);
  check(options.gain >= 0 && std::isfinite(options.gain), op, "gain must be finite and not negative, is ",
        options.gain);
  return options.gain / std::sqrt(options.fan == Fan::In ? fan.in : fan.out);
}

/// Uniform with the given standard deviation: ±√3·std.
void uniform_of_std(const Tensor& x, double std, Generator* generator) {
  const double bound = std::sqrt(3.0) * std;
  uniform_(x, -bound, bound, generator);
}

}  // namespace

void uniform_(const Tensor& x, double low, double high, Generator* generator) {
  check_defined(x, "init::uniform_", "the tensor");
  check(low <= high, "init::uniform_", "low must not be above high: ", low, " and ", high);
  const NoGradGuard no_grad;
  Tensor target = x;
  gradus::uniform_(target, low, high, generator);
}

void normal_(const Tensor& x, double mean, double std, Generator* generator) {
  check_defined(x, "init::normal_", "the tensor");
  check(std >= 0, "init::normal_", "std must not be negative, is ", std);
  const NoGradGuard no_grad;
  Tensor target = x;
  gradus::normal_(target, mean, std, generator);
}

void constant_(const Tensor& x, Scalar value) {
  check_defined(x, "init::constant_", "the tensor");
  const NoGradGuard no_grad;
  Tensor target = x;
  target.fill_(value);
}

void zeros_(const Tensor& x) { constant_(x, 0); }
void ones_(const Tensor& x) { constant_(x, 1); }

void xavier_uniform_(const Tensor& x, double gain, Generator* generator) {
  uniform_of_std(x, xavier_std(x, gain, "init::xavier_uniform_"), generator);
}

void xavier_normal_(const Tensor& x, double gain, Generator* generator) {
  normal_(x, 0, xavier_std(x, gain, "init::xavier_normal_"), generator);
}

void xavier_uniform_(const Module& module, double gain, Generator* generator) {
  for (const Tensor& parameter : module.parameters())
    if (parameter.dim() >= 2) xavier_uniform_(parameter, gain, generator);
}

void kaiming_uniform_(const Tensor& x, const KaimingOptions& options, Generator* generator) {
  uniform_of_std(x, kaiming_std(x, options, "init::kaiming_uniform_"), generator);
}

void kaiming_normal_(const Tensor& x, const KaimingOptions& options, Generator* generator) {
  normal_(x, 0, kaiming_std(x, options, "init::kaiming_normal_"), generator);
}

}  // namespace gradus::nn::init
