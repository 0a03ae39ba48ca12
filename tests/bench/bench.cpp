// The speed comparison's own side: prints one line per case, name<TAB>seconds for one step (best of the repeats), as
// peer/peer_torch.cpp does for the same work in libtorch. README.md says what a step of each case is.
//
//   gradus_bench [seconds for each case] [only the cases with this in their name]
//
// Threads come from GRADUS_NUM_THREADS or, where that is not set, OMP_NUM_THREADS.
#include <gradus/gradus.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

using namespace gradus;

namespace {

double budget = 2;  // seconds for each case
std::string only;   // part of the names of the wanted cases

template <class Step>
double best_seconds(const Step& step) {
  const auto time = [&](int repeats) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) step();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  time(3);
  const int repeats = std::max(1, static_cast<int>(0.02 / time(1)));
  double best = 1e30;
  for (double spent = 0; spent < budget;) {
    const double seconds = time(repeats);
    spent += seconds;
    best = std::min(best, seconds / repeats);
  }
  return best;
}

bool wanted(const std::string& name) { return name.find(only) != std::string::npos; }

void report(const char* name, double seconds) {
  std::printf("%s\t%.9f\n", name, seconds);
  std::fflush(stdout);
}

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
  report(c.name, best_seconds([&] {
           attend.zero_grad();
           x.zero_grad();
           attend(x, x, x, mask).sum().backward();
         }));
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
  report(c.name, best_seconds([&] {
           const Tensor source = randint(1, vocabulary, {c.batch, length});
           const Tensor target = source.slice(1, 0, length - 1), next = source.slice(1, 1, length);
           const Tensor source_mask = nn::padding_mask(source, padding);
           const Tensor target_mask = nn::subsequent_mask(length - 1);
           const Tensor logits = net(source, target, source_mask, target_mask);
           const Tensor loss = cross_entropy(logits.reshape({-1, vocabulary}), next.reshape({-1}));
           opt.zero_grad();
           loss.backward();
           opt.step();
         }));
}

/// Forward and backward of one op, for an upstream gradient of random numbers.
template <class Op>
void one_op(const char* name, const Tensor& x, const Op& op) {
  const Tensor g = randn(op(x.detach()).shape());
  report(name, best_seconds([&] {
           x.zero_grad();
           op(x).backward(g);
         }));
}

void single_ops() {
  constexpr std::int64_t rows = 4096, n = 512;
  const Tensor x = randn({rows, n}, {.requires_grad = true});
  if (wanted("softmax")) one_op("softmax", x, [](const Tensor& in) { return softmax(in, -1); });
  if (wanted("layer_norm")) {
    const Tensor weight = ones({n}, {.requires_grad = true}), bias = zeros({n}, {.requires_grad = true});
    one_op("layer_norm", x, [&](const Tensor& in) { return layer_norm(in, weight, bias); });
  }
  if (wanted("cross_entropy")) {
    const Tensor target = randint(0, n, {rows});
    one_op("cross_entropy", x, [&](const Tensor& in) { return cross_entropy(in, target); });
  }
  if (wanted("sum")) one_op("sum", x, [](const Tensor& in) { return in.sum({-1}); });
  if (wanted("cat")) {
    one_op("cat", x, [](const Tensor& in) { return cat({in, in, in, in}, 1); });
  }
  if (wanted("embedding")) {  // each of 100 rows is looked up about 80 times
    const Tensor table = randn({1000, n}, {.requires_grad = true}), tokens = randint(0, 100, {64, 128});
    one_op("embedding", table, [&](const Tensor& in) { return embedding(in, tokens); });
  }
}

/// One of n slices of a vector, with its share of the backward: the same for every n, if the cost is linear.
void slices(const char* name, std::int64_t n) {
  const Tensor x = randn({n}, {.requires_grad = true});
  report(name, best_seconds([&] {
                 x.zero_grad();
                 Tensor total = zeros({1});
                 for (std::int64_t i = 0; i < n; ++i) total = total + x.narrow(0, i, 1);
                 total.backward();
               }) / static_cast<double>(n));
}

void run_all() {
  manual_seed(0);
  if (wanted("small_op")) small_op();
  if (wanted("mlp_small")) mlp_small();
  for (const AttentionCase& c : {AttentionCase{"mha_32x10x64", 32, 10, 64, 4},
                                 {"mha_8x128x256", 8, 128, 256, 8},
                                 {"mha_2x512x512", 2, 512, 512, 8},
                                 {"mha_1x2048x512", 1, 2048, 512, 8}}) {
    if (wanted(c.name)) attention(c);
  }
  for (const CopyCase& c : {CopyCase{"copy_small", 64, 128, 4, 32}, {"copy_paper", 512, 2048, 8, 80}}) {
    if (wanted(c.name)) copy_task(c);
  }
  single_ops();
  if (wanted("slice_of_1000")) slices("slice_of_1000", 1000);
  if (wanted("slice_of_8000")) slices("slice_of_8000", 8000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) budget = std::atof(argv[1]);
  if (argc > 2) only = argv[2];
  if (argc > 3 || budget <= 0) {
    std::fprintf(stderr, "usage: gradus_bench [seconds for each case] [part of the names of the wanted cases]\n");
    return 2;
  }
  try {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    if (threads && !std::getenv("GRADUS_NUM_THREADS")) set_num_threads(std::atoi(threads));
    run_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_bench: %s\n", error.what());
    return 1;
  }
}
