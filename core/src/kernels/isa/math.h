#pragma once
// exp, log, tanh and their family on vectors, right to a few units in the last place over the whole range: infinities,
// NaN, subnormal numbers and both tails.
//
// Eigen 3.4's sin and cos are that (trig.h); its exp stops at the smallest normal number (exp(-inf) is not 0), its log
// takes subnormal numbers for that one and its tanh does not reach 1, so these are here. The polynomials are those of
// S. Moshier's Cephes library.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Small integers (|k| < 2²²) as floating numbers: put into the mantissa of 1.5·2^mantissa_bits, and that subtracted.
template <class T>
GRADUS_INLINE Vec<T> to_float(Int<T> k) {
  constexpr T base = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);
  return (Vec<T>)(k + (Int<T>)splat<T>(base)) - base;
}

// ln 2 in two parts, the first with so few bits that n·hi is exact.
template <class T>
inline constexpr T ln2_hi = sizeof(T) == 4 ? T(0.693359375) : T(6.93145751953125E-1);
template <class T>
inline constexpr T ln2_lo = sizeof(T) == 4 ? T(-2.12194440E-4) : T(1.42860682030941723212E-6);

// eʳ for r in about [-ln2/2, ln2/2].
GRADUS_INLINE VecF exp_reduced(VecF r) {
  VecF p = r * 1.9875691500E-4f + 1.3981999507E-3f;
  p = p * r + 8.3334519073E-3f;
  p = p * r + 4.1665795894E-2f;
  p = p * r + 1.6666665459E-1f;
  p = p * r + 5.0000001201E-1f;
  return p * (r * r) + r + 1.0f;
}
GRADUS_INLINE VecD exp_reduced(VecD r) {
  const VecD z = r * r;
  VecD p = z * 1.26177193074810590878E-4 + 3.02994407707441961300E-2;
  p = p * z + 9.99999999999999999910E-1;
  VecD q = z * 3.00198505138664455042E-6 + 2.52448340349684104192E-3;
  q = q * z + 2.27265548208155028766E-1;
  q = q * z + 2.00000000000000000005E0;
  p *= r;
  return 2.0 * (p / (q - p)) + 1.0;
}

// e^(x + low) for a small low: 2ⁿ·eʳ with n = round(x/ln 2). The factor 2ⁿ is applied in two steps, so that the result
// may be subnormal and is rounded once.
template <class T>
GRADUS_INLINE Vec<T> exp(Vec<T> x, Vec<T> low) {
  using L = Lanes<T>;
  constexpr T lowest = sizeof(T) == 4 ? T(-104) : T(-746);
  constexpr T highest = sizeof(T) == 4 ? T(89) : T(710);
  constexpr T round =
      sizeof(T) == 4 ? T(12582912) : T(6755399441055744);  // 1.5·2^mantissa: adding it rounds to integer
  x = x < lowest ? splat<T>(lowest) : x;
  x = x > highest ? splat<T>(highest) : x;
  const Vec<T> shifted = x * T(1.44269504088896340736) + round;
  const Vec<T> n = shifted - round;
  const Int<T> k = (Int<T>)shifted - (Int<T>)splat<T>(round);
  const Vec<T> r = (x - n * ln2_hi<T>)-n * ln2_lo<T> + low;
  const Int<T> half = k >> 1;
  const Vec<T> a = (Vec<T>)((half + L::exponent_bias) << L::mantissa_bits);
  const Vec<T> b = (Vec<T>)((k - half + L::exponent_bias) << L::mantissa_bits);
  return exp_reduced(r) * a * b;
}
template <class T>
GRADUS_INLINE Vec<T> exp(Vec<T> x) {
  return exp<T>(x, Vec<T>{});
}
// e^(x - top). The difference goes to exp in two parts: rounded once, its own size would show in the result.
template <class T>
GRADUS_INLINE Vec<T> exp_of_difference(Vec<T> x, Vec<T> top) {
  const Vec<T> d = x - top, back = d - x;
  const Vec<T> low = (x - (d - back)) - (top + back);
  return exp<T>(d, low == low ? low : Vec<T>{});  // of x = -inf the low part is NaN
}

// ln(1 + r) for 1 + r in [√½, √2], less the leading r - r²/2.
GRADUS_INLINE VecF log_tail(VecF r) {
  VecF p = r * 7.0376836292E-2f - 1.1514610310E-1f;
  p = p * r + 1.1676998740E-1f;
  p = p * r - 1.2420140846E-1f;
  p = p * r + 1.4249322787E-1f;
  p = p * r - 1.6668057665E-1f;
  p = p * r + 2.0000714765E-1f;
  p = p * r - 2.4999993993E-1f;
  p = p * r + 3.3333331174E-1f;
  return p * (r * r * r);
}
GRADUS_INLINE VecD log_tail(VecD r) {
  VecD p = r * 1.01875663804580931796E-4 + 4.97494994976747001425E-1;
  p = p * r + 4.70579119878881725854E0;
  p = p * r + 1.44989225341610930846E1;
  p = p * r + 1.79368678507819816313E1;
  p = p * r + 7.70838733755885391666E0;
  VecD q = r + 1.12873587189167450590E1;
  q = q * r + 4.52279145837532221105E1;
  q = q * r + 8.29875266912776603211E1;
  q = q * r + 7.11544750618563894466E1;
  q = q * r + 2.31251620126765340583E1;
  return r * r * r * (p / q);
}

// ln x = n·ln 2 + ln m with m in [√½, √2]. Subnormal numbers are scaled into the normal range first.
template <class T>
GRADUS_INLINE Vec<T> log(Vec<T> x) {
  using L = Lanes<T>;
  using Word = typename L::Word;
  constexpr T smallest = sizeof(T) == 4 ? T(1.17549435e-38) : T(2.2250738585072014e-308);
  constexpr T scale = sizeof(T) == 4 ? T(8388608) : T(4503599627370496);  // 2^mantissa_bits
  const auto subnormal = x < smallest;
  const Vec<T> y = subnormal ? x * scale : x;
  // The exponent that leaves a mantissa from √½ on: measured from the bits of √½.
  const Word from = sizeof(T) == 4 ? Word{0x3f3504f3} : static_cast<Word>(0x3fe6a09e667f3bcd);
  const Int<T> bits = (Int<T>)y;
  const Int<T> k = (bits - from) >> L::mantissa_bits;
  const Vec<T> m = (Vec<T>)(bits - (k << L::mantissa_bits));
  const Vec<T> n = to_float<T>(k) - (subnormal ? splat<T>(T(L::mantissa_bits)) : Vec<T>{});
  const Vec<T> r = m - T(1);
  const Vec<T> small = log_tail(r) + n * T(-2.121944400546905827679E-4) - T(0.5) * (r * r);
  Vec<T> result = small + r + n * T(0.693359375);
  result = x == L::infinity ? x : result;
  result = x == T(0) ? splat<T>(-L::infinity) : result;
  return x < T(0) ? splat<T>(L::infinity - L::infinity) : (x != x ? x : result);
}

// ln(1 + e) for e in [0, 1]: what the rounding of 1 + e takes away from e stands in the quotient as well.
template <class T>
GRADUS_INLINE Vec<T> log_plus_one(Vec<T> e) {
  const Vec<T> sum = e + T(1), added = sum - T(1);
  return added == T(0) ? e : log<T>(sum) * (e / added);
}

// tanh x for |x| < 0.625, by an odd polynomial or fraction.
GRADUS_INLINE VecF tanh_small(VecF x) {
  const VecF z = x * x;
  VecF p = z * -5.70498872745E-3f + 2.06390887954E-2f;
  p = p * z - 5.37397155531E-2f;
  p = p * z + 1.33314422036E-1f;
  p = p * z - 3.33332819422E-1f;
  return p * z * x + x;
}
GRADUS_INLINE VecD tanh_small(VecD x) {
  const VecD z = x * x;
  VecD p = z * -9.64399179425052238628E-1 - 9.92877231001918586564E1;
  p = p * z - 1.61468768441708447952E3;
  VecD q = z + 1.12811678491632931402E2;
  q = q * z + 2.23548839060100448583E3;
  q = q * z + 4.84406305325125486048E3;
  return x + x * z * (p / q);
}
template <class T>
GRADUS_INLINE Vec<T> tanh(Vec<T> x) {
  const Vec<T> size = abs<T>(x);
  const Vec<T> large = T(1) - T(2) / (exp<T>(size + size) + T(1));
  return size < T(0.625) ? tanh_small(x) : copy_sign<T>(large, x);
}

// s = 1/(1 + e⁻ˣ) and 1 - s. e is taken of -|x|, so that both keep their relative accuracy in their tails.
template <class T>
struct Sigmoid {
  Vec<T> s, rest;
};
template <class T>
GRADUS_INLINE Sigmoid<T> sigmoid_and_rest(Vec<T> x) {
  const Vec<T> e = exp<T>(-abs<T>(x));
  const Vec<T> large = T(1) / (e + T(1));
  const Vec<T> small = e * large;
  return {x < T(0) ? small : large, x < T(0) ? large : small};
}
template <class T>
GRADUS_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> e = exp<T>(-abs<T>(x));
  const Vec<T> numerator = x < T(0) ? e : splat<T>(T(1));
  return numerator / (e + T(1));
}

// The normal density φ(x) and distribution Φ(x).
template <class T>
struct Normal {
  Vec<T> density, distribution;
};
inline constexpr double inverse_sqrt_2pi = 0.39894228040143267794;

// e^(-x²/2) keeps its relative accuracy by splitting x into h, whose square is exact, and the rest:
// x² = h² + (x - h)(x + h). The left tail Φ(-|x|) is e^(-x²/2)·R(|x|), with R(t)·(t + 4) a polynomial in (t - 4)/(t +
// 4) fitted on [0, 14.5] (beyond which Φ(-t) is 0) to 1.3e-8.
GRADUS_INLINE Normal<float> normal(VecF x) {
  VecF t = abs<float>(x);
  t = t > 15.0f ? splat(15.0f) : t;
  const VecF h = (VecF)((VecI32)t & ~0xfff);
  const VecF e = exp<float>(h * h * -0.5f, (t - h) * (t + h) * -0.5f);
  const VecF inverse = 1.0f / (t + 4.0f);
  const VecF u = (t - 4.0f) * inverse;
  VecF p = u * -0.000122983157005f + 0.000194801851142f;
  p = p * u + 0.00156931364509f;
  p = p * u - 0.00352357405635f;
  p = p * u - 0.00752721291168f;
  p = p * u + 0.0604064697483f;
  p = p * u - 0.186523005897f;
  p = p * u + 0.387136679795f;
  p = p * u - 0.607896606074f;
  p = p * u + 0.75528513851f;
  const VecF tail = p * inverse * e;
  return {e * static_cast<float>(inverse_sqrt_2pi), x > 0.0f ? 1.0f - tail : tail};
}
GRADUS_INLINE Normal<double> normal(VecD x) {
  VecD t = abs<double>(x);
  t = t > 40.0 ? splat(40.0) : t;
  const VecD h = (VecD)((VecI64)t & ~std::int64_t{0xfffffff});
  const VecD e = exp<double>(h * h * -0.5, (t - h) * (t + h) * -0.5);
  const VecD d = each_lane<double>(x, [](double v) { return 0.5 * __builtin_erfc(v * -0.70710678118654752440); });
  return {e * inverse_sqrt_2pi, d};
}

// The argument of the tanh in Gelu's approximation, √(2/π)·(x + 0.044715x³), and its derivative.
template <class T>
GRADUS_INLINE Vec<T> gelu_tanh_inner(Vec<T> x) {
  return T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x));
}
// a·b less ab, its rounded value.
GRADUS_INLINE VecF product_error(VecF a, VecF b, VecF ab) {
#if defined(__AVX512F__)
  return (VecF)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)ab);
#elif defined(__AVX2__)
  return (VecF)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)ab);
#else
  const VecF a_high = (VecF)((VecI32)a & ~0xfff), a_low = a - a_high;
  const VecF b_high = (VecF)((VecI32)b & ~0xfff), b_low = b - b_high;
  return ((a_high * b_high - ab) + a_high * b_low + a_low * b_high) + a_low * b_low;
#endif
}

// σ(2u), u the argument above. The exponent v = x·(k + c·x²) goes to exp in two parts: rounded once, its own size would
// be the error of the power. Beyond ±20 the gate is 0 or 1.
GRADUS_INLINE VecF gelu_tanh_gate(VecF x) {
  constexpr double k = 1.59576912160573071176, c = k * 0.044715;
  constexpr float k_high = static_cast<float>(k), k_low = static_cast<float>(k - static_cast<double>(k_high));
  constexpr float c_high = static_cast<float>(c), c_low = static_cast<float>(c - static_cast<double>(c_high));
  x = x < -20.0f ? splat(-20.0f) : x;
  x = x > 20.0f ? splat(20.0f) : x;
  const VecF s = x * x, s_low = product_error(x, x, s);
  const VecF t = s * c_high, t_low = product_error(s, splat(c_high), t) + (s_low * c_high + s * c_low);
  const VecF p = t + k_high, added = p - t, p_low = (t - (p - added)) + (k_high - added) + (t_low + k_low);
  const VecF v = x * p, v_low = product_error(x, p, v) + x * p_low;
  const VecF e = exp<float>(-abs<float>(v), v > 0.0f ? -v_low : v_low);
  const VecF numerator = x < 0.0f ? e : splat(1.0f);
  return numerator / (e + 1.0f);
}
GRADUS_INLINE VecD gelu_tanh_gate(VecD x) { return sigmoid<double>(2.0 * gelu_tanh_inner<double>(x)); }
template <class T>
GRADUS_INLINE Vec<T> gelu_tanh_inner_slope(Vec<T> x) {
  return T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * (x * x));
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
