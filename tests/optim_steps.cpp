// SGD, Adam and AdamW: PyTorch's numbers, known traps, groups, and exact resuming.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "json.h"
#include "throws.h"

using namespace gradus;
using test::disagreement;
using test::error_of;
using test::Json;
using test::mentions;
using test::to_tensor;

namespace {

constexpr TensorOptions leaf64{.dtype = Float64, .requires_grad = true};

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make(const std::vector<Tensor>& params, Options options, const Json& json) {
  for (const auto& [name, value] : json.items()) {
    if (name == "lr")
      options.lr = value;
    else if (name == "weight_decay")
      options.weight_decay = value;
    else if (name == "maximize")
      options.maximize = value;
    else if constexpr (requires { options.momentum; }) {
      if (name == "momentum")
        options.momentum = value;
      else if (name == "dampening")
        options.dampening = value;
      else if (name == "nesterov")
        options.nesterov = value;
      else
        FAIL("not offered: " << name);
    } else {
      if (name == "betas")
        options.betas = {value[0], value[1]};
      else if (name == "eps")
        options.eps = value;
      else if (name == "amsgrad")
        options.amsgrad = value;
      else
        FAIL("not offered: " << name);
    }
  }
  return std::make_unique<Optimizer>(params, options);
}

using Values = std::vector<double>;

/// The parameter, which starts at 1, after a step along each of the gradients; NaN stands for a step without one.
template <class Optimizer, class Options>
Values path(const Options& options, const Values& gradients) {
  const Tensor p = ones({1}, leaf64);
  Optimizer opt({p}, options);
  Values path;
  for (const double gradient : gradients) {
    opt.zero_grad();
    if (!std::isnan(gradient)) p.set_grad(full({1}, gradient, {.dtype = Float64}));
    opt.step();
    path.push_back(p.item());
  }
  return path;
}

bool agree(const Values& actual, const Values& expected, double rtol = 1e-12) {
  const Shape shape{static_cast<std::int64_t>(expected.size())};
  return actual.size() == expected.size() &&
         disagreement(from_vector(actual, shape), from_vector(expected, shape), rtol) <= 1;
}

const double none = std::nan("");

std::unique_ptr<optim::Optimizer> make(const Json& record, const std::vector<Tensor>& params) {
  const std::string kind = record.at("optimizer");
  const Json& options = record.at("options");
  if (kind == "SGD") return make<optim::SGD>(params, optim::SGDOptions{}, options);
  if (kind == "Adam") return make<optim::Adam>(params, optim::AdamOptions{}, options);
  if (kind == "AdamW") return make<optim::AdamW>(params, optim::AdamWOptions{}, options);
  throw std::runtime_error("no optimizer named " + kind);
}

/// torch.nn.Sequential(Linear(3, 8), Tanh(), Linear(8, 2)), with its names.
class TanhNet : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) const { return out_(in_(x).tanh()); }
  void fields(nn::Fields& f) override { f("0", in_)("2", out_); }

 private:
  nn::Linear in_{3, 8}, out_{8, 2};
};

}  // namespace

TEST_CASE("optimizers agree with PyTorch step by step") {
  int seen = 0;
  for (const Json& record : test::conformance("optimizers")) {
    CAPTURE(record.at("optimizer").dump());
    CAPTURE(record.at("options").dump());
    ++seen;
    std::vector<Tensor> params;
    for (const Json& json : record.at("params")) params.push_back(to_tensor(json).requires_grad_());
    const auto opt = make(record, params);
    for (std::size_t step = 0; step < record.at("grads").size(); ++step) {
      CAPTURE(step);
      for (std::size_t i = 0; i < params.size(); ++i) params[i].set_grad(to_tensor(record.at("grads")[step][i]));
      opt->step();
      for (std::size_t i = 0; i < params.size(); ++i)
        CHECK(disagreement(params[i], to_tensor(record.at("params_after")[step][i])) <= 1);
    }
  }
  CHECK(seen == 10);
}

// trajectories.json: an MLP 3-8-2 with tanh between, trained on 12 points in Float64 by torch.optim.
TEST_CASE("a model trained for 200 steps follows PyTorch's path") {
  int seen = 0;
  for (const Json& record : test::conformance("trajectories")) {
    CAPTURE(record.at("optimizer").dump());
    CAPTURE(record.at("options").dump());
    ++seen;
    TanhNet model;
    model.to(Float64);
    nn::StateDict start, end;
    for (const auto& [name, value] : record.at("start").items()) start[name] = to_tensor(value);
    for (const auto& [name, value] : record.at("end").items()) end[name] = to_tensor(value);
    model.load_state_dict(start);
    const auto opt = make(record, model.parameters());
    const Tensor x = to_tensor(record.at("x")), y = to_tensor(record.at("y"));
    for (int step = 0; step < record.at("steps").get<int>(); ++step) {
      CAPTURE(step);
      opt->zero_grad();
      const Tensor loss = mse_loss(model(x), y);
      loss.backward();
      opt->step();
      if (step % 20 == 0) {
        const double expected = record.at("losses_every_20")[static_cast<std::size_t>(step / 20)];
        CHECK(std::abs(loss.item() - expected) <= 1e-9 * expected);
      }
    }
    for (const nn::NamedTensor& parameter : model.named_parameters()) {
      CAPTURE(parameter.first);
      CHECK(disagreement(parameter.second, end.at(parameter.first), 1e-9) <= 1);
    }
  }
  CHECK(seen == 9);
}

TEST_CASE("O01, O02: SGD's first step sets the buffer, nesterov looks ahead") {
  CHECK(agree(path<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}, {1, 1, 0.5}),
              {0.9, 0.76, 0.609}));
  CHECK(agree(path<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}, {1, 1, 0.5}),
              {0.81, 0.539, 0.2901}));
}

TEST_CASE("O04, O06: where Adam's eps stands, and that AdamW is another") {
  CHECK(agree(path<optim::Adam>(optim::AdamOptions{.lr = 0.1}, {1e-8, 1e-8}), {0.95, 0.9}, 1e-10));
  CHECK(agree(path<optim::Adam>(optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1}, {1, 1}),
              {0.9000000009090909, 0.8000248483897221}, 1e-10));
  CHECK(agree(path<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1}, {1, 1}),
              {0.890000001, 0.7811000019900006}, 1e-10));
  CHECK(optim::AdamWOptions{}.weight_decay == 0.01);
}

TEST_CASE("amsgrad remembers the largest second moment") {
  // By hand: m and v as in Adam, the denominator from the largest v so far, corrected like v.
  const Values gradients{1, 0.01, 0.01, 2};
  Values expected;
  double p = 1, m = 0, v = 0, largest = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double t = static_cast<double>(i + 1), g = gradients[i];
    m = 0.9 * m + 0.1 * g;
    v = 0.5 * v + 0.5 * g * g;
    largest = std::max(largest, v);
    p -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(largest / (1 - std::pow(0.5, t))) + 1e-8);
    expected.push_back(p);
  }
  const optim::AdamOptions options{.lr = 0.1, .betas = {0.9, 0.5}, .amsgrad = true};
  CHECK(agree(path<optim::Adam>(options, gradients), expected, 1e-10));
  optim::AdamOptions plain = options;
  plain.amsgrad = false;
  CHECK_FALSE(agree(path<optim::Adam>(plain, gradients), expected, 1e-10));
}

TEST_CASE("O07: a parameter without a gradient does not move, one with a zero gradient does") {
  const Values gradients{1, none, 0};
  CHECK(agree(path<optim::Adam>(optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1}, gradients),
              {0.9000000009090909, 0.9000000009090909, 0.8271464230507924}, 1e-10));
  CHECK(agree(path<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1}, gradients),
              {0.890000001, 0.890000001, 0.8140941765241887}, 1e-10));
  CHECK(agree(path<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, gradients),
              {0.89, 0.89, 0.7821}, 1e-10));
}

TEST_CASE("a parameter that was frozen later keeps still in spite of an old gradient") {
  const Tensor p = ones({1}, leaf64);
  optim::SGD opt({p}, {.lr = 0.1});
  p.set_grad(ones({1}, {.dtype = Float64}));
  p.requires_grad_(false);
  opt.step();
  CHECK(p.item() == 1);
}

TEST_CASE("parameters that cannot be optimized are refused") {
  const Tensor a = ones({2}, {.requires_grad = true}), b = ones({3}, {.requires_grad = true});
  CHECK(error_of([&] {
          optim::SGD({a, b, a}, {.lr = 0.1});
        }) == "SGD: parameter 2 [2] is given more than once and would be updated twice a step");
  CHECK(error_of([&] {
          optim::Adam opt({a});
          opt.add_param_group({b, a}, {});
        }) == "Adam: parameter 2 [2] is given more than once and would be updated twice a step");
  CHECK(error_of([&] {
          optim::AdamW(std::vector<nn::NamedTensor>{{"w", a}, {"w", b}});
        }) == "AdamW: two parameters are named w; give each a name of its own");
  CHECK(error_of([&] { optim::SGD({ones({2})}); }) ==
        "SGD: parameter 0 [2] does not require a gradient, so it would never move; leave it out or call "
        "requires_grad_()");
  CHECK(error_of([&] { optim::SGD({a * 2}); }) ==
        "SGD: parameter 0 [2] is the result of an op; optimize the leaves it was made of");
  CHECK(error_of([&] { optim::SGD({Tensor()}); }) == "SGD: parameter 0 is an undefined tensor");
  CHECK(error_of([&] { optim::SGD(std::vector<Tensor>{}); }) == "SGD: was given no parameters");
  // A refused group leaves the optimizer as it was.
  optim::SGD opt({a}, {.lr = 0.5});
  CHECK_FALSE(error_of([&] { opt.add_param_group({b, a}, {}); }).empty());
  CHECK(opt.num_groups() == 1);
  CHECK(opt.parameters().size() == 1);
}

TEST_CASE("options that make no sense are refused") {
  const Tensor p = ones({2}, {.requires_grad = true});
  CHECK(error_of([&] { optim::SGD({p}, {.lr = -1}); }) == "SGD: lr must be finite and not negative, is -1");
  CHECK(mentions(error_of([&] { optim::SGD({p}, {.lr = std::nan("")}); }), "lr must be finite"));
  CHECK(mentions(error_of([&] { optim::SGD({p}, {.weight_decay = -1}); }), "weight_decay"));
  const std::string nesterov = "SGD: nesterov needs momentum above 0 and no dampening: momentum is 0, dampening is 0";
  CHECK(error_of([&] { optim::SGD({p}, {.nesterov = true}); }) == nesterov);
  CHECK(mentions(error_of([&] { optim::SGD({p}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }),
                 "dampening is 0.1"));
  CHECK(error_of([&] { optim::Adam({p}, {.betas = {0.9, 1}}); }) == "Adam: betas must be in [0, 1), are 0.9 and 1");
  CHECK(mentions(error_of([&] { optim::AdamW({p}, {.betas = {std::nan(""), 0.9}}); }), "AdamW: betas"));
  CHECK(mentions(error_of([&] { optim::Adam({p}, {.eps = -1}); }), "eps"));
  optim::Adam opt({p});
  CHECK(error_of([&] { opt.set_lr(-0.5); }) == "set_lr: the rate must be finite and not negative, is -0.5");
  CHECK(error_of([&] { opt.set_lr(0.5, 1); }) == "set_lr: there is no group 1 among 1");
  CHECK(error_of([&] { opt.lr(1); }) == "lr: there is no group 1 among 1");
  CHECK(opt.lr() == 1e-3);
}

TEST_CASE("groups have options of their own") {
  const Tensor a = ones({1}, leaf64), b = ones({1}, leaf64);
  optim::SGD opt({a}, {.lr = 0.1});
  opt.add_param_group({b}, {.lr = 0.5, .weight_decay = 1});
  for (const Tensor& p : {a, b}) p.set_grad(ones({1}, {.dtype = Float64}));
  opt.step();
  CHECK(a.item() == doctest::Approx(0.9));
  CHECK(b.item() == doctest::Approx(0));
  opt.set_lr(0.25, 1);
  CHECK(opt.lr(0) == 0.1);
  CHECK(opt.lr(1) == 0.25);
  opt.set_lr(0.75);
  CHECK(opt.lr(0) == 0.75);
  CHECK(opt.lr(1) == 0.75);
  opt.zero_grad();
  CHECK_FALSE(b.grad().defined());
}

TEST_CASE("O12: a tied parameter is updated once, with the sum of its uses") {
  const Tensor p = zeros({1}, leaf64);
  struct Tied : nn::Module {
    Tensor a, b;
    void fields(nn::Fields& f) override { f("a", a)("b", b); }
  } module;
  module.a = module.b = p;
  optim::SGD opt(module.parameters(), {.lr = 0.1});
  (module.a * 2 + module.b * 3).sum().backward();
  opt.step();
  CHECK(p.item() == doctest::Approx(-0.5));

  const Tensor x = zeros({1}, leaf64);
  CHECK(mentions(error_of([&] { optim::SGD({x, x}, {.lr = 0.1}); }), "more than once"));
  optim::SGD one({x}, {.lr = 0.1});
  CHECK(mentions(error_of([&] { one.add_param_group({x}, {.lr = 0.1}); }), "more than once"));
  x.set_grad(ones({1}, {.dtype = Float64}));
  one.step();
  CHECK(x.item() == doctest::Approx(-0.1));
}

TEST_CASE("O09: resuming is exact to the bit, whatever the new optimizer was constructed with") {
  const Values gradients{1, -0.5, 0.25, 2, -1};
  const auto run = [&](std::size_t from, std::size_t to, const Tensor& p, optim::Optimizer& opt) {
    for (std::size_t i = from; i < to; ++i) {
      p.set_grad(full({1}, gradients[i], {.dtype = Float64}));
      opt.step();
    }
  };
  const auto check = [&](const auto& original, const auto& resumed) {
    const Tensor whole = ones({1}, leaf64), half = ones({1}, leaf64);
    const std::unique_ptr<optim::Optimizer> a = original(whole), b = original(half);
    run(0, 5, whole, *a);
    run(0, 3, half, *b);
    const optim::StateDict saved = b->state_dict();
    const Tensor rest = half.detach().clone().requires_grad_();
    const std::unique_ptr<optim::Optimizer> c = resumed(rest);
    run(0, 1, half, *b);  // a state dict is a copy: what the old one does now is no matter
    c->load_state_dict(saved);
    run(3, 5, rest, *c);
    CHECK(rest.item() == whole.item());
    return whole.item();
  };
  const auto adam = [](optim::AdamOptions options) {
    return [options](const Tensor& p) { return std::make_unique<optim::Adam>(optim::Parameters{p}, options); };
  };
  CHECK(check(adam({.lr = 0.1}), adam({.lr = 1, .betas = {0.5, 0.5}})) ==
        doctest::Approx(0.7469178629160758).epsilon(1e-12));
  check(adam({.lr = 0.1, .betas = {0.9, 0.5}, .amsgrad = true}), adam({}));
  check(adam({.lr = 0.1, .betas = {0.9, 0.5}}), adam({.amsgrad = true}));
  const auto sgd = [](optim::SGDOptions options) {
    return [options](const Tensor& p) { return std::make_unique<optim::SGD>(optim::Parameters{p}, options); };
  };
  check(sgd({.lr = 0.1}), sgd({.momentum = 0.1}));
  check(sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true}), sgd({}));
  check(sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.5}), sgd({.momentum = 0.1}));
}

TEST_CASE("the state is known by name, and a state that does not fit changes nothing") {
  const nn::Linear model(2, 3);
  optim::Adam opt(model.named_parameters(), {.lr = 0.1});
  model(ones({1, 2})).square().sum().backward();
  opt.step();
  optim::StateDict state = opt.state_dict();
  CHECK(state.contains("state.weight.exp_avg_sq"));
  CHECK(state.at("state.bias.step").item<int>() == 1);
  CHECK(state.at("groups.0.lr").item() == 0.1);
  CHECK_FALSE(state.contains("state.bias.max_exp_avg_sq"));

  state.erase("state.bias.exp_avg");
  state["state.weight.exp_avg"] = zeros({2, 2});
  state["state.other.step"] = zeros({});
  state["groups.0.lr"] = full({}, 0.7);
  CHECK(error_of([&] { opt.load_state_dict(state); }) ==
        "load_state_dict: these entries do not fit this Adam, and nothing was loaded:"
        "\n  wrong shape: state.weight.exp_avg is [2, 2], the optimizer's is [3, 2]"
        "\n  missing: state.bias.exp_avg [3]"
        "\n  unexpected: state.other.step");
  CHECK(opt.lr() == 0.1);
  optim::StateDict negative = opt.state_dict();
  negative["groups.0.lr"] = full({}, -1);
  CHECK(mentions(error_of([&] { opt.load_state_dict(negative); }), "lr must be finite and not negative, is -1"));
  CHECK(opt.lr() == 0.1);
  CHECK(mentions(error_of([&] { optim::SGD(model.named_parameters()).load_state_dict(opt.state_dict()); }),
                 "unexpected: groups.0.beta1"));
}

TEST_CASE("moments follow a module that is converted") {
  nn::Linear model(2, 3);
  optim::Adam opt(model.parameters(), {.lr = 0.1});
  model(ones({1, 2})).sum().backward();
  opt.step();
  model.to(Float64);
  opt.zero_grad();
  model(ones({1, 2}, {.dtype = Float64})).sum().backward();
  const auto before = model.weight.to_vector<double>();
  opt.step();
  CHECK(model.weight.to_vector<double>() != before);
  CHECK(opt.state_dict().at("state.0.exp_avg").dtype() == Float64);
  CHECK(opt.state_dict().at("state.0.step").item<int>() == 2);
}
