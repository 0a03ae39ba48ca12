// Random numbers: known answers, distributions, streams; and dropout.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("Philox4x32-10: the known answers of its authors") {
  // Zero key and counter give 6627e8d5 e169c58d bc57ac4c 9b00dbd8; a float is the upper 24 bits of a word.
  Generator generator(0);
  CHECK(rand({4}, {}, &generator).to_vector<float>() ==
        std::vector<float>{0x6627e8p-24f, 0xe169c5p-24f, 0xbc57acp-24f, 0x9b00dbp-24f});
  // A double is the upper 53 bits of two.
  generator.set_offset(0);
  CHECK(rand({2}, {.dtype = Float64}, &generator).to_vector<double>() ==
        std::vector<double>{static_cast<double>(0x6627e8d5e169c58d >> 11) * 0x1p-53,
                            static_cast<double>(0xbc57ac4c9b00dbd8 >> 11) * 0x1p-53});
}

TEST_CASE("a stream: seeds, offsets, resuming, and parts that do not overlap") {
  Generator a(7), b(7), c(8);
  const Tensor first = rand({5}, {}, &a), second = rand({5}, {}, &a);
  CHECK_FALSE(same(first, second));
  CHECK(same(rand({5}, {}, &b), first));
  CHECK_FALSE(same(rand({5}, {}, &c), first));
  CHECK(a.offset() == 4);  // five words are two blocks
  b.set_offset(2);
  CHECK(same(rand({5}, {}, &b), second));
  a.manual_seed(7);
  CHECK(same(rand({5}, {}, &a), first));
  manual_seed(3);
  const Tensor x = randn({10});
  manual_seed(3);
  CHECK(same(randn({10}), x));
  CHECK_FALSE(same(randn({10}), x));
  // A long draw begins as a short one does.
  Generator d(7), e(7);
  CHECK(same(rand({5000}, {}, &d).narrow(0, 0, 1111), rand({1111}, {}, &e)));
}

TEST_CASE("uniform and normal: moments and quantiles, in both precisions") {
  for (const DType dtype : {Float32, Float64}) {
    CAPTURE(name(dtype));
    Generator generator(11);
    const std::int64_t n = 400'000;
    const double error = 5 / std::sqrt(static_cast<double>(n));
    const Tensor u = rand({n}, {.dtype = dtype}, &generator).to(Float64);
    CHECK(amin(u).item() >= 0);
    CHECK(amax(u).item() < 1);
    CHECK(std::abs(mean(u).item() - 0.5) < 0.3 * error);
    CHECK(std::abs(mean(square(u)).item() - 1.0 / 3) < 0.3 * error);
    const Tensor z = randn({n}, {.dtype = dtype}, &generator).to(Float64);
    const double moments[] = {0, 1, 0, 3, 0, 15}, spread[] = {1, 1.5, 4, 10, 31, 102};
    for (int k = 0; k < 6; ++k) CHECK(std::abs(mean(pow(z, k + 1)).item() - moments[k]) < spread[k] * error);
    std::vector<double> sorted = z.to_vector<double>();
    std::sort(sorted.begin(), sorted.end());
    const std::pair<double, double> quantiles[] = {{0.001, -3.0902}, {0.01, -2.3263}, {0.1, -1.2816}, {0.25, -0.6745},
                                                   {0.5, 0},         {0.9, 1.2816},   {0.999, 3.0902}};
    for (const auto& [p, q] : quantiles)
      CHECK(std::abs(sorted[static_cast<std::size_t>(p * static_cast<double>(n))] - q) < 0.06);
    // Neighbours are not related.
    CHECK(std::abs(mean(z.narrow(0, 0, n - 1) * z.narrow(0, 1, n - 1)).item()) < error);
  }
}

TEST_CASE("uniform_ and normal_ fill views, and are refused on leaves that require grad") {
  Tensor x = zeros({4, 6}, {.dtype = Float64});
  Tensor view = x.slice(1, 0, {}, 2);
  Generator a(1), b(1);
  uniform_(view, 2, 3, &a);
  CHECK(same(view, uniform({4, 3}, 2, 3, 1)));
  CHECK(sum(x.slice(1, 1, {}, 2)).item() == 0);
  normal_(x, 100, 0, &b);
  CHECK(same(x, full({4, 6}, 100, {.dtype = Float64})));
  Tensor w = leaf({1, 2});
  CHECK(
      error_of([&] { normal_(w, 0, 1); }) ==
      "normal_: a leaf that requires grad cannot be changed in place: [2]; change it inside a NoGradGuard, or use the "
      "out-of-place op");
  CHECK(error_of([&] { uniform_(x, 1, 0); }) == "uniform_: low 1 lies above high 0");
  CHECK(error_of([&] { normal_(x, 0, -1); }) == "normal_: the standard deviation must not be negative, got -1");
  CHECK(error_of([] { rand({2}, {.dtype = Int64}); }) == "rand: needs Float32 or Float64, got Int64");
}

TEST_CASE("randint and randperm") {
  Generator generator(5);
  const Tensor x = randint(-3, 4, {70'000}, {}, &generator);
  CHECK(x.dtype() == Int64);
  for (int value = -3; value < 4; ++value) CHECK(std::abs(sum(x == value).item() - 10'000) < 500);
  CHECK(amin(x).item() == -3);
  CHECK(amax(x).item() == 3);
  CHECK(randint(0, 2, {3}, {.dtype = Float32}).dtype() == Float32);
  CHECK(error_of([] { randint(2, 2, {1}); }) == "randint: needs low < high, got 2 and 2");
  std::vector<std::int64_t> order = randperm(100, &generator).to_vector<std::int64_t>();
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  CHECK(order == arange(100).to_vector<std::int64_t>());
  CHECK(randperm(0).shape() == Shape{0});
}

TEST_CASE("the numbers do not depend on the number of threads") {
  const ThreadsGuard guard;
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Generator generator(2);
    const std::vector<Tensor> now = {rand({100'001}, {}, &generator), randn({100'001}, {.dtype = Float64}, &generator),
                                     randint(0, 1000, {100'001}, {}, &generator),
                                     dropout(ones({333, 1001}), 0.3, true, &generator)};
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(same(now[i], first[i]));
  }
}

TEST_CASE("D02: dropout with p = 0 and outside training is the input itself; with p = 1 nothing is left") {
  const Tensor x = ones({1'000'000});
  CHECK(dropout(x, 0).is_same(x));
  CHECK(dropout(x, 0.9, false).is_same(x));
  const std::uint64_t offset = default_generator().offset();
  dropout(x, 0);
  CHECK(default_generator().offset() == offset);
  const Tensor y = leaf({1, -2, infinity, nan_value});
  const Tensor none = dropout(y, 1);
  CHECK(same(none, f64({0, 0, 0, 0})));
  CHECK(same(gradient_of(none, y), f64({0, 0, 0, 0})));
}

TEST_CASE("dropout: rate, scale, and the same field in backward") {
  for (const double p : {0.1, 0.5, 0.9}) {
    for (const DType dtype : {Float32, Float64}) {
      CAPTURE(p);
      Generator generator(4);
      const Tensor x = uniform({200'003}, 1, 2, 3, dtype).requires_grad_();
      const Tensor y = dropout(x, p, true, &generator);
      const double dropped = sum(y == 0).item() / 200'003;
      CHECK(std::abs(dropped - p) < 0.006);
      const Tensor g = uniform({200'003}, 1, 2, 5, dtype);
      const Tensor dx = gradient_of(y, x, g);
      CHECK(same(dx == 0, y == 0));
      CHECK(close(y.detach(), where(y == 0, 0, x.detach() / (1 - p)), 1e-6));
      CHECK(close(dx, where(y == 0, 0, g / (1 - p)), 1e-6));
      CHECK(same(grad({y}, {x}, {g}, {.create_graph = true})[0].detach(), dx));
    }
  }
  // Every call draws anew; a view is dropped as its elements lie.
  Generator a(1), b(1);
  const Tensor x = uniform({30, 40}, 1, 2);
  CHECK_FALSE(same(dropout(x, 0.5, true, &a), dropout(x, 0.5, true, &a)));
  a.set_offset(0);
  CHECK(same(dropout(x.transpose(0, 1), 0.5, true, &a), dropout(x.transpose(0, 1).clone(), 0.5, true, &b)));
}

TEST_CASE("D05: an infinite or NaN element that is dropped leaves a 0") {
  for (const double value : {infinity, nan_value}) {
    Generator generator(6);
    const Tensor y = dropout(full({1000}, value), 0.5, true, &generator);
    const double zeros_seen = sum(y == 0).item();
    CHECK(zeros_seen > 400);
    CHECK(zeros_seen < 600);
    CHECK(sum(y != y).item() == (std::isnan(value) ? 1000 - zeros_seen : 0));
  }
}

TEST_CASE("D03: rates outside [0, 1]") {
  CHECK(error_of([] { dropout(ones({2}), -10); }) == "dropout: the probability must be in [0, 1], got -10");
  CHECK(mentions(error_of([] { dropout(ones({2}), 1.5); }), "[0, 1], got 1.5"));
  CHECK(mentions(error_of([] { dropout(ones({2}), nan_value); }), "[0, 1], got nan"));
  CHECK(error_of([] {
          dropout(tensor({1, 2}), 0.5);
        }) == "dropout: needs Float32 or Float64, got Int64 [2]; convert with to(Float32)");
}

TEST_CASE("uniform numbers lie below the upper bound, however they are rounded") {
  for (const DType dtype : {Float32, Float64}) {
    Tensor x = empty({4'000'000 / smaller}, {.dtype = dtype});
    uniform_(x, 1000, 1001);
    CHECK(amax(x).item() < 1001);
    CHECK(amin(x).item() >= 1000);
    uniform_(x, 1.0, 1.0000001);
    CHECK(amax(x).item() < 1.0000001);
    uniform_(x, 2, 2);
    CHECK(all(x == 2));
  }
}
