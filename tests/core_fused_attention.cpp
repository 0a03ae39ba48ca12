// Attention as one op, which holds no more weights than few keys have, against the form that holds all: the same
// values, gradients and gradients of gradients, for every mask, odd size and layout; and what only the fused form
// promises.
#include <gradus/attention.h>
#include <gradus/tape.h>
#include <gradus/threads.h>

#include <doctest/doctest.h>

#include <algorithm>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using test::close;
using test::infinity;
using test::nan_value;
using test::same;
using test::uniform;

namespace {

/// softmax(scale·Q·Kᵀ + mask) and its dropout as tensors of [..., Lq, Lk].
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const Tensor weights = attention_weights(q, k, options);
  return weighted_sum(dropout(weights, options.dropout_p, true, options.generator), v);
}

bool is_fused(const Tensor& y) {
  const auto nodes = tape(y);
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const TapeNode& node) { return node.op == "scaled_dot_product_attention"; });
}

struct Case {
  const char* about;
  Shape q, k, v;
  AttentionOptions options{};
};

/// True in about two thirds of the places.
Tensor some(const Shape& shape, std::uint64_t seed = 9) { return uniform(shape, 0, 1, seed) < 0.67; }
/// Numbers to be added, a third of them -inf.
Tensor bias(const Shape& shape, DType dtype) {
  return where(some(shape), uniform(shape, -2, 2, 4), -infinity).to(dtype);
}

std::vector<Case> cases(DType dtype) {
  const auto square = [](std::int64_t n, std::int64_t d) { return Shape{2, n, d}; };
  std::vector<Case> all = {
      {"one token", square(1, 1), square(1, 1), square(1, 1)},
      {"a few tokens", square(10, 16), square(10, 16), square(10, 16)},
      {"widths that are no vector", {2, 7, 5}, {2, 9, 5}, {2, 9, 3}},
      {"one more than a block", square(49, 8), square(97, 8), {2, 97, 20}},
      {"several blocks", square(150, 16), square(200, 16), square(200, 16)},
      {"a depth of several blocks", square(5, 300), square(6, 300), {2, 6, 270}},
      {"no leading dims", {12, 8}, {30, 8}, {30, 8}},
      {"leading dims that broadcast", {2, 3, 6, 8}, {3, 7, 8}, {2, 1, 7, 4}},
      {"one head, cut by its keys", {1, 300, 64}, {1, 500, 64}, {1, 500, 64}},
      {"a mask", square(60, 8), square(110, 8), square(110, 8), {.mask = some({60, 110})}},
      {"a mask for each head", square(20, 8), square(30, 8), square(30, 8), {.mask = some({2, 20, 30})}},
      {"keys that are padding", square(50, 8), square(120, 8), square(120, 8), {.mask = arange(120) < 40}},
      {"padding of its own for each head", square(5, 8), square(12, 8), square(12, 8), {.mask = some({2, 1, 12})}},
      {"queries that see nothing", square(9, 8), square(12, 8), square(12, 8), {.mask = some({9, 1})}},
      {"nothing is seen", square(4, 8), square(5, 8), square(5, 8), {.mask = zeros({4, 5}) != 0}},
      {"whole tiles hidden between others",
       square(100, 8),
       square(400, 8),
       square(400, 8),
       {.mask = (arange(400) < 90) || (arange(400) >= 290)}},
      {"a transposed mask", square(40, 8), square(30, 8), square(30, 8), {.mask = some({30, 40}).transpose(0, 1)}},
      {"numbers to add", square(60, 8), square(110, 8), square(110, 8), {.mask = bias({60, 110}, dtype)}},
      {"numbers to add for a row", square(20, 8), square(33, 8), square(33, 8), {.mask = bias({33}, dtype)}},
      {"causal", square(130, 8), square(130, 8), square(130, 8), {.is_causal = true}},
      {"causal, fewer keys", square(70, 8), square(20, 8), square(20, 8), {.is_causal = true}},
      {"causal from the end", square(30, 8), square(110, 8), square(110, 8), {.is_causal = true, .causal_offset = 80}},
      {"causal, the first see nothing",
       square(60, 8),
       square(60, 8),
       square(60, 8),
       {.is_causal = true, .causal_offset = -7}},
      {"causal, far off",
       square(6, 8),
       square(7, 8),
       square(7, 8),
       {.is_causal = true, .causal_offset = std::int64_t{1} << 62}},
      {"causal and a mask", square(50, 8), square(70, 8), square(70, 8), {.mask = some({50, 70}), .is_causal = true}},
      {"causal and numbers to add",
       square(50, 8),
       square(70, 8),
       square(70, 8),
       {.mask = bias({50, 70}, dtype), .is_causal = true}},
      {"a scale", square(9, 8), square(12, 8), square(12, 8), {.scale = -0.3}},
      {"dropout", square(10, 16), square(10, 16), square(10, 16), {.dropout_p = 0.3}},
      {"dropout over tiles", square(50, 8), square(201, 8), square(201, 8), {.mask = some({201}), .dropout_p = 0.5}},
      {"as many keys as a tile", square(30, 64), square(96, 64), square(96, 64), {.mask = some({96})}},
      {"one more key than a tile", square(30, 64), square(97, 64), square(97, 64), {.mask = some({97})}},
      {"few keys: causal", square(60, 32), square(40, 32), square(40, 32), {.is_causal = true}},
      {"few keys: the first queries see nothing",
       square(60, 32),
       square(40, 32),
       square(40, 32),
       {.is_causal = true, .causal_offset = -30}},
      {"few keys: dropout, causal and a mask",
       square(60, 32),
       square(40, 32),
       square(40, 32),
       {.mask = some({60, 40}), .is_causal = true, .dropout_p = 0.3}},
      {"dropout and causal", square(99, 8), square(99, 8), square(99, 8), {.is_causal = true, .dropout_p = 0.1}},
  };
  return all;
}

struct Result {
  Tensor y, dq, dk, dv;
};
template <class F>
Result run(const F& f, const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options) {
  Generator generator(5);
  options.generator = &generator;
  const Tensor y = f(q, k, v, options);
  // Not Σy: a random projection, so that every weight counts.
  const auto d = grad({(y * uniform(y.shape(), -1, 1, 7, y.dtype())).sum()}, {q, k, v});
  return {y.detach(), d[0], d[1], d[2]};
}

void compare(const Result& a, const Result& b, double tolerance) {
  CHECK(close(a.y, b.y, tolerance));
  CHECK(close(a.dq, b.dq, tolerance));
  CHECK(close(a.dk, b.dk, tolerance));
  CHECK(close(a.dv, b.dv, tolerance));
}

Tensor input(const Shape& shape, std::uint64_t seed, DType dtype) {
  return uniform(shape, -1, 1, seed, dtype).requires_grad_();
}

}  // namespace

TEST_CASE("fused attention gives the values and gradients of the composed form") {
  for (const DType dtype : {Float64, Float32}) {
    const double tolerance = dtype == Float64 ? 1e-13 : 2e-5;
    for (const Case& c : cases(dtype)) {
      CAPTURE(c.about);
      CAPTURE(dtype);
      const Tensor q = input(c.q, 1, dtype), k = input(c.k, 2, dtype), v = input(c.v, 3, dtype);
      const auto fused = [&](auto&&... a) {
        const Tensor y = scaled_dot_product_attention(a...);
        CHECK(is_fused(y));
        return y;
      };
      compare(run(fused, q, k, v, c.options), run(composed, q, k, v, c.options), tolerance);
    }
  }
}

// Heads whose keys fit one or two vectors have a way of their own, with sizes on both sides of it.
TEST_CASE("short heads give the values and gradients of the composed form") {
  const Shape widths[] = {{16, 16}, {8, 24}, {48, 16}, {12, 16}, {32, 8}, {16, 80}};
  for (const DType dtype : {Float64, Float32}) {
    std::size_t n = 0;
    for (const std::int64_t keys : {4, 5, 7, 8, 9, 13, 16, 17, 25, 32, 33})
      for (const std::int64_t queries : {4, 5, 6, 10, 11, 23, 97}) {
        const Shape& width = widths[n++ % std::size(widths)];
        const AttentionOptions masks[] = {
            {},
            {.is_causal = true, .scale = 0.7},
            {.is_causal = true, .causal_offset = keys - queries},
            {.mask = some({2, 1, keys}, n)},
            {.mask = some({queries, keys}, n), .is_causal = true, .causal_offset = 1},
            {.mask = some({keys, queries}, n).transpose(0, 1)},
            {.mask = bias({2, queries, keys}, dtype)},
        };
        for (AttentionOptions options : masks)
          for (const double p : {0., 0.4}) {
            options.dropout_p = p;
            CAPTURE(dtype);
            CAPTURE(queries);
            CAPTURE(keys);
            const Tensor q = input({2, queries, width[0]}, 1, dtype), k = input({2, keys, width[0]}, 2, dtype),
                         v = input({2, keys, width[1]}, 3, dtype);
            const Result fused = run(scaled_dot_product_attention, q, k, v, options);
            compare(fused, run(composed, q, k, v, options), dtype == Float64 ? 1e-13 : 2e-5);
            const NoGradGuard guard;  // no weights are kept then
            Generator generator(5);
            options.generator = &generator;
            CHECK(same(scaled_dot_product_attention(q, k, v, options), fused.y));
          }
      }
  }
}

// Were backward to compute scores in another way than forward did, e^(what they differ by) would show.
TEST_CASE("weights in backward are at most 1, however large the scores") {
  for (const DType dtype : {Float64, Float32})
    for (const double size : {10., 1e3, 1e6, 1e9})
      for (const std::int64_t keys : {5, 7, 16, 40})
        for (const std::int64_t d : {3, 4, 8, 12, 24, 48}) {
          CAPTURE(dtype);
          CAPTURE(size);
          CAPTURE(keys);
          CAPTURE(d);
          const Tensor q = uniform({1, 10, d}, -size, size, 1, dtype), k = uniform({1, keys, d}, -size, size, 2, dtype),
                       v = input({1, keys, 4}, 3, dtype);
          const Tensor g = uniform({1, 10, 4}, -1, 1, 4, dtype);
          const Tensor y = scaled_dot_product_attention(q, k, v);
          CHECK(is_fused(y));
          CHECK(amax(abs(grad({y}, {v}, {g})[0])).item() <= abs(g).sum().item() * 1.00001);
        }
}

TEST_CASE("fused attention reads heads where they lie, and keeps them there") {
  const Tensor x = input({2, 11, 3 * 8}, 1, Float32);
  const auto heads = [&](const Tensor& t) { return t.view({2, 11, 3, 8}).transpose(1, 2); };
  const Tensor q = heads(x), k = heads(x * 2), v = heads(x + 1);
  const Tensor y = scaled_dot_product_attention(q, k, v);
  CHECK(y.transpose(1, 2).is_contiguous());
  CHECK(close(y, composed(q, k, v, {}), 1e-5));
  // Columns that are not neighbours, and an upstream gradient that is one number everywhere.
  const Tensor a = input({8, 11}, 2, Float32);
  const auto both = [&](const auto& f) {
    return grad({f(a.transpose(0, 1), a.transpose(0, 1), a.transpose(0, 1)).sum()}, {a})[0];
  };
  CHECK(close(both([](auto&&... t) { return scaled_dot_product_attention(t...); }),
              both([](auto&&... t) { return composed(t..., {}); }), 1e-5));
}

TEST_CASE("gradients of gradients of fused attention are those of the composed form") {
  for (const bool one : {false, true}) {
    for (const AttentionOptions& options : {AttentionOptions{},
                                            {.mask = some({5, 6}), .is_causal = true},
                                            {.mask = bias({5, 6}, Float64)},
                                            {.dropout_p = 0.4}}) {
      CAPTURE(one);
      const auto second = [&](const auto& f) {
        Generator generator(3);
        AttentionOptions o = options;
        o.generator = &generator;
        const Tensor x = input({2, 6, 4}, 1, Float64), other = input({2, 6, 4}, 2, Float64);
        const Tensor q = x.narrow(1, 0, 5), k = one ? x : other, v = one ? x : other * 2;
        const Tensor y = f(q, k, v, o);
        const Tensor d = grad({(y * y).sum()}, {x}, {}, {.create_graph = true})[0];
        return grad({(d * uniform(d.shape(), -1, 1, 8)).sum()}, {x})[0];
      };
      const Tensor a = second([](auto&&... t) { return scaled_dot_product_attention(t...); });
      CHECK(close(a, second([](auto&&... t) { return composed(t...); }), 1e-11));
    }
  }
}

TEST_CASE("with and without create_graph fused attention has the same gradients, q = k = v too") {
  const Tensor x = input({2, 7, 4}, 1, Float64);
  const auto first = [&](bool create_graph) {
    const Tensor y = scaled_dot_product_attention(x, x, x, {.is_causal = true});
    return grad({(y * y).sum()}, {x}, {}, {.create_graph = create_graph})[0];
  };
  CHECK(close(first(true), first(false), 1e-13));
}

TEST_CASE("NaN and infinities behind a mask reach nothing, through fused attention too") {
  const Tensor mask = arange(8) < 6;
  for (const double bad : {nan_value, infinity, -infinity}) {
    CAPTURE(bad);
    const auto at = [&](const Tensor& t, bool poisoned) {
      Tensor x = t.clone();
      if (poisoned) x.narrow(1, 6, 2).fill_(bad);
      return x.requires_grad_();
    };
    const Tensor q = uniform({2, 4, 5}, -1, 1, 1), k = uniform({2, 8, 5}, -1, 1, 2), v = uniform({2, 8, 5}, -1, 1, 3);
    const auto attend = [&](bool poison_k, bool poison_v) {
      return run([](auto&&... t) { return scaled_dot_product_attention(t...); }, at(q, false), at(k, poison_k),
                 at(v, poison_v), {.mask = mask});
    };
    compare(attend(true, true), attend(false, false), 1e-12);
    compare(attend(true, false), attend(false, false), 1e-12);
  }
  // What is seen must show, beside numbers to be added too.
  for (const DType dtype : {Float32, Float64}) {
    const Tensor q = test::f64({{nan_value}, {1}}).to(dtype), k = test::f64({{1}, {2}}).to(dtype);
    for (const Tensor& added : {zeros({2, 2}), test::f64({{0, -infinity}, {0, 0}})}) {
      const Tensor y = scaled_dot_product_attention(q, k, k, {.mask = added});
      CHECK(test::any_nan(y.narrow(0, 0, 1)));
      CHECK_FALSE(test::any_nan(y.narrow(0, 1, 1)));
    }
  }
  const Tensor x = test::f64({{1, nan_value}, {3, 4}});
  CHECK(test::any_nan(scaled_dot_product_attention(x, x, x)));
}

TEST_CASE("NaN in one head leaves the gradients of another in range, where they are nearly too large") {
  // dk = ±scale·32·1e38/2 = ±2e38: no sum on the way may be eight times that.
  const Tensor q = zeros({2, 1, 64});
  q.at<float>({0, 0, 0}) = 32;
  const Tensor v = tensor({{{1e38}, {-1e38}}, {{1.0}, {2.0}}});
  for (const float other : {1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    const Tensor k = zeros({2, 2, 64}, {.requires_grad = true});
    const Tensor g = ones({2, 1, 1});
    g.at<float>({1, 0, 0}) = other;
    scaled_dot_product_attention(q, k, v).backward(g);
    CHECK(k.grad().at<float>({0, 0, 0}) == doctest::Approx(2e38));
    CHECK(k.grad().at<float>({0, 1, 0}) == doctest::Approx(-2e38));
  }
}

TEST_CASE("fused attention gives the same bits for 1, 2 and 3 threads") {
  const int before = num_threads();
  for (const std::int64_t heads : {1, 40}) {
    const Shape shape{heads, 260, 32};
    const auto attend = [&](int threads) {
      set_num_threads(threads);
      return run([](auto&&... t) { return scaled_dot_product_attention(t...); }, input(shape, 1, Float32),
                 input(shape, 2, Float32), input(shape, 3, Float32), {.is_causal = true, .dropout_p = 0.1});
    };
    const Result one = attend(1);
    for (const int threads : {2, 3}) {
      const Result more = attend(threads);
      CHECK(same(one.y, more.y));
      CHECK(same(one.dq, more.dq));
      CHECK(same(one.dk, more.dk));
      CHECK(same(one.dv, more.dv));
    }
  }
  set_num_threads(before);
}

TEST_CASE("a mask that learns takes the composed form; one that does not, does not") {
  const Tensor q = input({3, 4}, 1, Float64);
  const Tensor learns = input({3, 3}, 2, Float64);
  CHECK_FALSE(is_fused(scaled_dot_product_attention(q, q, q, {.mask = learns})));
  CHECK(is_fused(scaled_dot_product_attention(q, q, q, {.mask = learns.detach()})));
  // A mask with leading dims of its own gives them to the result.
  CHECK(scaled_dot_product_attention(q, q, q, {.mask = some({2, 3, 3})}).shape() == Shape{2, 3, 4});
}

TEST_CASE("fused attention saves its inputs, its result and two numbers a query; weights only where keys are few") {
  const Tensor q = input({1, 600, 8}, 1, Float32);
  const auto most_saved = [](const Tensor& y) {
    std::int64_t most = 0;
    for (const TapeNode& node : tape(y))
      for (const auto& saved : node.saved) most = std::max(most, saved.bytes);
    return most;
  };
  CHECK(most_saved(scaled_dot_product_attention(q, q, q, {.is_causal = true})) == 600 * 8 * 4);
  // As many keys as numbers that are saved of a query anyway, counted in whole vectors.
  const auto among = [&](std::int64_t keys) {
    const Tensor k = input({1, keys, 8}, 2, Float32);
    return most_saved(scaled_dot_product_attention(q, k, k));
  };
  CHECK(among(16) == 600 * 16 * 4);
  CHECK(among(17) == 600 * 8 * 4);
}

TEST_CASE("attention without a history keeps no weights, and gives the same bits") {
  const Tensor q = input({3, 30, 16}, 1, Float32);
  const auto attend = [&] {
    Generator generator(5);
    return scaled_dot_product_attention(q, q, q, {.is_causal = true, .dropout_p = 0.2, .generator = &generator});
  };
  const Tensor recorded = attend();
  const NoGradGuard guard;
  CHECK(same(recorded, attend()));
}
