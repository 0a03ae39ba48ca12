// Matrix products.
#include <doctest/doctest.h>

#include <cstdint>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

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
  // So deep and wide that it is packed in several parts, both ways.
  check_gemm<T>(7, 530, 5000, false, true, true, true);
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
