// The exact text of common misuse of modules, optimizers, schedules, in-place ops and gradients.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include "misuse.h"

using namespace gradus;
using namespace gradus::test;

namespace {

const TensorOptions wants_grad{.requires_grad = true};

class Twice : public nn::Module {
 public:
  void fields(nn::Fields& f) override { f("a", a_)("a", b_); }

 private:
  nn::Linear a_{1, 1}, b_{1, 1};
};

}  // namespace

TEST_CASE("misuse of layers") {
  const nn::Linear linear(3, 4);
  const nn::Embedding embedding(5, 2);
  const nn::LayerNorm norm(3);
  check_texts({
      {[] { nn::Linear(0, 4); }, "Linear: sizes must be positive: in is 0, out is 4"},
      {[] { nn::Linear(3, 4, {.dtype = Int64}); }, "Linear: parameters are Float32 or Float64, not Int64"},
      {[&] {
         linear(ones({2, 4}));
       },
       "linear: the input [2, 4] does not end in the 3 features of the weight [4, 3]"},
      {[&] { linear(Tensor()); }, "linear: the first operand is an undefined tensor"},
      {[] { nn::Embedding(5, -1); }, "Embedding: sizes must be positive: num is 5, dim is -1"},
      {[] { nn::Embedding(5, 2, {.padding_idx = 5}); }, "Embedding: padding_idx is 5, the rows are 0 to 4"},
      {[&] {
         embedding(tensor({0, 5}));
       },
       "embedding: index 5 at position 1 is outside a table of 5 rows"},
      {[&] { embedding(ones({2})); }, "embedding: indices must be Int64, got Float32 [2]"},
      {[] { nn::LayerNorm(0); }, "LayerNorm: dim must be positive, is 0"},
      {[] { nn::LayerNorm(3, {.eps = -1}); }, "LayerNorm: eps must be finite and not negative, is -1"},
      {[&] {
         norm(ones({2, 4}));
       },
       "layer_norm: weight and bias must be [4] for [2, 4], got [3]"},
      {[] { nn::Dropout(1.5); }, "Dropout: p must be in [0, 1], is 1.5"},
      {[] { dropout(ones({2}), -10); }, "dropout: the probability must be in [0, 1], got -10"},
      {[] { nn::PositionalEncoding(0); }, "PositionalEncoding: sizes must be positive: d_model is 0, max_len is 5000"},
      {[] {
         nn::PositionalEncoding(4, {.max_len = 2})(ones({1, 3, 4}));
       },
       "PositionalEncoding: the sequence is 3 long, max_len is 2; construct it with a larger max_len"},
  });
}

TEST_CASE("misuse of attention and Transformers") {
  const nn::MultiHeadAttention attention(2, 4);
  const Tensor x = ones({2, 3, 4});
  check_texts({
      {[] { nn::MultiHeadAttention(3, 4); }, "MultiHeadAttention: h must divide d_model: h is 3, d_model is 4"},
      {[] { nn::MultiHeadAttention(0, 4); }, "MultiHeadAttention: sizes must be positive: h is 0, d_model is 4"},
      {[&] {
         attention(x, x, ones({2, 2, 4}));
       },
       "MultiHeadAttention: needs query [B, Lq, 4], key and value [B, Lk, 4], got [2, 3, 4], [2, 3, 4] and [2, 2, 4]"},
      {[&] {
         attention(x, x, x, ones({2, 3, 2}));
       },
       "MultiHeadAttention: mask shape [2, 3, 2] does not fit; expected shape [B, Lq, Lk], [B, 1, Lk] or [1, Lq, Lk] "
       "(or [B, h, Lq, Lk]) for [B, h, Lq, Lk] = [2, 2, 3, 3]; the last dim is always the keys"},
      {[&] { attention.weights(); },
       "MultiHeadAttention::weights: none were kept; call keep_weights() and then the module"},
      {[] { nn::subsequent_mask(-1); }, "subsequent_mask: n must not be negative, is -1"},
      {[] { nn::padding_mask(ones({3}), 0); }, "padding_mask: tokens must be [B, L], are [3]"},
      {[] { nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), 0); },
       "TransformerEncoder: needs at least one layer, asked for 0"},
  });
}

TEST_CASE("misuse of loading, converting and initialising") {
  nn::Linear linear(2, 1);
  const nn::StateDict wrong = {{"weight", ones({1, 3})}, {"bais", ones({1})}};
  check_texts(
      {
          {[&] { linear.load_state_dict(wrong); },
           "load_state_dict: these entries do not fit Linear, and nothing was loaded:\n"
           "  missing: bias [1]\n"
           "  unexpected: bais\n"
           "  wrong shape: weight is [1, 3], the module's is [1, 2]"},
          {[&] { linear.to(Bool); }, "Module::to: a module computes in Float32 or Float64, not Bool"},
          {[] { Twice().state_dict(); },
           "state_dict: fields() lists the name a.weight more than once; give each member a name of its own"},
          {[&] { nn::init::xavier_uniform_(linear.bias); },
           "init::xavier_uniform_: fans need at least 2 dims [out, in, ...]: the tensor is [1]"},
          {[&] { nn::init::uniform_(linear.weight, 1, 0); }, "init::uniform_: low must not be above high: 1 and 0"},
          {[&] { nn::init::normal_(linear.weight, 0, -1); }, "init::normal_: std must not be negative, is -1"},
          {[] { nn::Sequential(nn::ReLU()).get<nn::ReLU>(1); }, "Sequential::get: there is no layer 1 among 1"},
      },
      {linear.weight, linear.bias});
}

TEST_CASE("misuse of optimizers, clipping and schedules") {
  const Tensor p = ones({2}, wants_grad), q = ones({2}, wants_grad), plain = ones({2});
  p.set_grad(tensor({nan_value, 1.0}));
  optim::SGD sgd({p}, {.lr = 0.1});
  check_texts(
      {
          {[] { optim::SGD({}, {.lr = 0.1}); }, "SGD: was given no parameters"},
          {[&] {
             optim::SGD({p, p}, {.lr = 0.1});
           },
           "SGD: parameter 1 [2] is given more than once and would be updated twice a step"},
          {[&] { optim::Adam({plain}, {}); },
           "Adam: parameter 0 [2] does not require a gradient, so it would never move; leave it out or call "
           "requires_grad_()"},
          {[&] { optim::Adam({p * 2}, {}); },
           "Adam: parameter 0 [2] is the result of an op; optimize the leaves it was made of"},
          {[&] { optim::Adam({Tensor()}, {}); }, "Adam: parameter 0 is an undefined tensor"},
          {[&] { optim::SGD({q}, {.lr = 0.1, .nesterov = true}); },
           "SGD: nesterov needs momentum above 0 and no dampening: momentum is 0, dampening is 0"},
          {[&] {
             optim::Adam({q}, {.betas = {0.9, 1}});
           },
           "Adam: betas must be in [0, 1), are 0.9 and 1"},
          {[&] { optim::SGD({q}, {.lr = -1}); }, "SGD: lr must be finite and not negative, is -1"},
          {[&] { sgd.set_lr(nan_value); }, "set_lr: the rate must be finite and not negative, is nan"},
          {[&] { sgd.lr(1); }, "lr: there is no group 1 among 1"},
          {[&] { optim::clip_grad_norm_({p}, -1); }, "clip_grad_norm_: max_norm must not be negative, is -1"},
          {[&] { optim::clip_grad_norm_({p}, 1, {.error_if_nonfinite = true}); },
           "clip_grad_norm_: the norm of the gradients is nan, and error_if_nonfinite is set; nothing was scaled"},
          {[&] { optim::clip_grad_norm_({p}, 1, {.norm_type = 0}); },
           "clip_grad_norm_: norm_type must be above 0, is 0"},
          {[] { optim::StepLR(0.1, {.step_size = 0}); }, "StepLR: step_size must be positive, is 0"},
          {[] { optim::WarmupCosineLR(0.1, {.warmup = 5, .total = 5}); },
           "WarmupCosineLR: needs 0 <= warmup < total: warmup is 5, total is 5"},
      },
      {p, q});
}

TEST_CASE("misuse of gradients and of in-place ops leaves every number as it was") {
  const Tensor w = ones({2}, wants_grad), x = tensor({1.0, 2.0}), whole = tensor({1, 2});
  Tensor leaf_again = w, wide = ones({1, 1}).expand({2, 3}), changed = tensor({1.0, 2.0});
  const Tensor used = w * 2;
  used.sum().backward();
  w.zero_grad();
  Tensor target = tensor({1.0, 2.0}), integers = tensor({1, 2});
  check_texts(
      {
          {[&] { (w * 2).backward(); },
           "backward: only a scalar (one element) needs no gradient, and the result is [2]; pass a gradient of that "
           "shape, or reduce the result to a scalar"},
          {[&] { (w * 2).backward(ones({3})); }, "backward: the gradient is [3] Float32, the result [2] Float32"},
          {[&] { x.sum().backward(); },
           "backward: the result [] does not require grad: no input of the ops that made it does, or they ran under "
           "NoGradGuard"},
          {[&] { used.sum().backward(); },
           "backward: the graph at 'mul' [2] was consumed by an earlier backward and cannot be walked a second time; "
           "pass {.retain_graph = true} to the first call, or compute the result anew"},
          {[&] { grad({(w * 2).sum()}, {x}); }, "grad: input 0 does not require grad: [2]"},
          {[&] { whole.requires_grad_(); }, "requires_grad_: only Float32 and Float64 carry gradients, got Int64 [2]"},
          {[&] { w.set_grad(ones({3})); }, "set_grad: the gradient is [3] Float32, the tensor [2] Float32"},
          {[&] { leaf_again.add_(1); },
           "add_: a leaf that requires grad cannot be changed in place: [2]; change it inside a NoGradGuard, or use "
           "the out-of-place op"},
          {[&] { wide.add_(1); }, "add_: elements of [2, 3] overlap in memory (it is expanded); clone() it first"},
          {[&] {
             target.add_(ones({3, 2}));
           },
           "add_: the result [3, 2] does not fit into [2]"},
          {[&] { target.copy_(ones({3})); }, "copy_: the source [3] does not broadcast to [2]"},
          {[&] { integers.mul_(0.5); },
           "mul_: a result of Float32 cannot be written into Int64 [2]; use the out-of-place op, or convert with to()"},
          {[&] { target.masked_fill_(ones({3}) > 0, 1); },
           "masked_fill_: shapes [2] and [3] do not broadcast: 2 against 3 in dim -1; sizes must be equal, or one of "
           "them 1"},
          {[&] {
             const Tensor y = w * 3, loss = (y * y).sum();
             Tensor same = y.detach();
             same.add_(1);
             loss.backward();
           },
           "backward: 'mul' saved a tensor [2] at version 0 that an in-place change has brought to version 1; change a "
           "clone() of it, or change it after backward"},
          {[&] { target.item(); }, "item: needs exactly one element, got [2]; index it or reduce it first"},
          {[&] { target.at<float>({2}); }, "at: index [2] is outside [2]"},
          {[&] { target.data<double>(); }, "data: the tensor is Float32, not Float64: [2]; convert with to()"},
      },
      {w, x, wide, target, integers});
}
