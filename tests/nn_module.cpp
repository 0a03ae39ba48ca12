// What follows from one list of members: names, state, clones, modes, printing.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <sstream>

#include "throws.h"

using namespace gradus;
using test::error_of;
using test::mentions;

namespace {

/// Two names for one tensor, a buffer, an optional and a list of modules.
class Everything : public nn::Module {
 public:
  Everything() { decoder = encoder; }
  Tensor operator()(const Tensor& x) const { return blocks[1](blocks[0](matmul(matmul(x, encoder), decoder))) + shift; }
  void fields(nn::Fields& f) override {
    f("encoder", encoder)("decoder", decoder)("none", none).buffer("shift", shift);
    f.buffer("scratch", scratch, {.persistent = false})("blocks", blocks)("norm", norm)("skip", skip);
  }
  std::string extra() const override { return "two ties"; }

  Tensor encoder = randn({2, 2}, {.requires_grad = true}), decoder, none, shift = ones({2}), scratch = zeros({3});
  std::vector<nn::Linear> blocks = nn::clones(nn::Linear(2, 2), 2);
  std::optional<nn::LayerNorm> norm = nn::LayerNorm(2), skip;
};

std::vector<std::string> names(const std::vector<nn::NamedTensor>& named) {
  std::vector<std::string> names;
  for (const auto& entry : named) names.push_back(entry.first);
  return names;
}

std::vector<std::string> names(const nn::StateDict& state) {
  std::vector<std::string> names;
  for (const auto& entry : state) names.push_back(entry.first);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("names, parameters and buffers follow from fields") {
  const Everything module;
  CHECK(names(module.named_parameters()) == Names{"encoder", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight",
                                                  "blocks.1.bias", "norm.weight", "norm.bias"});
  CHECK(module.parameters().size() == 7);
  CHECK(module.num_parameters() == 4 + 2 * 6 + 4);
  CHECK(names(module.named_buffers()) == Names{"shift", "scratch"});
  CHECK(module.buffers()[0].is_same(module.shift));
  // The state knows a tied tensor under both names, and no buffer that is not persistent.
  CHECK(names(module.state_dict()) == Names{"blocks.0.bias", "blocks.0.weight", "blocks.1.bias", "blocks.1.weight",
                                            "decoder", "encoder", "norm.bias", "norm.weight", "shift"});
}

TEST_CASE("a state dict shares data and has no history") {
  const nn::Linear linear(2, 3);
  const nn::StateDict state = linear.state_dict();
  CHECK(state.at("weight").shares_storage(linear.weight));
  CHECK_FALSE(state.at("weight").requires_grad());
}

TEST_CASE("P02: a name that is listed twice is refused, and a stack keeps no template") {
  struct Twice : nn::Module {
    nn::Linear a{1, 1}, b{1, 1};
    void fields(nn::Fields& f) override { f("same", a)("same", b); }
  };
  CHECK(error_of([] { Twice().state_dict(); }) ==
        "state_dict: fields() lists the name same.weight more than once; give each member a name of its own");
  const nn::TransformerEncoderLayer layer(4, 2, {.d_ff = 8});
  const nn::TransformerEncoder stack(layer, 3);
  CHECK(stack.num_parameters() == 3 * layer.num_parameters());
  for (const nn::NamedTensor& parameter : stack.named_parameters()) CHECK(mentions(parameter.first, "layers."));
}

TEST_CASE("copying shares parameters, clone copies them") {
  const nn::Linear linear(2, 3);
  const nn::Linear shared = linear;
  CHECK(shared.weight.is_same(linear.weight));

  linear.weight.set_name("W");
  linear.bias.requires_grad_(false);
  linear(ones({1, 2})).sum().backward();
  const nn::Linear own = clone(linear);
  CHECK_FALSE(own.weight.shares_storage(linear.weight));
  CHECK(own.weight.to_vector<float>() == linear.weight.to_vector<float>());
  CHECK(own.weight.requires_grad());
  CHECK_FALSE(own.bias.requires_grad());
  CHECK(own.weight.name() == "W");
  CHECK(linear.weight.grad().defined());
  CHECK_FALSE(own.weight.grad().defined());
}

TEST_CASE("P01: clones are independent of each other and start equal") {
  nn::Linear prototype(2, 2);
  prototype.eval();
  auto three = nn::clones(prototype, 3);
  CHECK(three.size() == 3);
  const auto before = prototype.weight.to_vector<float>();
  nn::init::zeros_(three[0].weight);
  CHECK(three[1].weight.to_vector<float>() == before);
  CHECK(prototype.weight.to_vector<float>() == before);
  CHECK_FALSE(three[2].training());
  CHECK(nn::clones(prototype, 0).empty());
}

TEST_CASE("P01: ties survive cloning, inside the clone only") {
  const Everything module;
  const Everything copy = clone(module);
  CHECK(copy.encoder.is_same(copy.decoder));
  CHECK_FALSE(copy.encoder.shares_storage(module.encoder));
  CHECK_FALSE(copy.shift.shares_storage(module.shift));
  CHECK(copy.num_parameters() == module.num_parameters());
  // and train as one: both uses add to one gradient
  copy(ones({1, 2})).square().sum().backward();
  CHECK(copy.decoder.grad().defined());
  CHECK_FALSE(module.encoder.grad().defined());
}

TEST_CASE("D07: the mode reaches every module below, and dropout obeys") {
  struct Outer : nn::Module {
    std::vector<nn::Sequential> parts{nn::Sequential(nn::Sequential(nn::Dropout(0.5), nn::ReLU()), nn::Linear(8, 8))};
    void fields(nn::Fields& f) override { f("parts", parts); }
  };
  Outer net;
  const Tensor x = ones({4, 8});
  const auto run = [&] { return net.parts[0](x).to_vector<float>(); };
  CHECK(net.training());
  CHECK(run() != run());
  net.eval();
  CHECK_FALSE(net.training());
  CHECK_FALSE(net.parts[0].get<nn::Sequential>(0).get<nn::Dropout>(0).training());
  CHECK(run() == run());
  net.train();
  CHECK(run() != run());
}

TEST_CASE("loading checks everything first and lists all that is wrong") {
  nn::Sequential net(nn::Linear(2, 3), nn::ReLU(), nn::Linear(3, 1));
  const auto before = net.get<nn::Linear>(0).bias.to_vector<float>();
  nn::StateDict state = clone(net).state_dict();
  state["0.bias"] = full({3}, 7);
  state["0.weight"] = zeros({3, 3});
  state["extra"] = zeros({1});
  state.erase("2.bias");
  CHECK(error_of([&] { net.load_state_dict(state); }) ==
        "load_state_dict: these entries do not fit Sequential, and nothing was loaded:"
        "\n  missing: 2.bias [1]"
        "\n  unexpected: extra"
        "\n  wrong shape: 0.weight is [3, 3], the module's is [3, 2]");
  CHECK(net.get<nn::Linear>(0).bias.to_vector<float>() == before);
  // A wrong shape is an error in any case; the rest is not where that is wanted.
  CHECK(mentions(error_of([&] { net.load_state_dict(state, {.strict = false}); }), "wrong shape: 0.weight"));
  state.erase("0.weight");
  net.load_state_dict(state, {.strict = false});
  CHECK(net.get<nn::Linear>(0).bias.to_vector<float>() == std::vector<float>{7, 7, 7});
}

TEST_CASE("loading writes into the parameters that others hold") {
  nn::Linear a(2, 2), b(2, 2);
  const Tensor held = a.weight;
  a.to(Float64);
  a.load_state_dict(b.state_dict());
  CHECK(held.to_vector<float>() == b.weight.to_vector<float>());
  CHECK(held.dtype() == Float64);
  CHECK_FALSE(a.weight.shares_storage(b.weight));
}

TEST_CASE("to(dtype) converts in place, for every handle") {
  Everything module;
  const Tensor held = module.encoder;
  module(ones({1, 2})).sum().backward();
  const auto gradient = held.grad().to_vector<double>();
  module.to(Float64);
  CHECK(held.dtype() == Float64);
  CHECK(held.requires_grad());
  CHECK(held.grad().dtype() == Float64);
  CHECK(held.grad().to_vector<double>() == gradient);
  CHECK(module.encoder.is_same(module.decoder));
  CHECK(module.shift.dtype() == Float64);
  module.zero_grad();
  module(ones({1, 2}, {.dtype = Float64})).sum().backward();
  CHECK(held.grad().dtype() == Float64);
  CHECK(error_of([&] { module.to(Int64); }) == "Module::to: a module computes in Float32 or Float64, not Int64");
  // The gradient of a result that is still there would not fit; nothing is converted then.
  const Tensor result = module(ones({1, 2}, {.dtype = Float64})).sum();
  CHECK(mentions(error_of([&] { module.to(Float32); }), "Module::to: a recorded history still leads to parameter "));
  for (const Tensor& parameter : module.parameters()) CHECK(parameter.dtype() == Float64);
  CHECK(module.shift.dtype() == Float64);
  result.backward();
  module.to(Float32);
  CHECK(held.dtype() == Float32);
}

TEST_CASE("zero_grad and requires_grad_ reach all parameters") {
  nn::Sequential net(nn::Linear(2, 3), nn::Linear(3, 1));
  net(ones({1, 2})).sum().backward();
  net.zero_grad();
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.grad().defined());
  net.requires_grad_(false);
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.requires_grad());
}

TEST_CASE("Sequential applies its layers in turn and copies by value") {
  const nn::Sequential net(
      nn::Linear(2, 3), [](const Tensor& x) { return x * 2; }, nn::Linear(3, 1));
  CHECK(net.size() == 3);
  CHECK(names(net.named_parameters()) == Names{"0.weight", "0.bias", "2.weight", "2.bias"});
  const Tensor x = randn({4, 2});
  CHECK(net(x).to_vector<float>() == net.get<nn::Linear>(2)(net.get<nn::Linear>(0)(x) * 2).to_vector<float>());

  const nn::Sequential shared = net, own = clone(net);
  CHECK(shared.parameters()[0].is_same(net.parameters()[0]));
  CHECK_FALSE(own.parameters()[0].shares_storage(net.parameters()[0]));
  CHECK(own(x).to_vector<float>() == net(x).to_vector<float>());
  CHECK(nn::Sequential()(x).is_same(x));
  CHECK(error_of([&] { (void)net.get<nn::ReLU>(0); }) ==
        "Sequential::get: layer 0 is of another type; ask for the type that was put in");
  CHECK(error_of([&] { (void)net.get<nn::ReLU>(3); }) == "Sequential::get: there is no layer 3 among 3");
}

TEST_CASE("a module prints as a tree with shapes and counts") {
  std::ostringstream text;
  text << nn::Sequential(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 100)) << "\n---\n" << Everything();
  CHECK(text.str() ==
        "Sequential\n"
        "  0: Linear(in=2, out=16)  weight [16, 2], bias [16]  48\n"
        "  1: ReLU\n"
        "  2: Linear(in=16, out=100)  weight [100, 16], bias [100]  1,700\n"
        "1,748 parameters\n---\n"
        "Everything(two ties)  encoder [2, 2], decoder [2, 2] (shared), shift [2] (buffer), scratch [3] (buffer)  4\n"
        "  blocks.0: Linear(in=2, out=2)  weight [2, 2], bias [2]  6\n"
        "  blocks.1: Linear(in=2, out=2)  weight [2, 2], bias [2]  6\n"
        "  norm: LayerNorm(dim=2)  weight [2], bias [2]  4\n"
        "20 parameters");
}

TEST_CASE("layers refuse what makes no sense") {
  CHECK(error_of([] { nn::Linear(0, 3); }) == "Linear: sizes must be positive: in is 0, out is 3");
  CHECK(error_of([] { nn::Linear(1, 3, {.dtype = Int64}); }) == "Linear: parameters are Float32 or Float64, not Int64");
  CHECK(error_of([] { nn::Embedding(3, 2, {.padding_idx = 3}); }) ==
        "Embedding: padding_idx is 3, the rows are 0 to 2");
  CHECK(error_of([] { nn::Dropout(-10); }) == "Dropout: p must be in [0, 1], is -10");
  CHECK(mentions(error_of([] { nn::Dropout{1.5}; }), "[0, 1]"));
  CHECK(mentions(error_of([] { nn::Dropout{std::nan("")}; }), "[0, 1]"));
  CHECK(mentions(error_of([] { nn::LayerNorm(3, {.eps = -1}); }), "eps"));
}

TEST_CASE("parameters start as documented") {
  manual_seed(1);
  const nn::Linear linear(100, 50);
  const double bound = 0.1;
  double largest = 0;
  for (const float w : linear.weight.to_vector<float>()) largest = std::max(largest, std::abs(static_cast<double>(w)));
  CHECK(largest <= bound);
  CHECK(largest > 0.95 * bound);
  CHECK_FALSE(nn::Linear(2, 2, {.bias = false}).bias.defined());

  const nn::Embedding table(50, 40, {.padding_idx = 3});
  CHECK(table.weight.select(0, 3).abs().sum().item() == 0);
  CHECK(table.weight.square().mean().item() == doctest::Approx(0.98).epsilon(0.1));
  CHECK(table.weight.requires_grad());

  const auto spread = [](const Tensor& x) { return std::sqrt(x.detach().square().mean().item()); };
  const Tensor w = empty({300, 200, 2}, {.requires_grad = true});  // fan_in 400, fan_out 600
  nn::init::xavier_uniform_(w);
  CHECK(spread(w) == doctest::Approx(std::sqrt(2.0 / 1000)).epsilon(0.02));
  CHECK(w.abs().max().item() <= std::sqrt(6.0 / 1000));
  nn::init::xavier_normal_(w, 2);
  CHECK(spread(w) == doctest::Approx(2 * std::sqrt(2.0 / 1000)).epsilon(0.02));
  nn::init::kaiming_uniform_(w);
  CHECK(spread(w) == doctest::Approx(std::sqrt(2.0 / 400)).epsilon(0.02));
  nn::init::kaiming_normal_(w, {.gain = 1, .fan = nn::init::Fan::Out});
  CHECK(spread(w) == doctest::Approx(std::sqrt(1.0 / 600)).epsilon(0.02));
  nn::init::constant_(w, 3);
  CHECK(spread(w) == 3);
  CHECK(mentions(error_of([] { nn::init::xavier_uniform_(zeros({3})); }), "at least 2 dims"));

  Generator one(5), same(5);
  const Tensor a = zeros({4, 4}), b = zeros({4, 4});
  nn::init::normal_(a, 0, 1, &one);
  nn::init::normal_(b, 0, 1, &same);
  CHECK(a.to_vector<float>() == b.to_vector<float>());
}
