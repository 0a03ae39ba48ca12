// The peer in the speed comparison: the cases that tests/bench must run too, written with libtorch.
// Prints one line per case: name<TAB>seconds for one step (best of the repeats).
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using torch::Tensor;
namespace nn = torch::nn;

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

// The tutorial's composition, or (PyTorch 2 and later, where it is faster for long sequences) the fused kernel.
static bool use_fused = false;
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, nn::Dropout& drop) {
#if TORCH_VERSION_MAJOR >= 2
  if (use_fused) {
    double p = drop->is_training() ? drop->options.p() : 0.0;
    std::optional<Tensor> keep;
    if (mask.defined()) keep = mask.to(torch::kBool);
    return at::scaled_dot_product_attention(q, k, v, keep, p, false);
  }
#endif
  auto s = torch::matmul(q, k.transpose(-2, -1)) / std::sqrt((double)q.size(-1));
  if (mask.defined()) s = s.masked_fill(mask == 0, -1e9);
  auto p = drop(torch::softmax(s, -1));
  return torch::matmul(p, v);
}

struct MHAImpl : nn::Module {
  int64_t h, dk;
  nn::Linear q, k, v, o;
  nn::Dropout drop;
  MHAImpl(int64_t h, int64_t d, double p)
      : h(h), dk(d / h), q(d, d), k(d, d), v(d, d), o(d, d), drop(nn::DropoutOptions(p)) {
    register_module("q", q);
    register_module("k", k);
    register_module("v", v);
    register_module("o", o);
    register_module("drop", drop);
  }
  Tensor forward(const Tensor& x, const Tensor& m, const Tensor& mask) {
    auto n = x.size(0);
    auto sp = [&](nn::Linear& l, const Tensor& t) { return l(t).view({n, -1, h, dk}).transpose(1, 2); };
    auto y = attention(sp(q, x), sp(k, m), sp(v, m), mask.defined() ? mask.unsqueeze(1) : mask, drop);
    return o(y.transpose(1, 2).contiguous().view({n, -1, h * dk}));
  }
};
TORCH_MODULE(MHA);

struct LayerImpl : nn::Module {
  bool cross;
  MHA self, src{nullptr};
  nn::LayerNorm n1, n2, n3{nullptr};
  nn::Linear f1, f2;
  nn::Dropout drop;
  LayerImpl(int64_t h, int64_t d, int64_t ff, double p, bool cross)
      : cross(cross),
        self(h, d, p),
        n1(nn::LayerNormOptions({d})),
        n2(nn::LayerNormOptions({d})),
        f1(d, ff),
        f2(ff, d),
        drop(nn::DropoutOptions(p)) {
    register_module("self", self);
    register_module("n1", n1);
    register_module("n2", n2);
    register_module("f1", f1);
    register_module("f2", f2);
    register_module("drop", drop);
    if (cross) {
      src = register_module("src", MHA(h, d, p));
      n3 = register_module("n3", nn::LayerNorm(nn::LayerNormOptions({d})));
    }
  }
  Tensor forward(Tensor x, const Tensor& mem, const Tensor& smask, const Tensor& tmask) {
    auto y = n1(x);
    x = x + drop(self(y, y, cross ? tmask : smask));
    if (cross) x = x + drop(src(n3(x), mem, smask));
    return x + drop(f2(drop(torch::relu(f1(n2(x))))));
  }
};
TORCH_MODULE(Layer);

struct TransformerImpl : nn::Module {
  int64_t d;
  nn::Embedding se, te;
  std::vector<Layer> enc, dec;
  nn::LayerNorm ne, nd;
  nn::Linear gen;
  nn::Dropout drop;
  Tensor pe;
  TransformerImpl(int64_t vocab, int64_t N, int64_t d, int64_t ff, int64_t h, double p)
      : d(d),
        se(vocab, d),
        te(vocab, d),
        ne(nn::LayerNormOptions({d})),
        nd(nn::LayerNormOptions({d})),
        gen(d, vocab),
        drop(nn::DropoutOptions(p)) {
    register_module("se", se);
    register_module("te", te);
    register_module("ne", ne);
    register_module("nd", nd);
    register_module("gen", gen);
    register_module("drop", drop);
    for (int i = 0; i < N; ++i) {
      enc.push_back(register_module("enc" + std::to_string(i), Layer(h, d, ff, p, false)));
      dec.push_back(register_module("dec" + std::to_string(i), Layer(h, d, ff, p, true)));
    }
    auto pos = torch::arange(0, 512, torch::kFloat).unsqueeze(1);
    auto div = torch::exp(torch::arange(0, d, 2, torch::kFloat) * (-std::log(10000.0) / d));
    pe = torch::zeros({512, d});
    pe.slice(1, 0, d, 2).copy_(torch::sin(pos * div));
    pe.slice(1, 1, d, 2).copy_(torch::cos(pos * div));
  }
  Tensor embed(nn::Embedding& e, const Tensor& t) {
    return drop(e(t) * std::sqrt((double)d) + pe.slice(0, 0, t.size(1)).unsqueeze(0));
  }
  Tensor forward(const Tensor& s, const Tensor& t, const Tensor& sm, const Tensor& tm) {
    auto x = embed(se, s);
    for (auto& l : enc) x = l(x, x, sm, tm);
    auto mem = ne(x);
    auto y = embed(te, t);
    for (auto& l : dec) y = l(y, mem, sm, tm);
    return torch::log_softmax(gen(nd(y)), -1);
  }
};
TORCH_MODULE(Transformer);

int main(int argc, char** argv) {
  double budget = argc > 1 ? atof(argv[1]) : 2.0;
  std::string only = argc > 2 ? argv[2] : "";
  if (const char* t = std::getenv("OMP_NUM_THREADS")) torch::set_num_threads(atoi(t));
  torch::manual_seed(0);
  auto want = [&](const char* n) { return only.empty() || std::string(n).find(only) != std::string::npos; };
  auto report = [&](const char* n, double s) {
    std::printf("%s\t%.9f\n", n, s);
    std::fflush(stdout);
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
    if (!want(c.name)) continue;
    MHA m(c.h, c.d, 0.0);
    auto x = torch::randn({c.b, c.t, c.d}, torch::requires_grad());
    auto mask = torch::ones({1, c.t, c.t}).tril();
    auto time = [&] {
      return best_seconds(
          [&] {
            m->zero_grad();
            x.mutable_grad() = Tensor();
            m(x, x, mask).sum().backward();
          },
          budget);
    };
    use_fused = false;
    double seconds = time();
#if TORCH_VERSION_MAJOR >= 2
    use_fused = true;
    seconds = std::min(seconds, time());
    use_fused = false;
#endif
    report(c.name, seconds);
  }
  struct C {
    const char* name;
    int64_t n, d, ff, h, b;
  };
  for (C c : {C{"copy_small", 2, 64, 128, 4, 32}, C{"copy_paper", 2, 512, 2048, 8, 80}}) {
    if (!want(c.name)) continue;
    Transformer net(11, c.n, c.d, c.ff, c.h, 0.1);
    torch::optim::Adam opt(net->parameters(), torch::optim::AdamOptions(1e-3).betas({0.9, 0.98}).eps(1e-9));
    auto time = [&] {
      return best_seconds(
          [&] {
            auto data = torch::randint(1, 11, {c.b, 10});
            auto src = data, tgt = data.slice(1, 0, 9), want_y = data.slice(1, 1, 10);
            auto sm = (src != 0).unsqueeze(-2);
            auto tm = torch::ones({1, 9, 9}).tril();
            auto lp = net(src, tgt, sm, tm);
            auto loss = torch::nll_loss(lp.reshape({-1, 11}), want_y.reshape({-1}));
            opt.zero_grad();
            loss.backward();
            opt.step();
          },
          budget);
    };
    double seconds = time();
#if TORCH_VERSION_MAJOR >= 2
    use_fused = true;
    seconds = std::min(seconds, time());
    use_fused = false;
#endif
    report(c.name, seconds);
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
