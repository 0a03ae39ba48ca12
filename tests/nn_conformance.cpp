// Linear, Embedding, LayerNorm, MultiHeadAttention and the Transformer layers against PyTorch's numbers.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include "json.h"

using namespace gradus;
using test::disagreement;
using test::Json;
using test::to_tensor;

namespace {

nn::StateDict state_of(const Json& json) {
  nn::StateDict state;
  for (const auto& [name, value] : json.items()) state[name] = to_tensor(value);
  return state;
}

std::vector<Tensor> inputs_of(const Json& record) {
  std::vector<Tensor> inputs;
  for (const Json& json : record.at("inputs")) {
    inputs.push_back(to_tensor(json));
    if (inputs.back().defined() && is_floating(inputs.back().dtype())) inputs.back().requires_grad_();
  }
  return inputs;
}

/// Runs a module as one record says and compares outputs and all gradients.
template <class Module, class Call>
void agree(const Json& record, Module module, const Call& call) {
  CAPTURE(record.at("config").dump());
  module.to(Float64);
  module.eval();
  module.load_state_dict(state_of(record.at("state")));  // PyTorch's own names
  const std::vector<Tensor> inputs = inputs_of(record);
  const std::vector<Tensor> outputs = call(module, inputs);
  REQUIRE(outputs.size() == record.at("outputs").size());
  Tensor loss = zeros({}, {.dtype = Float64});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    CHECK(disagreement(outputs[i], to_tensor(record.at("outputs")[i])) <= 1);
    loss = loss + (outputs[i] * to_tensor(record.at("grad_outputs")[i])).sum();
  }
  loss.backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    const Tensor expected = to_tensor(record.at("input_grads").at(i));
    if (expected.defined()) CHECK(disagreement(inputs[i].grad(), expected) <= 1);
  }
  Module right = clone(module);  // its parameters are the right gradients
  right.load_state_dict(state_of(record.at("param_grads")));
  const auto named = module.named_parameters(), expected = right.named_parameters();
  for (std::size_t i = 0; i < named.size(); ++i) {
    CAPTURE(named[i].first);
    REQUIRE(named[i].second.grad().defined());
    CHECK(disagreement(named[i].second.grad(), expected[i].second) <= 1);
  }
}

std::int64_t size(const Json& config, const char* name) { return config.at(name).get<std::int64_t>(); }

nn::TransformerLayerOptions layer_options(const Json& config) {
  return {.d_ff = size(config, "dim_feedforward"),
          .dropout = 0,
          .activation = config.at("activation") == "gelu" ? nn::Activation::GELU : nn::Activation::ReLU,
          .norm_first = config.at("norm_first").get<bool>()};
}

}  // namespace

TEST_CASE("modules agree with PyTorch") {
  int seen = 0;
  for (const Json& record : test::conformance("modules")) {
    const std::string kind = record.at("module");
    const Json& config = record.at("config");
    CAPTURE(kind);
    ++seen;
    if (kind == "Linear") {
      const nn::Linear module(size(config, "in"), size(config, "out"), {.bias = config.at("bias").get<bool>()});
      agree(record, module, [](const auto& m, const auto& in) { return std::vector{m(in[0])}; });
    } else if (kind == "Embedding") {
      std::optional<std::int64_t> padding;
      if (!config.at("padding_idx").is_null()) padding = size(config, "padding_idx");
      const nn::Embedding module(size(config, "num"), size(config, "dim"), {.padding_idx = padding});
      agree(record, module, [](const auto& m, const auto& in) { return std::vector{m(in[0])}; });
    } else if (kind == "LayerNorm") {
      const nn::LayerNorm module(size(config, "dim"), {.eps = config.at("eps").get<double>()});
      agree(record, module, [](const auto& m, const auto& in) { return std::vector{m(in[0])}; });
    } else if (kind == "MultiHeadAttention") {
      nn::MultiHeadAttention module(size(config, "h"), size(config, "d_model"));
      module.keep_weights();
      agree(record, module, [](const auto& m, const auto& in) {
        const Tensor y = m(in[0], in[1], in[2], in[3]);
        return std::vector{y, m.weights()};
      });
    } else if (kind == "torch.nn.TransformerEncoderLayer") {
      const nn::TransformerEncoderLayer module(size(config, "d_model"), size(config, "nhead"), layer_options(config));
      agree(record, module,
            [](const auto& m, const auto& in) { return std::vector{m(in[0], nn::subsequent_mask(in[0].size(1)))}; });
    } else if (kind == "torch.nn.TransformerDecoderLayer") {
      const nn::TransformerDecoderLayer module(size(config, "d_model"), size(config, "nhead"), layer_options(config));
      agree(record, module, [](const auto& m, const auto& in) {
        return std::vector{m(in[0], in[1], nn::subsequent_mask(in[0].size(1)))};
      });
    } else {
      FAIL("no test for this module");
    }
  }
  CHECK(seen == 14);
}
