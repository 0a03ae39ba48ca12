#include "ops_table.h"

#include <doctest/doctest.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "core_values.h"

namespace gradus::test {

namespace {

using Inputs = std::vector<Tensor>;

/// A row of an op with one input.
template <class F>
OpRow one(const char* op, const char* about, const Shape& shape, F f, double low = -2, double high = 2) {
  return {op, about, {shape}, [f](const Inputs& x) { return f(x[0]); }, low, high};
}
template <class F>
OpRow two(const char* op, const char* about, const Shape& a, const Shape& b, F f, double low = -2, double high = 2) {
  return {op, about, {a, b}, [f](const Inputs& x) { return f(x[0], x[1]); }, low, high};
}
template <class F>
OpRow three(const char* op, const char* about, const Shape& a, const Shape& b, const Shape& c, F f) {
  return {op, about, {a, b, c}, [f](const Inputs& x) { return f(x[0], x[1], x[2]); }};
}

/// A Bool tensor, true with probability 0.6.
Tensor mask_of(const Shape& shape) { return uniform(shape, 0, 1, 77) < 0.6; }

void arithmetic(std::vector<OpRow>& rows) {
  const Shape s = {2, 3}, column = {2, 1}, row = {3}, deep = {2, 1, 3};
  rows.push_back(two("add", "equal shapes", s, s, [](auto& a, auto& b) { return a + b; }));
  rows.push_back(two("add", "broadcast", {2, 2, 3}, column, [](auto& a, auto& b) { return a + b; }));
  rows.push_back(two("add", "both broadcast", deep, {4, 1}, [](auto& a, auto& b) { return a + b; }));
  rows.push_back(two("add", "a 0-d tensor", s, {}, [](auto& a, auto& b) { return a + b; }));
  rows.push_back(one("add", "a number", s, [](auto& x) { return x + 3; }));
  rows.push_back(two("sub", "equal shapes", s, s, [](auto& a, auto& b) { return a - b; }));
  rows.push_back(two("sub", "broadcast", row, deep, [](auto& a, auto& b) { return a - b; }));
  rows.push_back(one("sub", "a number", s, [](auto& x) { return x - 3; }));
  rows.push_back(one("sub", "from a number", s, [](auto& x) { return 3 - x; }));
  rows.push_back(two("mul", "equal shapes", s, s, [](auto& a, auto& b) { return a * b; }));
  rows.push_back(two("mul", "broadcast", column, row, [](auto& a, auto& b) { return a * b; }));
  rows.push_back(one("mul", "a number", s, [](auto& x) { return x * 3; }));
  rows.push_back(two(
      "div", "equal shapes", s, s, [](auto& a, auto& b) { return a / b; }, 0.5, 2));
  rows.push_back(two(
      "div", "broadcast", row, column, [](auto& a, auto& b) { return a / b; }, 0.5, 2));
  rows.push_back(one("div", "by a number", s, [](auto& x) { return x / 3; }));
  rows.push_back(one(
      "div", "of a number", s, [](auto& x) { return 3 / x; }, 0.5, 2));
  rows.push_back(two(
      "pow", "equal shapes", s, s, [](auto& a, auto& b) { return pow(a, b); }, 0.5, 2));
  rows.push_back(two(
      "pow", "broadcast", column, row, [](auto& a, auto& b) { return pow(a, b); }, 0.5, 2));
  rows.push_back(one(
      "pow", "a fraction", s, [](auto& x) { return pow(x, 2.5); }, 0.5, 2));
  rows.push_back(one("pow", "a whole number", s, [](auto& x) { return pow(x, 3); }));
  rows.push_back(one("pow", "of a number", s, [](auto& x) { return pow(2.5, x); }));
  rows.push_back(two("maximum", "broadcast", s, column, [](auto& a, auto& b) { return maximum(a, b); }));
  rows.push_back(two("minimum", "broadcast", row, s, [](auto& a, auto& b) { return minimum(a, b); }));
}

void functions(std::vector<OpRow>& rows) {
  const Shape s = {2, 3};
  rows.push_back(one("neg", "", s, [](auto& x) { return -x; }));
  rows.push_back(one("abs", "", s, [](auto& x) { return abs(x); }));
  rows.push_back(one("sign", "times x", s, [](auto& x) { return sign(x) * x; }));
  rows.push_back(one("exp", "", s, [](auto& x) { return exp(x); }));
  rows.push_back(one(
      "log", "", s, [](auto& x) { return log(x); }, 0.5, 2));
  rows.push_back(one(
      "sqrt", "", s, [](auto& x) { return sqrt(x); }, 0.5, 2));
  rows.push_back(one(
      "rsqrt", "", s, [](auto& x) { return rsqrt(x); }, 0.5, 2));
  rows.push_back(one("square", "", s, [](auto& x) { return square(x); }));
  rows.push_back(one(
      "reciprocal", "", s, [](auto& x) { return reciprocal(x); }, 0.5, 2));
  rows.push_back(one("sin", "", s, [](auto& x) { return sin(x); }));
  rows.push_back(one("cos", "", s, [](auto& x) { return cos(x); }));
  rows.push_back(one("tanh", "", s, [](auto& x) { return tanh(x); }));
  rows.push_back(one("sigmoid", "", s, [](auto& x) { return sigmoid(x); }));
  rows.push_back(one("relu", "", s, [](auto& x) { return relu(x); }));
  rows.push_back(one("gelu", "", s, [](auto& x) { return gelu(x); }));
  rows.push_back(one("gelu_tanh", "", s, [](auto& x) { return gelu(x, GeluApproximation::Tanh); }));
  rows.push_back(one("gelu_slope", "the recorded gradient of gelu", s, [](auto& x) {
    Tensor at = x.requires_grad() ? x : x.detach().requires_grad_();
    const EnableGradGuard guard;
    return grad({gelu(at)}, {at}, {ones_like(at)}, {.create_graph = true})[0];
  }));
  rows.push_back(one("silu", "", s, [](auto& x) { return silu(x); }));
  rows.push_back(one("clamp", "both bounds", s, [](auto& x) { return clamp(x, -0.7, 0.9); }));
  rows.push_back(one("clamp", "one bound", s, [](auto& x) { return clamp(x, {}, 0.3); }));
  rows.push_back(three("clamp", "between tensors", s, {3}, {2, 1},
                       [](auto& x, auto& lo, auto& hi) { return clamp(x, lo, hi) + clamp(x, lo, lo + 0.5); }));
  rows.push_back(two("clamp", "from below", {3}, s, [](auto& x, auto& lo) { return clamp(x, lo); }));
  rows.push_back(two("clamp", "from above", s, {}, [](auto& x, auto& hi) { return clamp(x, {}, hi); }));
  rows.push_back(one("softplus", "", s, [](auto& x) { return softplus(x); }));
  rows.push_back(
      one("to", "there and back", s, [](auto& x) { return x.to(Float64) + (x * 0).to(Float32).to(Float64); }));
  rows.push_back(one("dropout", "the same field each time", {5, 4}, [](auto& x) {
    Generator generator(3);
    return dropout(x, 0.4, true, &generator);
  }));
}

void rows_of_numbers(std::vector<OpRow>& rows) {
  const Shape s = {3, 4}, deep = {2, 3, 2};
  rows.push_back(one("sum", "all", s, [](auto& x) { return sum(x); }));
  rows.push_back(one("sum", "two dims apart", deep, [](auto& x) { return sum(x, {0, -1}); }));
  rows.push_back(one("sum", "keepdim", deep, [](auto& x) { return sum(x, {1}, true); }));
  rows.push_back(one("mean", "all", s, [](auto& x) { return mean(x); }));
  rows.push_back(one("mean", "a dim in front", deep, [](auto& x) { return mean(x, {0}); }));
  rows.push_back(one("var", "all", s, [](auto& x) { return var(x); }));
  rows.push_back(one("var", "two dims apart", deep, [](auto& x) { return var(x, {0, -1}, 0); }));
  rows.push_back(one("var", "keepdim", deep, [](auto& x) { return var(x, {1}, 2, true); }));
  rows.push_back(one("std", "all", {2, 5}, [](auto& x) { return gradus::std(x, false); }));
  rows.push_back(one("std", "along the last", {2, 3, 3}, [](auto& x) { return gradus::std(x, -1); }));
  rows.push_back(one("logsumexp", "all", s, [](auto& x) { return logsumexp(x, {}); }));
  rows.push_back(one("logsumexp", "two dims apart", deep, [](auto& x) { return logsumexp(x, {0, 2}); }));
  rows.push_back(one("logsumexp", "keepdim", deep, [](auto& x) { return logsumexp(x, 1, true); }));
  rows.push_back(one("cumsum", "first dim", s, [](auto& x) { return cumsum(x, 0); }));
  rows.push_back(one("cumsum", "middle dim", deep, [](auto& x) { return cumsum(x, -2); }));
  rows.push_back(one("amax", "all", s, [](auto& x) { return amax(x); }));
  rows.push_back(one("amax", "a dim", deep, [](auto& x) { return amax(x, {1}, true); }));
  rows.push_back(one("amin", "two dims", deep, [](auto& x) { return amin(x, {0, 2}); }));
  rows.push_back(one("gather", "max along a dim", s, [](auto& x) { return max(x, 0).values; }));
  rows.push_back(one("gather", "min along a dim", s, [](auto& x) { return min(x, -1, true).values; }));
  rows.push_back(one("softmax", "last dim", s, [](auto& x) { return softmax(x, -1); }));
  rows.push_back(one("softmax", "middle dim", deep, [](auto& x) { return softmax(x, 1); }));
  rows.push_back(one("log_softmax", "last dim", s, [](auto& x) { return log_softmax(x, -1); }));
  rows.push_back(one("log_softmax", "first dim", deep, [](auto& x) { return log_softmax(x, 0); }));
  rows.push_back(one("masked_softmax", "one row hidden", s, [](auto& x) {
    return masked_softmax(x, logical_and(mask_of({3, 4}), tensor({{true}, {false}, {true}})));
  }));
  rows.push_back(one("masked_softmax", "a broadcast mask", deep, [](auto& x) {
    return masked_softmax(x, tensor({true, false}));
  }));
  rows.push_back(three("layer_norm", "with weight and bias", {2, 2, 4}, {4}, {4},
                       [](auto& x, auto& w, auto& b) { return layer_norm(x, w, b); }));
  rows.push_back(
      two("layer_norm", "with a bias alone", {3, 4}, {4}, [](auto& x, auto& b) { return layer_norm(x, {}, b, 0.1); }));
  rows.push_back(
      two("layer_norm", "with a weight alone", {3, 4}, {4}, [](auto& x, auto& w) { return layer_norm(x, w); }));
  rows.push_back(three("layer_norm", "two dims with weight and bias", {2, 2, 3}, {2, 3}, {2, 3},
                       [](auto& x, auto& w, auto& b) { return layer_norm(x, w, b, 0.1); }));
  rows.push_back(one("layer_norm", "every dim", {2, 3}, [](auto& x) { return layer_norm(x, {2, 3}); }));
  rows.push_back(one("layer_norm", "plain", {3, 4}, [](auto& x) { return layer_norm(x); }));
  rows.push_back(one("masked_fill", "", s, [](auto& x) { return masked_fill(x, mask_of({3, 4}), 7); }));
  rows.push_back(two("masked_fill", "a tensor, in a mask that is larger", {3, 1}, {}, [](auto& x, auto& v) {
    return masked_fill(x, mask_of({2, 3, 4}), v);
  }));
  rows.push_back(one("masked_fill", "tril", s, [](auto& x) { return tril(x, 1); }));
  rows.push_back(one("masked_fill", "triu", deep, [](auto& x) { return triu(x, -1); }));
  rows.push_back(two("where", "broadcast", {3, 1}, {4}, [](auto& a, auto& b) {
    return where(mask_of({2, 3, 4}), a, b);
  }));
  rows.push_back(one("where", "a number", s, [](auto& x) { return where(mask_of({4}), 2, x); }));
  rows.push_back(one("cross_entropy", "mean with everything", s, [](auto& x) {
    return cross_entropy(x, tensor({2, -1, 0}),
                         {.ignore_index = -1, .label_smoothing = 0.1, .weight = f64({1, 2, 3, 4})});
  }));
  rows.push_back(one("cross_entropy", "each row", s, [](auto& x) {
    return cross_entropy(x, tensor({2, -100, 0}), {.label_smoothing = 0.3, .reduction = Reduction::None});
  }));
  rows.push_back(one("cross_entropy", "one row", {4},
                     [](auto& x) { return cross_entropy(x, tensor(3), {.reduction = Reduction::Sum}); }));
  rows.push_back(one("cross_entropy", "places with classes in dim 1", {2, 3, 2, 2}, [](auto& x) {
    return cross_entropy(x, tensor({{{2, -100}, {0, 1}}, {{1, 1}, {2, 0}}}),
                         {.label_smoothing = 0.2, .weight = f64({1, 2, 3}), .reduction = Reduction::None});
  }));
  rows.push_back(two("weighted", "cross_entropy of distributions", {2, 3, 2}, {2, 3, 2}, [](auto& x, auto& q) {
    return cross_entropy(x, q, {.label_smoothing = 0.2, .weight = f64({1, 2, 3})});
  }));
  rows.push_back(two("weighted", "cross_entropy of one distribution", {3}, {3},
                     [](auto& x, auto& q) { return cross_entropy(x, q, {.reduction = Reduction::Sum}); }));
  rows.push_back(two("weighted", "binary_cross_entropy_with_logits", s, s, [](auto& x, auto& t) {
    return binary_cross_entropy_with_logits(x, t, {.weight = f64({1, 2, 3, 4}), .pos_weight = f64({{1}, {2}, {3}})});
  }));
  rows.push_back(one("gather", "nll_loss", s, [](auto& x) {
    return nll_loss(x * x, tensor({2, -1, 0}), {.ignore_index = -1, .weight = f64({1, 2, 3, 4})});
  }));
  rows.push_back(one("gather", "nll_loss of places", {2, 3, 2}, [](auto& x) {
    return nll_loss(x * x, tensor({{2, 1}, {-100, 0}}), {.reduction = Reduction::None});
  }));
  rows.push_back(two(
      "log", "kl_div", s, s, [](auto& x, auto& t) { return kl_div(x, t, {.reduction = Reduction::BatchMean}); }, 0.5,
      2));
  rows.push_back(two("exp", "kl_div", s, s, [](auto& x, auto& t) {
    return kl_div(x, t, {.reduction = Reduction::None, .log_target = true});
  }));
  rows.push_back(two("square", "mse_loss", s, s, [](auto& a, auto& b) { return mse_loss(a, b); }));
}

void products(std::vector<OpRow>& rows) {
  const auto product = [](auto& a, auto& b) { return matmul(a, b); };
  rows.push_back(two("matmul", "matrices", {2, 3}, {3, 4}, product));
  rows.push_back(two("matmul", "a batch and a matrix", {2, 2, 3}, {3, 2}, product));
  rows.push_back(two("matmul", "a matrix and a batch", {2, 3}, {2, 3, 2}, product));
  rows.push_back(two("matmul", "batches that broadcast", {2, 1, 2, 3}, {3, 3, 2}, product));
  rows.push_back(two("matmul", "a row in front", {3}, {2, 3, 2}, product));
  rows.push_back(two("matmul", "a column behind", {2, 2, 3}, {3}, product));
  rows.push_back(two("matmul", "an inner product", {3}, {3}, product));
  rows.push_back(two("matmul", "bmm", {2, 2, 3}, {2, 3, 2}, [](auto& a, auto& b) { return bmm(a, b); }));
  rows.push_back(
      two("attention_scores", "heads", {2, 2, 3}, {2, 4, 3}, [](auto& a, auto& b) { return attention_scores(a, b); }));
  rows.push_back(two("attention_scores", "batches that broadcast", {2, 1, 2, 3}, {3, 2, 3},
                     [](auto& a, auto& b) { return attention_scores(a, b); }));
  rows.push_back(
      two("weighted_sum", "heads", {2, 2, 3}, {2, 3, 4}, [](auto& p, auto& v) { return weighted_sum(p, v); }));
  rows.push_back(two("weighted_sum", "one table of values", {2, 2, 3}, {3, 2},
                     [](auto& p, auto& v) { return weighted_sum(p, v); }));
  rows.push_back(three("scaled_dot_product_attention", "attention with every kind of mask", {2, 3, 2}, {2, 4, 2},
                       {2, 4, 2}, [](auto& q, auto& k, auto& v) {
                         const Tensor bias = where(mask_of({3, 4}), uniform({3, 4}, -1, 1, 8), -infinity);
                         return scaled_dot_product_attention(q, k, v, {.mask = bias, .is_causal = true});
                       }));
  rows.push_back(three("scaled_dot_product_attention", "heads of different widths", {2, 1, 3, 2}, {2, 2, 4, 2},
                       {2, 2, 4, 3}, [](auto& q, auto& k, auto& v) { return scaled_dot_product_attention(q, k, v); }));
  rows.push_back(three("scaled_dot_product_attention", "attention with dropped weights", {2, 3, 2}, {2, 4, 2},
                       {2, 4, 2}, [](auto& q, auto& k, auto& v) {
                         Generator generator(1);
                         return scaled_dot_product_attention(q, k, v, {.dropout_p = 0.5, .generator = &generator});
                       }));
  rows.push_back(three("attention_scores", "attention with an additive mask that learns", {3, 2}, {4, 2}, {2, 3, 4},
                       [](auto& q, auto& k, auto& bias) { return attention_weights(q, k, {.mask = bias}); }));
  rows.push_back(
      three("linear", "a batch", {2, 2, 3}, {4, 3}, {4}, [](auto& x, auto& w, auto& b) { return linear(x, w, b); }));
  rows.push_back(two("linear", "a row without bias", {3}, {2, 3}, [](auto& x, auto& w) { return linear(x, w); }));
}

void shapes(std::vector<OpRow>& rows) {
  const Shape s = {3, 4}, deep = {2, 3, 2};
  rows.push_back(one("reshape", "", deep, [](auto& x) { return reshape(x, {4, -1}); }));
  rows.push_back(one("transpose", "", deep, [](auto& x) { return transpose(x, 0, -1); }));
  rows.push_back(one("permute", "", deep, [](auto& x) { return permute(x, {2, 0, 1}); }));
  rows.push_back(one("unsqueeze", "", s, [](auto& x) { return unsqueeze(x, 1); }));
  rows.push_back(one("squeeze", "all", {3, 1, 2, 1}, [](auto& x) { return squeeze(x); }));
  rows.push_back(one("squeeze", "a dim", {3, 1, 2}, [](auto& x) { return squeeze(x, 1); }));
  rows.push_back(one("expand", "", {3, 1}, [](auto& x) { return expand(x, {2, -1, 4}); }));
  rows.push_back(one("contiguous", "", s, [](auto& x) { return contiguous(transpose(x, 0, 1)); }));
  rows.push_back(one("overwritten", "by a constant", s, [](auto& x) {
    Tensor y = x * 2;
    y.fill_(3);
    return y + square(x);
  }));
  rows.push_back(one("clone", "", s, [](auto& x) { return clone(x); }));
  rows.push_back(one("flip", "", deep, [](auto& x) { return flip(x, {0, -1}); }));
  rows.push_back(three("cat", "", {2, 2}, {2, 1}, {2, 3}, [](auto& a, auto& b, auto& c) { return cat({a, b, c}, 1); }));
  rows.push_back(two("cat", "stack", s, s, [](auto& a, auto& b) { return stack({a, b}, 1); }));
  rows.push_back(one("slice", "", {5, 4}, [](auto& x) { return slice(slice(x, 0, 1, -1, 2), 1, 2, {}); }));
  rows.push_back(one("slice", "index", {3, 4, 2}, [](auto& x) { return x.index({1, None, Ellipsis, Slice(0, 2)}); }));
  rows.push_back(one("slice", "parts", {5, 2}, [](auto& x) {
    const auto parts = split(x, 2);
    return parts[0] * parts[1] + unbind(parts[2])[0];
  }));
  rows.push_back(one("slice_scatter", "", {2, 3}, [](auto& x) { return slice_scatter(x, 1, 8, 1, 3); }));
  rows.push_back(one("embedding", "repeated indices", s, [](auto& x) {
    return embedding(x, tensor({{1, 1}, {2, 0}}));
  }));
  rows.push_back(one("embedding_scatter", "", {2, 2, 3}, [](auto& x) {
    return embedding_scatter(x, tensor({{3, 0}, {0, 1}}), 4, 1);
  }));
  rows.push_back(one("index_select", "", deep, [](auto& x) { return index_select(x, 1, tensor({2, 0, 2})); }));
  rows.push_back(one("gather", "", s, [](auto& x) { return gather(x, 1, tensor({{0, 0, 3}, {1, 2, 1}})); }));
  rows.push_back(one("index", "tensors side by side", deep, [](auto& x) {
    return x.index({Slice(), tensor({{2, -1}, {0, 2}}), {1, 0}});
  }));
  rows.push_back(one("index", "tensors apart", deep, [](auto& x) {
    return x.index({{1, 1, 0}, Slice(1, 3), {0, 0, -1}});
  }));
  rows.push_back(one("index", "a mask", s, [](auto& x) { return x.index({mask_of({3, 4}), None}); }));
  rows.push_back(two("index_put", "a view", s, {2, 1}, [](auto& x, auto& v) {
    return index_put(x, {Slice(0, 3, 2), Slice(1, {})}, v);
  }));
  rows.push_back(two("index_put", "repeated indices", deep, {3}, [](auto& x, auto& v) {
    return index_put(x, {1, {0, 2, 0}, {1, 1, 1}}, v);
  }));
  rows.push_back(two("index_put", "accumulate", deep, {4, 2}, [](auto& x, auto& v) {
    return index_put(x, {Slice(), {0, 2, 0, 1}}, v, true);
  }));
  rows.push_back(two("index_put", "in place, a mask", s, {}, [](auto& x, auto& v) {
    Tensor y = x * 1;
    return y.index_put_({mask_of({3, 4})}, v);
  }));
  rows.push_back(two("scatter_add", "", s, {2, 4}, [](auto& x, auto& y) {
    return scatter_add(x, 0, tensor({{0, 1, 0, 2}, {0, 1, 2, 2}}), y);
  }));
}

}  // namespace

const std::vector<OpRow>& ops_table() {
  static const std::vector<OpRow> table = [] {
    std::vector<OpRow> rows;
    arithmetic(rows);
    functions(rows);
    rows_of_numbers(rows);
    products(rows);
    shapes(rows);
    return rows;
  }();
  return table;
}

std::set<std::string> ops_on_tape(const Tensor& y) {
  std::set<std::string> ops;
  for (const TapeNode& node : tape(y))
    if (!node.is_leaf) ops.insert(node.op);
  return ops;
}

namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// A source without comments and white space.
std::string dense(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text, line;
  while (std::getline(file, line)) text += line.substr(0, line.find("//"));
  std::erase_if(text, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  return text;
}

/// Every name that the library's sources hand to record or one of its kin, directly or through one of the helpers
/// below.
std::set<std::string> ops_in_sources() {
  std::set<std::string> ops, helpers;
  for (const char* part : {"core", "nn", "optim"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(GRADUS_TEST_DIR) + "/../" + part + "/src")) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = dense(entry.path());
      for (const std::string call : {"record(", "record_together(", "record_list(", "same_elements(", "copied(",
                                     "extreme(", "lookup(", "rows_added("}) {
        for (std::size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
          std::size_t first = at + call.size();
          if (text.compare(first, 8, "Reduce::") == 0) first = text.find(',', first) + 1;
          const bool literal = text[first] == '"';
          std::size_t last = first += literal;
          while (in_word(text[last])) ++last;
          const std::string word = text.substr(first, last - first);
          if (literal) ops.insert(word);
          if (!literal && call.starts_with("record") && text[last] == ',')
            helpers.insert(entry.path().filename().string() + ": record(" + word + ", ...)\n");
        }
      }
    }
  }
  // A new helper that is handed the name must join the list of calls above, and then this one.
  std::string passed_on;
  for (const std::string& helper : helpers) passed_on += helper;
  CHECK(passed_on == "layout.cpp: record(op, ...)\nlookup.cpp: record(op, ...)\nreduce.cpp: record(name, ...)\n");
  return ops;
}

}  // namespace

TEST_CASE("each op that the library can record stands in the table, and each row records its op") {
  std::set<std::string> in_table, on_tape;
  for (const OpRow& row : ops_table()) {
    CAPTURE(row.op);
    CAPTURE(row.about);
    in_table.insert(row.op);
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < row.shapes.size(); ++i)
      inputs.push_back(uniform(row.shapes[i], row.low, row.high, i).requires_grad_());
    const Tensor y = row.f(inputs);
    CHECK(ops_on_tape(y).count(row.op) == 1);
    on_tape.merge(ops_on_tape(y));
  }
  const auto listed = [](const std::set<std::string>& ops) {
    std::string text;
    for (const std::string& op : ops) text += op + " ";
    return text;
  };
  CHECK(listed(in_table) == listed(ops_in_sources()));
  CHECK(listed(on_tape) == listed(in_table));
}

}  // namespace gradus::test
