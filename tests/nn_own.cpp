// What a user writes: the first program of the documentation, the tutorials' attention line by line, a module of one's
// own.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <cmath>

#include "json.h"

using namespace gradus;

namespace own {

struct Attention {
  Tensor output, weights;
};

Attention attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {},
                    const nn::Dropout* dropout = nullptr) {
  const double d_k = static_cast<double>(query.size(-1));
  Tensor scores = matmul(query, key.transpose(-2, -1)) / std::sqrt(d_k);
  if (mask.defined()) scores = scores.masked_fill(mask == 0, -1e9);
  Tensor p_attn = softmax(scores, -1);
  if (dropout) p_attn = (*dropout)(p_attn);
  return {matmul(p_attn, value), p_attn};
}

class MultiHead : public nn::Module {
 public:
  MultiHead(std::int64_t h, std::int64_t d_model) : linears_(nn::clones(nn::Linear(d_model, d_model), 4)), h_(h) {}

  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Tensor mask = {}) const {
    if (mask.defined()) mask = mask.unsqueeze(1);
    const auto split = [this](const Tensor& x) {
      return x.view({x.size(0), x.size(1), h_, x.size(2) / h_}).transpose(1, 2);
    };
    const auto [x, weights] = attention(split(linears_[0](query)), split(linears_[1](key)), split(linears_[2](value)),
                                        mask, &dropout_);  // this namespace's, although nn has one too
    return linears_[3](x.transpose(1, 2).contiguous().view({x.size(0), x.size(2), h_ * x.size(3)}));
  }

  void fields(nn::Fields& f) override { f("linears", linears_)("dropout", dropout_); }

 private:
  std::vector<nn::Linear> linears_;
  nn::Dropout dropout_{0.1};
  std::int64_t h_;
};

}  // namespace own

TEST_CASE("the first program trains") {
  manual_seed(0);
  Tensor x = randn({100, 2}), y = randn({100, 1});
  auto net = nn::Sequential(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 1));
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  float first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    opt.zero_grad();
    Tensor loss = mse_loss(net(x), y);
    loss.backward();
    opt.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  CHECK(last < 0.9F * first);
}

TEST_CASE("a module of one's own computes what the library's does") {
  manual_seed(1);
  own::MultiHead mine(2, 8);
  nn::MultiHeadAttention theirs(2, 8, {.dropout = 0.1});
  mine.to(Float64);
  theirs.to(Float64);
  mine.eval();
  theirs.eval();
  theirs.load_state_dict(mine.state_dict());
  const Tensor x = randn({3, 5, 8}, {.dtype = Float64}), mask = nn::subsequent_mask(5);
  CHECK(test::disagreement(mine(x, x, x, mask), theirs(x, x, x, mask)) <= 1);
  const auto cloned = clone(mine);
  CHECK(test::disagreement(cloned(x, x, x), mine(x, x, x)) <= 1);
}
