// Learning rates as functions of the step, and gradient clipping.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
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

std::unique_ptr<optim::Schedule> make(const std::string& name, double base, const Json& o) {
  const auto whole = [&](const char* option) { return o.at(option).get<std::int64_t>(); };
  const auto real = [&](const char* option) { return o.at(option).get<double>(); };
  if (name == "StepLR")
    return std::make_unique<optim::StepLR>(
        base, optim::StepLROptions{.step_size = whole("step_size"), .gamma = real("gamma")});
  if (name == "ExponentialLR")
    return std::make_unique<optim::ExponentialLR>(base, optim::ExponentialLROptions{.gamma = real("gamma")});
  if (name == "CosineAnnealingLR")
    return std::make_unique<optim::CosineAnnealingLR>(
        base, optim::CosineAnnealingLROptions{.t_max = whole("t_max"), .eta_min = real("eta_min")});
  if (name == "LinearLR")
    return std::make_unique<optim::LinearLR>(base, optim::LinearLROptions{.start_factor = real("start_factor"),
                                                                          .end_factor = real("end_factor"),
                                                                          .total_iters = whole("total_iters")});
  if (name == "NoamLR")
    return std::make_unique<optim::NoamLR>(
        optim::NoamLROptions{.model_size = whole("model_size"), .factor = real("factor"), .warmup = whole("warmup")});
  return nullptr;
}

}  // namespace

TEST_CASE("schedules agree with PyTorch") {
  int rates = 0;
  for (const Json& record : test::conformance("schedules")) {
    CAPTURE(record.at("schedule").dump());
    const auto schedule = make(record.at("schedule"), record.at("base_lr"), record.at("options"));
    REQUIRE(schedule);
    std::int64_t step = 0;
    for (const Json& lr : record.at("lr")) {
      CAPTURE(step);
      CHECK(std::abs((*schedule)(step++) - lr.get<double>()) <= 1e-10 * lr.get<double>());
      ++rates;
    }
  }
  CHECK(rates == 240);
}

TEST_CASE("O14: Noam's rate is finite from the first update on and largest at the end of the warm-up") {
  const optim::NoamLR rate({.model_size = 512, .warmup = 4000});
  CHECK(rate(0) == doctest::Approx(1.746928107421711e-07).epsilon(1e-12));  // t = 1
  CHECK(rate(3999) == doctest::Approx(0.0006987712429686843).epsilon(1e-12));
  CHECK(rate(4000) == doctest::Approx(0.000698683912937353).epsilon(1e-12));
  CHECK(rate(99999) == doctest::Approx(0.00013975424859373687).epsilon(1e-12));
  CHECK(optim::NoamLR({.model_size = 512, .warmup = 0})(0) == doctest::Approx(0.04419417382415922).epsilon(1e-12));
}

TEST_CASE("warm-up, then half a cosine") {
  const optim::WarmupCosineLR rate(2.0, {.warmup = 4, .total = 14, .min_lr = 0.5});
  CHECK(rate(0) == 0.5);
  CHECK(rate(3) == 2);
  CHECK(rate(4) == 2);
  CHECK(rate(9) == doctest::Approx(1.25));
  CHECK(rate(13) > 0.5);
  CHECK(rate(14) == 0.5);
  CHECK(rate(1000) == 0.5);
  CHECK(optim::WarmupCosineLR(1, {.total = 10})(0) == 1);
}

TEST_CASE("a schedule sets the rate of every group") {
  const Tensor a = ones({1}, {.requires_grad = true}), b = ones({1}, {.requires_grad = true});
  optim::SGD opt({a}, {.lr = 1});
  opt.add_param_group({b}, {.lr = 2});
  optim::StepLR(0.5, {.step_size = 2}).apply(opt, 2);
  CHECK(opt.lr(0) == doctest::Approx(0.05));
  CHECK(opt.lr(1) == doctest::Approx(0.05));
}

TEST_CASE("schedules refuse what makes no sense") {
  CHECK(error_of([] { optim::StepLR(0.1, {.step_size = 0}); }) == "StepLR: step_size must be positive, is 0");
  CHECK(error_of([] { optim::StepLR(-0.1, {}); }) == "StepLR: base_lr must be finite and not negative, is -0.1");
  CHECK(mentions(error_of([] { optim::ExponentialLR(1, {.gamma = -1}); }), "gamma"));
  CHECK(mentions(error_of([] { optim::CosineAnnealingLR(1, {.t_max = 0}); }), "t_max"));
  CHECK(mentions(error_of([] { optim::LinearLR(1, {.total_iters = 0}); }), "total_iters"));
  CHECK(mentions(error_of([] { optim::NoamLR({.model_size = 0}); }), "model_size"));
  CHECK(mentions(error_of([] { optim::NoamLR({.warmup = -1}); }), "warmup"));
  CHECK(error_of([] { optim::WarmupCosineLR(1, {.warmup = 5, .total = 5}); }) ==
        "WarmupCosineLR: needs 0 <= warmup < total: warmup is 5, total is 5");
  CHECK(error_of([] { optim::ExponentialLR(1, {})(-1); }) == "schedule: steps count from 0, asked for step -1");
}

TEST_CASE("clipping agrees with PyTorch") {
  int seen = 0;
  for (const Json& record : test::conformance("clipping")) {
    ++seen;
    std::vector<Tensor> params;
    for (const Json& json : record.at("grads")) {
      const Tensor grad = to_tensor(json);
      params.push_back(zeros_like(grad, {.requires_grad = true}));
      params.back().set_grad(grad);
    }
    const double norm = optim::clip_grad_norm_(params, record.at("max_norm").get<double>(),
                                               {.norm_type = test::number(record.at("norm_type"))});
    CHECK(norm == doctest::Approx(record.at("total_norm").get<double>()).epsilon(1e-10));
    for (std::size_t i = 0; i < params.size(); ++i)
      CHECK(disagreement(params[i].grad(), to_tensor(record.at("clipped")[i])) <= 1);
  }
  CHECK(seen == 3);
}

TEST_CASE("O11: clipping at its edges") {
  const Tensor p = zeros({2}, {.dtype = Float64, .requires_grad = true});
  const auto clip = [&](std::vector<double> grad, double max_norm, const optim::ClipOptions& options = {}) {
    p.set_grad(from_vector(grad, {2}));
    return optim::clip_grad_norm_({p}, max_norm, options);
  };
  const auto left = [&] { return p.grad().to_vector<double>(); };
  CHECK(optim::clip_grad_norm_({p}, 1) == 0);  // no gradient
  CHECK(optim::clip_grad_norm_({}, 1) == 0);
  CHECK(clip({0, 0}, 1) == 0);
  CHECK(left() == std::vector<double>{0, 0});
  CHECK(clip({0.3, 0.4}, 1) == doctest::Approx(0.5));
  CHECK(left() == std::vector<double>{0.3, 0.4});  // bit for bit
  CHECK(clip({3, 4}, 0) == 5);
  CHECK(left() == std::vector<double>{0, 0});
  CHECK(clip({3, 4}, 1, {.norm_type = 1}) == doctest::Approx(7));
  p.set_grad(tensor({3.0, 4.0}, {.dtype = Float64}));
  CHECK(optim::clip_grad_norm_({p, p}, 1) == 5);  // twice in the list counts once
  CHECK(left()[0] == doctest::Approx(0.6));

  CHECK(error_of([&] { clip({1, 1}, -1); }) == "clip_grad_norm_: max_norm must not be negative, is -1");
  CHECK(mentions(error_of([&] { clip({1, 1}, std::nan("")); }), "max_norm"));
  CHECK(mentions(error_of([&] { clip({1, 1}, 1, {.norm_type = 0}); }), "norm_type"));
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(mentions(error_of([&] { clip({inf, 1}, 1, {.error_if_nonfinite = true}); }), "error_if_nonfinite is set"));
  CHECK(left() == std::vector<double>{inf, 1});
  CHECK(std::isnan(clip({std::nan(""), 1}, 1)));
  CHECK(std::isnan(left()[1]));
}
