#pragma once
// exp, log, sin, tanh and their family on vectors, right to a few units in the last place over the whole range:
// infinities, NaN, subnormal numbers and both tails. (But for the far left tail of gelu: 8 in Float32, and hundreds in
// Float64 beyond -20, where erfc multiplies the rounding of its argument.)
//
// Each takes one vector or two side by side (two.h): V is either. The polynomials are those of S. Moshier's Cephes
// library where nothing else is said.
#include "two.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Added, it rounds to an integer, which then stands in the lowest bits of the sum: 1.5·2^mantissa_bits.
template <class T>
inline constexpr T round_to_integer = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);

// Small integers (|k| < 2²²) as floating numbers: put into the mantissa of that number, and it subtracted.
template <class T, class V>
GRADUS_INLINE V to_float(Ints<V> k) {
  return from_bits<V>(k + bits_of(filled<V>(round_to_integer<T>))) - round_to_integer<T>;
}

// ln 2 in two parts, the first with so few bits that n·hi is exact.
template <class T>
inline constexpr T ln2_hi = sizeof(T) == 4 ? T(0.693359375) : T(6.93145751953125E-1);
template <class T>
inline constexpr T ln2_lo = sizeof(T) == 4 ? T(-2.12194440E-4) : T(1.42860682030941723212E-6);

// eʳ for r in about [-ln2/2, ln2/2]. (Float32: 1 + r + r²·q(r), fitted to a relative error of 3e-9.)
template <class T, class V>
GRADUS_INLINE V exp_reduced(V r) {
  if constexpr (sizeof(T) == 4) {
    V p = r * 1.3814160071E-3f + 8.3689274124E-3f;
    p = p * r + 4.1668408558E-2f;
    p = p * r + 1.6666518892E-1f;
    p = p * r + 4.9999993330E-1f;
    return p * (r * r) + r + 1.0f;
  } else {
    const V z = r * r;
    V p = z * 1.26177193074810590878E-4 + 3.02994407707441961300E-2;
    p = p * z + 9.99999999999999999910E-1;
    V q = z * 3.00198505138664455042E-6 + 2.52448340349684104192E-3;
    q = q * z + 2.27265548208155028766E-1;
    q = q * z + 2.00000000000000000005E0;
    p = p * r;
    return 2.0 * (p / (q - p)) + 1.0;
  }
}

// x = n·ln 2 + r, and 2^(n + shift) with n + shift in the range of normal exponents.
template <class V>
struct Reduced {
  V r, power;
};
template <class T, class V>
GRADUS_INLINE Reduced<V> reduce_by_ln2(V x, T shift) {
  using L = Lanes<T>;
  // The exponent's bits of the power stand in the lowest bits of the rounded sum.
  const T round = round_to_integer<T> + static_cast<T>(L::exponent_bias) + shift;
  const V rounded = x * T(1.44269504088896340736) + round, n = rounded - round;
  return {(x - n * ln2_hi<T>)-n * ln2_lo<T>, from_bits<V>(bits_of(rounded) << L::mantissa_bits)};
}

// e^(x + low) for x ≤ 0 and a small low. The power of two is taken too large by a constant, so that it is never
// subnormal: the result may be, and is rounded once.
template <class T, class V>
GRADUS_INLINE V exp_of_negative(V x, V low) {
  constexpr T lowest = sizeof(T) == 4 ? T(-104) : T(-746);
  constexpr T shift = sizeof(T) == 4 ? T(64) : T(512);
  constexpr T back = sizeof(T) == 4 ? T(0x1p-64) : T(0x1p-512);
  const Reduced<V> at = reduce_by_ln2<T>(at_least(x, lowest), shift);
  return exp_reduced<T>(at.r + low) * at.power * back;
}
template <class T, class V>
GRADUS_INLINE V exp_of_negative(V x) {
  return exp_of_negative<T>(x, V{});
}

// The least x whose e^x is a normal number.
template <class T>
inline constexpr T lowest_normal_exp = sizeof(T) == 4 ? T(-87.3) : T(-708.3);

// e^x for x from that to 0, in fewer steps: to 1 ulp at first, to 5 at the end. For powers that are added up.
template <class T, class V>
GRADUS_INLINE V quick_exp(V x) {
#if defined(__FMA__)
  if constexpr (sizeof(T) == 4) {
    const float round = round_to_integer<T> + static_cast<T>(Lanes<T>::exponent_bias);
    const V rounded = x * 1.44269504088896340736f + round, n = rounded - round;
    // One instruction, so that n·ln 2 is not rounded (-ffp-contract); and ln 2 as a Float32 is so near that n·(ln 2 -
    // it) is less than 3e-7.
    const V r = x - n * 0.693147180559945309417f;
    // Unlike exp_reduced all one chain, which costs half an ulp and saves two instructions. Fitted to a relative error
    // of 3e-9.
    V p = r * 1.3814539580E-3f + 8.3687454462E-3f;
    p = p * r + 4.1668388993E-2f;
    p = p * r + 1.6666521132E-1f;
    p = p * r + 4.9999994040E-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * from_bits<V>(bits_of(rounded) << Lanes<T>::mantissa_bits);
  }
#endif
  const Reduced<V> at = reduce_by_ln2<T>(x, T(0));
  return exp_reduced<T>(at.r) * at.power;
}

// e^x for x ≤ 0, and 0 where that would be subnormal: to round such a number (or one beneath them all, as those of
// scores -inf are) takes some processors ten times as long as all the rest.
template <class T, class V>
GRADUS_INLINE V normal_exp_of_negative(V x) {
  return select(x < lowest_normal_exp<T>, V{}, quick_exp<T>(at_least(x, lowest_normal_exp<T>)));
}

// e^(x + low) for a small low: 2ⁿ·eʳ with n = round(x/ln 2). Where 2ⁿ or the result may be subnormal or too large, the
// factor is applied in two steps, so that the result is rounded once.
template <class T, class V>
GRADUS_INLINE V exp(V x, V low) {
  using L = Lanes<T>;
  constexpr T lowest = sizeof(T) == 4 ? T(-104) : T(-746);
  constexpr T highest = sizeof(T) == 4 ? T(89) : T(710);
  constexpr T usual = sizeof(T) == 4 ? T(87) : T(708);
  if (!any(abs<T>(x) > usual)) {
    const Reduced<V> at = reduce_by_ln2<T>(x, T(0));
    return exp_reduced<T>(at.r + low) * at.power;
  }
  x = at_most(at_least(x, lowest), highest);
  constexpr T round = round_to_integer<T> + static_cast<T>(L::exponent_bias);
  const V rounded = x * T(1.44269504088896340736) + round, n = rounded - round;
  const V r = (x - n * ln2_hi<T>)-n * ln2_lo<T> + low;
  const Ints<V> k = bits_of(rounded) - bits_of(filled<V>(round)), half = k >> 1;
  const V a = from_bits<V>((half + L::exponent_bias) << L::mantissa_bits);
  const V b = from_bits<V>((k - half + L::exponent_bias) << L::mantissa_bits);
  return exp_reduced<T>(r) * a * b;
}
template <class T, class V>
GRADUS_INLINE V exp(V x) {
  return exp<T>(x, V{});
}
// e^(x - top) for x ≤ top. The difference goes to exp in two parts: rounded once, its own size would show in the
// result. Where the result is 0, the second part may be of any size (NaN for x = -inf), and is left out.
template <class T>
GRADUS_INLINE Vec<T> exp_of_difference(Vec<T> x, Vec<T> top) {
  constexpr T lowest = sizeof(T) == 4 ? T(-104) : T(-746);
  const Vec<T> d = x - top, back = d - x;
  const Vec<T> low = (x - (d - back)) - (top + back);
  return exp<T>(d, d > lowest ? low : Vec<T>{});
}

// ln(1 + r) for 1 + r in [√½, √2], less the leading r - r²/2.
template <class T, class V>
GRADUS_INLINE V log_tail(V r) {
  if constexpr (sizeof(T) == 4) {
    V p = r * 7.0376836292E-2f - 1.1514610310E-1f;
    p = p * r + 1.1676998740E-1f;
    p = p * r - 1.2420140846E-1f;
    p = p * r + 1.4249322787E-1f;
    p = p * r - 1.6668057665E-1f;
    p = p * r + 2.0000714765E-1f;
    p = p * r - 2.4999993993E-1f;
    p = p * r + 3.3333331174E-1f;
    return p * (r * r * r);
  } else {
    V p = r * 1.01875663804580931796E-4 + 4.97494994976747001425E-1;
    p = p * r + 4.70579119878881725854E0;
    p = p * r + 1.44989225341610930846E1;
    p = p * r + 1.79368678507819816313E1;
    p = p * r + 7.70838733755885391666E0;
    V q = r + 1.12873587189167450590E1;
    q = q * r + 4.52279145837532221105E1;
    q = q * r + 8.29875266912776603211E1;
    q = q * r + 7.11544750618563894466E1;
    q = q * r + 2.31251620126765340583E1;
    return r * r * r * (p / q);
  }
}
// n·ln 2 + ln(1 + r)
template <class T, class V>
GRADUS_INLINE V log_of_parts(V n, V r) {
  const V small = log_tail<T>(r) + n * T(-2.121944400546905827679E-4) - T(0.5) * (r * r);
  return small + r + n * T(0.693359375);
}

// ln x = n·ln 2 + ln m with m in [√½, √2], of normal x.
template <class T, class V>
GRADUS_INLINE V log_of_normal(V x, V n0) {
  using L = Lanes<T>;
  // The exponent that leaves a mantissa from √½ on: measured from the bits of √½.
  const typename L::Word from = static_cast<typename L::Word>(sizeof(T) == 4 ? 0x3f3504f3 : 0x3fe6a09e667f3bcd);
  const Ints<V> bits = bits_of(x);
  const Ints<V> k = (bits - from) >> L::mantissa_bits;
  return log_of_parts<T>(to_float<T, V>(k) + n0, from_bits<V>(bits - (k << L::mantissa_bits)) - T(1));
}
// Subnormal numbers are scaled into the normal range first.
template <class T, class V>
GRADUS_INLINE V log(V x) {
  using L = Lanes<T>;
  constexpr T smallest = sizeof(T) == 4 ? T(1.17549435e-38) : T(2.2250738585072014e-308);
  constexpr T scale = sizeof(T) == 4 ? T(8388608) : T(4503599627370496);  // 2^mantissa_bits
  if (!any((x < smallest) | (x >= L::infinity) | (x != x))) return log_of_normal<T>(x, V{});
  const auto subnormal = x < smallest;
  V result = log_of_normal<T>(select(subnormal, x * scale, x), select(subnormal, filled<V>(T(-L::mantissa_bits)), V{}));
  result = select(x == L::infinity, x, result);
  result = select(x == T(0), filled<V>(-L::infinity), result);
  return select(x < T(0), filled<V>(L::infinity - L::infinity), select(x != x, x, result));
}

// ln(1 + e) for e in [0, 1], of e itself where it is small, else of (1 + e)/2 = 1 + (e - 1)/2.
template <class T, class V>
GRADUS_INLINE V log_plus_one(V e) {
  const auto large = e > T(0.41421356);
  return log_of_parts<T>(select(large, filled<V>(T(1)), V{}), select(large, (e - T(1)) * T(0.5), e));
}

// tanh x for |x| < 0.625, by an odd polynomial or fraction.
template <class T, class V>
GRADUS_INLINE V tanh_small(V x) {
  const V z = x * x;
  if constexpr (sizeof(T) == 4) {
    V p = z * -5.70498872745E-3f + 2.06390887954E-2f;
    p = p * z - 5.37397155531E-2f;
    p = p * z + 1.33314422036E-1f;
    p = p * z - 3.33332819422E-1f;
    return p * z * x + x;
  } else {
    V p = z * -9.64399179425052238628E-1 - 9.92877231001918586564E1;
    p = p * z - 1.61468768441708447952E3;
    V q = z + 1.12811678491632931402E2;
    q = q * z + 2.23548839060100448583E3;
    q = q * z + 4.84406305325125486048E3;
    return x + x * z * (p / q);
  }
}
// Beyond 20 it is 1 to the last place.
template <class T, class V>
GRADUS_INLINE V tanh(V x) {
  const V size = abs<T>(x), twice = at_most(size + size, T(40));
  const Reduced<V> at = reduce_by_ln2<T>(twice, T(0));
  const V large = T(1) - T(2) / (exp_reduced<T>(at.r) * at.power + T(1));
  return select(size < T(0.625), tanh_small<T>(x), copy_sign<T>(large, x));
}

// s = 1/(1 + e⁻ˣ) and 1 - s. e is taken of -|x|, so that both keep their relative accuracy in their tails.
template <class V>
struct Sigmoid {
  V s, rest;
};
template <class T, class V>
GRADUS_INLINE Sigmoid<V> sigmoid_and_rest(V x) {
  const V e = exp_of_negative<T>(-abs<T>(x));
  const V large = T(1) / (e + T(1));
  const V small = e * large;
  const auto negative = x < T(0);
  return {select(negative, small, large), select(negative, large, small)};
}
template <class T, class V>
GRADUS_INLINE V sigmoid(V x) {
  const V e = exp_of_negative<T>(-abs<T>(x));
  return select(x < T(0), e, filled<V>(T(1))) / (e + T(1));
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
GRADUS_INLINE Two<VecF> product_error(Two<VecF> a, Two<VecF> b, Two<VecF> ab) {
  return {product_error(a.a, b.a, ab.a), product_error(a.b, b.b, ab.b)};
}

// The normal density φ(x) and the tail Φ(-|x|). `size` is |x|, but no more than a number where both are 0.
template <class V>
struct Normal {
  V density, tail, size;
};
inline constexpr double inverse_sqrt_2pi = 0.39894228040143267794;

// e^(-x²/2) keeps its relative accuracy by taking x² in two parts. The tail is e^(-x²/2)·R(|x|), with R(t)·(t + c) a
// polynomial in u = (t - c)/(t + c) = 1 - 2c/(t + c) fitted on [0, 14.6] (beyond which it is 0) to 2.2e-8; this c is
// that of the least error.
template <class T, class V>
GRADUS_INLINE Normal<V> normal(V x) {
  if constexpr (sizeof(T) == 4) {
    const V t = at_most(abs<T>(x), 15.0f), half = t * -0.5f, square = t * half, low = product_error(t, half, square);
    const Reduced<V> at = reduce_by_ln2<T>(square, 64.0f);
    const V e = exp_reduced<T>(at.r + low) * at.power;  // 2^64 times too large, see exp_of_negative
    constexpr float c = 2.890625f;
    const V inverse = 1.0f / (t + c);
    const V u = 1.0f - inverse * (2 * c);
    V p = u * (-0.000322393127f * 0x1p-64f) - 0.000698796231f * 0x1p-64f;
    p = p * u + 0.00179508732f * 0x1p-64f;
    p = p * u + 0.00552347891f * 0x1p-64f;
    p = p * u - 0.0138034007f * 0x1p-64f;
    p = p * u - 0.033359367f * 0x1p-64f;
    p = p * u + 0.209531612f * 0x1p-64f;
    p = p * u - 0.494670927f * 0x1p-64f;
    p = p * u + 0.724905952f * 0x1p-64f;
    return {e * static_cast<float>(inverse_sqrt_2pi * 0x1p-64), p * inverse * e, t};
  } else {
    // A square of few digits is exact: x² = h² + (x - h)(x + h).
    const V t = at_most(abs<T>(x), 40.0), h = from_bits<V>(bits_of(t) & ~std::int64_t{0xfffffff});
    const V e = exp_of_negative<T>(h * h * -0.5, (t - h) * (t + h) * -0.5);
    const V tail = each_lane<double>(t, [](double v) { return 0.5 * __builtin_erfc(v * 0.70710678118654752440); });
    return {e * inverse_sqrt_2pi, tail, t};
  }
}

// The argument of the tanh in Gelu's approximation, √(2/π)·(x + 0.044715x³), and its derivative.
template <class T, class V>
GRADUS_INLINE V gelu_tanh_inner(V x) {
  return T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x));
}
// σ(2u), u the argument above. The exponent v = x·(k + c·x²) goes to exp in two parts: rounded once, its own size would
// be the error of the power. Beyond ±20 the gate is 0 or 1.
template <class T, class V>
GRADUS_INLINE V gelu_tanh_gate(V x) {
  if constexpr (sizeof(T) == 8) {
    return sigmoid<T>(2.0 * gelu_tanh_inner<T>(x));
  } else {
    constexpr double k = 1.59576912160573071176, c = k * 0.044715;
    constexpr float k_high = static_cast<float>(k), k_low = static_cast<float>(k - static_cast<double>(k_high));
    constexpr float c_high = static_cast<float>(c), c_low = static_cast<float>(c - static_cast<double>(c_high));
    x = at_most(at_least(x, -20.0f), 20.0f);
    const V s = x * x, s_low = product_error(x, x, s);
    const V t = s * c_high, t_low = product_error(s, filled<V>(c_high), t) + (s_low * c_high + s * c_low);
    const V p = t + k_high, added = p - t, p_low = (t - (p - added)) + (k_high - added) + (t_low + k_low);
    const V v = x * p, v_low = product_error(x, p, v) + x * p_low;
    const V e = exp_of_negative<T>(-abs<T>(v), select(v > 0.0f, -v_low, v_low));
    return select(x < 0.0f, e, filled<V>(1.0f)) / (e + 1.0f);
  }
}
template <class T, class V>
GRADUS_INLINE V gelu_tanh_inner_slope(V x) {
  return T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * (x * x));
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
