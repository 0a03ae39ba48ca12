// The kernels against plain loops and the standard library's functions in double. They run on the set that GRADUS_ISA
// pins.
#include "../core/src/kernels/kernels.h"

#include <doctest/doctest.h>
#include <gradus/threads.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../core/src/kernels/parallel.h"

using namespace gradus;
using namespace gradus::kernels;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> numbers(i64 n, unsigned seed = 1, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> out(static_cast<std::size_t>(n));
  for (T& x : out) x = static_cast<T>(normal(random));
  return out;
}

// The distance in units in the last place of the expected value (of the smallest normal number below that).
template <class T>
double ulps(T got, double expected, double smallest = static_cast<double>(std::numeric_limits<T>::min())) {
  const T e = static_cast<T>(expected);
  if (std::isnan(expected)) return std::isnan(got) ? 0 : infinity;
  if (std::isinf(e) || std::isinf(got)) return got == e ? 0 : infinity;
  const double size = std::max(std::abs(expected), smallest);
  return std::abs(static_cast<double>(got) - expected) /
         std::ldexp(static_cast<double>(std::numeric_limits<T>::epsilon()), std::ilogb(size));
}

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

bool same_bits(const void* a, const void* b, std::size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

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

TEST_CASE("kernels: reductions") {
  for (const auto& [outer, n, inner] : std::vector<std::array<i64, 3>>{{1, 10, 1},
                                                                       {7, 13, 1},
                                                                       {3, 5, 17},
                                                                       {2, 300, 400},
                                                                       {1, 200000, 1},
                                                                       {300, 100, 2},
                                                                       {2, 70000, 1},
                                                                       {1, 5000, 3}}) {
    const auto x = numbers<float>(outer * n * inner, 5);
    std::vector<float> sum(static_cast<std::size_t>(outer * inner)), max(sum.size());
    kernels::reduce(Reduce::Sum, Float32, outer, n, inner, x.data(), sum.data());
    kernels::reduce(Reduce::Max, Float32, outer, n, inner, x.data(), max.data());
    for (i64 o = 0; o < outer; ++o)
      for (i64 i = 0; i < inner; ++i) {
        double s = 0, size = 0;
        float m = -std::numeric_limits<float>::infinity();
        for (i64 r = 0; r < n; ++r) {
          const float v = x[static_cast<std::size_t>((o * n + r) * inner + i)];
          s += static_cast<double>(v), size += std::abs(static_cast<double>(v)), m = std::max(m, v);
        }
        const auto at = static_cast<std::size_t>(o * inner + i);
        CHECK(std::abs(static_cast<double>(sum[at]) - s) <= 1e-12 * size + 6e-8 * std::abs(s));
        CHECK(max[at] == m);
      }
  }
  const std::vector<float> tenth(10000000, 0.1f);
  float total = 0;
  kernels::reduce(Reduce::Sum, Float32, 1, 10000000, 1, tenth.data(), &total);
  CHECK(std::abs(static_cast<double>(total) / (1e7 * static_cast<double>(0.1f)) - 1) < 1e-7);

  float with_nan[] = {1, 2, std::nanf(""), 7, 5, 7}, m = 0;
  kernels::reduce(Reduce::Max, Float32, 1, 6, 1, with_nan, &m);
  CHECK(std::isnan(m));
  i64 where = 0;
  kernels::argmax_rows(Float32, 1, 6, with_nan, &where);
  CHECK(where == 2);
  with_nan[2] = 0;
  kernels::argmax_rows(Float32, 1, 6, with_nan, &where);
  CHECK(where == 3);
  const i64 wrap[] = {std::numeric_limits<i64>::max(), 1};
  i64 w = 0;
  kernels::reduce(Reduce::Sum, Int64, 1, 2, 1, wrap, &w);
  CHECK(w == std::numeric_limits<i64>::min());
  kernels::reduce(Reduce::Sum, Float32, 1, 0, 1, nullptr, &m);
  CHECK(m == 0);
}

namespace {

template <class T>
void check_gemm(i64 m, i64 n, i64 k, bool ta, bool tb, bool accumulate, bool with_bias, i64 batch = 1, i64 gap = 0) {
  const i64 a_size = (m + gap) * (k + gap), b_size = (k + gap) * (n + gap);
  // One number more, so that there is memory to point to where k is 0, as there is in a tensor.
  const auto a = numbers<T>(a_size * batch + 1, 7), b = numbers<T>(b_size * batch + 1, 8), bias = numbers<T>(n, 9);
  auto c = numbers<T>(m * n * batch, 10);
  const auto start = c;
  Gemm g{.m = m,
         .n = n,
         .k = k,
         .a = a.data(),
         .a_row = 0,
         .a_col = 0,
         .b = b.data(),
         .b_row = 0,
         .b_col = 0,
         .c = c.data(),
         .c_row = n,
         .accumulate = accumulate,
         .bias = with_bias ? bias.data() : nullptr};
  g.a_row = ta ? 1 : k + gap, g.a_col = ta ? m + gap : 1;
  g.b_row = tb ? 1 : n + gap, g.b_col = tb ? k + gap : 1;
  std::vector<i64> ao, bo;
  for (i64 i = 0; i < batch; ++i) ao.push_back(i * a_size), bo.push_back((batch - 1 - i) * b_size);
  kernels::gemm(dtype_of<T>::value, batch, g, ao.data(), bo.data(), m * n);
  double worst = 0;
  for (i64 s = 0; s < batch; ++s)
    for (i64 i = 0; i < m; ++i)
      for (i64 j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(s * m * n + i * n + j);
        double e = (accumulate ? static_cast<double>(start[at]) : 0) +
                   (with_bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0);
        for (i64 p = 0; p < k; ++p)
          e += static_cast<double>(a[static_cast<std::size_t>(s * a_size + i * g.a_row + p * g.a_col)]) *
               static_cast<double>(b[static_cast<std::size_t>((batch - 1 - s) * b_size + p * g.b_row + j * g.b_col)]);
        worst = std::max(worst, std::abs(static_cast<double>(c[at]) - e));
      }
  INFO(m, "x", n, "x", k, " ta ", ta, " tb ", tb, " accumulate ", accumulate, " bias ", with_bias, " batch ", batch);
  const double scale = static_cast<double>(std::numeric_limits<T>::epsilon()) * (4 + static_cast<double>(k));
  CHECK(worst <= 3 * scale);
}

}  // namespace

TEST_CASE_TEMPLATE("kernels: matrix products", T, float, double) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      for (i64 m : {1, 2, 5, 6, 7, 13, 33})
        for (i64 n : {1, 2, 7, 16, 17, 40})
          for (i64 k : {0, 1, 2, 19, 64}) check_gemm<T>(m, n, k, ta, tb, (m + n) % 2 == 0, (m + k) % 2 == 0);
      check_gemm<T>(70, 90, 300, ta, tb, true, true, 1, 3);
      check_gemm<T>(300, 310, 270, ta, tb, false, true, 1, 5);
      check_gemm<T>(257, 33, 600, ta, tb, true, false);
      check_gemm<T>(3, 1500, 530, ta, tb, false, false);
      check_gemm<T>(1500, 2, 530, ta, tb, false, true);
      check_gemm<T>(10, 10, 16, ta, tb, false, false, 130);
      check_gemm<T>(20, 16, 10, ta, tb, true, true, 37, 2);
      check_gemm<T>(128, 128, 32, ta, tb, false, false, 5);
    }
}

TEST_CASE("kernels: a product passes NaN and infinity on, and takes any stride") {
  std::vector<float> a(12, 0), b(12, 0), c(9);
  b[4] = std::nanf("");
  Gemm g{3, 3, 4, a.data(), 4, 1, b.data(), 3, 1, c.data(), 3, false, nullptr};
  const i64 zero = 0;
  kernels::gemm(Float32, 1, g, &zero, &zero, 0);
  CHECK(std::isnan(c[1]));
  CHECK(c[0] == 0);
  // Every second row and third column, and a stride of 0.
  const auto big = numbers<float>(600, 3);
  for (i64 b_row : {0, 40}) {
    std::vector<float> y(5 * 7);
    Gemm s{5, 7, 6, big.data(), 40, 3, big.data() + 100, b_row, 2, y.data(), 7, false, nullptr};
    kernels::gemm(Float32, 1, s, &zero, &zero, 0);
    for (i64 i = 0; i < 5; ++i)
      for (i64 j = 0; j < 7; ++j) {
        double e = 0;
        for (i64 p = 0; p < 6; ++p)
          e += static_cast<double>(big[static_cast<std::size_t>(i * 40 + p * 3)]) *
               static_cast<double>(big[static_cast<std::size_t>(100 + p * b_row + j * 2)]);
        CHECK(std::abs(static_cast<double>(y[static_cast<std::size_t>(i * 7 + j)]) - e) < 1e-5);
      }
  }
}

TEST_CASE_TEMPLATE("kernels: softmax, its logarithm and cross entropy", T, float, double) {
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  const DType dtype = dtype_of<T>::value;
  for (i64 n : {1, 2, 7, 8, 31, 1000, 100000}) {
    const i64 rows = n > 1000 ? 2 : 5;
    const auto x = numbers<T>(rows * n, 3, 4), g = numbers<T>(rows * n, 4), weight = [&] {
      auto w = numbers<T>(n, 5);
      for (T& v : w) v = std::abs(v);
      return w;
    }();
    std::vector<T> y(x.size()), l(x.size()), dx(x.size()), dl(x.size()), loss(static_cast<std::size_t>(rows)),
        dce(x.size()), scale(loss.size(), T(0.5));
    std::vector<double> top_sum(2 * loss.size());
    std::vector<i64> target;
    for (i64 r = 0; r < rows; ++r) target.push_back(r == 1 ? -100 : (r * 13) % n);
    kernels::softmax(dtype, rows, n, x.data(), y.data());
    kernels::log_softmax(dtype, rows, n, x.data(), l.data());
    kernels::softmax_backward(dtype, rows, n, g.data(), y.data(), dx.data());
    kernels::log_softmax_backward(dtype, rows, n, g.data(), l.data(), dl.data());
    const double smooth = 0.1;
    kernels::cross_entropy(dtype, rows, n, x.data(), target.data(), -100, smooth, weight.data(), loss.data(),
                           top_sum.data());
    kernels::cross_entropy_backward(dtype, rows, n, x.data(), target.data(), -100, smooth, weight.data(),
                                    top_sum.data(), scale.data(), dce.data());
    double worst = 0, worst_loss = 0;
    for (i64 r = 0; r < rows; ++r) {
      const auto at = [&](const std::vector<T>& v, i64 j) {
        return static_cast<double>(v[static_cast<std::size_t>(r * n + j)]);
      };
      double top = -infinity, sum = 0, dot = 0, g_sum = 0, w_sum = 0, value = 0;
      for (i64 j = 0; j < n; ++j) top = std::max(top, at(x, j));
      for (i64 j = 0; j < n; ++j) sum += std::exp(at(x, j) - top);
      const double log_sum = top + std::log(sum);
      const i64 t = target[static_cast<std::size_t>(r)];
      for (i64 j = 0; j < n; ++j) {
        const double w = static_cast<double>(weight[static_cast<std::size_t>(j)]);
        dot += at(g, j) * std::exp(at(x, j) - log_sum), g_sum += at(g, j), w_sum += w;
        value += smooth / static_cast<double>(n) * w * (log_sum - at(x, j));
      }
      const double wt = t < 0 ? 0 : static_cast<double>(weight[static_cast<std::size_t>(t)]);
      value = t < 0 ? 0 : value + wt * (1 - smooth) * (log_sum - at(x, t));
      worst_loss =
          std::max(worst_loss, std::abs(static_cast<double>(loss[static_cast<std::size_t>(r)]) - value) / (1 + value));
      for (i64 j = 0; j < n; ++j) {
        const double p = std::exp(at(x, j) - log_sum), w = static_cast<double>(weight[static_cast<std::size_t>(j)]);
        const double ce =
            t < 0 ? 0 : 0.5 * (wt * (1 - smooth) * (p - (j == t)) + smooth / static_cast<double>(n) * (p * w_sum - w));
        worst =
            std::max({worst, std::abs(at(y, j) - p), std::abs(at(l, j) - (at(x, j) - log_sum)) / 10,
                      std::abs(at(dx, j) - p * (at(g, j) - dot)) / 4,
                      std::abs(at(dl, j) - (at(g, j) - p * g_sum)) / (4 + std::abs(g_sum)), std::abs(at(dce, j) - ce)});
        if (t < 0) CHECK(at(dce, j) == 0);
      }
    }
    INFO("n ", n);
    CHECK(worst <= tolerance);
    CHECK(worst_loss <= tolerance);
  }
  const T low = T(-infinity);
  std::vector<T> x = {low, 0, low, low, low, low, 1, T(infinity), 2}, y(9);
  kernels::softmax(dtype, 3, 3, x.data(), y.data());
  CHECK(y[0] == 0);
  CHECK(y[1] == 1);
  CHECK(std::isnan(y[3]));
  CHECK(std::isnan(y[8]));
  // A class at -inf costs nothing without smoothing.
  const i64 target = 1;
  T loss = 9;
  double top_sum[2] = {9, 9};
  kernels::cross_entropy(dtype, 1, 3, x.data(), &target, -1, 0, nullptr, &loss, top_sum);
  CHECK(loss == 0);
  CHECK(top_sum[0] == 0);
  CHECK(top_sum[1] == 1);
}

TEST_CASE_TEMPLATE("kernels: layer norm", T, float, double) {
  const DType dtype = dtype_of<T>::value;
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-13;
  for (i64 n : {1, 3, 8, 64, 100, 513})
    for (double shift : {0.0, 10000.0}) {
      const i64 rows = 40;
      auto x = numbers<T>(rows * n, 3, shift != 0 ? 0.01 : 2);
      for (T& v : x) v += static_cast<T>(shift);
      const auto g = numbers<T>(rows * n, 4), gamma = numbers<T>(n, 5), beta = numbers<T>(n, 6);
      std::vector<T> y(x.size()), dx(x.size()), mean(2 * rows), rstd(rows), dgamma(static_cast<std::size_t>(n)),
          dbeta(dgamma.size());
      kernels::layer_norm(dtype, rows, n, x.data(), gamma.data(), beta.data(), 1e-5, y.data(), mean.data(),
                          rstd.data());
      kernels::layer_norm_backward(dtype, rows, n, g.data(), x.data(), gamma.data(), mean.data(), rstd.data(),
                                   dx.data());
      kernels::layer_norm_backward_params(dtype, rows, n, g.data(), x.data(), mean.data(), rstd.data(), dgamma.data(),
                                          dbeta.data());
      std::vector<double> eg(static_cast<std::size_t>(n)), eb(eg.size());
      double worst = 0, worst_dx = 0, worst_params = 0;
      for (i64 r = 0; r < rows; ++r) {
        const auto at = [&](const std::vector<T>& v, i64 j) {
          return static_cast<double>(v[static_cast<std::size_t>(r * n + j)]);
        };
        const auto par = [](const std::vector<T>& v, i64 j) {
          return static_cast<double>(v[static_cast<std::size_t>(j)]);
        };
        double m = at(x, 0), var = 0, h = 0, d = 0, rest = 0;  // the mean by differences, which are small
        for (i64 j = 0; j < n; ++j) rest += (at(x, j) - m) / static_cast<double>(n);
        m += rest;
        for (i64 j = 0; j < n; ++j) var += (at(x, j) - m) * (at(x, j) - m) / static_cast<double>(n);
        const double s = 1 / std::sqrt(var + 1e-5);
        for (i64 j = 0; j < n; ++j) {
          const double xh = (at(x, j) - m) * s;
          h += at(g, j) * par(gamma, j) / static_cast<double>(n),
              d += at(g, j) * par(gamma, j) * xh / static_cast<double>(n);
          eg[static_cast<std::size_t>(j)] += at(g, j) * xh, eb[static_cast<std::size_t>(j)] += at(g, j);
        }
        for (i64 j = 0; j < n; ++j) {
          const double xh = (at(x, j) - m) * s;
          worst = std::max(worst, std::abs(at(y, j) - (xh * par(gamma, j) + par(beta, j))));
          worst_dx = std::max(worst_dx, std::abs(at(dx, j) - s * (at(g, j) * par(gamma, j) - h - xh * d)) / s);
        }
      }
      for (std::size_t j = 0; j < eg.size(); ++j)
        worst_params = std::max({worst_params, std::abs(static_cast<double>(dgamma[j]) - eg[j]),
                                 std::abs(static_cast<double>(dbeta[j]) - eb[j])});
      INFO("n ", n, " shift ", shift);
      CHECK(worst <= 4 * tolerance * (shift != 0 && sizeof(T) == 8 ? 10000 : 1));
      CHECK(worst_dx <= 4 * tolerance * (shift != 0 && sizeof(T) == 8 ? 10000 : 1));
      CHECK(worst_params <= 20 * tolerance * (shift != 0 && sizeof(T) == 8 ? 10000 : 1));
    }
  const T c = T(0.1);
  std::vector<T> x(37, c), y(37), beta(37, T(0.25));
  T mean[2] = {}, rstd = 0;
  kernels::layer_norm(dtype, 1, 37, x.data(), nullptr, beta.data(), 1e-5, y.data(), mean, &rstd);
  CHECK(y == beta);
  kernels::layer_norm(dtype, 1, 37, x.data(), nullptr, nullptr, 1e-5, y.data(), mean, &rstd);
  CHECK(y == std::vector<T>(37, 0));
  CHECK(mean[0] == c);
  CHECK(mean[1] == 0);
}

TEST_CASE("kernels: Philox is the published one, and dropout drops by its words") {
  std::uint32_t w[4];
  table().philox(0, 0, 0, 4, w);
  CHECK(w[0] == 0x6627e8d5);
  CHECK(w[1] == 0xe169c58d);
  CHECK(w[2] == 0xbc57ac4c);
  CHECK(w[3] == 0x9b00dbd8);
  // A plain one.
  const auto block = [](std::uint64_t seed, std::uint64_t counter, std::uint32_t* out) {
    std::uint32_t c[4] = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
    std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    for (int r = 0; r < 10; ++r) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0], p1 = std::uint64_t{0xCD9E8D57} * c[2];
      const std::uint32_t next[4] = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
                                     static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1],
                                     static_cast<std::uint32_t>(p0)};
      std::memcpy(c, next, sizeof c);
      k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    }
    std::memcpy(out, c, sizeof c);
  };
  const std::uint64_t seed = 0x123456789abcdef0, offset = 0xffffffffffull;
  std::vector<std::uint32_t> expected(400), got(399);
  for (std::size_t b = 0; b < 100; ++b) block(seed, offset + b, &expected[4 * b]);
  expected.resize(399);
  table().philox(seed, offset, 0, 399, got.data());
  CHECK(got == expected);
  table().philox(seed, offset, 40, 101, got.data());
  CHECK(std::vector<std::uint32_t>(got.begin(), got.begin() + 101) ==
        std::vector<std::uint32_t>(expected.begin() + 40, expected.begin() + 141));

  const std::vector<float> x(50001, 1.0f);
  std::vector<float> y(x.size());
  std::vector<std::uint32_t> words(x.size());
  table().philox(seed, 5, 0, 50001, words.data());
  kernels::dropout(Float32, {seed, 5, 0.3}, 50001, x.data(), y.data());
  bool as_words = true;
  const auto threshold = static_cast<std::uint32_t>(0.3 * 4294967296.0 + 0.5);
  for (std::size_t i = 0; i < x.size(); ++i)
    as_words = as_words && y[i] == (words[i] < threshold ? 0 : static_cast<float>(1 / 0.7));
  CHECK(as_words);
  kernels::dropout(Float32, {seed, 5, 1.0}, 50001, x.data(), y.data());
  CHECK(y == std::vector<float>(x.size(), 0));
  kernels::dropout(Float32, {seed, 5, 0.0}, 50001, x.data(), y.data());
  CHECK(y == x);
}

TEST_CASE_TEMPLATE("kernels: optimizer steps", T, float, double) {
  const i64 n = 1003;
  const DType dtype = dtype_of<T>::value;
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  for (int variant = 0; variant < 4; ++variant) {
    auto p = numbers<T>(n, 1), m = numbers<T>(n, 3), v = numbers<T>(n, 4), top = numbers<T>(n, 5), b = numbers<T>(n, 6);
    for (T& e : v) e = std::abs(e);
    for (T& e : top) e = std::abs(e);
    const auto g = numbers<T>(n, 2), p0 = p, m0 = m, v0 = v, top0 = top, b0 = b;
    const bool decoupled = variant & 1, amsgrad = variant & 2;
    const AdamStep s{0.01, 0.9, 0.98, 1e-8, 0.1, 0.19, 0.04, decoupled, amsgrad};
    kernels::adam(dtype, n, s, p.data(), g.data(), m.data(), v.data(), amsgrad ? top.data() : nullptr);
    auto q = p0;
    const SgdStep sgd{0.01, 0.9, 0.2, 0.1, decoupled, false, amsgrad};
    kernels::sgd(dtype, n, sgd, q.data(), g.data(), b.data());
    double worst = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double w = static_cast<double>(p0[i]);
      double d = static_cast<double>(g[i]) * (s.maximize ? -1 : 1) + (decoupled ? 0 : 0.1 * w);
      const double mi = 0.9 * static_cast<double>(m0[i]) + 0.1 * d,
                   vi = 0.98 * static_cast<double>(v0[i]) + 0.02 * d * d;
      const double vm = amsgrad ? std::max(vi, static_cast<double>(top0[i])) : vi;
      const double e =
          w * (decoupled ? 1 - 0.01 * 0.1 : 1) - 0.01 / 0.19 * mi / (std::sqrt(vm) / std::sqrt(0.04) + 1e-8);
      worst = std::max({worst, std::abs(static_cast<double>(p[i]) - e), std::abs(static_cast<double>(m[i]) - mi),
                        std::abs(static_cast<double>(v[i]) - vi)});
      const double ds = static_cast<double>(g[i]) + 0.1 * w;
      const double bi = sgd.first ? ds : 0.9 * static_cast<double>(b0[i]) + 0.8 * ds;
      worst = std::max({worst, std::abs(static_cast<double>(b[i]) - bi),
                        std::abs(static_cast<double>(q[i]) - (w - 0.01 * (sgd.nesterov ? ds + 0.9 * bi : bi)))});
    }
    CHECK(worst <= tolerance * 4);
  }
}

TEST_CASE("kernels: rows by index") {
  const i64 rows = 1000, n = 70, of = 11;
  const auto x = numbers<float>(of * n), g = numbers<float>(rows * n, 2);
  std::vector<i64> index;
  for (i64 r = 0; r < rows; ++r) index.push_back(r * r % of);
  std::vector<float> y(static_cast<std::size_t>(rows * n)), sums(x.size(), 0.5f), expected = sums;
  kernels::gather_rows(Float32, rows, n, x.data(), index.data(), y.data());
  kernels::scatter_add_rows(Float32, rows, n, g.data(), index.data(), of, sums.data());
  bool gathered = true;
  for (i64 r = 0; r < rows; ++r)
    for (i64 j = 0; j < n; ++j) {
      const auto from = static_cast<std::size_t>(index[static_cast<std::size_t>(r)] * n + j),
                 at = static_cast<std::size_t>(r * n + j);
      gathered = gathered && y[at] == x[from];
      expected[from] += g[at];
    }
  CHECK(gathered);
  CHECK(sums == expected);
}

TEST_CASE("kernels: the pool") {
  const int before = num_threads();
  for (int threads : {1, 2, 3, 8, 2}) {
    set_num_threads(threads);
    CHECK(num_threads() == threads);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::atomic<int>> hits(97);
      parallel(97, [&](i64 i) {
        parallel(3, [&](i64) { hits[static_cast<std::size_t>(i)].fetch_add(1, std::memory_order_relaxed); });  // nested
      });
      bool once = true;
      for (const auto& h : hits) once = once && h.load() == 3;
      CHECK(once);
    }
  }
  // Callers on several threads at once: one gets the pool, the others work alone.
  std::vector<std::thread> callers;
  std::atomic<i64> total{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) parallel(10, [&](i64 i) { total += i; });
    });
  for (auto& caller : callers) caller.join();
  CHECK(total == 4 * 100 * 45);
  CHECK_THROWS_WITH(set_num_threads(0), "set_num_threads: 0 is not between 1 and 1024");
  set_num_threads(before);
}

TEST_CASE("kernels: the same bits for any number of threads") {
  const int before = num_threads();
  const auto x = numbers<float>(300 * 700), w = numbers<float>(700 * 200, 2);
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<float> out(300 * 200 + 700 + 1 + 300 * 700);
    const i64 zero = 0;
    kernels::gemm(Float32, 1, {300, 200, 700, x.data(), 700, 1, w.data(), 200, 1, out.data(), 200, false, nullptr},
                  &zero, &zero, 0);
    kernels::reduce(Reduce::Sum, Float32, 1, 300, 700, x.data(), &out[300 * 200]);
    kernels::reduce(Reduce::Sum, Float32, 1, 300 * 700, 1, x.data(), &out[300 * 200 + 700]);
    kernels::softmax(Float32, 300, 700, x.data(), &out[300 * 200 + 701]);
    results.push_back(out);
  }
  CHECK(same_bits(results[0].data(), results[1].data(), results[0].size() * 4));
  CHECK(same_bits(results[0].data(), results[2].data(), results[0].size() * 4));
  set_num_threads(before);
}
