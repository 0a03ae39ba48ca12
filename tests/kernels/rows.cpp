// Kernels on rows: softmax, cross entropy, layer norm, and rows by index.
#include <doctest/doctest.h>

#include <gradus/threads.h>

#include <cstdint>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

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
  // What is not finite stays in its row; only -inf beside a number is one.
  const i64 n = 45;
  x.assign(static_cast<std::size_t>(6 * n), T(0.5));
  const auto put = [&](i64 row, T value) { x[static_cast<std::size_t>(row * n + 40)] = value; };
  put(1, T(not_a_number)), put(3, T(infinity)), put(4, low);
  std::fill_n(x.begin() + 2 * n, n, low);
  std::vector<T> losses(6);
  const std::vector<i64> first(6, 0);
  std::vector<double> top_sums(12);
  kernels::cross_entropy(dtype, 6, n, x.data(), first.data(), -1, 0, nullptr, losses.data(), top_sums.data());
  for (const std::size_t r : {0, 5}) CHECK(losses[r] == doctest::Approx(std::log(45.0)));
  for (const std::size_t r : {1, 2, 3}) CHECK(std::isnan(losses[r]));
  CHECK(losses[4] == doctest::Approx(std::log(44.0)));
  // Of an outcome that is nearly certain, what is left over keeps its digits.
  std::fill(x.begin(), x.end(), T(-20));
  for (i64 r = 0; r < 6; ++r) x[static_cast<std::size_t>(r * n)] = 0;
  kernels::cross_entropy(dtype, 6, n, x.data(), first.data(), -1, 0, nullptr, losses.data(), top_sums.data());
  const double rest = std::log1p(44 * std::exp(-20.0));
  for (const T one : losses) CHECK(std::abs(static_cast<double>(one) - rest) <= 5e-7 * rest);
}

TEST_CASE_TEMPLATE("kernels: layer norm", T, float, double) {
  const DType dtype = dtype_of<T>::value;
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-13;
  for (i64 n : {1, 3, 8, 64, 100, 513})
    for (double shift : {0.0, 10000.0}) {
      const i64 rows = 41;  // and so one beside the fours
      auto x = numbers<T>(rows * n, 3, shift != 0 ? 0.01 : 2);
      for (T& v : x) v += static_cast<T>(shift);
      const auto g = numbers<T>(rows * n, 4), gamma = numbers<T>(n, 5), beta = numbers<T>(n, 6);
      std::vector<T> y(x.size()), dx(x.size()), mean(2 * rows), rstd(rows), dgamma(static_cast<std::size_t>(n)),
          dbeta(dgamma.size());
      kernels::layer_norm(dtype, rows, n, x.data(), gamma.data(), beta.data(), 1e-5, y.data(), mean.data(),
                          rstd.data());
      kernels::layer_norm_backward(dtype, rows, n, g.data(), x.data(), gamma.data(), mean.data(), rstd.data(),
                                   dx.data(), dgamma.data(), dbeta.data());
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

TEST_CASE("kernels: rows by index") {
  const int threads_before = num_threads();
  const i64 rows = 1000;
  for (const auto& [n, of] : {std::pair<i64, i64>{2, 11}, {70, 11}, {70, 700}, {1100, 11}, {1100, 700}}) {
    std::vector<i64> index;
    for (i64 r = 0; r < rows; ++r) index.push_back(r * r % of);
    const auto x = numbers<float>(of * n), g = numbers<float>(rows * n, 2);
    std::vector<float> y(static_cast<std::size_t>(rows * n)), expected(x.size(), 0.5f);
    kernels::gather_rows(Float32, rows, n, x.data(), index.data(), y.data());
    bool gathered = true;
    for (i64 r = 0; r < rows; ++r)
      for (i64 j = 0; j < n; ++j) {
        const auto from = static_cast<std::size_t>(index[static_cast<std::size_t>(r)] * n + j),
                   at = static_cast<std::size_t>(r * n + j);
        gathered = gathered && y[at] == x[from];
        expected[from] += g[at];
      }
    CHECK(gathered);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      std::vector<float> sums(x.size(), 0.5f);
      kernels::scatter_add_rows(Float32, rows, n, g.data(), index.data(), of, sums.data());
      CHECK(sums == expected);
    }
    set_num_threads(threads_before);
  }
}
