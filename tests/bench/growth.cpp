// Time against size: one line for each size, name_SIZE; the script fits the exponents.
#include <initializer_list>
#include <memory>

#include "bench.h"

using namespace gradus;

namespace bench {
namespace {

/// make(size) returns the step to time.
template <class Make>
void series(const std::string& name, std::initializer_list<std::int64_t> sizes, const Make& make) {
  for (const std::int64_t size : sizes) {
    const std::string full = name + "_" + std::to_string(size);
    if (wanted(full)) report(full, best_seconds(make(size)));
  }
}

auto attention_step(std::int64_t length) {
  constexpr std::int64_t d_model = 256, heads = 4;
  const nn::MultiHeadAttention attend(heads, d_model);
  const Tensor x = randn({1, length, d_model}, {.requires_grad = true});
  const Tensor mask = nn::subsequent_mask(length);
  return [=] {
    attend.zero_grad();
    x.zero_grad();
    attend(x, x, x, mask).sum().backward();
  };
}

auto transformer_step(std::int64_t batch, std::int64_t d_model, std::int64_t layers) {
  constexpr std::int64_t vocabulary = 11, length = 10;
  const nn::Transformer net(
      vocabulary, vocabulary,
      {.d_model = d_model, .heads = 4, .layers = layers, .d_ff = 4 * d_model, .dropout = 0.1, .max_len = 512});
  const Tensor source = randint(1, vocabulary, {batch, length});
  const auto opt = std::make_shared<optim::Adam>(net.parameters(), optim::AdamOptions{.lr = 1e-3});
  return [=] {
    const Tensor logits = net(source, source, nn::padding_mask(source, 0), nn::subsequent_mask(length));
    opt->zero_grad();
    cross_entropy(logits.reshape({-1, vocabulary}), source.reshape({-1})).backward();
    opt->step();
  };
}

auto tape_step(std::int64_t ops) {
  const Tensor a = randn({4}, {.requires_grad = true});
  return [=] {
    a.zero_grad();
    Tensor x = a;
    for (std::int64_t i = 0; i < ops; ++i) x = x + a;
    x.sum().backward();
  };
}

auto slices_step(std::int64_t n) {
  const Tensor x = randn({n}, {.requires_grad = true});
  return [=] {
    x.zero_grad();
    Tensor total = zeros({1});
    for (std::int64_t i = 0; i < n; ++i) total = total + x.narrow(0, i, 1);
    total.backward();
  };
}

/// Rows looked up one by one in a table of as many.
auto embedding_step(std::int64_t rows) {
  const Tensor table = randn({rows, 64}, {.requires_grad = true}), tokens = randint(0, rows, {rows});
  return [=] {
    table.zero_grad();
    Tensor total = zeros({1, 64});
    for (std::int64_t i = 0; i < rows; ++i) total = total + embedding(table, tokens.narrow(0, i, 1));
    total.sum().backward();
  };
}

}  // namespace

void growth() {
  series("length", {256, 512, 1024, 2048, 4096}, attention_step);
  series("batch", {8, 16, 32, 64, 128}, [](std::int64_t batch) { return transformer_step(batch, 128, 2); });
  series("width", {64, 128, 256, 512}, [](std::int64_t width) { return transformer_step(32, width, 2); });
  series("depth", {1, 2, 4, 8, 16}, [](std::int64_t depth) { return transformer_step(32, 128, depth); });
  series("tape", {62500, 125000, 250000, 500000, 1000000}, tape_step);
  series("slices", {16000, 32000, 64000, 128000, 256000}, slices_step);
  series("embedding_rows", {8000, 16000, 32000, 64000, 128000}, embedding_step);
}

}  // namespace bench
