#include <gradus/attention.h>
#include <gradus/autograd.h>
#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/mask.h>
#include <gradus/nn/attention.h>
#include <gradus/reduce.h>

#include <cmath>

#include "check.h"

namespace gradus::nn {
namespace {

constexpr const char* op = "MultiHeadAttention";

/// A mask of numbers says with non-zero what may be seen. One to be added (0 may, -inf may not) would mean the
/// opposite.
Tensor as_bool(const Tensor& mask, const char* caller) {
  if (!mask.defined() || mask.dtype() == Bool) return mask;
  const NoGradGuard guard;
  check(mask.numel() == 0 || amin(mask).item() >= 0, caller, "the mask ", mask,
        " holds negative numbers or NaN, as masks "
        "to be added do; here non-zero means may attend: pass mask == 0, or a Bool mask");
  return mask != 0;
}

/// The mask as [B or 1, h or 1, Lq or 1, Lk].
Tensor over_heads(const Tensor& mask, std::int64_t batch, std::int64_t heads, std::int64_t lq, std::int64_t lk) {
  const Shape all{batch, heads, lq, lk};
  const auto fits = [](std::int64_t size, std::int64_t whole) { return size == whole || size == 1; };
  const Shape& is = mask.shape();
  const std::int64_t rank = mask.dim();
  check(rank >= 2 && rank <= 4 && is[rank - 1] == lk && fits(is[rank - 2], lq) && (rank < 3 || fits(is[0], batch)) &&
            (rank < 4 || fits(is[1], heads)) && (rank > 2 || is[0] == lq),
        op, "mask shape ", is,
        " does not fit; expected shape [B, Lq, Lk], [B, 1, Lk] or [1, Lq, Lk] (or [B, h, Lq, Lk]) for ",
        "[B, h, Lq, Lk] = ", all, "; the last dim is always the keys");
  check(rank > 2 || batch != lq || batch == 1, op, "mask shape ", is,
        " could mean [Lq, Lk] or [B, Lk] as B = Lq; expected shape [1, Lq, Lk] (mask.unsqueeze(0)) or [B, 1, Lk] "
        "(mask.unsqueeze(1))");
  if (rank == 4) return mask;
  if (rank == 3) return mask.unsqueeze(1);
  return mask.unsqueeze(0).unsqueeze(0);
}

/// [B, L, d_model] → [B, h, L, d_model/h]
Tensor split_heads(const Tensor& x, std::int64_t h) {
  return x.view({x.size(0), x.size(1), h, x.size(2) / h}).transpose(1, 2);
}

/// [B, h, L, d] → [B, L, h·d]
Tensor join_heads(const Tensor& x) { return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)}); }

bool all_finite(const Tensor& x) {
  const NoGradGuard guard;
  return std::isfinite(sum(x).item());
}

/// x [B, L, d] with 0 in the rows that nobody sees, if x holds NaN or inf: the attention skips them, but the gradients
/// of the linear maps before it would meet them as 0·NaN. seen is [B, h, Lq, Lk] (some of them 1); `others` are its
/// dims that are not x's.
Tensor without_hidden(const Tensor& x, const Tensor& seen, const Shape& others) {
  if (all_finite(x)) return x;
  return masked_fill(x, !amax(seen, others).unsqueeze(-1), 0);
}

}  // namespace

Attention functional::attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                const Dropout* dropout) {
  check_defined(query, "attention", "query");
  check_defined(key, "attention", "key");
  check_defined(value, "attention", "value");
  check(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2 && query.size(-1) == key.size(-1) &&
            key.size(-2) == value.size(-2),
        "attention", "needs query [..., Lq, d], key [..., Lk, d] and value [..., Lk, dv], got ", query, ", ", key,
        " and ", value);
  Tensor weights = attention_weights(query, key, {.mask = as_bool(mask, "attention")});  // [..., Lq, Lk]
  if (dropout) weights = (*dropout)(weights);
  return {weighted_sum(weights, value), weights};  // [..., Lq, dv]
}

MultiHeadAttention::MultiHeadAttention(std::int64_t h, std::int64_t d_model, const MultiHeadAttentionOptions& options)
    : dropout(options.dropout), h_(h), d_model_(d_model) {
  check(h > 0 && d_model > 0, op, "sizes must be positive: h is ", h, ", d_model is ", d_model);
  check(d_model % h == 0, op, "h must divide d_model: h is ", h, ", d_model is ", d_model);
  linears = clones(Linear(d_model, d_model, {.bias = options.bias}), 4);
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const Tensor& mask) const {
  check(linears.size() == 4, op, "needs its 4 linears, has ", linears.size());
  check_defined(query, op, "query");
  check_defined(key, op, "key");
  check_defined(value, op, "value");
  check(query.dim() == 3 && key.dim() == 3 && key.shape() == value.shape() && query.size(0) == key.size(0) &&
            query.size(2) == d_model_ && key.size(2) == d_model_,
        op, "needs query [B, Lq, ", d_model_, "], key and value [B, Lk, ", d_model_, "], got ", query, ", ", key,
        " and ", value);
  Tensor seen, from = query, to = key, what = value;
  if (mask.defined()) {
    seen =
        as_bool(over_heads(mask, query.size(0), h_, query.size(1), key.size(1)), op);  // [B, h, Lq, Lk], some of them 1
    // Mostly all three are one tensor, and one look at it is enough. Without a history nobody needs it, but the bits
    // are to be those with one.
    if (!(query.is_same(key) && value.is_same(key) && all_finite(query))) {
      from = without_hidden(query, seen, {1, 3});
      to = without_hidden(key, seen, {1, 2});
      what = value.is_same(key) ? to : without_hidden(value, seen, {1, 2});
    }
  }
  const Tensor q = split_heads(linears[0](from), h_);  // [B, h, Lq, d]
  const Tensor k = split_heads(linears[1](to), h_);    // [B, h, Lk, d]
  const Tensor v = split_heads(linears[2](what), h_);  // [B, h, Lk, d]
  Tensor heads;                                        // [B, h, Lq, d]
  if (keep_) {
    const Attention result = attention(q, k, v, seen, &dropout);
    heads = result.output;
    weights_ = result.weights;  // [B, h, Lq, Lk]
  } else {
    heads = scaled_dot_product_attention(q, k, v, {.mask = seen, .dropout_p = dropout.training() ? dropout.p() : 0});
  }
  return linears[3](join_heads(heads));  // [B, Lq, d_model]
}

void MultiHeadAttention::keep_weights(bool keep) {
  keep_ = keep;
  if (!keep) weights_ = {};
}

const Tensor& MultiHeadAttention::weights() const {
  check(weights_.defined(), "MultiHeadAttention::weights", "none were kept; call keep_weights() and then the module");
  return weights_;
}

// torch.nn.MultiheadAttention keeps the maps of query, key and value in one matrix, one below the other.
void MultiHeadAttention::adopt_names(StateDict& state, const std::string& prefix) const {
  for (const std::string kind : {"weight", "bias"}) {
    if (const auto in = state.find(prefix + "in_proj_" + kind);
        in != state.end() && in->second.defined() && in->second.dim() > 0 && in->second.size(0) == 3 * d_model_) {
      const std::vector<Tensor> parts = in->second.chunk(3);
      state.erase(in);
      for (std::size_t i = 0; i < parts.size(); ++i)
        state.emplace(prefix + Fields::item("linears", i) + '.' + kind, parts[i]);
    }
    if (auto out = state.extract(prefix + "out_proj." + kind)) {
      out.key() = prefix + "linears.3." + kind;
      state.insert(std::move(out));
    }
  }
}

void MultiHeadAttention::fields(Fields& f) { f("linears", linears)("dropout", dropout); }
std::string MultiHeadAttention::extra() const {
  return "h=" + std::to_string(h_) + ", d_model=" + std::to_string(d_model_);
}

}  // namespace gradus::nn
