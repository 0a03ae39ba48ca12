// The peer in the speed comparison: the cases that tests/bench must run too, written with libtorch.
// Called as gradus_bench is (../main.cpp). Prints one line per case: name<TAB>seconds for one step (best of the
// repeats). --version prints libtorch's.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "models.h"

static double best_seconds(const std::function<void()>& step, double budget) {
  using clock = std::chrono::steady_clock;
  for (int i = 0; i < 3; ++i) step();
  auto t0 = clock::now();
  step();
  double one = std::chrono::duration<double>(clock::now() - t0).count();
  int inner = std::max(1, (int)(0.02 / one));
  double best = 1e30, spent = 0;
  while (spent < budget) {
    auto t = clock::now();
    for (int i = 0; i < inner; ++i) step();
    double dt = std::chrono::duration<double>(clock::now() - t).count();
    spent += dt;
    best = std::min(best, dt / inner);
  }
  return best;
}

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--version") return std::puts(TORCH_VERSION) < 0;
  double budget = argc > 1 ? atof(argv[1]) : 2.0;
  std::string only = argc > 2 ? argv[2] : "";
  if (const char* t = std::getenv("OMP_NUM_THREADS")) torch::set_num_threads(atoi(t));
  torch::manual_seed(0);
  auto want = [&](const std::string& n) {
    return only[0] == '=' ? n == only.substr(1) : n.find(only) != std::string::npos;
  };
  auto report = [&](const char* n, double s) {
    std::printf("%s\t%.9f\n", n, s);
    std::fflush(stdout);
  };

  // The faster of the composed and, where there is one, the fused attention.
  auto best_attention = [&](const std::function<void()>& step) {
    use_fused = false;
    double seconds = best_seconds(step, budget);
#if TORCH_VERSION_MAJOR >= 2
    use_fused = true;
    seconds = std::min(seconds, best_seconds(step, budget));
#endif
    return seconds;
  };

  if (want("small_op")) {
    // 1000 recorded scalar-sized adds and their backward: cost per op, forward + backward.
    auto a = torch::randn({4, 4}, torch::requires_grad());
    report("small_op", best_seconds(
                           [&] {
                             Tensor x = a;
                             for (int i = 0; i < 1000; ++i) x = x + a;
                             x.sum().backward();
                           },
                           budget) /
                           1000);
  }
  if (want("mlp_small")) {
    nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 1));
    torch::optim::SGD opt(net->parameters(), torch::optim::SGDOptions(0.01));
    auto x = torch::randn({100, 2}), y = torch::randn({100, 1});
    report("mlp_small", best_seconds(
                            [&] {
                              opt.zero_grad();
                              auto l = (net->forward(x) - y).pow(2).mean();
                              l.backward();
                              opt.step();
                            },
                            budget));
  }
  struct A {
    const char* name;
    int64_t b, t, d, h;
  };
  for (A c : {A{"mha_32x10x64", 32, 10, 64, 4}, A{"mha_8x128x256", 8, 128, 256, 8}, A{"mha_2x512x512", 2, 512, 512, 8},
              A{"mha_1x2048x512", 1, 2048, 512, 8}}) {
    std::string forward = std::string("forward_") + c.name;
    if (!want(c.name) && !want(forward)) continue;
    MHA m(c.h, c.d, 0.0);
    auto x = torch::randn({c.b, c.t, c.d}, torch::requires_grad());
    auto mask = torch::ones({1, c.t, c.t}).tril();
    if (want(c.name)) {
      report(c.name, best_attention([&] {
               m->zero_grad();
               x.mutable_grad() = Tensor();
               m(x, x, mask).sum().backward();
             }));
    }
    if (!want(forward)) continue;
    torch::NoGradGuard guard;
    report(forward.c_str(), best_attention([&] { m(x, x, mask); }));
  }
  struct C {
    const char* name;
    int64_t n, d, ff, h, b;
  };
  for (C c : {C{"copy_small", 2, 64, 128, 4, 32}, C{"copy_paper", 2, 512, 2048, 8, 80}}) {
    std::string forward = std::string("forward_") + c.name;
    if (!want(c.name) && !want(forward)) continue;
    Transformer net(11, c.n, c.d, c.ff, c.h, 0.1);
    torch::optim::Adam opt(net->parameters(), torch::optim::AdamOptions(1e-3).betas({0.9, 0.98}).eps(1e-9));
    auto loss_of_batch = [&] {
      auto data = torch::randint(1, 11, {c.b, 10});
      auto src = data, tgt = data.slice(1, 0, 9), want_y = data.slice(1, 1, 10);
      auto sm = (src != 0).unsqueeze(-2);
      auto tm = torch::ones({1, 9, 9}).tril();
      auto lp = net(src, tgt, sm, tm);
      return torch::nll_loss(lp.reshape({-1, 11}), want_y.reshape({-1}));
    };
    if (want(c.name)) {
      report(c.name, best_attention([&] {
               auto loss = loss_of_batch();
               opt.zero_grad();
               loss.backward();
               opt.step();
             }));
    }
    if (!want(forward)) continue;
    torch::NoGradGuard guard;
    report(forward.c_str(), best_attention([&] { loss_of_batch(); }));
  }
  auto one_op = [&](const char* name, Tensor x, const std::function<Tensor(const Tensor&)>& op) {
    if (!want(name)) return;
    auto g = torch::randn(op(x.detach()).sizes());
    report(name, best_seconds(
                     [&] {
                       x.mutable_grad() = Tensor();
                       op(x).backward(g);
                     },
                     budget));
  };
  const int64_t rows = 4096, n = 512;
  auto x = torch::randn({rows, n}, torch::requires_grad());
  auto weight = torch::ones({n}, torch::requires_grad()), bias = torch::zeros({n}, torch::requires_grad());
  auto target = torch::randint(0, n, {rows}, torch::kLong);
  auto table = torch::randn({1000, n}, torch::requires_grad()),
       tokens = torch::randint(0, 100, {64, 128}, torch::kLong);
  one_op("softmax", x, [](const Tensor& in) { return torch::softmax(in, -1); });
  one_op("layer_norm", x, [&](const Tensor& in) { return torch::layer_norm(in, {n}, weight, bias); });
  one_op("cross_entropy", x, [&](const Tensor& in) { return nn::functional::cross_entropy(in, target); });
  one_op("sum", x, [](const Tensor& in) { return in.sum(-1); });
  one_op("cat", x, [](const Tensor& in) { return torch::cat({in, in, in, in}, 1); });
  one_op("embedding", table, [&](const Tensor& in) { return torch::embedding(in, tokens); });
  struct S {
    const char* name;
    int64_t n;
  };
  for (S s : {S{"slice_of_1000", 1000}, S{"slice_of_8000", 8000}}) {
    if (!want(s.name)) continue;
    auto v = torch::randn({s.n}, torch::requires_grad());
    report(s.name, best_seconds(
                       [&] {
                         v.mutable_grad() = Tensor();
                         auto total = torch::zeros({1});
                         for (int64_t i = 0; i < s.n; ++i) total = total + v.narrow(0, i, 1);
                         total.backward();
                       },
                       budget) /
                       s.n);
  }
}
