// Numbers from Philox words. Only + - * / and square roots make them floats, which IEEE arithmetic rounds alike
// everywhere (this file is compiled without contraction of a·b + c), so a seed gives the same bits on every platform.
#include <gradus/layout.h>
#include <gradus/random.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "internal.h"

namespace gradus {

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().manual_seed(seed); }

namespace {

Generator& or_default(Generator* generator) { return generator ? *generator : default_generator(); }

/// Calls use(i, word0, word1) for i in [0, n) with fresh words: one word a number, or two.
template <class Use>
void draw(Generator& generator, std::int64_t n, bool two, Use use) {
  const std::int64_t words = two ? 2 * n : n;
  const std::uint64_t offset = generator.take(words);
  std::array<std::uint32_t, 1024> buffer;
  for (std::int64_t first = 0; first < words; first += std::ssize(buffer)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(buffer), words - first);
    kernels::table().philox(generator.seed(), offset, first, count, buffer.data());
    for (std::int64_t i = 0; i < count; i += two ? 2 : 1) {
      const auto at = static_cast<std::size_t>(i);
      use((first + i) / (two ? 2 : 1), buffer[at], two ? buffer[at + 1] : 0u);
    }
  }
}

/// [0, 1) with 24 bits.
float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
/// [0, 1) with 53 bits.
double uniform(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

/// log x for normal x > 0: x = m·2^e with m in [√½, √2), log m = 2·artanh((m - 1)/(m + 1)) as a series.
double portable_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    --e;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * t2 + 1.0 / k;
  return 2 * t * series + e * 0.69314718055994531;
}

template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double y = 0;
  for (std::size_t i = N; i-- > 0;) y = y * x + coefficients[i];
  return y;
}

/// The normal quantile of p in (0, 1), to about 1e-16 relative. (Wichura 1988, algorithm AS 241, PPND16)
double normal_quantile(double p) {
  constexpr std::array a = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                            1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                            3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr std::array b = {1.0,
                            4.2313330701600911252e1,
                            6.8718700749205790830e2,
                            5.3941960214247511077e3,
                            2.1213794301586595867e4,
                            3.9307895800092710610e4,
                            2.8729085735721942674e4,
                            5.2264952788528545610e3};
  constexpr std::array c = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                            3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                            2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array d = {1.0,
                            2.05319162663775882187e0,
                            1.67638483018380384940e0,
                            6.89767334985100004550e-1,
                            1.48103976427480074590e-1,
                            1.51986665636164571966e-2,
                            5.47593808499534494600e-4,
                            1.05075007164441684324e-9};
  constexpr std::array e = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                            2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                            2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array f = {1.0,
                            5.99832206555887937690e-1,
                            1.36929880922735805310e-1,
                            1.48753612908506148525e-2,
                            7.86869131145613259100e-4,
                            1.84631831751005468180e-5,
                            1.42151175831644588870e-7,
                            2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

/// Writes numbers into x (of a float dtype, any strides): use32 from one word, use64 from two.
template <class Use32, class Use64>
void fill_random(const Tensor& x, Generator& generator, Use32 use32, Use64 use64) {
  Tensor y = x.is_contiguous() ? x : detail::make(x.shape(), x.dtype());
  if (x.dtype() == Float32) {
    float* p = y.data<float>();
    draw(generator, y.numel(), false, [&](std::int64_t i, std::uint32_t w, std::uint32_t) { p[i] = use32(w); });
  } else {
    double* p = y.data<double>();
    draw(generator, y.numel(), true, [&](std::int64_t i, std::uint32_t w0, std::uint32_t w1) { p[i] = use64(w0, w1); });
  }
  if (!x.is_contiguous()) detail::write(x, y);
}

Tensor fresh(const Shape& shape, const TensorOptions& options, const char* op) {
  const DType dtype = options.dtype.value_or(Float32);
  check(is_floating(dtype), op, "needs Float32 or Float64, got ", dtype);
  return empty(shape, {.dtype = dtype});
}

void check_fill(const Tensor& x, const char* op) {
  detail::check_in_place(x, op);
  check_floating(x, op);
}

}  // namespace

namespace {

/// The largest number below high, but not below low: rounding must not reach high itself.
template <class T>
T last_before(double high, double low) {
  T last = static_cast<T>(high);
  if (static_cast<double>(last) >= high) last = std::nextafter(last, -std::numeric_limits<T>::infinity());
  return std::max(last, static_cast<T>(low));
}

}  // namespace

void uniform_(Tensor& x, double low, double high, Generator* generator) {
  check_fill(x, "uniform_");
  check(low <= high, "uniform_", "low ", low, " lies above high ", high);
  fill_random(
      x, or_default(generator),
      [=, last = last_before<float>(high, low)](std::uint32_t w) {
        return std::min(static_cast<float>(low + (high - low) * double{uniform(w)}), last);
      },
      [=, last = last_before<double>(high, low)](std::uint32_t w0, std::uint32_t w1) {
        return std::min(low + (high - low) * uniform(w0, w1), last);
      });
  detail::bump_version(x);
}

void normal_(Tensor& x, double mean, double std, Generator* generator) {
  check_fill(x, "normal_");
  check(std >= 0, "normal_", "the standard deviation must not be negative, got ", std);
  fill_random(
      x, or_default(generator),
      [=](std::uint32_t w) { return static_cast<float>(mean + std * normal_quantile((w + 0.5) * 0x1p-32)); },
      [=](std::uint32_t w0, std::uint32_t w1) { return mean + std * normal_quantile(uniform(w0, w1) + 0x1p-54); });
  detail::bump_version(x);
}

Tensor rand(const Shape& shape, const TensorOptions& options, Generator* generator) {
  Tensor x = fresh(shape, options, "rand");
  uniform_(x, 0, 1, generator);
  if (options.requires_grad) x.requires_grad_();
  return x;
}

Tensor randn(const Shape& shape, const TensorOptions& options, Generator* generator) {
  Tensor x = fresh(shape, options, "randn");
  normal_(x, 0, 1, generator);
  if (options.requires_grad) x.requires_grad_();
  return x;
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const TensorOptions& options,
               Generator* generator) {
  check(low < high, "randint", "needs low < high, got ", low, " and ", high);
  Tensor x = detail::make(shape, Int64);
  std::int64_t* p = x.data<std::int64_t>();
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  draw(or_default(generator), x.numel(), true, [&](std::int64_t i, std::uint32_t w0, std::uint32_t w1) {
    const std::uint64_t word = std::uint64_t{w0} << 32 | w1;
    // The high half of word·range is uniform in [0, range) to within 2^-64·range.
    __extension__ using Wide = unsigned __int128;
    const auto scaled = static_cast<std::uint64_t>(Wide{word} * range >> 64);
    p[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + scaled);
  });
  x = x.to(options.dtype.value_or(Int64));
  if (options.requires_grad) x.requires_grad_();
  return x;
}

Tensor randperm(std::int64_t n, Generator* generator) {
  check(n >= 0, "randperm", "n must not be negative, got ", n);
  Tensor order = arange(n);
  std::int64_t* p = order.data<std::int64_t>();
  // Fisher-Yates: place i takes any of the i + 1 first.
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(p[i], p[randint(0, i + 1, {}, {}, generator).item<std::int64_t>()]);
  return order;
}

// y = m∘x/(1-p) :  dx = m∘G/(1-p), the same field m drawn again
Tensor detail::drop(const Tensor& x, const kernels::DropoutField& field) {
  const Tensor source = packed(x);
  Tensor y = make(x.shape(), x.dtype());
  kernels::dropout(x.dtype(), field, x.numel(), pointer(source), mutable_pointer(y));
  return record("dropout", y, wrt(x, [field](const Tensor& g) { return drop(g, field); }));
}

kernels::DropoutField detail::draw_field(double p, std::int64_t words, Generator* generator) {
  Generator& source = or_default(generator);
  const std::uint64_t seed = source.seed();
  return {.seed = seed, .offset = source.take(words), .p = p};
}

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  check_defined(x, "dropout", "the tensor");
  check_floating(x, "dropout");
  check(p >= 0 && p <= 1, "dropout", "the probability must be in [0, 1], got ", p);
  if (!training || p == 0) return x;
  return detail::drop(x, detail::draw_field(p, x.numel(), generator));
}

}  // namespace gradus
