// Attention against plain loops, what masks hide, and how heads are split.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "json.h"
#include "throws.h"

using namespace gradus;
using test::disagreement;
using test::error_of;
using test::mentions;

namespace {

constexpr TensorOptions float64{.dtype = Float64};
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Tensor random64(const Shape& shape, bool requires_grad = true) {
  return randn(shape, {.dtype = Float64, .requires_grad = requires_grad});
}

struct Loops {
  std::vector<double> output, dq, dk, dv;
};

/// Attention of one [Lq, d], [Lk, d], [Lk, dv] and its gradients for the upstream g [Lq, dv], written out.
Loops attention_by_loops(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                         const Tensor& upstream) {
  const auto lq = static_cast<std::size_t>(query.size(0)), lk = static_cast<std::size_t>(key.size(0));
  const auto d = static_cast<std::size_t>(query.size(1)), dv = static_cast<std::size_t>(value.size(1));
  const auto q = query.to_vector<double>(), k = key.to_vector<double>(), v = value.to_vector<double>();
  const auto g = upstream.to_vector<double>();
  const auto see = mask.to_vector<bool>();
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  Loops r{std::vector<double>(lq * dv), std::vector<double>(lq * d), std::vector<double>(lk * d),
          std::vector<double>(lk * dv)};
  for (std::size_t i = 0; i < lq; ++i) {
    std::vector<double> p(lk), dp(lk);
    double total = 0, inner = 0;
    for (std::size_t j = 0; j < lk; ++j) {
      if (!see[i * lk + j]) continue;
      double score = 0;
      for (std::size_t c = 0; c < d; ++c) score += q[i * d + c] * k[j * d + c];
      total += p[j] = std::exp(score * scale);
    }
    for (std::size_t j = 0; j < lk; ++j) {
      if (!see[i * lk + j]) continue;
      p[j] /= total;
      for (std::size_t c = 0; c < dv; ++c) {
        r.output[i * dv + c] += p[j] * v[j * dv + c];
        r.dv[j * dv + c] += p[j] * g[i * dv + c];
        dp[j] += g[i * dv + c] * v[j * dv + c];
      }
      inner += p[j] * dp[j];
    }
    for (std::size_t j = 0; j < lk; ++j) {
      const double ds = p[j] * (dp[j] - inner) * scale;
      for (std::size_t c = 0; c < d; ++c) {
        r.dq[i * d + c] += ds * k[j * d + c];
        r.dk[j * d + c] += ds * q[i * d + c];
      }
    }
  }
  return r;
}

/// Linear maps that pass their input through.
void make_identity(nn::MultiHeadAttention& module, std::int64_t d) {
  const NoGradGuard no_grad;
  for (nn::Linear& linear : module.linears) {
    linear.weight.copy_(eye(d));
    if (linear.bias.defined()) linear.bias.zero_();
  }
}

}  // namespace

TEST_CASE("attention equals plain loops, values and gradients") {
  manual_seed(3);
  const Tensor q = random64({5, 3}), k = random64({4, 3}), v = random64({4, 2}), g = random64({5, 2}, false);
  const Tensor mask = tensor({{true, false, true, true},
                              {true, true, true, true},
                              {false, false, false, false},
                              {false, false, true, false},
                              {false, true, true, false}});
  const nn::Attention result = nn::attention(q, k, v, mask);
  (result.output * g).sum().backward();
  const Loops expected = attention_by_loops(q, k, v, mask, g);
  CHECK(disagreement(result.output, from_vector(expected.output, {5, 2})) <= 1);
  CHECK(disagreement(q.grad(), from_vector(expected.dq, {5, 3})) <= 1);
  CHECK(disagreement(k.grad(), from_vector(expected.dk, {4, 3})) <= 1);
  CHECK(disagreement(v.grad(), from_vector(expected.dv, {4, 2})) <= 1);
  CHECK(disagreement(result.weights.sum({-1}), tensor({1.0, 1.0, 0.0, 1.0, 1.0}, float64)) <= 1);
}

TEST_CASE("without a mask every key is seen, with batches and heads in front") {
  manual_seed(4);
  const Tensor q = random64({2, 3, 5, 4}), k = random64({2, 3, 6, 4}), v = random64({2, 3, 6, 4});
  const Tensor all = nn::attention(q, k, v).output;
  CHECK(disagreement(all, nn::attention(q, k, v, ones({6})).output) <= 1);  // a mask of numbers: 0 hides
  const Tensor one =
      nn::attention(q.select(0, 1).select(0, 2), k.select(0, 1).select(0, 2), v.select(0, 1).select(0, 2)).output;
  CHECK(disagreement(all.select(0, 1).select(0, 2), one) <= 1);
}

TEST_CASE("A01: a query that may attend to nothing gives exactly 0 and sends exactly 0 back") {
  const auto leaf = [](const NestedList& data) { return tensor(data, {.dtype = Float64, .requires_grad = true}); };
  const Tensor q = leaf({{{1, 0}, {0, 1}}}), k = leaf({{{1, 0}, {0, 1}, {1, 1}}});
  const Tensor v = leaf({{{1, 2}, {3, 4}, {5, 6}}});
  const Tensor mask = tensor({{{true, false, true}, {false, false, false}}});
  const Tensor y = nn::attention(q, k, v, mask).output;
  (y * tensor({{{1, 2}, {3, 4}}}, float64)).sum().backward();
  CHECK(y.to_vector<double>() == std::vector<double>{3, 4, 0, 0});
  const double s = 2.1213203435596424;
  CHECK(disagreement(q.grad(), tensor({{{0.0, s}, {0.0, 0.0}}}, float64)) <= 1);
  CHECK(disagreement(k.grad(), tensor({{{-s, 0.0}, {0.0, 0.0}, {s, 0.0}}}, float64)) <= 1);
  CHECK(disagreement(v.grad(), tensor({{{0.5, 1.0}, {0.0, 0.0}, {0.5, 1.0}}}, float64)) <= 1);
  CHECK(q.grad().select(1, 1).abs().sum().item() == 0);
}

TEST_CASE("A06: NaN in a hidden key or value reaches neither output nor gradients") {
  const Tensor q = tensor({{1, 2}}, float64), k = tensor({{1.0, 0.0}, {not_a_number, not_a_number}}, float64);
  const Tensor v = tensor({{3, 4}, {5, 6}}, float64);
  const Tensor mask = tensor({{true, false}});
  CHECK(nn::attention(q, k, v, mask).output.to_vector<double>() == std::vector<double>{3, 4});
  CHECK(nn::attention(q, k, k, mask).output.to_vector<double>() == std::vector<double>{1, 0});

  // The same for a whole module: what padding holds changes neither its output nor a parameter's gradient.
  manual_seed(8);
  nn::MultiHeadAttention module(2, 4);
  module.to(Float64);
  const Tensor seen = tensor({{{true, true, false}}, {{true, true, true}}});  // [B, 1, Lk]
  const auto gradients = [&](double padding) {
    manual_seed(9);
    Tensor x = randn({2, 3, 4}, {.dtype = Float64});
    x.select(0, 0).select(0, 2).fill_(padding);
    x.requires_grad_();
    module.zero_grad();
    const Tensor y = module(x.slice(1, 0, 2), x, x, seen);
    (y * randn({2, 2, 4}, {.dtype = Float64})).sum().backward();
    std::vector<Tensor> all{y.detach(), x.grad()};
    for (const Tensor& parameter : module.parameters()) all.push_back(parameter.grad());
    return all;
  };
  const auto right = gradients(0.5);
  CHECK(right[1].select(0, 0).select(0, 2).to_vector<double>() == std::vector<double>{0, 0, 0, 0});
  for (const double bad : {not_a_number, std::numeric_limits<double>::infinity()}) {
    const auto actual = gradients(bad);
    for (std::size_t i = 0; i < right.size(); ++i) {
      CAPTURE(i);
      CHECK(disagreement(actual[i], right[i]) <= 1);
    }
  }
}

TEST_CASE("what padding holds changes no bit, with a history or without") {
  manual_seed(8);
  const nn::MultiHeadAttention module(4, 32);
  const Tensor seen = tensor({10, 7}).view({2, 1, 1}) > arange(10);  // [B, 1, Lk]: the second has three of padding
  const auto results = [&](double padding) {
    manual_seed(9);
    Tensor x = randn({2, 10, 32});
    const Tensor query = x.clone();
    x.select(0, 1).slice(0, 7, 10).fill_(padding);
    std::vector<Tensor> all;
    {
      const NoGradGuard guard;
      all.push_back(module(query, x, x, seen));
      all.push_back(module(x, x, x, seen).slice(1, 0, 7).clone());  // as a query it is seen: by itself
    }
    all.push_back(module(query, x, x, seen).detach());
    return all;
  };
  const auto right = results(0);
  for (const double padding : {0.5, 1e18, 1e30, 3e38, not_a_number, std::numeric_limits<double>::infinity()}) {
    CAPTURE(padding);
    const auto actual = results(padding);
    CHECK(actual[0].to_vector<float>() == actual[2].to_vector<float>());
    CHECK(actual[0].to_vector<float>() == right[0].to_vector<float>());
    if (padding <= 1e30) CHECK(actual[1].to_vector<float>() == right[1].to_vector<float>());
  }
}

TEST_CASE("attention refuses what does not fit, naming the shapes") {
  CHECK(error_of([] {
          nn::attention(zeros({2, 3}), zeros({2, 4}), zeros({2, 4}));
        }) ==
        "attention: needs query [..., Lq, d], key [..., Lk, d] and value [..., Lk, dv], got [2, 3], [2, 4] and [2, 4]");
  CHECK(error_of([] { nn::attention({}, zeros({2, 4}), zeros({2, 4})); }) == "attention: query is an undefined tensor");
}

TEST_CASE("A11: heads are split and joined without mixing tokens") {
  nn::MultiHeadAttention module(2, 4);
  make_identity(module, 4);
  const Tensor x = tensor({{{1, 2, 3, 4}, {5, 6, 7, 8}}}, {.dtype = Float32});
  CHECK(module(x, x, x, eye(2).unsqueeze(0)).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("each head attends in dims of its own") {
  manual_seed(5);
  nn::MultiHeadAttention module(2, 4, {.bias = false});
  make_identity(module, 4);
  module.to(Float64);
  const Tensor q = random64({3, 5, 4}, false), kv = random64({3, 6, 4}, false);
  const Tensor both = module(q, kv, kv);
  for (std::int64_t head = 0; head < 2; ++head) {
    const auto part = [&](const Tensor& x) { return x.narrow(2, 2 * head, 2); };
    CHECK(disagreement(part(both), nn::attention(part(q), part(kv), part(kv)).output) <= 1);
  }
}

TEST_CASE("all forms of a mask mean the same") {
  manual_seed(6);
  const nn::MultiHeadAttention module(2, 4);
  const Tensor q = randn({3, 5, 4}), kv = randn({3, 6, 4});
  const auto run = [&](const Tensor& mask) { return module(q, kv, kv, mask).to_vector<float>(); };
  const Tensor keys = tensor({true, true, false, true, false, false});          // [Lk]
  const auto expected = run(keys.unsqueeze(0).unsqueeze(0).expand({3, 5, 6}));  // [B, Lq, Lk]
  CHECK(expected != run({}));
  CHECK(run(keys.unsqueeze(0).unsqueeze(0).expand({3, 1, 6})) == expected);
  CHECK(run(keys.unsqueeze(0).unsqueeze(0).expand({1, 5, 6})) == expected);
  CHECK(run(keys.unsqueeze(0).expand({5, 6})) == expected);
  CHECK(run(keys.unsqueeze(0).expand({2, 1, 6}).unsqueeze(0)) == expected);
  CHECK(run(keys.to(Float32).unsqueeze(0).expand({5, 6}) * 3) == expected);  // numbers: non-zero = may attend
}

TEST_CASE("A10: masks are over the keys; what does not fit or could mean two things is refused") {
  // Four tokens, the last two of them padding, equal scores: every query takes the mean of the first two.
  const Tensor zero = zeros({1, 1, 4, 1}, float64), values = tensor({{{{1}, {2}, {3}, {4}}}}, float64);
  const Tensor padding = tensor({true, true, false, false}).view({1, 1, 1, 4});
  CHECK(nn::attention(zero, zero, values, padding).output.to_vector<double>() == std::vector<double>(4, 1.5));
  CHECK(nn::attention(zero, zero, values, padding.transpose(-2, -1)).output.to_vector<double>() ==
        std::vector<double>{2.5, 2.5, 0, 0});  // a mask over queries is another thing

  const nn::MultiHeadAttention module(2, 4);
  const auto text = [&](std::int64_t batch, std::int64_t length, const Shape& mask) {
    const Tensor x = zeros({batch, length, 4});
    return error_of([&] { module(x, x, x, ones(mask)); });
  };
  CHECK(text(3, 5, {3, 5}) ==
        "MultiHeadAttention: mask shape [3, 5] does not fit; expected shape [B, Lq, Lk], [B, 1, Lk] or [1, Lq, Lk] (or "
        "[B, h, Lq, Lk]) for [B, h, Lq, Lk] = [3, 2, 5, 5]; the last dim is always the keys");
  CHECK(mentions(text(3, 5, {3, 1, 5, 1}), "mask shape [3, 1, 5, 1] does not fit"));  // hides queries, not keys
  CHECK(mentions(text(3, 5, {2, 5, 5}), "does not fit"));
  CHECK(mentions(text(3, 5, {3, 3, 5, 5}), "does not fit"));
  CHECK(mentions(text(3, 5, {5}), "does not fit"));
  CHECK(mentions(text(3, 5, {1, 3, 2, 5, 5}), "does not fit"));
  CHECK(text(5, 5, {5, 5}) ==
        "MultiHeadAttention: mask shape [5, 5] could mean [Lq, Lk] or [B, Lk] as B = Lq; expected shape [1, Lq, Lk] "
        "(mask.unsqueeze(0)) or [B, 1, Lk] (mask.unsqueeze(1))");
  CHECK(text(1, 1, {1, 1}).empty());
}

TEST_CASE("MultiHeadAttention refuses sizes that do not fit") {
  CHECK(error_of([] { nn::MultiHeadAttention(3, 8); }) ==
        "MultiHeadAttention: h must divide d_model: h is 3, d_model is 8");
  CHECK(mentions(error_of([] { nn::MultiHeadAttention(0, 8); }), "sizes must be positive"));
  const nn::MultiHeadAttention module(2, 4);
  const Tensor x = zeros({2, 3, 4});
  CHECK(error_of([&] {
          module(x, zeros({2, 5, 4}), x);
        }) ==
        "MultiHeadAttention: needs query [B, Lq, 4], key and value [B, Lk, 4], got [2, 3, 4], [2, 5, 4] and [2, 3, 4]");
  CHECK_FALSE(error_of([&] { module(zeros({3, 4}), x, x); }).empty());
  CHECK_FALSE(error_of([&] { module(zeros({1, 3, 4}), x, x); }).empty());
  CHECK_FALSE(error_of([&] { module(zeros({2, 3, 6}), x, x); }).empty());
}

TEST_CASE("weights are kept when asked, and dropout works on them") {
  nn::MultiHeadAttention module(2, 4, {.dropout = 0.5});
  const Tensor x = randn({3, 5, 4});
  module(x, x, x);
  CHECK(error_of([&] { module.weights(); }) ==
        "MultiHeadAttention::weights: none were kept; call keep_weights() and then the module");
  module.keep_weights();
  module(x, x, x);
  CHECK(module.weights().shape() == Shape{3, 2, 5, 5});
  CHECK((module.weights() == 0).sum().item<int>() > 0);
  module.eval();
  module(x, x, x, nn::subsequent_mask(5));
  CHECK(disagreement(module.weights().sum({-1}), ones({3, 2, 5}), 1e-6) <= 1);
  CHECK(module.weights().triu(1).abs().sum().item() == 0);
  module.keep_weights(false);
  CHECK_FALSE(error_of([&] { module.weights(); }).empty());
}

TEST_CASE("the four maps of MultiHeadAttention are parameters under PyTorch-like names") {
  const nn::MultiHeadAttention module(2, 4);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"linears.0.weight", "linears.0.bias", "linears.1.weight", "linears.1.bias",
                                          "linears.2.weight", "linears.2.bias", "linears.3.weight", "linears.3.bias"});
  CHECK(module.num_parameters() == 4 * (16 + 4));
  CHECK(nn::MultiHeadAttention(2, 4, {.bias = false}).num_parameters() == 4 * 16);
}

TEST_CASE("masks") {
  CHECK(nn::subsequent_mask(3).shape() == Shape{1, 3, 3});
  CHECK(nn::subsequent_mask(3).to_vector<bool>() ==
        std::vector<bool>{true, false, false, true, true, false, true, true, true});
  CHECK(nn::subsequent_mask(0).shape() == Shape{1, 0, 0});
  const Tensor tokens = tensor({{5, 6, 0}, {7, 0, 0}});
  CHECK(nn::padding_mask(tokens, 0).shape() == Shape{2, 1, 3});
  CHECK(nn::padding_mask(tokens, 0).to_vector<bool>() == std::vector<bool>{true, true, false, true, false, false});
  const Tensor both = nn::padding_mask(tokens, 0) && nn::subsequent_mask(3);
  CHECK(both.shape() == Shape{2, 3, 3});
  CHECK(both.select(0, 1).to_vector<bool>() ==
        std::vector<bool>{true, false, false, true, false, false, true, false, false});
  CHECK(error_of([] { nn::padding_mask(tensor({1, 2}), 0); }) == "padding_mask: tokens must be [B, L], are [2]");
  CHECK(mentions(error_of([] { nn::subsequent_mask(-1); }), "must not be negative"));
}

TEST_CASE("a mask that was made to be added is refused where non-zero means may attend") {
  const nn::MultiHeadAttention module(2, 4);
  const Tensor x = zeros({1, 2, 4}), additive = full({1, 2, 2}, -std::numeric_limits<double>::infinity()).triu(1);
  CHECK(
      error_of([&] { module(x, x, x, additive); }) ==
      "MultiHeadAttention: the mask [1, 1, 2, 2] holds negative numbers or NaN, as masks to be added do; here non-zero "
      "means may attend: pass mask == 0, or a Bool mask");
  CHECK(mentions(error_of([&] { nn::attention(x, x, x, additive); }), "attention: the mask [1, 2, 2] holds negative"));
  CHECK(mentions(error_of([&] { nn::attention(x, x, x, full({2}, not_a_number)); }), "or NaN"));
}
