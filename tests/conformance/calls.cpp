// How this library is called for each op that PyTorch's samples know.
#include <doctest/doctest.h>

#include <filesystem>

#include "sample.h"

namespace gradus::test {

namespace {

using Tensors = std::vector<Tensor>;

/// f(input)
Run unary(Tensor (*f)(const Tensor&)) {
  return [f](Call& c) { return Tensors{f(c.input())}; };
}
/// f(input, other)
Run binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](Call& c) { return Tensors{f(c.input(), c.tensor(0, "other"))}; };
}
/// f(input, dims, keepdim)
Run reduction(Tensor (*f)(const Tensor&, const Shape&, bool)) {
  return [f](Call& c) { return Tensors{f(c.input(), c.dims(0, "dim"), c.flag(1, "keepdim", false))}; };
}
/// f(input, dim)
Run along(Tensor (*f)(const Tensor&, std::int64_t)) {
  return [f](Call& c) { return Tensors{f(c.input(), c.integer(0, "dim", 0))}; };
}
/// f(input, shape)
Run shaped(Tensor (*f)(const Tensor&, const Shape&)) {
  return [f](Call& c) { return Tensors{f(c.input(), c.dims(0, "size"))}; };
}

/// max and min: two tensors, along a dim, or of all.
Run extreme(Tensor (*two)(const Tensor&, const Tensor&),
            ValuesAndIndices (*along_dim)(const Tensor&, std::int64_t, bool), Tensor (*all)(const Tensor&)) {
  return [=](Call& c) -> Tensors {
    const Json* arg = c.raw(0, "other");
    if (!arg) return {all(c.input())};
    if (is_tagged(*arg, "tensor")) return {two(c.input(), c.tensor(0, "other"))};
    const auto [values, indices] = along_dim(c.input(), c.integer(0, "dim", 0), c.flag(1, "keepdim", false));
    return {values, indices};
  };
}

Reduction reduction_of(Call& c, std::size_t place) {
  const std::string name = c.text(place, "reduction", "mean");
  if (name == "mean") return Reduction::Mean;
  if (name == "sum") return Reduction::Sum;
  if (name == "none") return Reduction::None;
  if (name == "batchmean") return Reduction::BatchMean;
  throw NotOffered("reduction=" + name);
}

/// var and std: a correction, or whether to be unbiased, which may be the only argument.
Run spread(Tensor (*f)(const Tensor&, const Shape&, std::int64_t, bool)) {
  return [f](Call& c) {
    const Json* first = c.raw(0, "dim");
    if (first && first->is_boolean()) return Tensors{f(c.input(), {}, first->get<bool>(), false)};
    const std::int64_t correction = c.integer(9, "correction", c.flag(1, "unbiased", true));
    return Tensors{f(c.input(), c.dims(0, "dim"), correction, c.flag(2, "keepdim", false))};
  };
}

/// An entry of input[...].
Index entry_of(const Call& c, const Json& json) {
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_array()) return json.get<std::vector<std::int64_t>>();
  if (is_tagged(json, "tensor")) return c.tensor_of(json);
  if (is_tagged(json, "ellipsis")) return Ellipsis;
  if (!is_tagged(json, "slice")) throw NotOffered("index " + json.dump());
  const auto bound = [&](std::size_t i) {
    const Json& number = json.at("slice")[i];
    return number.is_null() ? std::optional<std::int64_t>() : number.get<std::int64_t>();
  };
  return Slice(bound(0), bound(1), bound(2).value_or(1));
}

std::map<std::string, Run> make_calls() {
  std::map<std::string, Run> calls;
  calls["abs"] = unary(abs);
  calls["cos"] = unary(cos);
  calls["exp"] = unary(exp);
  calls["log"] = unary(log);
  calls["neg"] = unary(neg);
  calls["relu"] = unary(relu);
  calls["rsqrt"] = unary(rsqrt);
  calls["sigmoid"] = unary(sigmoid);
  calls["silu"] = unary(silu);
  calls["sin"] = unary(sin);
  calls["sqrt"] = unary(sqrt);
  calls["square"] = unary(square);
  calls["tanh"] = unary(tanh);
  calls["gelu"] = [](Call& c) {
    const bool tanh = c.text(0, "approximate", "none") == "tanh";
    return Tensors{gelu(c.input(), tanh ? GeluApproximation::Tanh : GeluApproximation::None)};
  };

  calls["add"] = binary(add);
  calls["sub"] = binary(sub);
  calls["mul"] = binary(mul);
  calls["div"] = binary(div);
  calls["pow"] = binary(pow);
  calls["maximum"] = binary(maximum);
  calls["minimum"] = binary(minimum);
  calls["eq"] = binary(eq);
  calls["ne"] = binary(ne);
  calls["lt"] = binary(lt);
  calls["le"] = binary(le);
  calls["gt"] = binary(gt);
  calls["ge"] = binary(ge);
  calls["where"] = [](Call& c) { return Tensors{where(c.tensor(0, "condition"), c.input(), c.tensor(1, "other"))}; };

  calls["sum"] = reduction(sum);
  calls["mean"] = reduction(mean);
  calls["amax"] = reduction(amax);
  calls["amin"] = reduction(amin);
  calls["var"] = spread(var);
  calls["std"] = spread(gradus::std);
  calls["logsumexp"] = reduction(logsumexp);
  calls["cumsum"] = along(cumsum);
  calls["max"] = extreme(maximum, max, max);
  calls["min"] = extreme(minimum, min, min);
  calls["argmax"] = [](Call& c) {
    std::optional<std::int64_t> dim;
    if (c.has(0, "dim")) dim = c.integer(0, "dim", 0);
    return Tensors{argmax(c.input(), dim, c.flag(1, "keepdim", false))};
  };

  calls["matmul"] = binary(matmul);
  calls["bmm"] = binary(bmm);
  calls["linear"] = [](Call& c) { return Tensors{linear(c.input(), c.tensor(0, "weight"), c.tensor(1, "bias"))}; };
  calls["softmax"] = along(softmax);
  calls["log_softmax"] = along(log_softmax);

  calls["reshape"] = shaped(reshape);
  calls["view"] = shaped(view);
  calls["expand"] = shaped(expand);
  calls["permute"] = [](Call& c) { return Tensors{permute(c.input(), c.dims(0, "dims"))}; };
  calls["flip"] = [](Call& c) { return Tensors{flip(c.input(), c.dims(0, "dims"))}; };
  calls["transpose"] = [](Call& c) {
    return Tensors{transpose(c.input(), c.integer(0, "dim0", 0), c.integer(1, "dim1", 0))};
  };
  calls["unsqueeze"] = along(unsqueeze);
  calls["squeeze"] = [](Call& c) {
    return Tensors{c.has(0, "dim") ? squeeze(c.input(), c.integer(0, "dim", 0)) : squeeze(c.input())};
  };
  calls["cat"] = [](Call& c) { return Tensors{cat(c.inputs(), c.integer(0, "dim", 0))}; };
  calls["stack"] = [](Call& c) { return Tensors{stack(c.inputs(), c.integer(0, "dim", 0))}; };
  calls["split"] = [](Call& c) { return split(c.input(), c.integer(0, "split_size", 1), c.integer(1, "dim", 0)); };
  calls["chunk"] = [](Call& c) { return chunk(c.input(), c.integer(0, "chunks", 1), c.integer(1, "dim", 0)); };
  calls["unbind"] = [](Call& c) { return unbind(c.input(), c.integer(0, "dim", 0)); };
  calls["narrow"] = [](Call& c) {
    return Tensors{narrow(c.input(), c.integer(0, "dim", 0), c.integer(1, "start", 0), c.integer(2, "length", 0))};
  };
  calls["tril"] = [](Call& c) { return Tensors{tril(c.input(), c.integer(0, "diagonal", 0))}; };
  calls["triu"] = [](Call& c) { return Tensors{triu(c.input(), c.integer(0, "diagonal", 0))}; };

  calls["getitem"] = [](Call& c) {
    const Json& arg = *c.raw(0, "index");
    // A list of integers alone is one index tensor.
    const auto integer = [](const Json& json) { return json.is_number_integer(); };
    if (!arg.is_array() || std::all_of(arg.begin(), arg.end(), integer))
      return Tensors{index(c.input(), {entry_of(c, arg)})};
    std::vector<Index> entries;
    for (const Json& json : arg) entries.push_back(entry_of(c, json));
    return Tensors{index(c.input(), entries)};
  };
  calls["index_select"] = [](Call& c) {
    return Tensors{index_select(c.input(), c.integer(0, "dim", 0), c.tensor(1, "index"))};
  };
  calls["gather"] = [](Call& c) { return Tensors{gather(c.input(), c.integer(0, "dim", 0), c.tensor(1, "index"))}; };
  calls["scatter_add"] = [](Call& c) {
    return Tensors{scatter_add(c.input(), c.integer(0, "dim", 0), c.tensor(1, "index"), c.tensor(2, "src"))};
  };
  calls["embedding"] = [](Call& c) { return Tensors{embedding(c.input(), c.tensor(0, "indices"))}; };

  // The samples are of an early form that returns the weights too.
  calls["scaled_dot_product_attention"] = [](Call& c) {
    const AttentionOptions options{.mask = c.tensor(2, "attn_mask"),
                                   .is_causal = c.flag(4, "is_causal", false),
                                   .dropout_p = c.real(3, "dropout_p", 0)};
    c.flag(5, "need_attn_weights", false);
    const Tensor query = c.input(), key = c.tensor(0, "key");
    return Tensors{scaled_dot_product_attention(query, key, c.tensor(1, "value"), options),
                   attention_weights(query, key, options)};
  };

  calls["clamp"] = [](Call& c) { return Tensors{clamp(c.input(), c.tensor(0, "min"), c.tensor(1, "max"))}; };
  calls["masked_fill"] = [](Call& c) {
    const Tensor mask = c.tensor(0, "mask");
    if (is_tagged(*c.raw(1, "value"), "tensor")) return Tensors{masked_fill(c.input(), mask, c.tensor(1, "value"))};
    return Tensors{masked_fill(c.input(), mask, c.real(1, "value", 0))};
  };
  calls["layer_norm"] = [](Call& c) {
    return Tensors{layer_norm(c.input(), c.dims(0, "normalized_shape"), c.tensor(1, "weight"), c.tensor(2, "bias"),
                              c.real(3, "eps", 1e-5))};
  };

  calls["nll_loss"] = [](Call& c) {
    return Tensors{nll_loss(c.input(), c.tensor(0, "target"),
                            {.ignore_index = c.integer(3, "ignore_index", -100),
                             .weight = c.tensor(1, "weight"),
                             .reduction = reduction_of(c, 5)})};
  };
  calls["cross_entropy"] = [](Call& c) {
    return Tensors{cross_entropy(c.input(), c.tensor(0, "target"),
                                 {.ignore_index = c.integer(3, "ignore_index", -100),
                                  .label_smoothing = c.real(6, "label_smoothing", 0),
                                  .weight = c.tensor(1, "weight"),
                                  .reduction = reduction_of(c, 5)})};
  };
  calls["kl_div"] = [](Call& c) {
    return Tensors{kl_div(c.input(), c.tensor(0, "target"),
                          {.reduction = reduction_of(c, 3), .log_target = c.flag(4, "log_target", false)})};
  };
  calls["binary_cross_entropy_with_logits"] = [](Call& c) {
    return Tensors{binary_cross_entropy_with_logits(
        c.input(), c.tensor(0, "target"),
        {.weight = c.tensor(1, "weight"), .pos_weight = c.tensor(5, "pos_weight"), .reduction = reduction_of(c, 4)})};
  };
  calls["mse_loss"] = [](Call& c) { return Tensors{mse_loss(c.input(), c.tensor(0, "target"), reduction_of(c, 3))}; };
  return calls;
}

}  // namespace

const std::map<std::string, Run>& calls() {
  static const std::map<std::string, Run> all = make_calls();
  return all;
}

TEST_CASE("there is a call for every op that PyTorch's samples know") {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(GRADUS_TEST_DIR) + "/conformance/data/ops")) {
    const std::string op = entry.path().stem();
    CAPTURE(op);
    CHECK(calls().contains(op));
  }
}

}  // namespace gradus::test
