// Elementwise kernels: functions over the whole range, operands of all dtypes, strides and broadcasts.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

namespace {

// All magnitudes from subnormal to huge, both signs, a dense middle, and the special values.
template <class T>
std::vector<T> sweep() {
  std::vector<T> x = {0,  T(-0.0),  T(infinity), T(-infinity), T(not_a_number), 1,
                      -1, T(0.625), T(-0.625),   T(88.72),     T(-87.4)};
  const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  for (int e = lowest; e < std::numeric_limits<T>::max_exponent; ++e)
    for (double m : {1.0, 1.1875, 1.41421356, 1.9999}) {
      x.push_back(static_cast<T>(std::ldexp(m, e)));
      x.push_back(static_cast<T>(-std::ldexp(m, e)));
    }
  for (int i = -22000; i <= 22000; ++i) x.push_back(static_cast<T>(i * 0.005123));
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<T>(i * 0.00051));
  return x;
}

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double gelu_inner(double x) { return std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x); }

template <class T>
void check_unary(Unary op, const std::function<double(double)>& f, double limit, double p = 0, double q = 0,
                 double lowest = 1) {
  const auto x = sweep<T>();
  std::vector<T> y(x.size());
  table().unary(op, dtype_of<T>::value)(static_cast<i64>(x.size()), x.data(), 1, y.data(), 1, p, q);
  double worst = 0, at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double smallest = lowest * static_cast<double>(std::numeric_limits<T>::min());
    const double u = ulps(y[i], f(static_cast<double>(x[i])), smallest);
    if (!(u <= worst)) worst = u, at = static_cast<double>(x[i]);
  }
  INFO("op ", static_cast<int>(op), " of ", name(dtype_of<T>::value), " at ", at);
  CHECK(worst <= limit);
}

template <class T>
void check_unaries() {
  const bool f32 = sizeof(T) == 4;
  check_unary<T>(
      Unary::Copy, [](double x) { return x; }, 0);
  check_unary<T>(
      Unary::Neg, [](double x) { return -x; }, 0);
  check_unary<T>(
      Unary::Abs, [](double x) { return std::abs(x); }, 0);
  check_unary<T>(
      Unary::Sign, [](double x) { return x > 0   ? 1
                                         : x < 0 ? -1
                                                 : x; }, 0);
  check_unary<T>(
      Unary::Exp, [](double x) { return std::exp(x); }, 2);
  check_unary<T>(
      Unary::Log, [](double x) { return std::log(x); }, 2);
  check_unary<T>(
      Unary::Sqrt, [](double x) { return std::sqrt(x); }, 0.5);
  check_unary<T>(
      Unary::Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 2);
  check_unary<T>(
      Unary::Reciprocal, [](double x) { return 1 / x; }, 1);
  check_unary<T>(
      Unary::Tanh, [](double x) { return std::tanh(x); }, 3);
  check_unary<T>(Unary::Sigmoid, sigmoid, 4);
  check_unary<T>(
      Unary::Relu, [](double x) { return x <= 0 ? 0 : x; }, 0);
  check_unary<T>(
      Unary::Gelu, [](double x) { return x * normal_distribution(x); }, f32 ? 8 : 1e4, 0, 0, 64);
  // A factor that is subnormal has lost digits: the product may show them.
  check_unary<T>(
      Unary::Silu, [](double x) { return x * sigmoid(x); }, 4, 0, 0, 1024);
  check_unary<T>(
      Unary::Softplus, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, 4);
  check_unary<T>(
      Unary::AddScalar, [](double x) { return x + 0.5; }, 0.5, 0.5);
  check_unary<T>(
      Unary::MulScalar, [](double x) { return x * 0.75; }, 0.5, 0.75);
  check_unary<T>(
      Unary::DivScalar, [](double x) { return x / 3; }, 0.5, 3);
  check_unary<T>(
      Unary::RSubScalar, [](double x) { return 0.5 - x; }, 0.5, 0.5);
  check_unary<T>(
      Unary::RDivScalar, [](double x) { return 3 / x; }, 0.5, 3);
  for (double p : {0.0, 0.5, 1.0, -1.0, 2.0, 3.0, 2.5, -0.75})
    check_unary<T>(
        Unary::PowScalar, [p](double x) { return std::pow(x, p); }, 2, p);
  check_unary<T>(
      Unary::Clamp, [](double x) { return x < -1  ? -1
                                          : x > 2 ? 2
                                                  : x; }, 0, -1, 2);
}

template <class T>
void check_slope(Binary op, const std::function<double(double)>& slope, double limit) {
  std::vector<T> x;
  for (int i = -8000; i <= 8000; ++i) x.push_back(static_cast<T>(i * 0.0123));
  for (double far : {1e4, 1e10, 1e30, infinity, -1e4, -1e10, -1e30, -infinity}) x.push_back(static_cast<T>(far));
  const std::vector<T> g(x.size(), 2);
  std::vector<T> y(x.size());
  const auto n = static_cast<i64>(x.size());
  table().binary(op, dtype_of<T>::value)(n, g.data(), 1, x.data(), 1, y.data(), 1);
  double worst = 0, at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    const double e = 2 * (v > 200 ? 1 : v < -200 ? 0 : slope(v));
    const double error = std::abs(static_cast<double>(y[i]) - e);
    if (!(error <= worst)) worst = error, at = v;
  }
  INFO("op ", static_cast<int>(op), " at ", at);
  CHECK(worst <= limit);
}

}  // namespace

TEST_CASE("kernels: functions of one number are right over the whole range") {
  check_unaries<float>();
  check_unaries<double>();
  // Between 1e4 and infinity a sine's argument needs many digits of π; some places.
  for (double v : {0.0, 0.1, 1.0, -3.0, 100.0, 1e4, -1e4, 1e6}) {
    const float x = static_cast<float>(v);
    float y = 0;
    table().unary(Unary::Sin, Float32)(1, &x, 1, &y, 1, 0, 0);
    CHECK(std::abs(static_cast<double>(y) - std::sin(static_cast<double>(x))) < 2e-7);
    table().unary(Unary::Cos, Float32)(1, &x, 1, &y, 1, 0, 0);
    CHECK(std::abs(static_cast<double>(y) - std::cos(static_cast<double>(x))) < 2e-7);
  }
  for (double v : {-12.0, -5.0, -1.0, 0.0, 1e-3, 1.0, 5.0, 12.0}) {
    const float x = static_cast<float>(v);
    float y = 0;
    table().unary(Unary::GeluTanh, Float32)(1, &x, 1, &y, 1, 0, 0);
    const double e = static_cast<double>(x) * sigmoid(2 * gelu_inner(static_cast<double>(x)));
    CHECK(std::abs(static_cast<double>(y) - e) <= 3e-5 * std::abs(e) + 1e-44);
  }
  const float one = 1, minus_inf = -std::numeric_limits<float>::infinity(), big = 1e4f;
  float y = 0;
  table().unary(Unary::Tanh, Float32)(1, &big, 1, &y, 1, 0, 0);
  CHECK(y == one);
  table().unary(Unary::Exp, Float32)(1, &minus_inf, 1, &y, 1, 0, 0);
  CHECK(y == 0);
}

TEST_CASE("kernels: slopes, also where the input is infinite") {
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); };
  const auto gelu = [&](double x) { return normal_distribution(x) + x * density(x); };
  const auto silu = [](double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); };
  const auto gelu_tanh = [](double x) {
    const double s = sigmoid(2 * gelu_inner(x));
    return s + x * s * sigmoid(-2 * gelu_inner(x)) * 2 * std::sqrt(2 / std::acos(-1.0)) * (1 + 3 * 0.044715 * x * x);
  };
  check_slope<float>(Binary::GeluBackward, gelu, 1e-6);
  check_slope<double>(Binary::GeluBackward, gelu, 1e-14);
  check_slope<float>(Binary::SiluBackward, silu, 1e-6);
  check_slope<double>(Binary::SiluBackward, silu, 1e-14);
  check_slope<float>(Binary::GeluTanhBackward, gelu_tanh, 2e-6);
  check_slope<double>(Binary::GeluTanhBackward, gelu_tanh, 1e-14);
  const float g = 3, y[] = {-1, 0, 2, std::nanf("")};
  float dx[4];
  table().binary(Binary::ReluBackward, Float32)(4, &g, 0, y, 1, dx, 1);
  CHECK(dx[0] == 0);
  CHECK(dx[1] == 0);
  CHECK(dx[2] == 3);
  CHECK(dx[3] == 0);
}

TEST_CASE("kernels: the value of an element does not depend on its place or stride") {
  const i64 n = 67;
  const auto x = numbers<float>(n, 3, 3);
  for (int op = 0; op <= static_cast<int>(Unary::Clamp); ++op) {
    const UnaryRun run = table().unary(static_cast<Unary>(op), Float32);
    std::vector<float> whole(n), one(1), strided(3 * n);
    run(n, x.data(), 1, whole.data(), 1, 0.7, 1.5);
    std::vector<float> spread(2 * n);
    for (i64 i = 0; i < n; ++i) spread[static_cast<std::size_t>(2 * i)] = x[static_cast<std::size_t>(i)];
    run(n, spread.data(), 2, strided.data(), 3, 0.7, 1.5);
    INFO("op ", op);
    for (std::size_t i = 0; i < n; ++i) {
      run(1, &x[i], 1, one.data(), 1, 0.7, 1.5);
      CHECK(same_bits(&one[0], &whole[i], 4));
      CHECK(same_bits(&one[0], &strided[3 * i], 4));
    }
  }
}

TEST_CASE("kernels: two numbers, integers and bools") {
  const float a[] = {1, std::nanf(""), 3, 2, 5}, b[] = {2, 1, std::nanf(""), 2, -5};
  float y[5];
  table().binary(Binary::Maximum, Float32)(5, a, 1, b, 1, y, 1);
  CHECK(y[0] == 2);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
  CHECK(y[4] == 5);
  table().binary(Binary::Minimum, Float32)(5, a, 1, b, 1, y, 1);
  CHECK(y[0] == 1);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
  CHECK(y[4] == -5);
  bool less[5];
  table().compare(Compare::Lt, Float32)(5, a, 1, b, 1, less, 1);
  CHECK(less[0]);
  CHECK(!less[1]);
  CHECK(!less[3]);

  const i64 big = std::numeric_limits<i64>::max(), small = std::numeric_limits<i64>::min();
  const i64 p[] = {big, small, -3, 7}, q[] = {1, -1, 4, -2};
  i64 z[4];
  table().binary(Binary::Add, Int64)(4, p, 1, q, 1, z, 1);
  CHECK(z[0] == small);
  CHECK(z[1] == big);
  table().binary(Binary::Pow, Int64)(4, p, 1, q, 1, z, 1);
  CHECK(z[2] == 81);
  CHECK(z[3] == 0);
  table().unary(Unary::Abs, Int64)(4, p, 1, z, 1, 0, 0);
  CHECK(z[1] == small);
  CHECK(z[2] == 3);
  table().unary(Unary::Clamp, Int64)(4, p, 1, z, 1, -2, infinity);
  CHECK(z[0] == big);
  CHECK(z[1] == -2);
  CHECK(!table().unary(Unary::Exp, Int64));

  const double wild[] = {2.9, -2.9, not_a_number, infinity, 1e300, -9223372036854775808.0};
  i64 cast[6];
  table().cast(Float64, Int64)(6, wild, 1, cast, 1, 0, 0);
  CHECK(std::vector<i64>(cast, cast + 6) == std::vector<i64>{2, -2, 0, 0, 0, small});
  bool truth[6];
  table().cast(Float64, Bool)(6, wild, 1, truth, 1, 0, 0);
  CHECK(truth[2]);
}

TEST_CASE("kernels: strided, broadcast and large elementwise work") {
  // y[i, j, k] = a[j, i, k] + b[j]
  const i64 I = 33, J = 29, K = 41;
  const auto a = numbers<float>(I * J * K), b = numbers<float>(J, 2);
  std::vector<float> y(a.size());
  kernels::binary(table().binary(Binary::Add, Float32), Float32, Float32, {I, J, K}, a.data(), {K, I * K, 1}, b.data(),
                  {0, 1, 0}, y.data(), {J * K, K, 1});
  bool equal = true;
  for (i64 i = 0; i < I; ++i)
    for (i64 j = 0; j < J; ++j)
      for (i64 k = 0; k < K; ++k)
        equal = equal && y[static_cast<std::size_t>((i * J + j) * K + k)] ==
                             a[static_cast<std::size_t>((j * I + i) * K + k)] + b[static_cast<std::size_t>(j)];
  CHECK(equal);
  std::vector<float> t(a.size());
  kernels::unary(table().unary(Unary::Copy, Float32), Float32, Float32, {K, I * J}, a.data(), {1, K}, t.data(),
                 {I * J, 1});
  CHECK(t[static_cast<std::size_t>(5 * I * J + 17)] == a[static_cast<std::size_t>(17 * K + 5)]);
  const bool yes = true, no = false;
  std::vector<float> s(a.size());
  kernels::select(Float32, {I * J * K}, &yes, {0}, a.data(), {1}, y.data(), {1}, s.data(), {1});
  CHECK(s == a);
  kernels::select(Float32, {I * J * K}, &no, {0}, a.data(), {1}, y.data(), {1}, s.data(), {1});
  CHECK(s == y);
  kernels::unary(table().unary(Unary::Neg, Float32), Float32, Float32, {}, a.data(), {}, s.data(), {});
  CHECK(s[0] == -a[0]);
  kernels::unary(table().unary(Unary::Neg, Float32), Float32, Float32, {3, 0}, nullptr, {0, 1}, nullptr, {0, 1});
}
