// Training steps, and the same models forward only.
#include "bench.h"

using namespace gradus;

namespace bench {
namespace {

// What one recorded op costs, backward included, where the arithmetic is next to nothing.
void small_op() {
  constexpr int ops = 1000;
  const Tensor a = randn({4, 4}, {.requires_grad = true});
  report("small_op", best_seconds([&] {
                       Tensor x = a;
                       for (int i = 0; i < ops; ++i) x = x + a;
                       x.sum().backward();
                     }) / ops);
}

void mlp_small() {
  const nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 1));
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  const Tensor x = randn({100, 2}), y = randn({100, 1});
  report("mlp_small", best_seconds([&] {
           opt.zero_grad();
           const Tensor loss = (net(x) - y).pow(2).mean();
           loss.backward();
           opt.step();
         }));
}

struct AttentionCase {
  const char* name;
  std::int64_t batch, length, d_model, heads;
};

void attention(const AttentionCase& c) {
  const nn::MultiHeadAttention attend(c.heads, c.d_model);
  const Tensor x = randn({c.batch, c.length, c.d_model}, {.requires_grad = true});
  const Tensor mask = ones({1, c.length, c.length}).tril();
  if (wanted(c.name)) {
    report(c.name, best_seconds([&] {
             attend.zero_grad();
             x.zero_grad();
             attend(x, x, x, mask).sum().backward();
           }));
  }
  const std::string forward = std::string("forward_") + c.name;
  if (wanted(forward)) {
    const NoGradGuard guard;
    report(forward, best_seconds([&] { attend(x, x, x, mask); }));
  }
}

struct CopyCase {
  const char* name;
  std::int64_t d_model, d_ff, heads, batch;
};

void copy_task(const CopyCase& c) {
  constexpr std::int64_t vocabulary = 11, length = 10, padding = 0;
  const nn::Transformer net(
      vocabulary, vocabulary,
      {.d_model = c.d_model, .heads = c.heads, .layers = 2, .d_ff = c.d_ff, .dropout = 0.1, .max_len = 512});
  optim::Adam opt(net.parameters(), {.lr = 1e-3, .betas = {0.9, 0.98}, .eps = 1e-9});
  const auto loss_of_batch = [&] {
    const Tensor source = randint(1, vocabulary, {c.batch, length});
    const Tensor target = source.slice(1, 0, length - 1), next = source.slice(1, 1, length);
    const Tensor source_mask = nn::padding_mask(source, padding);
    const Tensor target_mask = nn::subsequent_mask(length - 1);
    const Tensor logits = net(source, target, source_mask, target_mask);
    return cross_entropy(logits.reshape({-1, vocabulary}), next.reshape({-1}));
  };
  if (wanted(c.name)) {
    report(c.name, best_seconds([&] {
             const Tensor loss = loss_of_batch();
             opt.zero_grad();
             loss.backward();
             opt.step();
           }));
  }
  const std::string forward = std::string("forward_") + c.name;
  if (wanted(forward)) {
    const NoGradGuard guard;
    report(forward, best_seconds(loss_of_batch));
  }
}

}  // namespace

void training() {
  if (wanted("small_op")) small_op();
  if (wanted("mlp_small")) mlp_small();
  for (const AttentionCase& c : {AttentionCase{"mha_32x10x64", 32, 10, 64, 4},
                                 {"mha_8x128x256", 8, 128, 256, 8},
                                 {"mha_2x512x512", 2, 512, 512, 8},
                                 {"mha_1x2048x512", 1, 2048, 512, 8}}) {
    if (wanted(c.name) || wanted(std::string("forward_") + c.name)) attention(c);
  }
  for (const CopyCase& c : {CopyCase{"copy_small", 64, 128, 4, 32}, {"copy_paper", 512, 2048, 8, 80}}) {
    if (wanted(c.name) || wanted(std::string("forward_") + c.name)) copy_task(c);
  }
}

}  // namespace bench
