// Elementwise ops: values, kinks, special numbers, dtypes.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("functions against the standard library, in Float64 and Float32, in every layout") {
  struct Row {
    const char* name;
    Tensor (*op)(const Tensor&);
    double (*wanted)(double);
    double low, high;
  };
  const Row rows[] = {
      {"exp", exp, std::exp, -20, 20},
      {"log", log, std::log, 1e-3, 1e3},
      {"sqrt", sqrt, std::sqrt, 0, 1e3},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-3, 1e3},
      {"square", square, [](double x) { return x * x; }, -9, 9},
      {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.1, 9},
      {"sin", sin, std::sin, -9, 9},
      {"cos", cos, std::cos, -9, 9},
      {"tanh", tanh, std::tanh, -9, 9},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -30, 30},
      {"relu", relu, [](double x) { return x > 0 ? x : 0; }, -9, 9},
      {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, -9, 9},
      {"gelu", [](const Tensor& x) { return gelu(x); }, [](double x) { return x * std::erfc(-x / std::sqrt(2)) / 2; },
       -9, 9},
      {"gelu_tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::Tanh); },
       [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1)) * (x + 0.044715 * x * x * x))); }, -5,
       5},
      {"neg", neg, [](double x) { return -x; }, -9, 9},
      {"abs", abs, [](double x) { return std::abs(x); }, -9, 9},
      {"sign", sign, [](double x) { return x > 0   ? 1.0
                                           : x < 0 ? -1.0
                                                   : 0.0; }, -9, 9},
  };
  for (const Row& row : rows) {
    for (const Layout layout : layouts) {
      CAPTURE(row.name);
      CAPTURE(name_of(layout));
      const Tensor x = laid_out({7, 11}, layout, row.low, row.high, 1).detach();
      std::vector<double> wanted;
      for (const double value : x.to_vector<double>()) wanted.push_back(row.wanted(value));
      CHECK(close(row.op(x), from_vector(wanted, {7, 11}), 1e-13));
      wanted.clear();
      const Tensor narrow = x.to(Float32);
      for (const float value : narrow.to_vector<float>()) wanted.push_back(row.wanted(double{value}));
      CHECK(close(row.op(narrow), from_vector(wanted, {7, 11}), 3e-6));
      CHECK(row.op(narrow).dtype() == Float32);
    }
  }
}

TEST_CASE("two operands in every layout and broadcast") {
  struct Row {
    const char* name;
    Tensor (*op)(const Tensor&, const Tensor&);
    double (*wanted)(double, double);
  };
  const Row rows[] = {{"add", add, [](double a, double b) { return a + b; }},
                      {"sub", sub, [](double a, double b) { return a - b; }},
                      {"mul", mul, [](double a, double b) { return a * b; }},
                      {"div", div, [](double a, double b) { return a / b; }},
                      {"pow", pow, [](double a, double b) { return std::pow(a, b); }},
                      {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
                      {"minimum", minimum, [](double a, double b) { return std::min(a, b); }}};
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 4, 5}, {3, 4, 5}}, {{3, 4, 5}, {4, 1}}, {{1, 5}, {3, 4, 1}}, {{3, 4, 5}, {}}};
  for (const Row& row : rows) {
    for (const auto& pair : shapes) {
      const Shape &sa = pair.first, &sb = pair.second;
      for (const Layout layout : layouts) {
        CAPTURE(row.name);
        CAPTURE(sa);
        CAPTURE(sb);
        CAPTURE(name_of(layout));
        const Tensor a = laid_out(sa, layout, 0.5, 3, 1).detach(), b = laid_out(sb, layout, 0.5, 3, 2).detach();
        const auto x = expand(a, {3, 4, 5}).to_vector<double>(), y = expand(b, {3, 4, 5}).to_vector<double>();
        std::vector<double> wanted;
        for (std::size_t i = 0; i < x.size(); ++i) wanted.push_back(row.wanted(x[i], y[i]));
        CHECK(close(row.op(a, b), from_vector(wanted, {3, 4, 5}), 1e-13));
      }
    }
  }
}

TEST_CASE("S04: kinks") {
  const auto slope = [](const Tensor& y, const Tensor& x) { return gradient_of(y, x).to_vector<double>(); };
  using Numbers = std::vector<double>;
  const Tensor x = leaf({0, -0.0, 2, -2});
  CHECK(slope(relu(x), x) == Numbers{0, 0, 1, 0});
  CHECK(slope(abs(x), x) == Numbers{0, 0, 1, -1});
  CHECK(slope(clamp(x, 0, 2), x) == Numbers{1, 1, 1, 0});
  CHECK(slope(clamp(x, -2, 0), x) == Numbers{1, 1, 0, 1});
  const Tensor a = leaf({0, 1, 2}), b = leaf({0, 2, 1});
  for (const Tensor& y : {maximum(a, b), minimum(a, b)}) {
    const auto da = slope(y, a), db = slope(y, b);
    CHECK(da[0] == 0.5);
    CHECK(db[0] == 0.5);
    for (std::size_t i = 0; i < 3; ++i) CHECK(da[i] + db[i] == 1);
  }
  CHECK(slope(maximum(a, b), a) == Numbers{0.5, 0, 1});
  CHECK(slope(minimum(a, b), a) == Numbers{0.5, 1, 0});
  CHECK(std::isnan(relu(f64(nan_value)).item()));
  CHECK(slope(sign(x), x) == Numbers{0, 0, 0, 0});
}

TEST_CASE("special numbers") {
  const Tensor special = f64({nan_value, infinity, -infinity, 0});
  CHECK(same(maximum(special, f64(1)), f64({nan_value, infinity, 1, 1})));
  CHECK(same(minimum(f64(1), special), f64({nan_value, 1, -infinity, 0})));
  CHECK(same(clamp(special, -1, 1), f64({nan_value, 1, -1, 0})));
  CHECK(same(exp(special), f64({nan_value, infinity, 0, 1})));
  CHECK(same(log(f64({-1, 0, infinity, 1})), f64({nan_value, -infinity, infinity, 0})));
  CHECK(same(tanh(special), f64({nan_value, 1, -1, 0})));
  CHECK(same(sigmoid(special), f64({nan_value, 1, 0, 0.5})));
  CHECK(same(relu(special), f64({nan_value, infinity, 0, 0})));
  CHECK(same(sqrt(f64({-1, infinity})), f64({nan_value, infinity})));
  CHECK(same(f64({1, -1, 0}) / 0, f64({infinity, -infinity, nan_value})));
  CHECK(same(pow(f64({0, 0, 2, nan_value}), f64({0, -1, 0.5, 0})), f64({1, infinity, std::sqrt(2), 1})));
  const Tensor s = sigmoid(tensor({-1e4, 1e4, -100.0}));
  CHECK(same(s.narrow(0, 0, 2), tensor({0.0, 1.0})));
  CHECK(s.at<float>({2}) == doctest::Approx(3.7835e-44).epsilon(0.02));
}

TEST_CASE("S02: the slope of sqrt at 0, and powers where logarithms have none") {
  const Tensor zero = leaf(0);
  CHECK(gradient_of(sqrt(zero), zero).item() == infinity);
  const Tensor base = leaf({0, 0, 2}), exponent = leaf({0, 2, 3});
  const Tensor y = pow(base, exponent);
  CHECK(close(y, f64({1, 0, 8}), 1e-14));
  CHECK(close(gradient_of(y, base), f64({0, 0, 12}), 1e-14));
  CHECK(close(gradient_of(y, exponent), f64({0, 0, 8 * std::log(2)}), 1e-14));
  const Tensor x = leaf({-2, 0, 3});
  CHECK(same(gradient_of(pow(x, 0), x), f64({0, 0, 0})));
  CHECK(same(gradient_of(pow(x, 1), x), f64({1, 1, 1})));
  CHECK(same(gradient_of(pow(x, 2), x), f64({-4, 0, 6})));
}

TEST_CASE("dtypes meet: Bool, Int64, Float32, Float64") {
  const DType order[] = {Bool, Int64, Float32, Float64};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const Tensor a = ones({2}, {.dtype = order[i]}), b = ones({2}, {.dtype = order[j]});
      const DType meet = order[std::max(i, j)];
      CHECK(maximum(a, b).dtype() == meet);
      CHECK(where(tensor({true, false}), a, b).dtype() == meet);
      CHECK(cat({a, b}).dtype() == meet);
      CHECK((a == b).dtype() == Bool);
      if (meet != Bool) CHECK(same(a + b, full({2}, 2, {.dtype = meet})));
      CHECK((a / b).dtype() == (is_floating(meet) ? meet : Float32));
    }
  }
  // A number never promotes a float tensor; a fraction makes integers Float32, a whole number makes Bool Int64.
  CHECK((ones({2}) * 2.5).dtype() == Float32);
  CHECK((ones({2}, {.dtype = Float64}) + 1).dtype() == Float64);
  CHECK((tensor({1, 2}) + 1).dtype() == Int64);
  CHECK((tensor({1, 2}) + 1.0).dtype() == Float32);
  CHECK(same(tensor({1, 2}) * 2.5, tensor({2.5, 5.0})));
  CHECK(same(tensor({true, false}) * 3, tensor({3, 0})));
  CHECK(same(1 - tensor({true, false}), tensor({0, 1})));
  CHECK(same(exp(tensor({0, 0})), tensor({1.0, 1.0})));
  CHECK(same(sqrt(tensor({4, 9})), tensor({2.0, 3.0})));
}

TEST_CASE("integers are exact") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Tensor x = tensor({big, -big});
  CHECK(same(x + tensor({1, 1}), tensor({big + 1, 1 - big})));
  CHECK(same(x * 3, tensor({big * 3, -big * 3})));
  CHECK(same(x - 0, x));
  CHECK(same(tensor({0, 1}) + big, tensor({big, big + 1})));
  CHECK(same(tensor({1, 2}) * big, tensor({big, 2 * big})));
  CHECK(same(big - tensor({0, 1}), tensor({big, big - 1})));
  CHECK(same(tensor({1, 2}) - big, tensor({1 - big, 2 - big})));
  CHECK(same(x == big, tensor({true, false})));
  CHECK(same(x == big - 1, tensor({false, false})));
  CHECK(same(abs(x), tensor({big, big})));
  CHECK(same(neg(x), tensor({-big, big})));
  CHECK(same(square(tensor({3, -4})), tensor({9, 16})));
  CHECK(same(pow(tensor({2, -3}), 3), tensor({8, -27})));
  CHECK(same(pow(2, tensor({0, 10})), tensor({1, 1024})));
  CHECK(same(relu(tensor({-1, 5})), tensor({0, 5})));
  CHECK(same(clamp(tensor({-9, 0, 9}), -1, 2), tensor({-1, 0, 2})));
  CHECK(same(clamp(tensor({-9, 0, 9}), 0.5), tensor({0.5, 0.5, 9.0})));
  CHECK(same(sign(tensor({-9, 0, 9})), tensor({-1, 0, 1})));
  CHECK(same(tensor({7, 1}) / tensor({2, 4}), tensor({3.5, 0.25})));
  CHECK(same(tensor({7, 1}) / 2, tensor({3.5, 0.5})));
}

TEST_CASE("comparisons") {
  const Tensor a = f64({1, 2, 3, nan_value}), b = f64({2, 2, 2, nan_value});
  CHECK(same(a == b, tensor({false, true, false, false})));
  CHECK(same(a != b, tensor({true, false, true, true})));
  CHECK(same(a < b, tensor({true, false, false, false})));
  CHECK(same(a <= b, tensor({true, true, false, false})));
  CHECK(same(a > b, tensor({false, false, true, false})));
  CHECK(same(a >= b, tensor({false, true, true, false})));
  CHECK(same(a >= 2, tensor({false, true, true, false})));
  CHECK(same(2 < a, a > 2));
  CHECK(same(2 <= a, a >= 2));
  CHECK(same(2 > a, a < 2));
  CHECK(same(2 >= a, a <= 2));
  CHECK(same(2 == a, a == 2));
  CHECK(same(2 != a, a != 2));
  CHECK(same(tensor({1, 2, 3}) > 1.5, tensor({false, true, true})));
  CHECK(same(tensor({1, 2, 3}) == 2.5, tensor({false, false, false})));
  CHECK(same(tensor({true, false}) == true, tensor({true, false})));
  CHECK(same(tensor({{1}, {2}}) == tensor({1, 2}), tensor({{true, false}, {false, true}})));
  CHECK(same(tensor({1, 2}) == f64({1, 2.5}), tensor({true, false})));
  for (const Layout layout : layouts) {
    const Tensor x = laid_out({3, 4}, layout, -1, 1, 1).detach(), y = laid_out({3, 4}, layout, -1, 1, 2).detach();
    CHECK(same(x < y, x.clone() < y.clone()));
  }
  const Tensor t = tensor({true, true, false, false}), u = tensor({true, false, true, false});
  CHECK(same(t && u, tensor({true, false, false, false})));
  CHECK(same(t || u, tensor({true, true, true, false})));
  CHECK(same(!t, tensor({false, false, true, true})));
  CHECK_FALSE((leaf({1, 2}) > 1).requires_grad());
}

TEST_CASE("to: conversions and their gradient") {
  CHECK(same(f64({1.9, -1.9, 0, nan_value}).to(Int64), tensor({1, -1, 0, 0})));
  CHECK(same(f64({0, 0.5, nan_value, -0.0}).to(Bool), tensor({false, true, true, false})));
  CHECK(same(tensor({true, false}).to(Float32), tensor({1.0, 0.0})));
  CHECK(same(tensor({0, 3, -1}).to(Bool), tensor({false, true, true})));
  const Tensor x = leaf({1, 2});
  CHECK(x.to(Float64).is_same(x));
  const Tensor y = x.to(Float32) * 3;
  CHECK(y.dtype() == Float32);
  CHECK(same(gradient_of(y, x), f64({3, 3})));
  CHECK_FALSE(x.to(Int64).requires_grad());
  // Mixed operands: each gradient comes back in its own dtype.
  const Tensor narrow = tensor({1.0, 2.0}, {.requires_grad = true});
  const Tensor mixed = narrow * x;
  CHECK(mixed.dtype() == Float64);
  CHECK(gradient_of(mixed, narrow).dtype() == Float32);
  CHECK(gradient_of(mixed, x).dtype() == Float64);
}

TEST_CASE("empty and 0-d operands") {
  const Tensor none = zeros({2, 0}, {.dtype = Float64});
  CHECK((none + f64(1)).shape() == Shape{2, 0});
  CHECK((none * zeros({2, 1})).shape() == Shape{2, 0});
  CHECK(exp(none).shape() == Shape{2, 0});
  CHECK((none < 1).shape() == Shape{2, 0});
  CHECK(same(f64(2) * f64(3), f64(6)));
  CHECK(same(-f64(2), f64(-2)));
  const Tensor x = zeros({0, 3}, {.dtype = Float64, .requires_grad = true}), s = leaf(2);
  sum(x * s).backward();
  CHECK(x.grad().shape() == Shape{0, 3});
  CHECK(s.grad().item() == 0);
}

TEST_CASE("S04: clamp between tensors; ties give to x, and of crossed bounds max wins") {
  //                     below, at lo, inside, at hi, above, crossed, all equal, below equal bounds
  const Tensor x = leaf({0, 1, 2, 3, 4, 2, 1, 0}), lo = leaf({1, 1, 1, 1, 1, 5, 1, 1}),
               hi = leaf({3, 3, 3, 3, 3, 3, 1, 1});
  const Tensor y = clamp(x, lo, hi);
  CHECK(same(y.detach(), f64({1, 1, 2, 3, 3, 3, 1, 1})));
  const Tensor dx = gradient_of(y, x), dlo = gradient_of(y, lo), dhi = gradient_of(y, hi);
  CHECK(same(dx, f64({0, 1, 1, 1, 0, 0, 1, 0})));
  CHECK(same(dlo, f64({1, 0, 0, 0, 0, 0, 0, 1})));
  CHECK(same(dhi, f64({0, 0, 0, 0, 1, 1, 0, 0})));
  CHECK(same((dx + dlo + dhi), ones({8}, {.dtype = Float64})));  // nothing is lost
  CHECK(same(clamp(x, lo).detach(), f64({1, 1, 2, 3, 4, 5, 1, 1})));
  CHECK(same(x.clamp({}, hi).detach(), f64({0, 1, 2, 3, 3, 2, 1, 0})));
  CHECK(same(gradient_of(clamp(x, lo), lo), f64({1, 0, 0, 0, 0, 1, 0, 1})));
  CHECK(same(gradient_of(clamp(x, Tensor(), hi), hi), f64({0, 0, 0, 0, 1, 0, 0, 0})));
}

TEST_CASE("clamp between tensors: broadcast, dtypes, NaN, infinities, no elements") {
  const Tensor x = count({2, 3}).requires_grad_(), lo = leaf({{1}, {4}}), hi = leaf(4);
  const Tensor y = clamp(x, lo, hi);
  CHECK(same(y.detach(), f64({{1, 1, 2}, {4, 4, 4}})));
  CHECK(same(gradient_of(y, lo), f64({{1}, {1}})));
  CHECK(same(gradient_of(y, hi), f64(1)));
  CHECK(clamp(f64(3), f64({1, 4})).shape() == Shape{2});
  CHECK(same(clamp(tensor({1, 5, 9}), tensor(2), tensor(6)), tensor({2, 5, 6})));
  CHECK(same(clamp(tensor({1, 5}), Tensor(), tensor(2)), tensor({1, 2})));
  CHECK(clamp(tensor({1, 5}), tensor(1.5)).dtype() == Float32);
  CHECK(same(clamp(f64({nan_value, -infinity, infinity, 1}), f64({0, 0, 0, nan_value}), f64(2)),
             f64({nan_value, 0, 2, nan_value})));
  const Tensor none = zeros({0, 3}, {.requires_grad = true}), bound = zeros({3}, {.requires_grad = true});
  CHECK(same(gradient_of(clamp(none, bound), bound), zeros({3})));
}

TEST_CASE("masked_fill with a tensor: its gradient is what the mask lets in") {
  const Tensor x = leaf({{1, 2}, {nan_value, 4}}), value = leaf(7), g = f64({{1, 10}, {100, nan_value}});
  const Tensor y = masked_fill(x, tensor({{false, true}, {true, false}}), value);
  CHECK(same(y.detach(), f64({{1, 7}, {7, 4}})));
  CHECK(same(gradient_of(y, x, g), f64({{1, 0}, {0, nan_value}})));
  CHECK(same(gradient_of(y, value, g), f64(110)));
  CHECK(same(x.masked_fill(tensor({true, false}), value).detach(), f64({{7, 2}, {7, 4}})));
  // Either may be the smaller one.
  const Tensor row = leaf({1, 2});
  const Tensor wide = masked_fill(row, tensor({{true, false}, {false, false}}), 9);
  CHECK(same(wide.detach(), f64({{9, 2}, {1, 2}})));
  CHECK(same(gradient_of(wide, row), f64({1, 2})));
  const Tensor single = leaf(5);
  CHECK(same(masked_fill(row, row == row, single.to(Float32)).detach(), f64({5, 5})));
  CHECK(masked_fill(tensor({1.0}), tensor({true}), single).dtype() == Float32);
  CHECK(same(masked_fill(tensor({1, 2}), tensor({true, false}), tensor(8)), tensor({8, 2})));
  CHECK(same(gradient_of(masked_fill(row, row < 0, value), value), f64(0)));
}

TEST_CASE("a bound of clamp that is NaN gives NaN") {
  CHECK(same(clamp(f64({1, 2}), nan_value, 2), f64({nan_value, nan_value})));
  CHECK(same(clamp(f64({1, 2}), 0, nan_value), f64({nan_value, nan_value})));
}
