// softmax, its relatives, and ops that select by a mask.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("A03: a row with -inf, and a row of nothing else") {
  const Tensor x = leaf({-infinity, 0, 1});
  const Tensor y = softmax(x, 0);
  CHECK(close(y, f64({0, 0.26894142136999516, 0.7310585786300049}), 1e-15));
  CHECK(y.at<double>({0}) == 0);
  y.backward(f64({1, 2, 3}));
  CHECK(close(x.grad(), f64({0, -0.19661193324148196, 0.1966119332414816}), 1e-15));
  CHECK(x.grad().at<double>({0}) == 0);
  CHECK(any_nan(softmax(f64({-infinity, -infinity}), 0)));
  // One such row harms no other.
  const Tensor rows = softmax(f64({{-infinity, -infinity}, {0, 0}}), -1);
  CHECK(same(select(rows, 0, 1), f64({0.5, 0.5})));
}

TEST_CASE("A13: softmax of transposed and sliced inputs") {
  const Tensor x = count({3, 4}, 1).requires_grad_();
  const Tensor y = softmax(x.transpose(0, 1), 1);
  const Tensor row = f64({0.00032932043896389293, 0.017980286735531543, 0.9816903928255046});
  CHECK(close(y, row.expand({4, 3}), 1e-14));
  const Tensor dx = gradient_of(y, x, count({4, 3}));
  CHECK(std::abs(dx.at<double>({0, 0}) - -0.0006525026981043053) < 1e-14);
  CHECK(std::abs(softmax(count({4, 4}) / 4, -1).numel() - 16) == 0);
  CHECK(std::abs(sum(softmax((count({4, 4}) / 4).narrow(1, 0, 2), -1)).item() - 4) < 1e-14);
  for (const Layout layout : layouts) {
    for (const int dim : {0, 1, 2, -1}) {
      const Tensor v = laid_out({3, 4, 5}, layout, -3, 3, 5).detach();
      CHECK(same(softmax(v, dim), softmax(v.clone(), dim).contiguous()));
      CHECK(close(sum(softmax(v, dim), {dim}), ones_like(sum(v, {dim}))));
      CHECK(close(exp(log_softmax(v, dim)), softmax(v, dim)));
    }
  }
}

TEST_CASE("A15: the gradient of a fused softmax is there, and right") {
  const Tensor x = leaf({1, 2, 3});
  sum(square(softmax(x, 0))).backward();
  CHECK(close(x.grad(), f64({-0.07571796004928924, -0.13010479484068163, 0.205822754889971}), 1e-14));
}

TEST_CASE("softmax does not depend on a shift, however large") {
  const Tensor x = f64({1, 2, 3});
  for (const double shift : {-1e4, 1e4, 1e300})
    CHECK(close(softmax(f64({shift, shift, shift}), 0), f64({1.0 / 3, 1.0 / 3, 1.0 / 3}), 1e-15));
  CHECK(close(softmax(x + 10000, 0), softmax(x, 0), 1e-11));
  CHECK(same(softmax(tensor({-1e4, 1e4}), 0), tensor({0.0, 1.0})));
  CHECK(any_nan(softmax(f64({infinity, 1}), 0)));
  CHECK(same(softmax(f64(7), 0), f64(1)));
  CHECK(softmax(zeros({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(softmax(zeros({3, 0}), 1).shape() == Shape{3, 0});
  CHECK(same(softmax(f64({{3}, {4}}), 1), f64({{1}, {1}})));
}

TEST_CASE("S05, S07: log_softmax of far apart and of -inf logits") {
  const Tensor x = leaf({0, 1000});
  const Tensor y = log_softmax(x, 0);
  CHECK(y.at<double>({0}) == -1000);
  CHECK(close(gradient_of(y, x, f64({1, 0})), f64({1, -1})));
  const Tensor z = leaf({-infinity, 0, 1});
  const Tensor l = log_softmax(z, 0);
  CHECK(close(l, f64({-infinity, -1.3132616875182228, -0.31326168751822286}), 1e-15));
  CHECK(close(gradient_of(l, z, f64({0, 0, 1})), f64({0, -0.2689414213699951, 0.2689414213699951}), 1e-15));
}

TEST_CASE("masked_softmax: hidden places and rows are exactly 0, forward and backward, whatever stands there") {
  const Tensor mask = tensor({{true, true, false}, {false, false, false}, {true, false, true}});
  for (const double hidden : {0.0, nan_value, infinity, -infinity}) {
    CAPTURE(hidden);
    const Tensor x = leaf({{0, 1, hidden}, {hidden, hidden, hidden}, {2, hidden, 2}});
    const Tensor y = masked_softmax(x, mask);
    CHECK(close(y, f64({{0.26894142136999516, 0.7310585786300049, 0}, {0, 0, 0}, {0.5, 0, 0.5}}), 1e-15));
    CHECK(same(masked_fill(y, mask, 0), zeros({3, 3}, {.dtype = Float64})));
    const Tensor g = f64({{1, 2, nan_value}, {nan_value, 5, infinity}, {3, nan_value, 7}});
    for (const bool create_graph : {false, true}) {
      const Tensor dx = grad({y}, {x}, {g}, {.retain_graph = true, .create_graph = create_graph})[0];
      CHECK(close(dx, f64({{-0.19661193324148196, 0.1966119332414816, 0}, {0, 0, 0}, {-1, 0, 1}}), 1e-15));
      CHECK(sum(abs(masked_fill(dx.detach(), mask, 0))).item() == 0);
    }
  }
  CHECK(same(masked_softmax(zeros({2, 2, 2}), tensor({{true, false}})), tensor({1.0, 0.0}).expand({2, 2, 2})));
  CHECK(masked_softmax(zeros({0, 3}), tensor({true, true, true})).shape() == Shape{0, 3});
}

TEST_CASE("masked_fill selects: nothing behind the mask gets through") {
  for (const double hidden : {nan_value, infinity, -infinity}) {
    const Tensor x = leaf({1, hidden, 3});
    const Tensor mask = tensor({false, true, false});
    const Tensor y = masked_fill(x, mask, -1e9);
    CHECK(same(y, f64({1, -1e9, 3})));
    for (const bool create_graph : {false, true})
      CHECK(
          same(grad({y}, {x}, {f64({1, hidden, 2})}, {.retain_graph = true, .create_graph = create_graph})[0].detach(),
               f64({1, 0, 2})));
  }
  CHECK(same(masked_fill(f64({1, 2}), tensor({true, false}), nan_value), f64({nan_value, 2})));
  CHECK(same(masked_fill(tensor({1, 2}), tensor(true), 9), tensor({9, 9})));
  CHECK(same(masked_fill(tensor({true, false}), tensor({false, true}), true), tensor({true, true})));
}

TEST_CASE("M01: masked_fill of an expanded tensor; in place it is refused") {
  Tensor t = f64({{0}, {1}}).expand({2, 4});
  const Tensor mask = tensor({{false, true, false, false}, {false, false, false, false}});
  CHECK(same(t.masked_fill(mask, 3), f64({{0, 3, 0, 0}, {1, 1, 1, 1}})));
  CHECK(error_of([&] { t.masked_fill_(mask, 3); }) ==
        "masked_fill_: elements of [2, 4] overlap in memory (it is expanded); clone() it first");
  CHECK(same(t, f64({{0}, {1}}).expand({2, 4})));
}

TEST_CASE("M03: where passes an exact 0 to the branch that is not taken") {
  const Tensor x = leaf({-1, -4});
  const Tensor safe = where(x > 0, x, 1);
  sum(where(x > 0, sqrt(safe), x)).backward();
  CHECK(same(x.grad(), f64({1, 1})));
  const Tensor a = leaf({1, nan_value}), b = leaf({infinity, 4});
  const Tensor y = where(tensor({true, false}), a, b);
  CHECK(same(y, f64({1, 4})));
  y.backward(f64({infinity, nan_value}));
  CHECK(same(a.grad(), f64({infinity, 0})));
  CHECK(same(b.grad(), f64({0, nan_value})));
}

TEST_CASE("where broadcasts all three and promotes") {
  const Tensor y = where(tensor({{true}, {false}}), tensor({1, 2, 3}), tensor(0.5));
  CHECK(same(y, tensor({{1.0, 2.0, 3.0}, {0.5, 0.5, 0.5}})));
  CHECK(same(where(tensor({true, false}), tensor({1, 2}), 7), tensor({1, 7})));
  CHECK(where(tensor({true, false}), tensor({1, 2}), 0.5).dtype() == Float32);
  CHECK(where(tensor({true, false}), 0.5, tensor({1, 2})).dtype() == Float32);
}

TEST_CASE("tril and triu") {
  const Tensor x = count({2, 3}, 1);
  CHECK(same(tril(x), f64({{1, 0, 0}, {4, 5, 0}})));
  CHECK(same(tril(x, 1), f64({{1, 2, 0}, {4, 5, 6}})));
  CHECK(same(tril(x, -1), f64({{0, 0, 0}, {4, 0, 0}})));
  CHECK(same(triu(x), f64({{1, 2, 3}, {0, 5, 6}})));
  CHECK(same(triu(x, 1), f64({{0, 2, 3}, {0, 0, 6}})));
  CHECK(same(triu(x, -5), x));
  CHECK(same(tril(ones({2, 2, 2}, {.dtype = Int64})), tensor({{{1, 0}, {1, 1}}, {{1, 0}, {1, 1}}})));
  CHECK(same(tril(full({2, 2}, nan_value)), tensor({{nan_value, 0.0}, {nan_value, nan_value}})));
}

TEST_CASE("softmax of numbers that lie far apart is 1 and exactly 0") {
  for (const DType dtype : {Float32, Float64}) {
    const auto weights = [&](const NestedList& x) {
      return softmax(tensor(x, {.dtype = dtype}), 0).to_vector<double>();
    };
    CHECK(weights({1.2345678e30, 1.11111e29, -1e30}) == std::vector<double>{1, 0, 0});
    CHECK(weights({3e30, -7e29}) == std::vector<double>{1, 0});
    CHECK(weights({-1e30, 1000, -1e30}) == std::vector<double>{0, 1, 0});
    // Longer than what stays in registers, and a fill that masks.
    std::vector<double> row(40, -1e9);
    row[3] = 100.3;
    const auto y = softmax(from_vector(row, {40}).to(dtype), 0).to_vector<double>();
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y[i] - (i == 3)) <= (i == 3 ? 1.2e-7 : 0));
    const auto three = weights({100.3, -1e9, 99});
    CHECK(three[1] == 0);
  }
  CHECK(softmax(test::f64({.3e200, -.77777777777e200, .1111111e200}), 0).to_vector<double>() ==
        std::vector<double>{1, 0, 0});
}
