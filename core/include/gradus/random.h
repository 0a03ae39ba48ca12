#pragma once
#include <gradus/factories.h>
#include <gradus/tensor.h>

#include <atomic>
#include <cstdint>

namespace gradus {

/// A stream of random numbers: Philox4x32-10 under a 64-bit key (the seed), counted in blocks of four 32-bit words. The
/// same seed gives the same numbers on every platform and for every number of threads. State is the pair (seed,
/// offset). Threads may draw from one generator: each draw is a part of the stream of its own.
class GRADUS_API Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}

  /// Starts the stream of another seed.
  void manual_seed(std::uint64_t seed) {
    seed_ = seed;
    offset_ = 0;
  }
  std::uint64_t seed() const { return seed_; }
  /// The next unused block; set it to go back or forth.
  std::uint64_t offset() const { return offset_; }
  void set_offset(std::uint64_t offset) { offset_ = offset; }
  /// Takes as many blocks as `words` 32-bit words need and returns the first one.
  std::uint64_t take(std::int64_t words) { return offset_.fetch_add((static_cast<std::uint64_t>(words) + 3) / 4); }

 private:
  std::atomic<std::uint64_t> seed_;
  std::atomic<std::uint64_t> offset_{0};
};

/// The generator used where none is given, one for the process, born with seed 0.
GRADUS_API Generator& default_generator();
GRADUS_API void manual_seed(std::uint64_t seed);

/// Uniform in [0, 1), with 24 (Float32) or 53 (Float64) random bits.
GRADUS_API Tensor rand(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Standard normal, by the inverse of its distribution function (Wichura 1988, AS 241).
GRADUS_API Tensor randn(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Uniform integers in [low, high); Int64 unless a dtype is asked for. Error unless low < high.
GRADUS_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const TensorOptions& options = {},
                          Generator* generator = nullptr);
/// A random order of 0 … n-1 (Int64).
GRADUS_API Tensor randperm(std::int64_t n, Generator* generator = nullptr);
/// Fills in place, with no history: uniform in [low, high), or normal.
GRADUS_API void uniform_(Tensor& x, double low, double high, Generator* generator = nullptr);
GRADUS_API void normal_(Tensor& x, double mean, double std, Generator* generator = nullptr);

/// Zeroes elements with probability p and multiplies the others by 1/(1-p): y = m∘x/(1-p), dx = m∘g/(1-p), where m is
/// Bernoulli(1-p). Any float shape. The mask is never stored: backward draws it again from the generator's position.
/// Outside training and for p = 0 it is x itself. Error unless 0 ≤ p ≤ 1. (Srivastava et al. 2014;
/// torch.nn.functional.dropout)
GRADUS_API Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);

}  // namespace gradus
