// Attention on tensors: against plain loops, for every kind of mask, and with NaN and inf behind the masks.
#include <gradus/attention.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using test::close;
using test::error_of;
using test::f64;
using test::gradient_of;
using test::infinity;
using test::leaf;
using test::mentions;
using test::nan_value;
using test::same;
using test::uniform;

namespace {

/// One head by loops: q [Lq, d], k [Lk, d], v [Lk, dv]; bias [Lq, Lk] is added, and -inf in it hides.
Tensor by_loops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale) {
  Tensor y = zeros({q.size(0), v.size(1)}, {.dtype = Float64});
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    std::vector<double> weight(static_cast<std::size_t>(k.size(0)), 0);
    double total = 0;
    for (std::int64_t j = 0; j < k.size(0); ++j) {
      if (bias.at<double>({i, j}) == -infinity) continue;
      double score = bias.at<double>({i, j});
      for (std::int64_t c = 0; c < q.size(1); ++c) score += scale * q.at<double>({i, c}) * k.at<double>({j, c});
      total += weight[static_cast<std::size_t>(j)] = std::exp(score);
    }
    if (total == 0) continue;
    for (std::int64_t j = 0; j < k.size(0); ++j) {
      if (bias.at<double>({i, j}) == -infinity) continue;
      for (std::int64_t c = 0; c < v.size(1); ++c)
        y.at<double>({i, c}) += weight[static_cast<std::size_t>(j)] / total * v.at<double>({j, c});
    }
  }
  return y;
}

Tensor by_loops_batched(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale) {
  if (q.dim() == 2) return by_loops(q.contiguous(), k.contiguous(), v.contiguous(), bias.contiguous(), scale);
  std::vector<Tensor> parts;
  for (std::int64_t b = 0; b < q.size(0); ++b)
    parts.push_back(by_loops_batched(q.select(0, b), k.select(0, b), v.select(0, b), bias.select(0, b), scale));
  return stack(parts);
}

const double hidden = -infinity;

Tensor as_bias(const Tensor& seen) { return where(seen, zeros({}, {.dtype = Float64}), hidden); }

}  // namespace

TEST_CASE("attention equals plain loops for every broadcastable mask, with and without causal") {
  const Tensor q = uniform({2, 3, 4, 5}, -1, 1, 1), k = uniform({2, 3, 6, 5}, -1, 1, 2);
  const Tensor v = uniform({2, 3, 6, 2}, -1, 1, 3);
  const Tensor causal = arange(6) <= arange(4).unsqueeze(1);
  const NoGradGuard guard;
  for (int which = 0; which < 16; ++which) {
    Shape shape{2, 3, 4, 6};
    for (int i = 0; i < 4; ++i)
      if (which >> i & 1) shape[i] = 1;
    for (int drop = 0; drop < 4; ++drop) {  // leading dims may be missing
      if (drop > 0) shape = Shape(shape.begin() + 1, shape.end());
      CAPTURE(shape);
      const Tensor seen = uniform(shape, 0, 1, static_cast<std::uint64_t>(10 + which)) < 0.6;
      const Tensor bias = where(seen, uniform(shape, -2, 2, 9), hidden);
      const Tensor none = zeros({2, 3, 4, 6}, {.dtype = Float64});
      for (const bool is_causal : {false, true}) {
        const Tensor also = is_causal ? as_bias(causal) : zeros({4, 6}, {.dtype = Float64});
        const double scale = 1 / std::sqrt(5.0);
        CHECK(close(scaled_dot_product_attention(q, k, v, {.mask = seen, .is_causal = is_causal}),
                    by_loops_batched(q, k, v, none + as_bias(seen) + also, scale)));
        CHECK(close(scaled_dot_product_attention(q, k, v, {.mask = bias, .is_causal = is_causal, .scale = 0.3}),
                    by_loops_batched(q, k, v, none + bias + also, 0.3)));
      }
    }
  }
}

TEST_CASE("a mask may bring batch dims of its own") {
  const Tensor q = uniform({4, 5}, -1, 1, 1), k = uniform({6, 5}, -1, 1, 2), v = uniform({6, 2}, -1, 1, 3);
  const Tensor seen = uniform({3, 4, 6}, 0, 1, 4) < 0.6;
  const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = seen});
  REQUIRE(y.shape() == Shape{3, 4, 2});
  for (std::int64_t b = 0; b < 3; ++b)
    CHECK(close(y.select(0, b), scaled_dot_product_attention(q, k, v, {.mask = seen.select(0, b)})));
}

TEST_CASE("A05: masks of all kinds combine without NaN, and a finite mask hides nothing") {
  const double lowest = std::numeric_limits<float>::lowest();
  // One query whose scores are [0.5, 1, 2].
  const auto weights = [](DType dtype, const Tensor& mask) {
    const Tensor q = ones({1, 1}, {.dtype = dtype}), k = tensor({{0.5}, {1.0}, {2.0}}, {.dtype = dtype});
    return attention_weights(q, k, {.mask = mask}).to(Float64);
  };
  const auto added = [](double number, DType dtype) { return full({3}, number, {.dtype = dtype}); };
  CHECK(close(weights(Float32, added(-1e9, Float32)), full({1, 3}, 1.0 / 3, {.dtype = Float64}), 1e-6));
  CHECK(close(weights(Float64, added(-1e9, Float64)),
              f64({{0.14024438316608848, 0.2312238976221491, 0.6285317192117624}}), 1e-6));
  const Tensor twice = added(lowest, Float32) + added(lowest, Float32);
  CHECK(twice.to_vector<double>() == std::vector<double>(3, -infinity));
  CHECK(same(weights(Float32, twice), zeros({1, 3}, {.dtype = Float64})));
  CHECK(same(weights(Float32, tensor({false, false, false})), zeros({1, 3}, {.dtype = Float64})));

  // Any two of: hidden by causal, by -inf, by the lowest number, by a Bool mask. Rows see what nothing hides, or are 0.
  const Tensor q = uniform({3, 4}, -1, 1, 1, Float32).requires_grad_(), k = uniform({3, 4}, -1, 1, 2, Float32);
  for (const double number : {-infinity, lowest, 2 * lowest, 0.0}) {
    Tensor mask = zeros({3, 3});
    mask.copy_(where(tensor({{true, true, true}, {false, true, false}, {true, true, true}}),
                     full({}, number, {.dtype = Float32}), 0));
    for (const bool is_causal : {false, true}) {
      const Tensor p = attention_weights(q, k, {.mask = mask, .is_causal = is_causal});
      CHECK_FALSE(test::any_nan(p));
      CHECK_FALSE(test::any_nan(gradient_of(p, q, uniform({3, 3}, -1, 1, 3, Float32))));
    }
  }
}

TEST_CASE("A08: causal aligns top-left, and an offset moves it") {
  const auto rows = [](std::int64_t lq, std::int64_t lk, std::int64_t offset) {
    const Tensor zero = zeros({1, 1}, {.dtype = Float64}), v = test::count({lk, 1}, 1);
    return scaled_dot_product_attention(zero.expand({lq, 1}), zero.expand({lk, 1}), v,
                                        {.is_causal = true, .causal_offset = offset})
        .squeeze(1);
  };
  CHECK(close(rows(2, 4, 0), f64({1, 1.5})));
  CHECK(close(rows(4, 2, 0), f64({1, 1.5, 1.5, 1.5})));
  CHECK(close(rows(1, 4, 0), f64({1.0})));
  CHECK(close(rows(2, 4, 4 - 2), f64({2, 2.5})));
  CHECK(close(rows(4, 2, 2 - 4), f64({0, 0, 1, 1.5})));
  CHECK(close(rows(1, 4, 4 - 1), f64({2.5})));
  CHECK(close(rows(2, 2, std::numeric_limits<std::int64_t>::max()), f64({1.5, 1.5})));
  CHECK(close(rows(2, 2, std::numeric_limits<std::int64_t>::min() + 8), f64({0.0, 0.0})));
}

TEST_CASE("hidden keys and values may hold NaN or inf: neither values nor gradients of any order see them") {
  const Tensor seen = tensor({{true, false, true, false}, {true, true, false, false}, {false, false, false, false}});
  const auto result = [&](double bad, const Tensor& mask) {
    Tensor q = uniform({3, 2}, -1, 1, 1), k = uniform({4, 2}, -1, 1, 2), v = uniform({4, 2}, -1, 1, 3);
    for (Tensor* x : {&k, &v}) x->select(0, 3).fill_(bad);
    q.select(0, 2).fill_(bad);
    for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
    const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = mask});
    const Tensor g = uniform({3, 2}, -1, 1, 4);
    std::vector<Tensor> all = grad({y}, {q, k, v}, {g}, {.create_graph = true});
    const Tensor again = (all[0] * all[0]).sum() + (all[1] * all[2]).sum();
    for (const Tensor& second : grad({again}, {q, k, v})) all.push_back(second);
    all.push_back(y);
    return all;
  };
  const Tensor additive = as_bias(seen);
  const auto right = result(0.5, seen);
  for (const double bad : {nan_value, infinity, -infinity}) {
    for (const Tensor& mask : {seen, additive}) {
      const auto actual = result(bad, mask);
      for (std::size_t i = 0; i < actual.size(); ++i) {
        CAPTURE(i);
        CHECK(close(actual[i], right[i]));
      }
      CHECK(same(actual[0].select(0, 2), f64({0, 0})));  // the query that sees nothing
      CHECK(same(actual[1].select(0, 3), f64({0, 0})));  // the key and the value that nobody sees
      CHECK(same(actual[2].select(0, 3), f64({0, 0})));
      CHECK(same(actual.back().select(0, 2), f64({0, 0})));
    }
  }
  // Seen by one query and hidden from the other, it reaches the one only.
  Tensor v = uniform({2, 1}, -1, 1, 3);
  v.select(0, 1).fill_(infinity);
  const Tensor y = scaled_dot_product_attention(zeros({2, 1}, {.dtype = Float64}), zeros({2, 1}, {.dtype = Float64}), v,
                                                {.is_causal = true});
  CHECK(y.at<double>({0, 0}) == v.at<double>({0, 0}));
  CHECK(y.at<double>({1, 0}) == infinity);
}

TEST_CASE("weighted_sum is matmul with 0·x = 0") {
  const Tensor p = leaf({{0, 1}, {0.5, 0.5}}), v = leaf({{nan_value, infinity}, {1, 2}});
  const Tensor y = weighted_sum(p, v);
  CHECK(same(y, f64({{1, 2}, {nan_value, infinity}})));
  const Tensor a = uniform({2, 1, 3, 4}, -1, 1, 1), b = uniform({5, 4, 2}, -1, 1, 2);
  CHECK(same(weighted_sum(a, b), matmul(a, b)));
  CHECK(same(attention_scores(a, transpose(b, -2, -1)), matmul(a, b)));
  CHECK(weighted_sum(zeros({2, 0}), zeros({0, 3})).shape() == Shape{2, 3});
}

TEST_CASE("attention with no queries, no keys or no dims") {
  CHECK(scaled_dot_product_attention(zeros({0, 2}), zeros({3, 2}), zeros({3, 4})).shape() == Shape{0, 4});
  CHECK(same(scaled_dot_product_attention(zeros({2, 2}), zeros({0, 2}), zeros({0, 4})), zeros({2, 4})));
  CHECK(same(scaled_dot_product_attention(zeros({2, 0}), zeros({2, 0}), tensor({{1.0}, {3.0}})), full({2, 1}, 2.0)));
}

TEST_CASE("dropout works on the weights, from a generator of its own") {
  const Tensor q = uniform({3, 2}, -1, 1, 1), k = uniform({5, 2}, -1, 1, 2), v = uniform({5, 2}, -1, 1, 3);
  Generator one(7), two(7);
  const Tensor y = scaled_dot_product_attention(q, k, v, {.dropout_p = 0.4, .generator = &one});
  CHECK(close(y, matmul(dropout(attention_weights(q, k), 0.4, true, &two), v)));
  CHECK(same(scaled_dot_product_attention(q, k, v, {.dropout_p = 1}), zeros({3, 2}, {.dtype = Float64})));
}

TEST_CASE("attention refuses what does not fit, in its own words") {
  const Tensor q = zeros({2, 3, 4}), k = zeros({2, 5, 4}), v = zeros({2, 5, 6});
  CHECK(error_of([&] {
          scaled_dot_product_attention(q, zeros({2, 5, 3}), v);
        }) ==
        "scaled_dot_product_attention: needs query [..., Lq, d] and key [..., Lk, d], got [2, 3, 4] and [2, 5, 3]");
  CHECK(error_of([&] {
          scaled_dot_product_attention(q, k, zeros({2, 4, 6}));
        }) ==
        "scaled_dot_product_attention: needs key [..., Lk, d] and value [..., Lk, dv], got [2, 5, 4] and [2, 4, 6]");
  CHECK(error_of([&] {
          scaled_dot_product_attention(q, k, v, {.mask = ones({2, 5, 3}) == 1});
        }) ==
        "scaled_dot_product_attention: mask shape [2, 5, 3] does not fit; expected shape: one that broadcasts to "
        "[..., Lq, Lk] = [2, 3, 5]; the last dim is always the keys");
  CHECK(error_of([&] {
          scaled_dot_product_attention(q, k, v, {.mask = ones({3, 5}, {.dtype = Int64})});
        }) ==
        "scaled_dot_product_attention: the mask must be Bool (true = may attend) or a float to add, got Int64 [3, 5]; "
        "compare it (mask != 0)");
  CHECK(error_of([&] { scaled_dot_product_attention(q, k, v, {.dropout_p = -0.1}); }) ==
        "scaled_dot_product_attention: dropout_p must be in [0, 1], got -0.1");
  CHECK(error_of([&] { scaled_dot_product_attention(q, k, v, {.scale = nan_value}); }) ==
        "scaled_dot_product_attention: the scale must be finite, got nan");
  CHECK(mentions(error_of([&] { scaled_dot_product_attention(q, k.to(Float64), v); }), "dtypes differ"));
  CHECK(mentions(error_of([&] { scaled_dot_product_attention(q, k, {}); }), "the value is an undefined tensor"));
}
