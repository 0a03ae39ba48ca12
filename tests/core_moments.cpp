// Variances, log Σ eˣ and running sums.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

namespace {

/// Σ(x - mean)²/(n - correction) of the numbers, in long double.
double plain_variance(const std::vector<double>& x, double correction) {
  long double mean = 0, squares = 0;
  for (const double v : x) mean += static_cast<long double>(v) / static_cast<long double>(x.size());
  for (const double v : x) squares += (v - mean) * (v - mean);
  return static_cast<double>(squares / static_cast<long double>(static_cast<double>(x.size()) - correction));
}

}  // namespace

TEST_CASE("var and std: every choice of dims, in every layout") {
  const Shape shape = {3, 1, 4, 5};
  for (const Layout layout : layouts) {
    const Tensor x = laid_out(shape, layout, -1, 1, 2).detach();
    for (unsigned choice = 1; choice < 16; ++choice) {
      Shape dims;
      double n = 1;
      for (std::int64_t d = 0; d < 4; ++d) {
        if (!(choice >> d & 1)) continue;
        dims.push_back(d);
        n *= static_cast<double>(shape[d]);
      }
      CAPTURE(name_of(layout));
      CAPTURE(choice);
      const Tensor apart = x - mean(x, dims, true);
      for (const std::int64_t correction : {0, 1, 2}) {
        if (n <= static_cast<double>(correction)) continue;
        const Tensor wanted = sum(square(apart), dims, true) / (n - static_cast<double>(correction));
        CHECK(close(var(x, dims, correction, true), wanted, 1e-13));
        CHECK(close(x.std(dims, correction, true), sqrt(wanted), 1e-13));
        CHECK(close(var(x.to(Float32), dims, correction, true), wanted, 1e-6));
        CHECK(same(var(x, dims, correction), reshape(var(x, dims, correction, true), sum(x, dims).shape())));
      }
    }
  }
}

TEST_CASE("var and std take a correction, or a bool as PyTorch does") {
  const Tensor x = f64({{1, 2, 4}, {0, 0, 6}});
  CHECK(var(x).item() == doctest::Approx(plain_variance({1, 2, 4, 0, 0, 6}, 1)));
  CHECK(same(var(x, false), var(x, {}, 0)));
  CHECK(same(var(x, true), var(x)));
  CHECK(same(x.var(1, false), var(x, {1}, 0)));
  CHECK(close(x.var(1, true, true), f64({{7.0 / 3}, {12}})));
  CHECK(same(x.std(false), gradus::std(x, false)));
  CHECK(close(x.std(-1, 0), f64({std::sqrt(14.0 / 9), std::sqrt(8)})));
  CHECK(var(x, {0, 1}, 1, true).shape() == Shape{1, 1});
}

TEST_CASE("N01: var of Float32 does not cancel: the mean is 10000 and the spread 1e-3") {
  for (const std::int64_t n : {16, 1000, 200'000}) {
    std::vector<float> row(static_cast<std::size_t>(n));
    std::vector<double> numbers(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(10000 + static_cast<double>(i % 16) * 1e-3);
      numbers[i] = static_cast<double>(row[i]);
    }
    CAPTURE(n);
    const double wanted = plain_variance(numbers, 1);
    const Tensor x = from_vector(row, {n}).requires_grad_(), columns = stack({x, x, x}, 1);
    CHECK(var(x).item() == doctest::Approx(wanted).epsilon(1e-6));
    CHECK(x.std().item() == doctest::Approx(std::sqrt(wanted)).epsilon(1e-6));
    CHECK(var(columns, 0).at<float>({1}) == doctest::Approx(wanted).epsilon(1e-6));
    // Each difference from the mean keeps its digits in the gradient as well.
    double mean = 0;
    for (const double v : numbers) mean += (v - 10000) / static_cast<double>(n);
    const Tensor dx = gradient_of(var(x), x) * (static_cast<double>(n - 1) / 2);
    for (const std::int64_t i : {0, 7, 15})
      CHECK(std::abs(static_cast<double>(dx.at<float>({i})) - (numbers[static_cast<std::size_t>(i)] - 10000 - mean)) <
            1e-7);
  }
}

TEST_CASE("N01: equal elements have exactly no variance") {
  for (const DType dtype : {Float32, Float64}) {
    for (const std::int64_t n : {2, 3, 37, 1000, 300'000}) {
      for (const double value : {0.1, 1234.0, -1e30}) {
        const Tensor x = full({n}, value, {.dtype = dtype}).requires_grad_();
        CAPTURE(n);
        CHECK(var(x).item() == 0);
        CHECK(x.std().item() == 0);
        CHECK(amax(var(stack({x, x}, 1), 0)).item() == 0);
        CHECK(amax(abs(gradient_of(var(x), x))).item() <= std::abs(value) * 1e-14);
        // As in PyTorch the deviation's gradient at 0 is 0, not 0·inf.
        CHECK(same(gradient_of(x.std(), x), zeros({n}, {.dtype = dtype})));
      }
    }
  }
}

TEST_CASE("S02: std of constant data has gradient 0, also of its gradient") {
  const Tensor x = leaf({{3, 3, 3}, {1, 2, 3}});
  const Tensor dx = grad({x.std(1)}, {x}, {ones({2}, {.dtype = Float64})}, {.create_graph = true})[0];
  CHECK(close(dx.detach(), f64({{0, 0, 0}, {-0.5, 0, 0.5}})));
  CHECK_FALSE(any_nan(gradient_of(sum(square(dx)), x)));
}

TEST_CASE("N07: var of one element, and of none") {
  const Tensor x = leaf({2});
  CHECK(std::isnan(var(x).item()));
  CHECK(std::isnan(x.std().item()));
  for (const bool create_graph : {false, true}) {
    const Tensor dx = grad({var(x)}, {x}, {}, {.create_graph = create_graph})[0].detach();
    CHECK(same(dx, f64({nan_value})));
  }
  CHECK(same(gradient_of(x.std(), x), f64({nan_value})));
  CHECK(var(x, false).item() == 0);
  CHECK(same(gradient_of(var(x, false), x), f64({0})));
  CHECK(same(gradient_of(x.std(false), x), f64({0})));
  const Tensor column = leaf({{2}, {3}});
  CHECK(same(var(column, 1).detach(), f64({nan_value, nan_value})));
  CHECK(same(gradient_of(var(column, 1), column), f64({{nan_value}, {nan_value}})));
  CHECK(same(gradient_of(var(column, 1, 0), column), f64({{0}, {0}})));
  CHECK(var(f64({1, 2}), {}, 5).item() == infinity);
  CHECK(std::isnan(var(zeros({0})).item()));
  CHECK(std::isnan(var(zeros({0}), false).item()));
  CHECK(any_nan(var(zeros({2, 0}), 1)));
  CHECK(var(zeros({0, 3}), 1).shape() == Shape{0});
  const Tensor empty = zeros({0, 3}, {.requires_grad = true});
  CHECK(gradient_of(var(empty, 0), empty).shape() == Shape{0, 3});
  CHECK(var(leaf(5), {}, 0).item() == 0);
}

TEST_CASE("var of infinite and NaN elements is NaN, of their row alone") {
  const Tensor y = var(f64({{1, infinity, 2}, {1, nan_value, 2}, {1, 2, 3}}), 1);
  CHECK(same(y, f64({nan_value, nan_value, 1})));
}

TEST_CASE("logsumexp") {
  const Tensor x = leaf({{1, 2, 3}, {0, 0, 0}});
  CHECK(close(logsumexp(x, 1).detach(), f64({3.4076059644443806, std::log(3)})));
  CHECK(close(logsumexp(x, 0, true).detach(), f64({{1.3132616875182228, 2.1269280110429727, 3.0485873515737421}})));
  CHECK(logsumexp(x, {}).item() ==
        doctest::Approx(std::log(3 + std::exp(1) + std::exp(2) + std::exp(3))).epsilon(1e-14));
  CHECK(same(logsumexp(x, {0, 1}, true).reshape({}).detach(), logsumexp(x, {}).detach()));
  CHECK(close(gradient_of(logsumexp(x, 1), x), softmax(x.detach(), 1)));
  CHECK(close(gradient_of(logsumexp(x, {}), x), softmax(x.detach().reshape({6}), 0).reshape({2, 3})));
  CHECK(logsumexp(leaf(2), 0).item() == 2);
  for (const Layout layout : layouts) {
    const Tensor y = laid_out({4, 3, 5}, layout, -1, 1, 3).detach();
    for (const Shape& dims : {Shape{0}, Shape{1}, Shape{2}, Shape{0, 2}, Shape{1, -1}})
      CHECK(close(logsumexp(y, dims), log(sum(exp(y), dims))));
  }
}

TEST_CASE("logsumexp of large, of infinite and of no numbers") {
  CHECK(logsumexp(tensor({1e4, 1e4}), 0).item<float>() == static_cast<float>(1e4 + std::log(2)));
  CHECK(logsumexp(tensor({-1e4, -1e4}), 0).item<float>() == static_cast<float>(-1e4 + std::log(2)));
  CHECK(logsumexp(tensor({0.0, -20.0}), 0).item() == doctest::Approx(std::log1p(std::exp(-20))).epsilon(1e-6));
  const Tensor x = leaf({{-infinity, -infinity}, {-infinity, 1}, {infinity, 1}, {nan_value, infinity}});
  const Tensor y = logsumexp(x, 1);
  CHECK(same(y.detach(), f64({-infinity, 1, infinity, nan_value})));
  for (const bool create_graph : {false, true}) {
    const Tensor dx = grad({y}, {x}, {ones_like(y)}, {.retain_graph = true, .create_graph = create_graph})[0].detach();
    CHECK(same(slice(dx, 0, 0, 2), f64({{0, 0}, {0, 1}})));
    CHECK(dx.at<double>({2, 1}) == 0);  // beside +inf a number has no share
  }
  CHECK(any_nan(logsumexp(f64({-infinity, nan_value}), 0)));
  const Tensor big = tensor({1e4, 1e4 - 1}).requires_grad_();
  CHECK(gradient_of(logsumexp(big, 0), big).at<float>({0}) == doctest::Approx(1 / (1 + std::exp(-1))).epsilon(1e-6));
  const Tensor none = zeros({2, 0}, {.requires_grad = true});
  CHECK(same(logsumexp(none, 1).detach(), full({2}, -infinity)));
  CHECK(gradient_of(logsumexp(none, 1), none).shape() == Shape{2, 0});
  CHECK(logsumexp(zeros({0, 3}), 1).shape() == Shape{0});
}

TEST_CASE("cumsum") {
  const Tensor x = leaf({{1, 2, 3}, {10, 20, 30}});
  CHECK(same(cumsum(x, 0).detach(), f64({{1, 2, 3}, {11, 22, 33}})));
  CHECK(same(x.cumsum(-1).detach(), f64({{1, 3, 6}, {10, 30, 60}})));
  CHECK(same(gradient_of(cumsum(x, 1), x, f64({{1, 10, 100}, {1, 0, 0}})), f64({{111, 110, 100}, {1, 0, 0}})));
  CHECK(same(cumsum(tensor({true, false, true}), 0), tensor({1, 1, 2})));
  const std::int64_t big = std::int64_t{1} << 53;
  CHECK(same(cumsum(tensor({big, 1, 1}), 0), tensor({big, big + 1, big + 2})));
  CHECK(same(cumsum(leaf(3), 0).detach(), f64(3)));
  CHECK(same(gradient_of(cumsum(x.select(0, 0).select(0, 0), 0), x), f64({{1, 0, 0}, {0, 0, 0}})));
  CHECK(cumsum(zeros({2, 0, 3}), 1).shape() == Shape{2, 0, 3});
  CHECK(cumsum(zeros({2, 0, 3}), 0).shape() == Shape{2, 0, 3});
  for (const Layout layout : layouts) {
    const Tensor y = laid_out({3, 4, 5}, layout, -1, 1, 3).detach();
    for (std::int64_t dim = 0; dim < 3; ++dim) {
      const Tensor sums = cumsum(y, dim);
      for (std::int64_t i = 0; i < y.size(dim); ++i)
        CHECK(close(select(sums, dim, i), sum(slice(y, dim, 0, i + 1), {dim})));
    }
  }
}

TEST_CASE("cumsum adds floats in double") {
  const std::int64_t n = 4'000'000 / smaller;
  const Tensor x = full({n}, 0.1);
  const double wanted = static_cast<double>(n) * double{0.1f};
  CHECK(cumsum(x, 0).at<float>({n - 1}) == doctest::Approx(wanted).epsilon(1e-7));
  CHECK(cumsum(x.view({n / 4, 4}), 0).at<float>({n / 4 - 1, 3}) == doctest::Approx(wanted / 4).epsilon(1e-7));
}

TEST_CASE("var, logsumexp and cumsum have the same bits for 1, 2 and 3 threads") {
  const ThreadsGuard guard;
  const Tensor x = uniform({3, 500'000 / smaller}, -1, 1, 5, Float32), y = x.reshape({-1, 150});
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const std::vector<Tensor> now = {var(x),          var(x, 1),        var(y, 0),    var(y, 1),   x.std(0),
                                     logsumexp(x, 1), logsumexp(y, {}), cumsum(y, 0), cumsum(x, 1)};
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(same(now[i], first[i]));
  }
}

TEST_CASE("variances too large for a number are infinite, and an infinity does not spread in the gradient") {
  CHECK(var(f64({1e200, 2e200, 3e200, 4e200})).item() == infinity);
  CHECK(var(f64({{1e200, 1}, {3e200, 2}, {5e200, 3}}), {0}).to_vector<double>()[0] == infinity);
  const Tensor x = leaf({1, infinity, 2});
  CHECK(same(gradient_of(var(x), x), f64({-infinity, nan_value, -infinity})));
}
