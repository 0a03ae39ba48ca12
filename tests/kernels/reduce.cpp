// Reductions.
#include <doctest/doctest.h>

#include <cstdint>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

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
