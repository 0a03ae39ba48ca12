#pragma once
// Elementwise ops. Two tensors broadcast as in NumPy: dims are matched from the back, size 1 (or a missing dim)
// repeats. G is the upstream gradient; for a broadcast operand its gradient is summed back to the operand's shape.
#include <gradus/tensor.h>

#include <concepts>
#include <optional>

namespace gradus {

/// a + b : da = G, db = G
GRADUS_API Tensor add(const Tensor& a, const Tensor& b);
GRADUS_API Tensor add(const Tensor& a, Scalar b);
/// a - b : da = G, db = -G
GRADUS_API Tensor sub(const Tensor& a, const Tensor& b);
GRADUS_API Tensor sub(const Tensor& a, Scalar b);
GRADUS_API Tensor sub(Scalar a, const Tensor& b);
/// a·b : da = G·b, db = G·a
GRADUS_API Tensor mul(const Tensor& a, const Tensor& b);
GRADUS_API Tensor mul(const Tensor& a, Scalar b);
/// a/b : da = G/b, db = -G·a/b². Integers are divided as Float32.
GRADUS_API Tensor div(const Tensor& a, const Tensor& b);
GRADUS_API Tensor div(const Tensor& a, Scalar b);
GRADUS_API Tensor div(Scalar a, const Tensor& b);
/// a^b : da = G·b·a^(b-1), db = G·a^b·log a (0 where a = 0 and b ≥ 0)
GRADUS_API Tensor pow(const Tensor& a, Scalar b);
GRADUS_API Tensor pow(const Tensor& a, const Tensor& b);
GRADUS_API Tensor pow(Scalar a, const Tensor& b);
/// The larger (smaller) of two; NaN wins. The gradient goes to the winner, half to each where they are equal, and to
/// both beside NaN, as in PyTorch.
GRADUS_API Tensor maximum(const Tensor& a, const Tensor& b);
GRADUS_API Tensor minimum(const Tensor& a, const Tensor& b);

/// -x : dx = -G
GRADUS_API Tensor neg(const Tensor& x);
/// |x| : dx = G·sign(x)
GRADUS_API Tensor abs(const Tensor& x);
/// -1, 0 or 1 : dx = 0
GRADUS_API Tensor sign(const Tensor& x);
/// eˣ : dx = G·eˣ
GRADUS_API Tensor exp(const Tensor& x);
/// Natural logarithm : dx = G/x
GRADUS_API Tensor log(const Tensor& x);
/// √x : dx = G/(2√x)
GRADUS_API Tensor sqrt(const Tensor& x);
/// 1/√x : dx = -G·(1/√x)³/2
GRADUS_API Tensor rsqrt(const Tensor& x);
/// x² : dx = 2·G·x
GRADUS_API Tensor square(const Tensor& x);
/// 1/x : dx = -G/x²
GRADUS_API Tensor reciprocal(const Tensor& x);
/// sin x : dx = G·cos x
GRADUS_API Tensor sin(const Tensor& x);
/// cos x : dx = -G·sin x
GRADUS_API Tensor cos(const Tensor& x);
/// tanh x : dx = G·(1 - tanh²x)
GRADUS_API Tensor tanh(const Tensor& x);
/// σ(x) = 1/(1 + e⁻ˣ) : dx = G·σ·(1 - σ)
GRADUS_API Tensor sigmoid(const Tensor& x);
/// max(x, 0) : dx = G where x > 0, else 0 (also at 0); NaN stays NaN
GRADUS_API Tensor relu(const Tensor& x);
/// How gelu is computed: with the error function, or by Hendrycks and Gimpel's tanh formula.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // g++ holds a scoped enumerator against gradus::None
enum class GeluApproximation { None, Tanh };
#pragma GCC diagnostic pop
/// x·Φ(x), Φ the normal distribution : dx = G·(Φ(x) + x·φ(x)). (Hendrycks & Gimpel 2016; torch.nn.functional.gelu)
GRADUS_API Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::None);
/// x·σ(x) : dx = G·σ·(1 + x·(1 - σ))
GRADUS_API Tensor silu(const Tensor& x);
/// log(1 + eˣ), accurate in both tails : dx = G·σ(x). (torch.nn.functional.softplus)
GRADUS_API Tensor softplus(const Tensor& x);
/// min(max(x, min), max) : dx = G where min ≤ x ≤ max, else 0. Error without any bound.
GRADUS_API Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
/// The same with bounds that are tensors (broadcast; an undefined one is no bound): dx = G where min ≤ x ≤ max, dmin =
/// G where x < min ≤ max, dmax = G where x > max or max < min, else 0. Equals give to x; of crossed bounds max wins.
GRADUS_API Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max);
template <std::same_as<Tensor> T>
Tensor clamp(const T& x, const T& min) {
  return clamp(x, min, T());
}

/// Comparisons give Bool and have no gradient.
GRADUS_API Tensor eq(const Tensor& a, const Tensor& b);
GRADUS_API Tensor ne(const Tensor& a, const Tensor& b);
GRADUS_API Tensor lt(const Tensor& a, const Tensor& b);
GRADUS_API Tensor le(const Tensor& a, const Tensor& b);
GRADUS_API Tensor gt(const Tensor& a, const Tensor& b);
GRADUS_API Tensor ge(const Tensor& a, const Tensor& b);
GRADUS_API Tensor eq(const Tensor& a, Scalar b);
GRADUS_API Tensor ne(const Tensor& a, Scalar b);
GRADUS_API Tensor lt(const Tensor& a, Scalar b);
GRADUS_API Tensor le(const Tensor& a, Scalar b);
GRADUS_API Tensor gt(const Tensor& a, Scalar b);
GRADUS_API Tensor ge(const Tensor& a, Scalar b);
/// On Bool tensors: true where both, any, or the one not.
GRADUS_API Tensor logical_and(const Tensor& a, const Tensor& b);
GRADUS_API Tensor logical_or(const Tensor& a, const Tensor& b);
GRADUS_API Tensor logical_not(const Tensor& a);

/// The values in another dtype, fractions cut for Int64 (NaN and what is outside its range give 0)
/// : dx = G in x's dtype. The same handle where the dtype is x's already.
GRADUS_API Tensor to(const Tensor& x, DType dtype);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, Scalar b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }
inline Tensor operator==(Scalar a, const Tensor& b) { return eq(b, a); }
inline Tensor operator!=(Scalar a, const Tensor& b) { return ne(b, a); }
inline Tensor operator<(Scalar a, const Tensor& b) { return gt(b, a); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return ge(b, a); }
inline Tensor operator>(Scalar a, const Tensor& b) { return lt(b, a); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return le(b, a); }
inline Tensor operator&&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
inline Tensor operator||(const Tensor& a, const Tensor& b) { return logical_or(a, b); }
inline Tensor operator!(const Tensor& a) { return logical_not(a); }

inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a.div_(b); }
inline Tensor& operator+=(Tensor& a, Scalar b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, Scalar b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, Scalar b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, Scalar b) { return a.div_(b); }

}  // namespace gradus
