// layer_norm and the losses.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("N01: layer_norm does not cancel, in Float32") {
  for (const auto& row_mean : {std::pair{0.0, -1.3416408079329682},
                               {100.0, -1.3415277110072739},
                               {1000.0, -1.3415077616349704},
                               {10000.0, -1.3313333517322157}}) {
    const double mean = row_mean.first, first = row_mean.second;
    std::vector<float> row(16);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(mean + static_cast<double>(i) * 1e-3);
    const Tensor y = layer_norm(from_vector(row, {1, 16}));
    CAPTURE(mean);
    CHECK(std::abs(double{y.at<float>({0, 0})} - first) < 2e-3);
  }
  const Tensor big = layer_norm(tensor({40000.0, 40001.0, 40002.0, 40003.0}));
  CHECK(close(big, f64({-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269}), 1e-5));
  const Tensor bias = uniform({256}, -1, 1, 1, Float32);
  CHECK(same(layer_norm(full({256}, 1234), {}, bias), bias));
}

TEST_CASE("N02: a row without variance") {
  const Tensor x = leaf({{5, 5, 5}}), w = leaf({1, 2, 3}), b = leaf({.1, .2, .3});
  const Tensor y = layer_norm(x, w, b);
  CHECK(same(y, f64({{.1, .2, .3}})));
  y.backward(f64({{1, 0, -1}}));
  CHECK(close(x.grad(), f64({{527.0462766947298, 210.81851067789194, -737.8647873726218}}), 1e-12));
  CHECK(close(w.grad(), f64({0, 0, 0})));
  CHECK(same(b.grad(), f64({1, 0, -1})));
}

TEST_CASE("N04: the gradient of a plain sum of a layer_norm is 0, that of a weighted one is not") {
  const Tensor x = uniform({10, 512}, 0, 1).requires_grad_(), y = layer_norm(x);
  CHECK(amax(abs(gradient_of(y, x))).item() < 1e-10);
  CHECK(amax(abs(gradient_of(y, x, uniform({10, 512}, 0, 1, 2)))).item() > 0.1);
}

TEST_CASE("N06: layer_norm of a batch of sequences") {
  const Tensor x = leaf({{{1, 4, 2}, {8, 5, 7}}, {{-1, 0, 3}, {2, 2, 9}}}), w = leaf({1, 2, 3}), b = leaf({0, 1, 2});
  const Tensor y = layer_norm(x, w, b);
  CHECK(close(y,
              f64({{{-1.0690415314502977, 3.672603828625743, 1.1982188514122762},
                    {1.0690415314502975, -1.6726038286257445, 2.8017811485877226}},
                   {{-0.9805789785364645, 0.2155368171708284, 6.11843170985315},
                    {-0.7071064564948821, -0.41421291298976426, 6.242638738969291}}}),
              1e-13));
  y.backward(count({2, 2, 3}));
  CHECK(close(x.grad(),
              f64({{{-1.8326445888764145, -0.9163188582553741, 2.7489634471317883},
                    {-3.550751468085176, -1.7753645664483848, 5.326116034533561}},
                   {{-0.9504216781588397, 1.267204012677726, -0.3167823345188818},
                    {-1.6667526493926998, 1.6667492169403149, 3.4324523894291303e-06}}}),
              1e-11));
  CHECK(close(w.grad(), f64({-9.040307385321833, -13.82559144778954, 27.34060775108352}), 1e-12));
  CHECK(same(b.grad(), f64({18, 22, 26})));
}

TEST_CASE("layer_norm over several dims: those of the weight, or named") {
  const Tensor x = uniform({2, 3, 4}, -2, 2).requires_grad_(), w = uniform({3, 4}, 0, 1, 2).requires_grad_(),
               b = uniform({3, 4}, 0, 1, 3).requires_grad_(), g = uniform({2, 3, 4}, -1, 1, 4);
  const Tensor centered = x - mean(x, {1, 2}, true);
  const Tensor wanted = centered / sqrt(mean(square(centered), {1, 2}, true) + 0.5) * w + b;
  for (const Tensor& y : {layer_norm(x, w, b, 0.5), layer_norm(x, {3, 4}, w, b, 0.5)}) {
    CHECK(close(y.detach(), wanted.detach()));
    for (const Tensor& input : {x, w, b}) CHECK(close(gradient_of(y, input, g), gradient_of(wanted, input, g)));
  }
  CHECK(same(layer_norm(x, {}, b, 0.5).detach(), layer_norm(x, {3, 4}, {}, b, 0.5).detach()));
  CHECK(same(layer_norm(x, Shape{2, 3, 4}).detach(), layer_norm(x.reshape({24})).detach().reshape({2, 3, 4})));
  CHECK(same(layer_norm(x, 4).detach(), layer_norm(x).detach()));
  CHECK(same(layer_norm(x, {4}, 0.5).detach(), layer_norm(x, {}, {}, 0.5).detach()));
  CHECK(layer_norm(zeros({0, 2, 3}), ones({2, 3})).shape() == Shape{0, 2, 3});
}

TEST_CASE("N01: the gradient of layer_norm's weight does not cancel, in Float32") {
  std::vector<float> row(16);
  double mean = 0, squares = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    row[i] = static_cast<float>(10000 + static_cast<double>(i) * 1e-3);
    mean += (static_cast<double>(row[i]) - 10000) / 16;
  }
  for (const float v : row) squares += std::pow(static_cast<double>(v) - 10000 - mean, 2) / 16;
  const Tensor x = from_vector(row, {1, 16}), w = ones({16}, {.requires_grad = true});
  for (const bool create_graph : {false, true}) {
    const Tensor dw = grad({layer_norm(x, w)}, {w}, {ones({1, 16})}, {.create_graph = create_graph})[0];
    for (std::size_t i = 0; i < 16; ++i) {
      const double wanted = (static_cast<double>(row[i]) - 10000 - mean) / std::sqrt(squares + 1e-5);
      CHECK(dw.at<float>({static_cast<std::int64_t>(i)}) == doctest::Approx(wanted).epsilon(1e-5));
    }
  }
}

TEST_CASE("layer_norm of strided and empty inputs, and of a NaN") {
  for (const Layout layout : layouts) {
    const Tensor x = laid_out({3, 4}, layout, -2, 2, 1).detach(), w = laid_out({4}, layout, -2, 2, 2).detach();
    CHECK(same(layer_norm(x, w, w), layer_norm(x.clone(), w.clone(), w.clone())));
  }
  CHECK(layer_norm(zeros({0, 4})).shape() == Shape{0, 4});
  CHECK(close(layer_norm(f64({{3}})), f64({{0}})));
  const Tensor y = layer_norm(f64({{1, nan_value}, {1, 2}}));
  CHECK(any_nan(select(y, 0, 0)));
  CHECK_FALSE(any_nan(select(y, 0, 1)));
}

namespace {

/// The loss of PyTorch's documentation, from plain log_softmax.
double reference(const Tensor& x, const std::vector<std::int64_t>& targets, std::int64_t ignore, double smoothing,
                 const std::vector<double>& weight, Reduction reduction) {
  const Tensor logp = log_softmax(x, -1);
  const std::int64_t classes = x.size(1);
  double total = 0, weights = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i), t = targets[i];
    if (t == ignore) continue;
    const double w = weight[static_cast<std::size_t>(t)];
    total -= (1 - smoothing) * w * logp.at<double>({row, t});
    for (std::int64_t j = 0; j < classes; ++j)
      total -=
          smoothing / static_cast<double>(classes) * weight[static_cast<std::size_t>(j)] * logp.at<double>({row, j});
    weights += w;
  }
  return reduction == Reduction::Mean ? total / weights : total;
}

}  // namespace

TEST_CASE("cross_entropy with everything it knows") {
  const Tensor x = uniform({5, 4}, -2, 2);
  const std::vector<std::int64_t> targets = {2, 0, -100, 3, 2};
  const Tensor t = from_vector(targets, {5});
  const std::vector<double> even(4, 1), uneven = {1, 0.5, 2, 3};
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    for (const bool weighted : {false, true}) {
      for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
        CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
        if (weighted) options.weight = from_vector(uneven, {4});
        const double wanted = reference(x, targets, -100, smoothing, weighted ? uneven : even, reduction);
        CAPTURE(smoothing);
        CAPTURE(weighted);
        CHECK(cross_entropy(x, t, options).item() == doctest::Approx(wanted).epsilon(1e-12));
        options.reduction = Reduction::None;
        const Tensor rows = cross_entropy(x, t, options);
        CHECK(rows.at<double>({2}) == 0);
        CHECK(sum(rows).item() ==
              doctest::Approx(reference(x, targets, -100, smoothing, weighted ? uneven : even, Reduction::Sum)));
        CHECK(same(cross_entropy(x.transpose(0, 1).clone().transpose(0, 1), t, options), rows));
      }
    }
  }
}

TEST_CASE("cross_entropy ignores: rows, whole batches, and what stands in them") {
  const Tensor x = leaf({{1, 2, 3}, {nan_value, infinity, 0}, {3, 2, 1}});
  const Tensor t = tensor({0, 7, 2});
  const CrossEntropyOptions options{.ignore_index = 7};
  const Tensor loss = cross_entropy(x, t, options);
  CHECK(loss.item() == doctest::Approx(2.4076059644443806));
  for (const bool create_graph : {false, true}) {
    const Tensor dx = grad({loss}, {x}, {}, {.retain_graph = true, .create_graph = create_graph})[0].detach();
    CHECK(same(select(dx, 0, 1), f64({0, 0, 0})));
    CHECK_FALSE(any_nan(dx));
  }
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
    const Tensor y = leaf({{1, 2}, {3, 4}});
    const Tensor none = cross_entropy(y, tensor({-100, -100}), {.reduction = reduction});
    CHECK(same(none, f64(0)));
    for (const bool create_graph : {false, true})
      CHECK(same(grad({none}, {y}, {}, {.retain_graph = true, .create_graph = create_graph})[0].detach(),
                 zeros({2, 2}, {.dtype = Float64})));
  }
  CHECK(same(cross_entropy(zeros({0, 3}), zeros({0}, {.dtype = Int64})), zeros({})));
}

TEST_CASE("cross_entropy of large, of far apart and of -inf logits, in Float32") {
  CHECK(cross_entropy(tensor({{1e4, -1e4}}), tensor({1})).item() == 20000);
  CHECK(cross_entropy(tensor({{1e4, -1e4}}), tensor({0})).item() == 0);
  const Tensor x = leaf({{-infinity, 0, 0}});
  const Tensor loss = cross_entropy(x, tensor({1}));
  CHECK(loss.item() == doctest::Approx(std::log(2)));
  loss.backward();
  CHECK(close(x.grad(), f64({{0, -0.5, 0.5}})));
  CHECK(cross_entropy(f64({0, 0}), tensor(1)).shape() == Shape{});
  CHECK(cross_entropy(f64({0, 0}), tensor(1), {.reduction = Reduction::None}).shape() == Shape{});
}

TEST_CASE("the second derivative of cross_entropy is diag(p) - p·pᵀ") {
  const Tensor x = leaf({{0.5, -1, 2}});
  const Tensor p = softmax(x.detach(), -1).reshape({3});
  const Tensor dx = grad({cross_entropy(x, tensor({1}))}, {x}, {}, {.create_graph = true})[0];
  for (std::int64_t i = 0; i < 3; ++i) {
    const Tensor row = grad({dx.index({0, i})}, {x}, {}, {.retain_graph = true})[0].reshape({3});
    Tensor wanted = -p * p.at<double>({i});
    wanted.at<double>({i}) += p.at<double>({i});
    CHECK(close(row, wanted));
  }
}

TEST_CASE("mse_loss") {
  const Tensor x = leaf({1, 2, 4}), y = f64({0, 2, 1});
  CHECK(same(mse_loss(x, y, Reduction::None), f64({1, 0, 9})));
  CHECK(mse_loss(x, y, Reduction::Sum).item() == 10);
  const Tensor loss = mse_loss(x, y);
  CHECK(loss.item() == doctest::Approx(10.0 / 3));
  loss.backward();
  CHECK(close(x.grad(), f64({2.0 / 3, 0, 2})));
}

TEST_CASE("layer_norm of rows whose squares are too large for a number, and of no elements") {
  const double a = 1.3416407864998738, b = a / 3;
  for (const double scale : {1e19, 1e25, 3e37}) {
    const Tensor x = (tensor({{1.0, 2.0, 3.0, 4.0}}) * scale).detach().requires_grad_();
    const Tensor y = layer_norm(x);
    CHECK(close(y, f64({{-a, -b, b, a}}), 1e-6));
    CHECK(close(gradient_of(y, x, tensor({{1.0, 0.0, 0.0, 0.0}})) * scale,
                gradient_of(layer_norm(x / scale, {}, {}, 0), x, tensor({{1.0, 0.0, 0.0, 0.0}})) * scale, 1e-5));
  }
  CHECK(close(layer_norm(f64({{1e200, 2e200, 3e200, 4e200}})), f64({{-a, -b, b, a}})));
  CHECK(any(layer_norm(f64({{1, infinity}})) != f64({{0, 0}})));  // NaN, not a quiet 0

  const Tensor none = zeros({3, 0}, {.dtype = Float64, .requires_grad = true}), w = ones({0}, {.dtype = Float64});
  CHECK(layer_norm(none, w).shape() == Shape{3, 0});
  CHECK(layer_norm(zeros({3, 2, 0}), Shape{2, 0}).shape() == Shape{3, 2, 0});
  CHECK(gradient_of(layer_norm(none, w), none).shape() == Shape{3, 0});
}
