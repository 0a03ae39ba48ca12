#pragma once
// Starting values. All fill in place, without history, from `generator` (default: default_generator()).
//
// A weight [out, in, *rest] has fan_in = in·Πrest and fan_out = out·Πrest; a fan needs at least 2 dims, else Error.
#include <gradus/random.h>
#include <gradus/tensor.h>

namespace gradus::nn {
class Module;
}

namespace gradus::nn::init {

/// Uniform in [low, high). Error unless low ≤ high.
GRADUS_API void uniform_(const Tensor& x, double low = 0, double high = 1, Generator* generator = nullptr);
/// Normal. Error for std < 0.
GRADUS_API void normal_(const Tensor& x, double mean = 0, double std = 1, Generator* generator = nullptr);
GRADUS_API void constant_(const Tensor& x, Scalar value);
GRADUS_API void zeros_(const Tensor& x);
GRADUS_API void ones_(const Tensor& x);

/// Uniform in ±gain·√(6/(fan_in + fan_out)). (Glorot & Bengio 2010)
GRADUS_API void xavier_uniform_(const Tensor& x, double gain = 1, Generator* generator = nullptr);
/// Normal with std gain·√(2/(fan_in + fan_out)).
GRADUS_API void xavier_normal_(const Tensor& x, double gain = 1, Generator* generator = nullptr);
/// xavier_uniform_ on every parameter of two or more dims, a tied one once; biases and norms stay.
/// (as torch.nn.Transformer and the papers' tutorials start)
GRADUS_API void xavier_uniform_(const Module& module, double gain = 1, Generator* generator = nullptr);

enum class Fan { In, Out };
struct KaimingOptions {
  double gain = 1.4142135623730951;  ///< √2 is for relu; √(2/(1 + a²)) for a leaky one of slope a
  Fan fan = Fan::In;                 ///< keep the size of the values (In) or of the gradients (Out)
};
/// Uniform in ±gain·√(3/fan). (He et al. 2015)
GRADUS_API void kaiming_uniform_(const Tensor& x, const KaimingOptions& options = {}, Generator* generator = nullptr);
/// Normal with std gain/√fan.
GRADUS_API void kaiming_normal_(const Tensor& x, const KaimingOptions& options = {}, Generator* generator = nullptr);

}  // namespace gradus::nn::init
