// Products against plain loops, and their gradients.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

namespace {

/// [m, k]·[k, n] by three loops.
Tensor loops(const Tensor& a, const Tensor& b) {
  Tensor y = zeros({a.size(0), b.size(1)}, {.dtype = Float64});
  for (std::int64_t i = 0; i < a.size(0); ++i)
    for (std::int64_t j = 0; j < b.size(1); ++j)
      for (std::int64_t p = 0; p < a.size(1); ++p) y.at<double>({i, j}) += a.at<double>({i, p}) * b.at<double>({p, j});
  return y;
}

/// Batched and broadcast, for operands of at least two dims: the loops on each pair of matrices.
Tensor batched_loops(const Tensor& a, const Tensor& b, const Shape& batch) {
  Shape sa = batch, sb = batch;
  for (int i : {-2, -1}) {
    sa.push_back(a.size(i));
    sb.push_back(b.size(i));
  }
  const Tensor x = expand(a, sa).contiguous().view({-1, a.size(-2), a.size(-1)});
  const Tensor y = expand(b, sb).contiguous().view({-1, b.size(-2), b.size(-1)});
  std::vector<Tensor> products;
  for (std::int64_t i = 0; i < batch.numel(); ++i) products.push_back(loops(select(x, 0, i), select(y, 0, i)));
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return reshape(stack(products), shape);
}

}  // namespace

TEST_CASE("products of many sizes, in every layout of both operands, in both precisions") {
  std::uint64_t seed = 0;
  for (const auto& size : {std::array<std::int64_t, 3>{1, 1, 1},
                           {3, 5, 2},
                           {1, 40, 1},
                           {17, 1, 9},
                           {33, 65, 31},
                           {64, 64, 64},
                           {7, 300, 5},
                           {130, 3, 70}}) {
    const std::int64_t m = size[0], k = size[1], n = size[2];
    for (const Layout la : layouts) {
      for (const Layout lb : layouts) {
        CAPTURE(Shape({m, k, n}));
        CAPTURE(name_of(la));
        CAPTURE(name_of(lb));
        const Tensor a = laid_out({m, k}, la, -1, 1, ++seed), b = laid_out({k, n}, lb, -1, 1, ++seed);
        const Tensor wanted = loops(a.detach(), b.detach());
        CHECK(close(matmul(a, b), wanted, 1e-13));
        CHECK(close(matmul(a.to(Float32), b.to(Float32)), wanted, 1e-4));
        CHECK(close(linear(a, b.transpose(0, 1)), wanted, 1e-13));
      }
    }
  }
}

TEST_CASE("batches broadcast like NumPy's") {
  const Shape s[][3] = {{{2, 3, 4}, {2, 4, 5}, {2}},
                        {{2, 3, 4}, {4, 5}, {2}},
                        {{3, 4}, {2, 4, 5}, {2}},
                        {{2, 1, 3, 4}, {3, 4, 2}, {2, 3}},
                        {{1, 3, 2, 4}, {2, 1, 4, 1}, {2, 3}}};
  for (const auto& row : s) {
    const Shape &sa = row[0], &sb = row[1], &batch = row[2];
    for (const Layout layout : layouts) {
      CAPTURE(sa);
      CAPTURE(sb);
      CAPTURE(name_of(layout));
      const Tensor a = laid_out(sa, layout, -1, 1, 3), b = laid_out(sb, layout, -1, 1, 4);
      CHECK(close(matmul(a, b), batched_loops(a.detach(), b.detach(), batch), 1e-13));
    }
  }
  CHECK(same(bmm(count({2, 2, 3}), count({2, 3, 2})), matmul(count({2, 2, 3}), count({2, 3, 2}))));
}

TEST_CASE("L03: one-dimensional operands stand for a row or a column") {
  const Tensor a = leaf({{1, 2, 3}, {4, 5, 6}}), b = leaf({1, -1, 2});
  const Tensor y = matmul(a, b);
  CHECK(same(y, f64({5, 11})));
  y.backward(f64({1, 10}));
  CHECK(same(a.grad(), f64({{1, -1, 2}, {10, -10, 20}})));
  CHECK(same(b.grad(), f64({41, 52, 63})));

  const Tensor x = leaf({1, 2}), m = leaf({{1, 2, 3}, {4, 5, 6}});
  const Tensor z = matmul(x, m);
  CHECK(same(z, f64({9, 12, 15})));
  z.backward(f64({1, 2, 3}));
  CHECK(same(x.grad(), f64({14, 32})));
  CHECK(same(m.grad(), f64({{1, 2, 3}, {2, 4, 6}})));

  const Tensor u = leaf({1, 2, 3}), w = leaf({4, 5, 6});
  const Tensor inner = matmul(u, w);
  CHECK(same(inner, f64(32)));
  inner.backward();
  CHECK(same(u.grad(), f64({4, 5, 6})));
  CHECK(same(w.grad(), f64({1, 2, 3})));

  const Tensor batch = count({2, 2, 3}).requires_grad_(), v = leaf({1, 0, -1});
  const Tensor d = matmul(batch, v);
  CHECK(same(d, f64({{-2, -2}, {-2, -2}})));
  d.backward(f64({{1, 2}, {3, 4}}));
  CHECK(close(batch.grad(), f64({{{1, 0, -1}, {2, 0, -2}}, {{3, 0, -3}, {4, 0, -4}}})));
  CHECK(same(v.grad(), f64({60, 70, 80})));
}

TEST_CASE("L01: no inner size gives zeros, and empty products are empty") {
  {
    // What is freed here must not show through below.
    const Tensor stale = full({4, 3}, nan_value, {.dtype = Float64});
  }
  const Tensor a = zeros({4, 0}, {.dtype = Float64, .requires_grad = true});
  const Tensor b = zeros({0, 3}, {.dtype = Float64, .requires_grad = true});
  const Tensor y = matmul(a, b);
  CHECK(same(y, zeros({4, 3}, {.dtype = Float64})));
  y.backward(ones({4, 3}, {.dtype = Float64}));
  CHECK(a.grad().shape() == Shape{4, 0});
  CHECK(b.grad().shape() == Shape{0, 3});
  CHECK(matmul(zeros({0, 2, 3}), zeros({0, 3, 2})).shape() == Shape{0, 2, 2});
  CHECK(matmul(zeros({2, 3}), zeros({3, 0})).shape() == Shape{2, 0});
  CHECK(matmul(zeros({2, 0, 3}), zeros({3, 4})).shape() == Shape{2, 0, 4});
  CHECK(same(matmul(zeros({2, 3, 0}), zeros({0, 4})), zeros({2, 3, 4})));
  CHECK(same(matmul(zeros({0}), zeros({0})), zeros({})));
}

TEST_CASE("linear: bias, strided bias, empty sizes") {
  const Tensor x = uniform({2, 3, 4}, -1, 1, 1), w = uniform({5, 4}, -1, 1, 2), b = uniform({5}, -1, 1, 3);
  const Tensor wanted = matmul(x, w.transpose(0, 1)) + b;
  CHECK(close(linear(x, w, b), wanted));
  CHECK(close(linear(x, w), matmul(x, w.transpose(0, 1))));
  const Tensor pair = stack({b, b * 100}, 1);
  CHECK(close(linear(x, w, select(pair, 1, 0)), wanted));
  CHECK(close(linear(x, w, expand(f64({0.5}), {5})), matmul(x, w.transpose(0, 1)) + 0.5));
  CHECK(close(linear(x.transpose(0, 1), w, b), wanted.transpose(0, 1)));
  CHECK(close(linear(x.index({1, 2}), w, b), wanted.index({1, 2})));
  const auto empty_of = [](const Shape& s) { return zeros(s, {.dtype = Float64}); };
  CHECK(linear(empty_of({0, 4}), w, b).shape() == Shape{0, 5});
  CHECK(same(linear(empty_of({2, 3, 0}), empty_of({5, 0}), b), b.expand({2, 3, 5}).contiguous()));
  const Tensor wg = uniform({5, 4}, -1, 1).requires_grad_();
  linear(empty_of({0, 4}), wg, b).backward(empty_of({0, 5}));
  CHECK(same(wg.grad(), empty_of({5, 4})));
}

TEST_CASE("linear: the gradients of several maps of one input add up, in no tensor that others see") {
  manual_seed(5);
  const TensorOptions learned{.dtype = Float64, .requires_grad = true};
  for (const std::int64_t out : {3, 300}) {  // a product of one block, and of several
    CAPTURE(out);
    const Tensor x = randn({2, 7, 5}, learned);
    std::vector<Tensor> weights, upstream, results;
    Tensor expected = zeros({14, 5}, {.dtype = Float64});
    for (int i = 0; i < 3; ++i) {
      weights.push_back(randn({out, 5}, {.dtype = Float64}));
      upstream.push_back(randn({2, 7, out}, {.dtype = Float64}));
      results.push_back(linear(x, weights[static_cast<std::size_t>(i)]));
      expected = expected + loops(upstream.back().view({14, out}), weights.back());
    }
    const Tensor dx = grad(results, {x}, upstream, {.retain_graph = true})[0];
    CHECK(close(dx.view({14, 5}), expected, 1e-12));
    const Tensor again = grad(results, {x}, upstream, {.create_graph = true})[0];
    CHECK(close(again, dx, 1e-12));

    // What the caller gave for x itself comes first, and stays as it is.
    const Tensor copy = x * 1, given = randn({2, 7, 5}, {.dtype = Float64}), before = given.clone();
    const Tensor map = linear(copy, weights[0]);
    const Tensor both = grad({copy, map}, {x}, {given, upstream[0]})[0];
    CHECK(close(both.view({14, 5}), before.view({14, 5}) + loops(upstream[0].view({14, out}), weights[0]), 1e-12));
    CHECK(same(given, before));
  }
}

TEST_CASE("a product promotes, passes NaN on, and keeps what a row holds apart from the others") {
  CHECK(matmul(ones({2, 2}), ones({2, 2}, {.dtype = Float64})).dtype() == Float64);
  Tensor a = ones({3, 2}, {.dtype = Float64}), b = ones({2, 2}, {.dtype = Float64});
  a.at<double>({1, 0}) = nan_value;
  const Tensor y = matmul(a, b);
  CHECK(same(select(y, 0, 0), f64({2, 2})));
  CHECK(std::isnan(y.at<double>({1, 0})));
  CHECK(same(select(y, 0, 2), f64({2, 2})));
  // 0·inf is NaN, as in IEEE arithmetic.
  CHECK(any_nan(matmul(f64({{0, 1}}), f64({{infinity}, {1}}))));
}

TEST_CASE("a right operand with short rows is read where it lies: the same bits as of a packed one") {
  for (const DType dtype : {Float32, Float64}) {
    const std::int64_t widest = dtype == Float32 ? 64 : 32;  // 256 bytes
    for (const std::int64_t columns : {8, 16, 24, 32, 48, 64}) {
      if (columns > widest) continue;
      for (const std::int64_t rows : {5, 130}) {
        CAPTURE(dtype);
        CAPTURE(columns);
        CAPTURE(rows);
        const Tensor a = uniform({rows, 300}, -1, 1, 1, dtype);
        const Tensor wide = uniform({300, widest}, -1, 1, 2, dtype);
        for (const Tensor& b :
             {wide.narrow(1, widest - columns, columns), wide.narrow(0, 0, 1).expand({300, widest})}) {
          const Tensor columns_first = b.transpose(0, 1).contiguous().transpose(0, 1);
          CHECK(same(matmul(a, b), matmul(a, columns_first)));
        }
      }
    }
  }
}
