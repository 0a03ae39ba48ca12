// How far Float32 results may be from the exact ones, in units in the last place of the exact one (ulp), over large
// numbers, around 0 and subnormal ones. The formulas are evaluated in long double.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

namespace {

using Real = long double;

/// |got - wanted| in ulp of Float32 at `size`, which is not taken smaller than `smallest`.
double ulps(float got, Real wanted, Real size, double smallest) {
  if (std::isnan(wanted) || std::isnan(got)) return std::isnan(wanted) && std::isnan(got) ? 0 : infinity;
  const auto rounded = static_cast<float>(wanted);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : infinity;
  const Real from = std::max(std::abs(size), static_cast<Real>(smallest));
  return static_cast<double>(std::abs(static_cast<Real>(got) - wanted) / std::ldexp(Real{1}, std::ilogb(from) - 23));
}

/// ±10000 in small steps, the magnitudes down to the smallest subnormal number, and a dense middle.
std::vector<float> sweep() {
  std::vector<float> x = {0, -0.0F};
  for (int e = -149; e <= 13; ++e)
    for (const double m : {1.0, 1.1875, 1.41421356, 1.9999})
      for (const double sign : {1.0, -1.0}) x.push_back(static_cast<float>(sign * std::ldexp(m, e)));
  for (int i = -20'000; i <= 20'000; ++i) x.push_back(static_cast<float>(i * 0.5 + 0.123));
  for (int i = -60'000; i <= 60'000; ++i) x.push_back(static_cast<float>(i * 0.00213));
  for (int i = -5000; i <= 5000; ++i) x.push_back(static_cast<float>(i * 0.000317));
  return x;
}

Real sigmoid_of(Real x) { return 1 / (1 + std::exp(-x)); }
Real normal_of(Real x) { return std::erfc(-x / std::sqrt(Real{2})) / 2; }
Real tanh_gate(Real x) {
  constexpr Real pi = 3.14159265358979323846264338327950288L;
  return sigmoid_of(2 * std::sqrt(2 / pi) * (x + Real{0.044715L} * x * x * x));
}

}  // namespace

TEST_CASE("functions of one number, in Float32") {
  struct Function {
    const char* name;
    std::function<Tensor(const Tensor&)> run;
    std::function<Real(Real)> exact;
    double bound;
    double normals = 1;  // the bound holds from this multiple of the smallest normal number on, below it absolutely
  };
  // A product whose factor is subnormal shows the digits that this one has lost.
  const Function functions[] = {
      {"exp", [](auto& x) { return exp(x); }, [](Real x) { return std::exp(x); }, 1},
      {"log", [](auto& x) { return log(x); }, [](Real x) { return x < 0 ? Real{nan_value} : std::log(x); }, 1},
      {"tanh", [](auto& x) { return tanh(x); }, [](Real x) { return std::tanh(x); }, 2},
      {"sigmoid", [](auto& x) { return sigmoid(x); }, sigmoid_of, 3},
      {"softplus", [](auto& x) { return softplus(x); },
       [](Real x) { return std::max(x, Real{0}) + std::log1p(std::exp(-std::abs(x))); }, 3},
      {"silu", [](auto& x) { return silu(x); }, [](Real x) { return x * sigmoid_of(x); }, 3, 256},
      {"gelu", [](auto& x) { return gelu(x); }, [](Real x) { return x * normal_of(x); }, 6, 64},
      {"gelu, tanh", [](auto& x) { return gelu(x, GeluApproximation::Tanh); }, [](Real x) { return x * tanh_gate(x); },
       4, 64},
  };
  const std::vector<float> numbers = sweep();
  const Tensor x = from_vector(numbers, {static_cast<std::int64_t>(numbers.size())});
  for (const Function& f : functions) {
    const std::vector<float> y = f.run(x).to_vector<float>();
    double worst = 0, at = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const Real wanted = f.exact(static_cast<Real>(numbers[i]));
      const double smallest = f.normals * static_cast<double>(std::numeric_limits<float>::min());
      const double error = ulps(y[i], wanted, wanted, smallest);
      if (!(error <= worst)) worst = error, at = static_cast<double>(numbers[i]);
    }
    CAPTURE(f.name);
    CAPTURE(at);
    CHECK(worst <= f.bound);
  }
}

namespace {

/// Rows around a centre, with a spread, in Float32; each row holds its own exact numbers.
struct Rows {
  Tensor x;
  std::vector<std::vector<Real>> numbers;
};
Rows rows_of(double centre, double spread, std::int64_t n, std::uint64_t seed) {
  Rows rows{uniform({40, n}, centre - spread, centre + spread, seed, Float32), {}};
  const std::vector<float> values = rows.x.to_vector<float>();
  for (std::int64_t r = 0; r < 40; ++r) rows.numbers.emplace_back(values.begin() + r * n, values.begin() + (r + 1) * n);
  return rows;
}

struct Exact {
  Real top, sum, log_sum;  // max x, Σ e^(x - max x), its logarithm
  Real mean, squares;      // and Σ(x - mean)²
};
Exact exact_of(const std::vector<Real>& x) {
  Exact e{};
  e.top = *std::max_element(x.begin(), x.end());
  Real others = -1;  // the largest is its own 1, so that a small rest keeps its digits
  for (const Real v : x) others += std::exp(v - e.top);
  e.sum = 1 + others;
  e.log_sum = std::log1p(others);
  for (const Real v : x) e.mean += (v - x[0]) / static_cast<Real>(x.size());
  e.mean += x[0];
  for (const Real v : x) e.squares += (v - e.mean) * (v - e.mean);
  return e;
}

}  // namespace

TEST_CASE("rows of numbers, in Float32") {
  const float smallest = std::numeric_limits<float>::min();
  double softmax_worst = 0, log_softmax_worst = 0, lse_worst = 0, ce_worst = 0, norm_worst = 0, var_worst = 0;
  for (const auto& range : {std::pair{0.0, 1.0},
                            {0.0, 1e-3},
                            {0.0, 30.0},
                            {0.0, 1e4},
                            {0.0, 1e-38},
                            {0.0, 1e-42},
                            {1e4, 1e-2},
                            {1e4, 20.0},
                            {-1e4, 1.0},
                            {1e-38, 1e-40}}) {
    const double centre = range.first, spread = range.second;
    for (const std::int64_t n : {2, 7, 16, 300}) {
      CAPTURE(centre);
      CAPTURE(spread);
      CAPTURE(n);
      const Rows rows = rows_of(centre, spread, n, 3);
      const auto p = softmax(rows.x, 1).to_vector<float>(), l = log_softmax(rows.x, 1).to_vector<float>();
      const auto lse = logsumexp(rows.x, 1).to_vector<float>(), v = var(rows.x, 1).to_vector<float>();
      const auto norm = layer_norm(rows.x, {}, {}, 1e-5).to_vector<float>();
      const Tensor t = arange(40) - to(to(arange(40), Float64) / static_cast<double>(n), Int64) * n;
      const auto ce = cross_entropy(rows.x, t, {.reduction = Reduction::None}).to_vector<float>();
      for (std::size_t r = 0; r < 40; ++r) {
        const std::vector<Real>& x = rows.numbers[r];
        const Exact e = exact_of(x);
        const auto width = static_cast<std::size_t>(n);
        const auto larger = [](double& worst, double error) { worst = std::max(worst, error); };
        for (std::size_t j = 0; j < width; ++j) {
          const Real below = e.top - x[j], power = std::exp(-below) / e.sum;
          const float got = p[r * width + j];
          larger(softmax_worst, ulps(got, power, power, smallest));
          // A small logarithm has the relative error of its powers; below 1e-8, of a sum that is a double near 1.
          larger(log_softmax_worst, ulps(l[r * width + j], -below - e.log_sum, below + e.log_sum, 1e-8));
          const Real normed = (x[j] - e.mean) / std::sqrt(e.squares / static_cast<Real>(n) + Real{1e-5L});
          larger(norm_worst, ulps(norm[r * width + j], normed, normed, 1e-6));
        }
        // Where max x and the logarithm cancel, the logarithm's digits are all there are.
        larger(lse_worst, ulps(lse[r], e.top + e.log_sum, std::max(std::abs(e.top + e.log_sum), e.log_sum), smallest));
        const Real loss =
            e.top - x[static_cast<std::size_t>(t.at<std::int64_t>({static_cast<std::int64_t>(r)}))] + e.log_sum;
        larger(ce_worst, ulps(ce[r], loss, loss, 1e-8));
        const Real variance = e.squares / static_cast<Real>(n - 1);
        larger(var_worst, ulps(v[r], variance, variance, smallest));
      }
    }
  }
  CHECK(softmax_worst <= 3);
  CHECK(log_softmax_worst <= 8);
  CHECK(lse_worst <= 2);
  CHECK(ce_worst <= 8);
  CHECK(norm_worst <= 4);
  CHECK(var_worst <= 0.5001);
}

TEST_CASE("sums, means and variances of ten million floats, and their bits for 1, 2 and 3 threads") {
  const ThreadsGuard guard;
  const std::int64_t n = 10'000'000 / smaller;
  const Tensor x = uniform({n}, 0, 1, 9, Float32);
  Real total = 0, squares = 0;
  const auto* numbers = x.data<float>();
  for (std::int64_t i = 0; i < n; ++i) total += numbers[i];
  const Real mean_of_x = total / static_cast<Real>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += (numbers[i] - mean_of_x) * (numbers[i] - mean_of_x);
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const std::vector<Tensor> now = {sum(x), mean(x), var(x), sum(x.view({-1, 1000}), {0}),
                                     mean(x.view({10, -1}), {1})};
    CHECK(now[0].item() == doctest::Approx(static_cast<double>(total)).epsilon(1e-6));
    CHECK(now[1].item() == doctest::Approx(static_cast<double>(mean_of_x)).epsilon(1e-6));
    CHECK(now[2].item() == doctest::Approx(static_cast<double>(squares / static_cast<Real>(n - 1))).epsilon(1e-6));
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(same(now[i], first[i]));
  }
}
