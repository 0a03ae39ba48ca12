// The Transformer: names, starting values, positions, what masks hide, and that it learns.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "json.h"
#include "throws.h"

using namespace gradus;
using test::disagreement;
using test::error_of;
using test::mentions;

namespace {

constexpr nn::TransformerOptions small{.d_model = 8, .heads = 2, .layers = 2, .d_ff = 16, .dropout = 0};

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) names.push_back(name);
  return names;
}

std::vector<std::string> expected_names(const std::string& stack, bool decoder) {
  std::vector<std::string> names;
  const auto pair = [&](const std::string& at) { names.insert(names.end(), {at + ".weight", at + ".bias"}); };
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const std::string at = stack + layer;
    for (const char* attention : {"self_attn", "multihead_attn"}) {
      if (attention[0] == 'm' && !decoder) continue;
      for (const char* i : {"0", "1", "2", "3"}) pair(at + attention + ".linears." + i);
    }
    for (const char* part : {"linear1", "linear2", "norm1", "norm2"}) pair(at + part);
    if (decoder) pair(at + "norm3");
  }
  return names;
}

}  // namespace

TEST_CASE("a Transformer's parameters have PyTorch's names") {
  nn::TransformerOptions options = small;
  options.norm_first = false;
  std::vector<std::string> expected{"src_embed.weight", "tgt_embed.weight"};
  for (const bool decoder : {false, true})
    for (const auto& name : expected_names(decoder ? "decoder." : "encoder.", decoder)) expected.push_back(name);
  expected.insert(expected.end(), {"generator.weight", "generator.bias"});
  CHECK(names(nn::Transformer(10, 11, options)) == expected);

  const auto pre = names(nn::Transformer(10, 11, small));  // normalising first adds a norm at the end of each stack
  CHECK(pre.size() == expected.size() + 4);
  for (const char* name : {"encoder.norm.weight", "encoder.norm.bias", "decoder.norm.weight", "decoder.norm.bias"})
    CHECK(std::count(pre.begin(), pre.end(), name) == 1);
}

TEST_CASE("a Transformer has as many parameters as its formula says") {
  const std::int64_t d = 8, ff = 16, attention = 4 * (d * d + d), feed = 2 * d * ff + ff + d, norm = 2 * d;
  const std::int64_t encoder = 2 * (attention + feed + 2 * norm) + norm;
  const std::int64_t decoder = 2 * (2 * attention + feed + 3 * norm) + norm;
  CHECK(nn::Transformer(10, 11, small).num_parameters() == 10 * d + 11 * d + encoder + decoder + (11 * d + 11));
  // The positions are a buffer that is not saved.
  const nn::Transformer model(10, 11, small);
  CHECK(model.buffers().size() == 1);
  CHECK(model.state_dict().size() == model.parameters().size());
}

TEST_CASE("layers start different in a Transformer, and equal in a bare stack") {
  const nn::Transformer model(10, 11, small);
  CHECK(model.encoder.layers[0].feed_forward.linear1.weight.to_vector<float>() !=
        model.encoder.layers[1].feed_forward.linear1.weight.to_vector<float>());
  const auto& maps = model.encoder.layers[0].self_attn.linears;
  CHECK(maps[0].weight.to_vector<float>() != maps[1].weight.to_vector<float>());
  nn::TransformerEncoder stack(nn::TransformerEncoderLayer(8, 2, {.d_ff = 16}), 2);
  const auto weight = [&](std::size_t i) { return stack.layers[i].feed_forward.linear1.weight.to_vector<float>(); };
  CHECK(weight(0) == weight(1));
  nn::init::xavier_uniform_(stack);
  CHECK(weight(0) != weight(1));
  CHECK_FALSE(stack.norm.has_value());
  CHECK(error_of([] { nn::TransformerEncoder(nn::TransformerEncoderLayer(8, 2), 0); }) ==
        "TransformerEncoder: needs at least one layer, asked for 0");
}

TEST_CASE("a shared embedding is one parameter, in clones too") {
  nn::TransformerOptions options = small;
  options.share_embedding = true;
  const nn::Transformer model(10, 10, options), copy = clone(model);
  CHECK(model.num_parameters() == nn::Transformer(10, 10, small).num_parameters() - 2 * 10 * 8);
  CHECK(copy.src_embed.weight.is_same(copy.generator.weight));
  CHECK(copy.src_embed.weight.is_same(copy.tgt_embed.weight));
  CHECK_FALSE(copy.src_embed.weight.shares_storage(model.src_embed.weight));
  CHECK(mentions(error_of([&] { nn::Transformer(10, 11, options); }), "src_vocab is 10, tgt_vocab is 11"));
}

TEST_CASE("positions are sines and cosines of geometric wavelengths") {
  const nn::PositionalEncoding position(5, {.max_len = 7});  // an odd size ends with a sine
  CHECK(position.pe.shape() == Shape{7, 5});
  for (std::int64_t t = 0; t < 7; ++t) {
    for (std::int64_t i = 0; i < 5; ++i) {
      const double angle = static_cast<double>(t) / std::pow(10000.0, static_cast<double>(i / 2 * 2) / 5);
      CHECK(position.pe.at<float>({t, i}) == doctest::Approx(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  }
  const Tensor x = randn({2, 3, 5});
  CHECK(position(x).to_vector<float>() == (x + position.pe.narrow(0, 0, 3)).to_vector<float>());
  CHECK(error_of([&] {
          position(zeros({1, 8, 5}));
        }) == "PositionalEncoding: the sequence is 8 long, max_len is 7; construct it with a larger max_len");
  CHECK(error_of([&] { position(zeros({1, 3, 4})); }) == "PositionalEncoding: needs x [B, L, 5], got [1, 3, 4]");
}

TEST_CASE("the parts of a layer stand where PyTorch has them") {
  manual_seed(7);
  nn::TransformerEncoderLayer layer(4, 2, {.d_ff = 8, .dropout = 0});
  const Tensor x = randn({2, 3, 4});
  const Tensor seen = layer.norm1(x + layer.self_attn(x, x, x));
  CHECK(disagreement(layer(x), layer.norm2(seen + layer.feed_forward(seen)), 1e-5, 1e-6) <= 1);
  const auto& ff = layer.feed_forward;
  CHECK(disagreement(ff(x), ff.linear2(relu(ff.linear1(x))), 1e-5, 1e-6) <= 1);
}

TEST_CASE("dropout of a layer obeys the mode, also inside the feed-forward part") {
  nn::TransformerDecoderLayer layer(4, 2, {.d_ff = 8, .dropout = 0.5});
  const Tensor x = randn({2, 3, 4});
  const auto run = [&] { return layer(x, x).to_vector<float>(); };
  const auto feed = [&] { return layer.feed_forward(x).to_vector<float>(); };
  CHECK(run() != run());
  CHECK(feed() != feed());
  layer.eval();
  CHECK(run() == run());
  CHECK(feed() == feed());
  CHECK_FALSE(layer.feed_forward.training());
}

TEST_CASE("a target never sees what comes after it, nor padding of the source") {
  manual_seed(8);
  const nn::Transformer model(10, 10, small);
  const Tensor src = tensor({{3, 4, 5, 0, 0}}), tgt = tensor({{1, 3, 4, 5}});
  const Tensor src_mask = nn::padding_mask(src, 0), tgt_mask = nn::subsequent_mask(4);
  const Tensor logits = model(src, tgt, src_mask, tgt_mask);
  CHECK(logits.shape() == Shape{1, 4, 10});
  const auto first_two = [](const Tensor& x) { return x.narrow(1, 0, 2).to_vector<float>(); };
  CHECK(first_two(model(src, tensor({{1, 3, 9, 9}}), src_mask, tgt_mask)) == first_two(logits));
  CHECK(first_two(model(src, tensor({{1, 3, 9, 9}}), src_mask)) != first_two(logits));
  // Behind its mask the padding may be any token.
  CHECK(model(tensor({{3, 4, 5, 7, 8}}), tgt, src_mask, tgt_mask).to_vector<float>() == logits.to_vector<float>());
  // Embeddings are scaled by √d_model before they are given positions.
  const Tensor embedded = model.position(model.src_embed(src) * std::sqrt(8.0));
  CHECK(disagreement(model.encode(src, src_mask), model.encoder(embedded, src_mask), 1e-5, 1e-6) <= 1);
  // The steps are the same as the whole.
  const Tensor steps = model.generator(model.decode(model.encode(src, src_mask), src_mask, tgt, tgt_mask));
  CHECK(steps.to_vector<float>() == logits.to_vector<float>());
  CHECK(mentions(error_of([&] { model(tensor({1, 2}), tgt); }), "tokens must be [B, L], are [2]"));
}

TEST_CASE("the last cross-attention can be looked at") {
  nn::Transformer model(10, 10, small);
  auto& cross = model.decoder.layers.back().multihead_attn;
  cross.keep_weights();
  model(zeros({2, 5}, {.dtype = Int64}), zeros({2, 4}, {.dtype = Int64}));
  CHECK(cross.weights().shape() == Shape{2, 2, 4, 5});
}

TEST_CASE("every parameter of a Transformer gets a gradient") {
  for (const bool norm_first : {false, true}) {
    nn::TransformerOptions options = small;
    options.norm_first = norm_first;
    const nn::Transformer model(10, 10, options);
    const Tensor tokens = tensor({{1, 2, 3}, {4, 5, 6}});
    const Tensor logits = model(tokens, tokens, {}, nn::subsequent_mask(3));
    cross_entropy(logits.reshape({6, 10}), tokens.reshape({6})).backward();
    for (const nn::NamedTensor& parameter : model.named_parameters()) {
      CAPTURE(parameter.first);
      CHECK(parameter.second.grad().defined());
    }
  }
}

TEST_CASE("a small Transformer learns to copy") {
  manual_seed(9);
  nn::Transformer model(8, 8, {.d_model = 16, .heads = 2, .layers = 1, .d_ff = 32, .dropout = 0, .max_len = 8});
  optim::Adam opt(model.named_parameters(), {.lr = 5e-3});
  float first = 0, last = 0;
  for (int step = 0; step < 150; ++step) {
    const Tensor src = randint(2, 8, {16, 4});
    const Tensor tgt = cat({ones({16, 1}, {.dtype = Int64}), src.narrow(1, 0, 3)}, 1);
    opt.zero_grad();
    const Tensor logits = model(src, tgt, {}, nn::subsequent_mask(4));
    const Tensor loss = cross_entropy(logits.reshape({64, 8}), src.reshape({64}));
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1);
    opt.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  CHECK(first > 1.5F);
  CHECK(last < 0.5F * first);
}
