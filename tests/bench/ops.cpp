// Single ops, forward and backward.
#include "bench.h"

using namespace gradus;

namespace bench {
namespace {

/// Forward and backward of one op, for an upstream gradient of random numbers.
template <class Op>
void one_op(const char* name, const Tensor& x, const Op& op) {
  if (!wanted(name)) return;
  const Tensor g = randn(op(x.detach()).shape());
  report(name, best_seconds([&] {
           x.zero_grad();
           op(x).backward(g);
         }));
}

/// One of n slices of a vector, with its share of the backward: the same for every n, if the cost is linear.
void slices(const char* name, std::int64_t n) {
  if (!wanted(name)) return;
  const Tensor x = randn({n}, {.requires_grad = true});
  report(name, best_seconds([&] {
                 x.zero_grad();
                 Tensor total = zeros({1});
                 for (std::int64_t i = 0; i < n; ++i) total = total + x.narrow(0, i, 1);
                 total.backward();
               }) / static_cast<double>(n));
}

}  // namespace

void single_ops() {
  constexpr std::int64_t rows = 4096, n = 512;
  const Tensor x = randn({rows, n}, {.requires_grad = true});
  const Tensor weight = ones({n}, {.requires_grad = true}), bias = zeros({n}, {.requires_grad = true});
  const Tensor target = randint(0, n, {rows});
  const Tensor table = randn({1000, n}, {.requires_grad = true}), tokens = randint(0, 100, {64, 128});
  one_op("softmax", x, [](const Tensor& in) { return softmax(in, -1); });
  one_op("layer_norm", x, [&](const Tensor& in) { return layer_norm(in, weight, bias); });
  one_op("cross_entropy", x, [&](const Tensor& in) { return cross_entropy(in, target); });
  one_op("sum", x, [](const Tensor& in) { return in.sum({-1}); });
  one_op("cat", x, [](const Tensor& in) { return cat({in, in, in, in}, 1); });
  one_op("embedding", table, [&](const Tensor& in) { return embedding(in, tokens); });
  slices("slice_of_1000", 1000);
  slices("slice_of_8000", 8000);
}

}  // namespace bench
