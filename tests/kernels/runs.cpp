// Kernels on plain runs: random numbers, dropout, and the steps of optimizers.
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

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
