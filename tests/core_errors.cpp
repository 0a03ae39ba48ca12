// The exact text of common misuse, one family after the other. Nothing is changed by a refused call.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "misuse.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("misuse of elementwise ops") {
  const Tensor a = ones({2, 3}), b = ones({2, 4}), whole = tensor({1, 2}), flag = tensor({true, false});
  check_texts({
      {[&] { add(a, b); },
       "add: shapes [2, 3] and [2, 4] do not broadcast: 3 against 4 in dim -1; sizes must be equal, or one of them 1"},
      {[&] {
         mul(a, ones({3, 1}));
       },
       "mul: shapes [2, 3] and [3, 1] do not broadcast: 2 against 3 in dim -2; sizes must be equal, or one of them 1"},
      {[&] { lt(a, b); },
       "lt: shapes [2, 3] and [2, 4] do not broadcast: 3 against 4 in dim -1; sizes must be equal, or one of them 1"},
      {[&] { sub(a, Tensor()); }, "sub: the second operand is an undefined tensor"},
      {[&] { div(Tensor(), a); }, "div: the first operand is an undefined tensor"},
      {[&] { exp(Tensor()); }, "exp: the tensor is an undefined tensor"},
      {[&] { sub(flag, flag); }, "sub: has no meaning for Bool [2]; convert it with to()"},
      {[&] { neg(flag); }, "neg: has no meaning for Bool [2]; convert it with to()"},
      {[&] { logical_and(whole, flag); }, "logical_and: needs Bool tensors, got Int64 [2]; compare it first (x != 0)"},
      {[&] { logical_not(whole); }, "logical_not: needs Bool tensors, got Int64 [2]; compare it first (x != 0)"},
      {[&] { clamp(a, {}); }, "clamp: needs a minimum or a maximum"},
      {[&] { clamp(a, Tensor(), Tensor()); }, "clamp: needs a minimum or a maximum"},
      {[&] { clamp(flag, flag); }, "clamp: has no meaning for Bool [2]; convert it with to()"},
      {[&] { clamp(a, b); },
       "clamp: shapes [2, 3] and [2, 4] do not broadcast: 3 against 4 in dim -1; sizes must be equal, or one of them "
       "1"},
      {[&] { pow(whole, -1); }, "pow: integers have no negative powers, got exponent -1; convert with to(Float32)"},
  });
}

TEST_CASE("misuse of products") {
  const Tensor a = ones({2, 3}), whole = tensor({{1, 2}});
  check_texts({
      {[&] {
         matmul(a, ones({4, 5}));
       },
       "matmul: inner sizes differ: a is [2, 3], b is [4, 5]"},
      {[&] { matmul(a, ones({2})); }, "matmul: inner sizes differ: a is [2, 3], b is [2, 1]"},
      {[&] { matmul(a, tensor(1.0)); },
       "matmul: needs at least one dim each, got [2, 3] and []; use * for a product with a scalar"},
      {[&] { matmul(whole, whole); }, "matmul: needs Float32 or Float64, got Int64 [1, 2]; convert with to(Float32)"},
      {[&] {
         matmul(ones({2, 2, 3}), ones({3, 3, 2}));
       },
       "matmul: shapes [2] and [3] do not broadcast: 2 against 3 in dim -1; sizes must be equal, or one of them 1"},
      {[&] { bmm(a, a); }, "bmm: needs [b, m, k] and [b, k, n], got [2, 3] and [2, 3]; matmul broadcasts"},
      {[&] {
         bmm(ones({2, 2, 3}), ones({2, 2, 3}));
       },
       "bmm: inner sizes differ: a is [2, 2, 3], b is [2, 2, 3]"},
      {[&] {
         linear(a, ones({4, 2}));
       },
       "linear: the input [2, 3] does not end in the 2 features of the weight [4, 2]"},
      {[&] {
         linear(a, ones({4, 3}), ones({3}));
       },
       "linear: the bias must be [4], got [3]"},
      {[&] { linear(a, ones({3})); }, "linear: the weight must be [out, in], got [3]"},
      {[&] {
         linear(a, ones({4, 3}, {.dtype = Float64}));
       },
       "linear: dtypes differ: x is Float32, the weight Float64; convert one with to()"},
  });
}

TEST_CASE("misuse of reductions, rows and masks") {
  const Tensor a = ones({2, 3}), whole = tensor({1, 2}), flag = tensor({true, false});
  check_texts({
      {[&] { sum(a, {2}); }, "sum: dim 2 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] {
         sum(a, {1, -1});
       },
       "sum: dim -1 is named twice in [1, -1]"},
      {[&] { var(whole); }, "var: needs Float32 or Float64, got Int64 [2]; convert with to(Float32)"},
      {[&] {
         a.std({0, 0});
       },
       "std: dim 0 is named twice in [0, 0]"},
      {[&] { logsumexp(a, 5); }, "logsumexp: dim 5 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] { cumsum(a, -3); }, "cumsum: dim -3 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] { mean(whole); }, "mean: needs Float32 or Float64, got Int64 [2]; convert with to(Float32)"},
      {[&] {
         amax(zeros({0, 3}));
       },
       "amax: there is no element to choose from in [0, 3]"},
      {[&] {
         amin(zeros({2, 0}), {1});
       },
       "amin: there is no element to choose from in [2, 0]"},
      {[&] {
         argmax(zeros({2, 0}), 1);
       },
       "argmax: there is no element to choose from along dim 1 of [2, 0]"},
      {[&] {
         sum_to(a, {2, 2});
       },
       "sum_to: [2, 2] does not broadcast to [2, 3]"},
      {[&] { any(a); }, "any: needs a Bool tensor, got Float32 [2, 3]"},
      {[&] { softmax(a, 2); }, "softmax: dim 2 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] { softmax(whole, 0); }, "softmax: needs Float32 or Float64, got Int64 [2]; convert with to(Float32)"},
      {[&] { log_softmax(a, -3); }, "log_softmax: dim -3 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] { masked_softmax(a, whole); },
       "masked_softmax: the mask must be Bool, got Int64 [2]; compare it (mask != 0)"},
      {[&] { masked_softmax(a, flag); }, "masked_softmax: the mask [2] does not broadcast to [2, 3]"},
      {[&] { masked_fill(a, a, 0); }, "masked_fill: the mask must be Bool, got Float32 [2, 3]; compare it (mask != 0)"},
      {[&] { masked_fill(a, flag, 0); },
       "masked_fill: shapes [2, 3] and [2] do not broadcast: 3 against 2 in dim -1; sizes must be equal, or one of "
       "them 1"},
      {[&] {
         ones({3}).masked_fill_(ones({2, 3}) > 0, 0);
       },
       "masked_fill_: the result [2, 3] does not fit into [3]"},
      {[&] { masked_fill(a, a > 0, ones({3})); },
       "masked_fill: the value must have no dims, got [3]; where(mask, value, x) takes any"},
      {[&] { masked_fill(whole, whole > 0, tensor(0.5)); },
       "masked_fill: a value of Float32 does not fit a tensor of Int64"},
      {[&] { masked_fill(whole, flag, 0.5); }, "masked_fill: the value 0.5 does not fit a tensor of Int64"},
      {[&] { where(whole, a, a); }, "where: the mask must be Bool, got Int64 [2]; compare it (mask != 0)"},
      {[&] { tril(ones({3})); }, "tril: needs at least two dims, got [3]"},
  });
}

TEST_CASE("misuse of norms, losses and embedding") {
  const Tensor a = ones({2, 3});
  check_texts({
      {[&] { layer_norm(a, ones({2})); }, "layer_norm: weight and bias must be [3] for [2, 3], got [2]"},
      {[&] { layer_norm(a, ones({3}, {.dtype = Float64})); },
       "layer_norm: dtypes differ: x is Float32, weight or bias Float64"},
      {[&] { layer_norm(tensor(1.0)); }, "layer_norm: needs a last dim to normalise, got []"},
      {[&] {
         layer_norm(a, ones({4, 3}));
       },
       "layer_norm: the normalized shape [4, 3] is not what [2, 3] ends with"},
      {[&] {
         layer_norm(a, {1, 2, 3});
       },
       "layer_norm: the normalized shape [1, 2, 3] is not what [2, 3] ends with"},
      {[&] { layer_norm(a, Shape()); }, "layer_norm: the normalized shape [] is not what [2, 3] ends with"},
      {[&] {
         layer_norm(a, ones({2, 3}), ones({3}));
       },
       "layer_norm: weight and bias must be [2, 3] for [2, 3], got [3]"},
      {[&] { layer_norm(a, {}, {}, -1); }, "layer_norm: eps must not be negative, got -1"},
      {[&] {
         mse_loss(ones({4}), ones({4, 1}));
       },
       "mse_loss: shapes differ: input is [4], target is [4, 1]; a silent broadcast would compare every row with every "
       "other"},
      {[&] {
         cross_entropy(a, tensor({0, 3}));
       },
       "cross_entropy: target 3 at position 1 is outside the 3 classes of [2, 3]; ignore_index is -100"},
      {[&] {
         cross_entropy(a, tensor({0.0, 1.0}));
       },
       "cross_entropy: targets must be Int64, got Float32 [2]"},
      {[&] {
         cross_entropy(ones({2, 3, 4}), ones({2, 3}, {.dtype = Int64}));
       },
       "cross_entropy: needs logits [N, classes, ...] and targets [N, ...], got [2, 3, 4] and [2, 3]; the classes "
       "stand in "
       "dim 1, bring them there with transpose(1, -1)"},
      {[&] { cross_entropy(a, a, {.ignore_index = 1}); },
       "cross_entropy: ignore_index 1 has no meaning for targets that are distributions"},
      {[&] { cross_entropy(ones({}), ones({})); }, "cross_entropy: needs logits [N, classes, ...], got []"},
      {[&] {
         cross_entropy(ones({2, 0}), ones({2, 0}));
       },
       "cross_entropy: there are no classes in [2, 0]"},
      {[&] {
         nll_loss(a, tensor({0, -1}));
       },
       "nll_loss: target -1 at position 1 is outside the 3 classes of [2, 3]; ignore_index is -100"},
      {[&] {
         nll_loss(a, tensor({0, 1, 2}));
       },
       "nll_loss: needs log-probabilities [N, classes, ...] and targets [N, ...], got [2, 3] and [3]; the classes "
       "stand in "
       "dim 1, bring them there with transpose(1, -1)"},
      {[&] {
         nll_loss(tensor({{1, 2}}), tensor({0}));
       },
       "nll_loss: needs Float32 or Float64, got Int64 [1, 2]; convert with to(Float32)"},
      {[&] {
         nll_loss(a, tensor({0, 1}), {.weight = ones({3, 1})});
       },
       "nll_loss: the class weight must be [3], got [3, 1]"},
      {[&] { kl_div(a, ones({3})); },
       "kl_div: shapes differ: input is [2, 3], target is [3]; a silent broadcast would compare every row with every "
       "other"},
      {[&] { binary_cross_entropy_with_logits(a, a, {.pos_weight = ones({2})}); },
       "binary_cross_entropy_with_logits: the pos_weight [2] does not broadcast to [2, 3]"},
      {[&] { binary_cross_entropy_with_logits(a, Tensor()); },
       "binary_cross_entropy_with_logits: the target is an undefined tensor"},
      {[&] {
         cross_entropy(a, tensor({0, 1}), {.label_smoothing = 1.5});
       },
       "cross_entropy: label_smoothing must be in [0, 1], got 1.5"},
      {[&] {
         cross_entropy(a, tensor({0, 1}), {.weight = ones({2})});
       },
       "cross_entropy: the class weight must be [3], got [2]"},
      {[&] { embedding(a, tensor({0}), 2); }, "embedding: padding_idx 2 is outside a table of 2 rows"},
  });
}

TEST_CASE("misuse of shapes and parts") {
  const Tensor a = ones({2, 3}), full_rank = ones({1, 1, 1, 1, 1, 1, 1, 2});
  check_texts({
      {[&] { full_rank.unsqueeze(0); }, "unsqueeze: [1, 1, 1, 1, 1, 1, 1, 2] has as many dims as a tensor can have"},
      {[&] {
         stack({full_rank, full_rank});
       },
       "stack: [1, 1, 1, 1, 1, 1, 1, 2] has as many dims as a tensor can have"},
      {[&] { embedding(a, full_rank.to(Int64)); },
       "embedding: the indices [1, 1, 1, 1, 1, 1, 1, 2] have no room for one more dim"},
      {[&] { any(Tensor()); }, "any: the tensor is an undefined tensor"},
      {[&] { all(Tensor()); }, "all: the tensor is an undefined tensor"},
      {[&] { sum_to(Tensor(), {1}); }, "sum_to: the tensor is an undefined tensor"},
      {[&] { a.transpose(0, 2); }, "transpose: dim 2 is outside a tensor of rank 2; it must be in [-2, 1]"},
      {[&] {
         a.permute({0, 0});
       },
       "permute: needs each dim of [2, 3] once, got [0, 0]"},
      {[&] { a.permute({0}); }, "permute: needs each dim of [2, 3] once, got [0]"},
      {[&] { a.unsqueeze(4); }, "unsqueeze: dim 4 is outside a tensor of rank 3; it must be in [-3, 2]"},
      {[&] { a.flatten(1, 0); }, "flatten: start_dim 1 lies behind end_dim 0 in [2, 3]"},
      {[&] {
         flip(a, {1, 1});
       },
       "flip: dim 1 is named twice in [1, 1]"},
      {[&] { cat({}); }, "cat: needs at least one tensor"},
      {[&] {
         cat({a, ones({2, 4})});
       },
       "cat: sizes other than dim 0 differ: [2, 3] and [2, 4]"},
      {[&] {
         cat({a, ones({3})});
       },
       "cat: ranks differ: [2, 3] and [3]"},
      {[&] { cat({tensor(1.0)}); }, "cat: 0-d tensors cannot be joined; use stack"},
      {[&] {
         stack({a, ones({3, 2})});
       },
       "stack: shapes differ: [2, 3] and [3, 2]"},
      {[&] { a.slice(0, 0, 2, 0); }, "slice: the step must be at least 1, got 0; use flip for the reverse order"},
      {[&] { tensor(1.0).slice(0, 0, 1); }, "slice: a 0-d tensor has nothing to slice"},
      {[&] { a.narrow(1, 2, 2); }, "narrow: elements 2 to 2 + 2 lie outside dim 1 of [2, 3]"},
      {[&] { a.select(1, 3); }, "select: index 3 is outside dim 1 of [2, 3]"},
      {[&] { a.split(0); }, "split: the size of a part must be positive, got 0"},
      {[&] { a.chunk(-1); }, "chunk: the number of chunks must be positive, got -1"},
      {[&] { index_select(a, 0, tensor({{0}})); }, "index_select: the index must be 1-d, got [1, 1]"},
      {[&] { gather(a, 0, tensor({0})); }, "gather: the ranks of [2, 3] and of the index [1] differ"},
      {[&] {
         gather(a, 1, tensor({{0}, {0}, {0}}));
       },
       "gather: the index [3, 1] is larger than [2, 3] in dim 0"},
      {[&] {
         scatter_add(a, 1, tensor({{0, 0}}), ones({1, 1}));
       },
       "scatter_add: the index [1, 2] is larger than the source [1, 1]"},
      {[&] { scatter_add(a, 1, tensor({{0}}), tensor({{1}})); },
       "scatter_add: the dtypes of [2, 3] Float32 and the source [1, 1] Int64 differ"},
  });
}

TEST_CASE("misuse of the optimizers' arithmetic changes no number") {
  Tensor p = f64({1, 2}), none;
  const SgdUpdate sgd = {
      .lr = 1, .momentum = 0, .dampening = 0, .weight_decay = 0, .nesterov = false, .maximize = false};
  check_texts({
      {[&] { sgd_update(p, f64({1}), none, sgd); },
       "sgd_update: the gradient [1] Float64 does not fit the parameter [2] Float64"},
      {[&] { sgd_update(p, ones({2}), none, sgd); },
       "sgd_update: the gradient [2] Float32 does not fit the parameter [2] Float64"},
      {[&] { sgd_update(p, {}, none, sgd); }, "sgd_update: the gradient is an undefined tensor"},
      {[&] {
         sgd_update(tensor({1, 2}), tensor({1, 2}), none, sgd);
       },
       "sgd_update: needs Float32 or Float64, got Int64 [2]; convert with to(Float32)"},
      {[&] { total_norm({p}, 0); }, "total_norm: the order of the norm must be positive, got 0"},
      {[&] { scale_(tensor({1}), 2); }, "scale_: needs Float32 or Float64, got Int64 [1]; convert with to(Float32)"},
  });
  CHECK(same(p, f64({1, 2})));
}
