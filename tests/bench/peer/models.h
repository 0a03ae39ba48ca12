#pragma once
// The models of the comparison in libtorch, written as the papers' tutorial has them.
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

using torch::Tensor;
namespace nn = torch::nn;

// The tutorial's composition, or (PyTorch 2 and later, where it is faster for long sequences) the fused kernel.
inline bool use_fused = false;
inline Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, nn::Dropout& drop) {
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
