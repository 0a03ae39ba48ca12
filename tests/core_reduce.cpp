// Sums, means, extremes.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

/// The reduction over `dims` by plain loops.
template <class Fold>
Tensor loops(const Tensor& x, const std::vector<std::int64_t>& dims, double start, Fold fold) {
  Shape keep = x.shape();
  for (const std::int64_t d : dims) keep[d] = 1;
  Tensor y = full(keep, start, {.dtype = Float64});
  const std::vector<double> values = x.to_vector<double>();
  Shape at = x.shape();
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (int d = x.shape().size() - 1; d >= 0; --d) {
      at[d] = keep[d] == 1 ? 0 : rest % x.shape()[d];
      rest /= x.shape()[d];
    }
    double& slot = y.at<double>(at);
    slot = fold(slot, values[i]);
  }
  return y;
}

}  // namespace

TEST_CASE("every choice of dims, in every layout") {
  const Shape shape = {3, 1, 4, 5};
  for (const Layout layout : layouts) {
    const Tensor x = laid_out(shape, layout, -1, 1, 2).detach();
    for (unsigned choice = 1; choice < 16; ++choice) {
      std::vector<std::int64_t> dims;
      double count = 1;
      for (std::int64_t d = 0; d < 4; ++d) {
        if (!(choice >> d & 1)) continue;
        dims.push_back(d);
        count *= static_cast<double>(shape[d]);
      }
      CAPTURE(name_of(layout));
      CAPTURE(choice);
      const Tensor total = loops(x, dims, 0, [](double a, double b) { return a + b; });
      CHECK(close(sum(x, dims, true), total, 1e-13));
      CHECK(close(mean(x, dims, true), total / count, 1e-13));
      CHECK(same(sum(x, dims, true).squeeze(), sum(x, dims).squeeze()));
      CHECK(same(amax(x, dims, true), loops(x, dims, -infinity, [](double a, double b) { return std::max(a, b); })));
      CHECK(same(amin(x, dims, true), loops(x, dims, infinity, [](double a, double b) { return std::min(a, b); })));
      CHECK(close(sum(x.to(Float32), dims, true), total, 1e-5));
    }
    CHECK(sum(x).shape() == Shape{});
    CHECK(sum(x, {}, true).shape() == Shape{1, 1, 1, 1});
    CHECK(sum(x, {-1}).shape() == Shape{3, 1, 4});
  }
}

TEST_CASE("of no elements: sums are 0, means NaN, sizes stay") {
  const Tensor x = zeros({2, 0, 3});
  CHECK(same(sum(x), tensor(0.0)));
  CHECK(same(sum(x, {1}), zeros({2, 3})));
  CHECK(sum(x, {0}).shape() == Shape{0, 3});
  CHECK(std::isnan(mean(x).item()));
  CHECK(any_nan(mean(x, {1})));
  CHECK(amax(x, {0}).shape() == Shape{0, 3});
  CHECK(same(sum(zeros({0}, {.dtype = Int64})), tensor(0)));
  const Tensor y = zeros({2, 0}, {.requires_grad = true});
  sum(y).backward();
  CHECK(y.grad().shape() == Shape{2, 0});
  CHECK(sum(tensor(5.0)).item() == 5);
  CHECK(sum(tensor(5.0), {0}).item() == 5);
}

TEST_CASE("integers and bools are summed exactly, as Int64") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  CHECK(same(sum(tensor({big, 1, 1})), tensor(big + 2)));
  CHECK(same(sum(tensor({{big, 1}, {2, 3}}), {0}), tensor({big + 2, 4})));
  CHECK(same(sum(tensor({true, true, false})), tensor(2)));
  CHECK(same(amax(tensor({big, big - 1})), tensor(big)));
  CHECK(same(amin(tensor({big, big - 1})), tensor(big - 1)));
}

TEST_CASE("the sum of ten million floats is accurate to 1e-6") {
  const Tensor x = full({10'000'000}, 0.1);
  CHECK(sum(x).item() == doctest::Approx(1e7 * double{0.1f}).epsilon(1e-6));
  CHECK(mean(x).item() == doctest::Approx(double{0.1f}).epsilon(1e-6));
  CHECK(sum(x.view({10'000, 1000}), {0}).at<float>({7}) == doctest::Approx(1e4 * double{0.1f}).epsilon(1e-6));
  CHECK(sum(x.view({10, 1'000'000}), {1}).at<float>({7}) == doctest::Approx(1e6 * double{0.1f}).epsilon(1e-6));
}

TEST_CASE("ties share the gradient of amax and amin; max along a dim gives it to the first") {
  const Tensor x = leaf({{1, 3, 3}, {3, 0, 0}});
  const double third = 1.0 / 3;
  CHECK(close(gradient_of(amax(x), x), f64({{0, third, third}, {third, 0, 0}})));
  CHECK(close(gradient_of(amax(x, {1}), x), f64({{0, 0.5, 0.5}, {1, 0, 0}})));
  CHECK(close(gradient_of(amin(x, {1}), x), f64({{1, 0, 0}, {0, 0.5, 0.5}})));
  const auto [values, indices] = max(x, 1);
  CHECK(same(values.detach(), f64({3, 3})));
  CHECK(same(indices, tensor({1, 0})));
  CHECK(same(gradient_of(values, x), f64({{0, 1, 0}, {1, 0, 0}})));
  const auto smallest = min(x, 0, true);
  CHECK(same(smallest.values.detach(), f64({{1, 0, 0}})));
  CHECK(same(smallest.indices, tensor({{0, 1, 1}})));
  CHECK(same(max(x).detach(), f64(3)));
  CHECK(same(min(x).detach(), f64(0)));
}

TEST_CASE("extremes: NaN wins, -inf is a number, the smallest integer too") {
  const Tensor x = f64({{1, nan_value, 3}, {-infinity, -infinity, -infinity}});
  CHECK(same(amax(x, {1}), f64({nan_value, -infinity})));
  CHECK(same(amin(x, {1}), f64({nan_value, -infinity})));
  CHECK(same(argmax(x, 1), tensor({1, 0})));
  CHECK(same(max(x, 1).values, f64({nan_value, -infinity})));
  CHECK(same(min(x, 1).indices, tensor({1, 0})));
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  CHECK(same(min(tensor({0, lowest, 5}), 0).values, tensor(lowest)));
  CHECK(same(max(tensor({lowest, lowest + 1}), 0).indices, tensor(1)));
  CHECK(same(amin(tensor({0, lowest})), tensor(lowest)));
  CHECK(same(min(tensor({true, false}), 0).indices, tensor(1)));
  CHECK(same(max(tensor({false, true}), 0).values, tensor(true)));
  CHECK(same(max(f64(4), 0).values, f64(4)));
  CHECK(same(max(f64(4), 0).indices, tensor(0)));
}

TEST_CASE("argmax") {
  const Tensor x = f64({{1, 5, 5}, {7, 0, 7}});
  CHECK(same(argmax(x), tensor(3)));
  CHECK(same(argmax(x, 1), tensor({1, 0})));
  CHECK(same(argmax(x, 0, true), tensor({{1, 0, 1}})));
  CHECK(same(argmax(x, {}, true), tensor({{3}})));
  CHECK(same(argmax(x.transpose(0, 1), 0), tensor({1, 0})));
  CHECK(same(argmax(x.transpose(0, 1)), tensor(1)));  // counted in the view's own order
  CHECK(same(argmax(tensor({1, 3, 2})), tensor(1)));
  CHECK(same(argmax(f64(3)), tensor(0)));
  CHECK(argmax(zeros({0, 3}), 1).shape() == Shape{0});
  for (const Layout layout : layouts) {
    const Tensor y = laid_out({4, 3, 5}, layout, -1, 1, 3).detach();
    for (int dim = 0; dim < 3; ++dim) CHECK(same(argmax(y, dim), argmax(y.clone(), dim)));
  }
}

TEST_CASE("any and all") {
  CHECK(any(tensor({false, true})));
  CHECK_FALSE(any(tensor({false, false})));
  CHECK_FALSE(all(tensor({false, true})));
  CHECK(all(tensor({true, true})));
  CHECK_FALSE(any(zeros({0}, {.dtype = Bool})));
  CHECK(all(zeros({0}, {.dtype = Bool})));
  CHECK(any((count({100, 100}) == 4321).transpose(0, 1)));
}

TEST_CASE("V06 the gradient of what was broadcast to no elements is zeros") {
  const Tensor a = zeros({4, 0}, {.dtype = Float64}), b = leaf({1, 2, 3, 4});
  const Tensor loss = sum(a + b.unsqueeze(1));
  CHECK(same(loss.detach(), f64(0)));
  loss.backward();
  CHECK(same(b.grad(), f64({0, 0, 0, 0})));
  const Tensor mask = zeros({4, 0}, {.dtype = Bool});
  const std::vector<std::function<Tensor(const Tensor&)>> ops = {
      [&](const Tensor& c) { return a + c; },
      [&](const Tensor& c) { return a - c; },
      [&](const Tensor& c) { return c - a; },
      [&](const Tensor& c) { return a * c; },
      [&](const Tensor& c) { return a / c; },
      [&](const Tensor& c) { return c / a; },
      [&](const Tensor& c) { return pow(a, c); },
      [&](const Tensor& c) { return pow(c, a); },
      [&](const Tensor& c) { return maximum(a, c); },
      [&](const Tensor& c) { return minimum(c, a); },
      [&](const Tensor& c) { return where(mask, a, c); },
      [&](const Tensor& c) { return where(mask, c, a); },
      [&](const Tensor& c) {
        return c.expand({4, 0});
      },
      [&](const Tensor& c) {
        return masked_fill(c.expand({4, 0}), mask, 1);
      },
      [&](const Tensor& c) {
        return matmul(c, zeros({1, 0}, {.dtype = Float64}));
      },
      [&](const Tensor& c) { return c.slice(1, 1, {}); },
      [&](const Tensor& c) {
        return c.index({Slice(), std::vector<std::int64_t>{}});
      },
      [&](const Tensor& c) { return index_put(a, {Slice()}, c); },
  };
  for (std::size_t i = 0; i < ops.size(); ++i) {
    CAPTURE(i);
    const Tensor column = b.unsqueeze(1), y = ops[i](column);
    CHECK(y.shape() == Shape{4, 0});
    for (const bool create_graph : {false, true})
      CHECK(same(grad({sum(y)}, {b}, {}, {.retain_graph = true, .create_graph = create_graph})[0].detach(),
                 f64({0, 0, 0, 0})));
  }
}

TEST_CASE("sum_to undoes a broadcast") {
  const Tensor x = count({2, 3, 4});
  CHECK(same(sum_to(x, {3, 1}), sum(x, {0, 2}).view({3, 1})));
  CHECK(same(sum_to(x, {4}), sum(x, {0, 1})));
  CHECK(same(sum_to(x, {}), sum(x)));
  CHECK(sum_to(x, {2, 3, 4}).is_same(x));
}

TEST_CASE("where NaN wins it gets the gradient, shared among all NaN") {
  const Tensor x = leaf({{1, nan_value, 2, nan_value}, {1, 3, 3, 0}});
  CHECK(same(gradient_of(amax(x, {1}), x), f64({{0, 0.5, 0, 0.5}, {0, 0.5, 0.5, 0}})));
  CHECK(same(gradient_of(amin(x, {1}), x), f64({{0, 0.5, 0, 0.5}, {0, 0, 0, 1}})));
  CHECK(same(gradient_of(max(x), x), f64({{0, 0.5, 0, 0.5}, {0, 0, 0, 0}})));
}

TEST_CASE("max and min along a dim refuse in their own words") {
  const Tensor none = zeros({2, 0});
  CHECK(error_of([&] { max(none, 1); }) == "max: there is no element to choose from along dim 1 of [2, 0]");
  CHECK(error_of([&] { min(none, 2); }) == "min: dim 2 is outside a tensor of rank 2; it must be in [-2, 1]");
}

TEST_CASE("nothing is recorded under a NoGradGuard by ops that look for the winner first") {
  const Tensor x = leaf({1, 2});
  const NoGradGuard guard;
  CHECK_FALSE(min(x, 0).values.requires_grad());
  CHECK_FALSE(max(x, 0).values.requires_grad());
}

TEST_CASE("sums and means over what an expanded tensor repeats are those of its copy") {
  const Tensor x = uniform({3, 1, 4, 1}, -2, 2, 1);
  for (const DType dtype : {Float32, Float64, Int64, Bool}) {
    CAPTURE(dtype);
    const Tensor repeated = (dtype == Bool ? x > 0 : (x * 10).to(dtype)).expand({3, 5, 4, 7});
    const Tensor copy = repeated.clone();
    CHECK(copy.is_contiguous());
    for (const Shape& dims : {Shape{}, {1}, {3}, {1, 3}, {0, 1}, {2, 3}, {0, 2}, {-3}}) {
      CAPTURE(dims);
      CHECK(close(sum(repeated, dims), sum(copy, dims), 1e-6));
      CHECK(sum(repeated, dims, true).shape() == sum(copy, dims, true).shape());
      if (is_floating(dtype)) CHECK(close(mean(repeated, dims), mean(copy, dims), 1e-6));
    }
  }
  CHECK(sum(ones({1}).expand({0})).item() == 0);
  CHECK(same(sum(tensor({0.1F}).expand({1000})), sum(full({1000}, 0.1F))));
  CHECK(sum(full({1}, infinity).expand({3})).item() == infinity);
  const Tensor leaf = ones({1, 2}, {.requires_grad = true});
  sum(leaf.expand({6, 2})).backward();
  CHECK(same(leaf.grad(), tensor({{6.0F, 6.0F}})));
}
