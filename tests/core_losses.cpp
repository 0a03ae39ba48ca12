// The losses: classes, distributions, divergences, binary targets.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

namespace {

const Reduction reductions[] = {Reduction::Mean, Reduction::Sum, Reduction::None, Reduction::BatchMean};

/// The gradient, without and with a graph of its own, which must agree.
Tensor both_gradients(const Tensor& loss, const Tensor& x) {
  const GradOptions plain{.retain_graph = true}, recorded{.retain_graph = true, .create_graph = true};
  const Tensor a = grad({loss}, {x}, {ones_like(loss)}, plain)[0];
  const Tensor b = grad({loss}, {x}, {ones_like(loss)}, recorded)[0].detach();
  CHECK(close(a, b));
  return a;
}

Tensor one_hot(const Tensor& target, std::int64_t classes) {
  return (target.unsqueeze(-1) == arange(classes)).to(Float64);
}

}  // namespace

TEST_CASE("C02 label smoothing leaves ignored rows out") {
  const Tensor x = leaf({{1, 2, 3}, {1, 0, -1}, {0.5, 0.5, 2}}), t = tensor({0, -100, 2});
  CrossEntropyOptions options{.label_smoothing = 0.2};
  const Tensor mean = cross_entropy(x, t, options);
  CHECK(mean.item() == doctest::Approx(1.388293549922848).epsilon(1e-13));
  CHECK(close(both_gradients(mean, x), f64({{-0.38831804674814313, 0.08903090219406548, 0.29928714455407757},
                                            {0, 0, 0},
                                            {0.04380705315760978, 0.04380705315760978, -0.08761410631521954}})));
  CHECK(same(select(both_gradients(mean, x), 0, 1), f64({0, 0, 0})));
  options.reduction = Reduction::Sum;
  CHECK(cross_entropy(x, t, options).item() == doctest::Approx(2.776587099845696).epsilon(1e-13));
  options.reduction = Reduction::None;
  CHECK(close(cross_entropy(x, t, options).detach(), f64({2.2076059644443804, 0, 0.5689811354013155})));
  // An ignored index outside the classes is looked up nowhere, not in the weights either.
  options.weight = f64({1, 2, 3});
  CHECK(cross_entropy(x, t, options).at<double>({1}) == 0);
}

TEST_CASE("C03 cross_entropy of a class that -inf rules out") {
  const Tensor x = leaf({{-infinity, 0, 0}});
  const Tensor plain = cross_entropy(x, tensor({1}));
  CHECK(plain.item() == doctest::Approx(std::log(2)));
  CHECK(close(both_gradients(plain, x), f64({{0, -0.5, 0.5}})));
  const Tensor smooth = cross_entropy(x, tensor({1}), {.label_smoothing = 0.1});
  CHECK(smooth.item() == infinity);
  CHECK(close(both_gradients(smooth, x), f64({{-1.0 / 30, -13.0 / 30, 7.0 / 15}})));
  CHECK(cross_entropy(x, tensor({0})).item() == infinity);
  // The same with distributions.
  const Tensor q = leaf({{0, 1, 0}});
  const Tensor soft = cross_entropy(x, q);
  CHECK(soft.item() == doctest::Approx(std::log(2)));
  CHECK(close(both_gradients(soft, x), f64({{0, -0.5, 0.5}})));
  CHECK(same(both_gradients(soft, q), f64({{infinity, std::log(2), std::log(2)}})));
  const Tensor smooth_soft = cross_entropy(x, q, {.label_smoothing = 0.1});
  CHECK(smooth_soft.item() == infinity);
  CHECK(close(both_gradients(smooth_soft, x), f64({{-1.0 / 30, -13.0 / 30, 7.0 / 15}})));
  // A class without weight counts for nothing, wherever its logit is.
  const Tensor weight = f64({0, 1, 1});
  CHECK(cross_entropy(x, tensor({1}), {.label_smoothing = 0.3, .weight = weight}).item() < infinity);
  CHECK(cross_entropy(x, tensor({0}), {.weight = weight, .reduction = Reduction::Sum}).item() == 0);
  CHECK(nll_loss(x, tensor({0}), {.weight = weight, .reduction = Reduction::Sum}).item() == 0);
  CHECK(nll_loss(x, tensor({0})).item() == infinity);
}

TEST_CASE("C05 an ignored index drops the rows of that target; its class stays in the denominator") {
  const std::pair<double, double> cases[] = {
      {1, 1.0986122886681098}, {0, 0.8619948040582511}, {-infinity, 0.6931471805599453}};
  for (const auto& [a, wanted] : cases) {
    const Tensor x = f64({{a, 1, 1}, {a, 1, 1}});
    CHECK(cross_entropy(x, tensor({1, 2}), {.ignore_index = 0}).item() == doctest::Approx(wanted).epsilon(1e-13));
    CHECK(nll_loss(log_softmax(x, 1), tensor({1, 2}), {.ignore_index = 0}).item() ==
          doctest::Approx(wanted).epsilon(1e-13));
  }
}

TEST_CASE("nll_loss of log_softmax is cross_entropy, with every reduction, ignored targets and weights") {
  const Tensor t = tensor({{{2, -1}, {0, 1}}, {{1, 1}, {2, 0}}}), w = f64({0.5, 2, 3});
  for (const Shape& shape : {Shape{2, 3, 2, 2}, Shape{8, 3}}) {
    const Tensor x = uniform(shape, -2, 2).requires_grad_();
    const Tensor target = shape.size() == 2 ? t.reshape({8}) : t;
    for (const Reduction reduction : reductions) {
      for (const Tensor& weight : {Tensor(), w}) {
        const Tensor a =
            nll_loss(log_softmax(x, 1), target, {.ignore_index = -1, .weight = weight, .reduction = reduction});
        const Tensor b = cross_entropy(x, target, {.ignore_index = -1, .weight = weight, .reduction = reduction});
        CHECK(close(a.detach(), b.detach()));
        CHECK(close(both_gradients(a, x), both_gradients(b, x)));
      }
    }
  }
}

TEST_CASE("classes in dim 1: places are rows") {
  const Tensor x = uniform({2, 3, 4, 5}, -2, 2), t = argmax(uniform({2, 4, 5, 3}, 0, 1, 7), -1);
  const Tensor rows = reshape(permute(x, {0, 2, 3, 1}), {40, 3}), flat = reshape(t, {40});
  CHECK(same(cross_entropy(x, t), cross_entropy(rows, flat)));
  CHECK(same(nll_loss(x, t), nll_loss(rows, flat)));
  const Tensor each = cross_entropy(x, t, {.reduction = Reduction::None});
  CHECK(same(each.reshape({40}), cross_entropy(rows, flat, {.reduction = Reduction::None})));
  CHECK(close(cross_entropy(x, t, {.reduction = Reduction::BatchMean}), sum(each) / 2));
  CHECK(close(nll_loss(x, t, {.reduction = Reduction::BatchMean}),
              nll_loss(rows, flat, {.reduction = Reduction::Sum}) / 2));
}

TEST_CASE("cross_entropy of distributions") {
  const Tensor x = leaf({{1, 2, 3}, {0.5, -1, 0}}), q = leaf({{0.2, 0.3, 0.5}, {1, 0, 0}}), w = f64({1, 2, 4});
  const Tensor logp = log_softmax(x, 1);
  const auto product = [&](const Tensor& p) { return neg(sum(p * logp, {1})); };
  const Tensor smooth = q * 0.7 + 0.1;
  CHECK(close(cross_entropy(x, q, {.reduction = Reduction::None}).detach(), product(q).detach()));
  CHECK(close(cross_entropy(x, q).detach(), mean(product(q)).detach()));
  // PyTorch's mean divides by the number of rows whatever the weights are.
  const CrossEntropyOptions everything{.label_smoothing = 0.3, .weight = w};
  const Tensor loss = cross_entropy(x, q, everything), wanted = mean(product(smooth * w));
  CHECK(close(loss.detach(), wanted.detach()));
  CHECK(close(both_gradients(loss, x), both_gradients(wanted, x)));
  CHECK(close(both_gradients(loss, q), both_gradients(wanted, q)));
  CHECK(close(both_gradients(cross_entropy(x, q), q), both_gradients(mean(product(q)), q)));
  // One-hot distributions are classes; further dims are places.
  const Tensor z = uniform({2, 3, 4}, -2, 2).requires_grad_(), t = tensor({{0, 1, 2, 0}, {2, 2, 1, 0}});
  const Tensor hot = one_hot(t, 3).transpose(1, 2);
  for (const Reduction reduction : reductions) {
    const Tensor a = cross_entropy(z, hot, {.label_smoothing = 0.1, .reduction = reduction});
    const Tensor b = cross_entropy(z, t, {.label_smoothing = 0.1, .reduction = reduction});
    CHECK(close(a.detach(), b.detach()));
    CHECK(close(both_gradients(a, z), both_gradients(b, z)));
  }
  CHECK(close(cross_entropy(f64({1, 2, 3}), f64({0, 0, 1})), f64(0.4076059644443804)));
  CHECK(cross_entropy(tensor({{1.0, 2.0}}), f64({{0, 1}})).dtype() == Float32);
}

TEST_CASE("a loss whose every target is ignored, or that has none, is 0 with gradient 0") {
  const Tensor x = leaf({{1, nan_value}, {3, infinity}}), t = tensor({-100, -100});
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum, Reduction::BatchMean}) {
    for (const Tensor& loss :
         {cross_entropy(x, t, {.label_smoothing = 0.1, .reduction = reduction}),
          nll_loss(x, t, {.reduction = reduction}), nll_loss(x, t, {.weight = f64({1, 2}), .reduction = reduction})}) {
      CHECK(same(loss.detach(), f64(0)));
      CHECK(amax(abs(both_gradients(loss, x))).item() == 0);
    }
  }
  const Tensor none = zeros({0, 3}, {.requires_grad = true}), no_place = zeros({2, 3, 0}, {.requires_grad = true});
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum, Reduction::BatchMean}) {
    CHECK(cross_entropy(none, zeros({0}, {.dtype = Int64}), {.reduction = reduction}).item() == 0);
    CHECK(nll_loss(none, zeros({0}, {.dtype = Int64}), {.reduction = reduction}).item() == 0);
    CHECK(cross_entropy(none, zeros({0, 3}), {.reduction = reduction}).item() == 0);
    const Tensor loss = cross_entropy(no_place, zeros({2, 0}, {.dtype = Int64}), {.reduction = reduction});
    CHECK(loss.item() == 0);
    CHECK(gradient_of(loss, no_place).shape() == Shape{2, 3, 0});
  }
  CHECK(nll_loss(no_place, zeros({2, 0}, {.dtype = Int64}), {.reduction = Reduction::None}).shape() == Shape{2, 0});
  // Targets that weigh nothing count for nothing.
  CHECK(nll_loss(f64({{1, 2}}), tensor({0}), {.weight = f64({0, 1})}).item() == 0);
}

TEST_CASE("cross_entropy of logits around 10000 keeps its digits, in Float32") {
  const Tensor x = tensor({{1e4 + 1, 1e4, 1e4 + 2.5}, {-1e4, -1e4 + 1, -1e4}}).requires_grad_(), t = tensor({0, 1});
  const Tensor exact = x.detach().to(Float64).requires_grad_();
  for (const double smoothing : {0.0, 0.1}) {
    const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = Reduction::None};
    const Tensor loss = cross_entropy(x, t, options), wanted = cross_entropy(exact, t, options);
    CHECK(close(loss.detach(), wanted.detach(), 3e-7));
    CHECK(close(gradient_of(loss, x), gradient_of(wanted, exact), 3e-7));
  }
  // What is left to learn from a row that is right already.
  const Tensor sure = tensor({{20.0, 0.0}}).requires_grad_();
  CHECK(close(gradient_of(cross_entropy(sure, tensor({0})), sure) * 1e9, tensor({{-1.0, 1.0}}) * (1e9 * std::exp(-20)),
              1e-6));
}

TEST_CASE("S05 kl_div: a probability of 0 costs nothing, whatever stands beside it") {
  const Tensor x = leaf({{-infinity, std::log(0.5), std::log(0.5)}}), t = leaf({{0, 0.25, 0.75}});
  const double wanted = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  const Tensor loss = kl_div(x, t, {.reduction = Reduction::BatchMean});
  CHECK(loss.item() == doctest::Approx(wanted).epsilon(1e-13));
  CHECK(close(both_gradients(loss, x), f64({{0, -0.25, -0.75}})));
  CHECK(close(both_gradients(loss, t), f64({{0, 1 + std::log(0.5), 1 + std::log(1.5)}})));
  const Tensor log_t = leaf({{-infinity, std::log(0.25), std::log(0.75)}});
  const Tensor by_log = kl_div(x, log_t, {.reduction = Reduction::BatchMean, .log_target = true});
  CHECK(by_log.item() == doctest::Approx(wanted).epsilon(1e-13));
  CHECK(close(both_gradients(by_log, x), f64({{0, -0.25, -0.75}})));
  CHECK(close(both_gradients(by_log, log_t), f64({{0, 0.25 * (1 + std::log(0.5)), 0.75 * (1 + std::log(1.5))}})));
  // What is possible but ruled out costs everything.
  CHECK(kl_div(x, f64({{0.5, 0.5, 0}})).item() == infinity);
  CHECK(
      close(both_gradients(kl_div(x, f64({{0.5, 0.5, 0}}), {.reduction = Reduction::Sum}), x), f64({{-0.5, -0.5, 0}})));
}

TEST_CASE("kl_div: reductions") {
  const Tensor x = f64({{-1, -2}, {-3, -0.5}}), t = f64({{0.5, 0.5}, {0.1, 0.9}});
  const Tensor terms = t * (log(t) - x);
  CHECK(close(kl_div(x, t, {.reduction = Reduction::None}), terms));
  CHECK(close(kl_div(x, t), mean(terms)));
  CHECK(close(kl_div(x, t, {.reduction = Reduction::Sum}), sum(terms)));
  CHECK(close(kl_div(x, t, {.reduction = Reduction::BatchMean}), sum(terms) / 2));
  CHECK(close(kl_div(x, log(t), {.reduction = Reduction::BatchMean, .log_target = true}), sum(terms) / 2));
  CHECK(kl_div(f64(-1), f64(0.5), {.reduction = Reduction::BatchMean}).shape() == Shape{});
}

TEST_CASE("binary_cross_entropy_with_logits") {
  const Tensor x = leaf({{0.5, -2, 3}, {1, 0, -1}}), t = leaf({{1, 0, 0.25}, {0, 0.5, 1}});
  const Tensor w = f64({1, 2, 3}), p = f64({{2}, {0.5}});
  const Tensor s = sigmoid(x), terms = neg(p * t * log(s) + (1 - t) * log(1 - s)) * w;
  const Tensor loss = binary_cross_entropy_with_logits(x, t, {.weight = w, .pos_weight = p});
  CHECK(close(loss.detach(), mean(terms).detach()));
  CHECK(close(both_gradients(loss, x), both_gradients(mean(terms), x)));
  CHECK(close(both_gradients(loss, t), both_gradients(mean(terms), t)));
  CHECK(close(
      binary_cross_entropy_with_logits(x, t, {.weight = w, .pos_weight = p, .reduction = Reduction::None}).detach(),
      terms.detach()));
  CHECK(binary_cross_entropy_with_logits(tensor({0.0}), tensor({true})).item() == doctest::Approx(std::log(2)));
  CHECK(binary_cross_entropy_with_logits(zeros({0}), zeros({0}), {.reduction = Reduction::Sum}).item() == 0);
}

TEST_CASE("binary_cross_entropy_with_logits of large and of infinite logits") {
  const Tensor x = tensor({-1e4, 1e4, -30.0, 30.0}).requires_grad_(), t = tensor({0.0, 1.0, 0.0, 1.0});
  const double tail = std::log1p(std::exp(-30));
  const Tensor right = binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::None});
  CHECK(close(right.detach() * 1e13, tensor({0.0, 0.0, tail * 1e13, tail * 1e13}), 1e-6));
  CHECK(close(both_gradients(right, x) * 1e13, tensor({0.0, 0.0, std::exp(-30) * 1e13, -std::exp(-30) * 1e13}), 1e-6));
  const Tensor wrong = binary_cross_entropy_with_logits(x, 1 - t, {.reduction = Reduction::None});
  CHECK(close(wrong.detach(), tensor({1e4, 1e4, 30.0, 30.0}), 1e-6));
  CHECK(close(both_gradients(wrong, x), tensor({-1.0, 1.0, -1.0, 1.0}), 1e-6));
  const Tensor far = leaf({-infinity, infinity, -infinity, infinity});
  const Tensor certain = binary_cross_entropy_with_logits(far, f64({0, 1, 1, 0}), {.reduction = Reduction::None});
  CHECK(same(certain.detach(), f64({0, 0, infinity, infinity})));
  CHECK(close(both_gradients(certain, far), f64({0, 0, -1, 1})));
}

TEST_CASE("mse_loss: reductions") {
  const Tensor x = f64({{1, 2}, {4, 0}}), y = f64({{0, 2}, {1, 1}});
  CHECK(mse_loss(x, y, Reduction::BatchMean).item() == 5.5);
  CHECK(mse_loss(f64(3), f64(1)).item() == 4);
}

TEST_CASE("losses of strided inputs") {
  for (const Layout layout : layouts) {
    const Tensor x = laid_out({4, 3, 2}, layout, -2, 2, 1).detach(), q = laid_out({4, 3, 2}, layout, 0, 1, 2).detach();
    const Tensor t = transpose(tensor({{0, 1, 2, 0}, {2, 2, 1, 0}}), 0, 1);
    CHECK(same(cross_entropy(x, t), cross_entropy(x.clone(), t.clone())));
    CHECK(same(nll_loss(x, t), nll_loss(x.clone(), t.clone())));
    CHECK(same(cross_entropy(x, q), cross_entropy(x.clone(), q.clone())));
    CHECK(same(kl_div(x, q), kl_div(x.clone(), q.clone())));
    CHECK(same(binary_cross_entropy_with_logits(x, q), binary_cross_entropy_with_logits(x.clone(), q.clone())));
  }
}
