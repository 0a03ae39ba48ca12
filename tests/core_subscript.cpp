// x[...] with index tensors and masks, read and written. The expected numbers are PyTorch's.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

using List = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("index tensors: lists, negative ones, any shape") {
  const Tensor x = count({3, 4});
  CHECK(same(x.index({{2, 0, 2}}), f64({{8, 9, 10, 11}, {0, 1, 2, 3}, {8, 9, 10, 11}})));
  CHECK(same(x.index({List{-1, -3}}), f64({{8, 9, 10, 11}, {0, 1, 2, 3}})));
  CHECK(same(x.index({Slice(), tensor({{0, -1}, {1, 1}})}),
             f64({{{0, 3}, {1, 1}}, {{4, 7}, {5, 5}}, {{8, 11}, {9, 9}}})));
  CHECK(same(x.index({Ellipsis, {3}}), f64({{3}, {7}, {11}})));
  CHECK(same(x.index({{0, 1, 2}, {3, 2, 1}}), f64({3, 6, 9})));
  CHECK(same(x.index({tensor({{0}, {2}}), tensor({1, 3})}), f64({{1, 3}, {9, 11}})));  // broadcast
  CHECK(same(x.index({tensor(1)}), f64({4, 5, 6, 7})));                                // a 0-d one is an integer
  CHECK(x.index({tensor(1)}).shares_storage(x));
  CHECK(same(x.index(tensor({1})), f64({{4, 5, 6, 7}})));
  CHECK_FALSE(x.index(tensor({1})).shares_storage(x));
  CHECK(x.index({List{}}).shape() == Shape{0, 4});
  CHECK(x.index({List{}, {1}}).shape() == Shape{0});
  CHECK(same(tensor({5, 6, 7}).index({{2, 2}}), tensor({7, 7})));
  CHECK(same(tensor({true, false}).index({{1, 0}}), tensor({false, true})));
  CHECK(same(index(x, {{0, 1}}), x.index({{0, 1}})));
}

TEST_CASE("index tensors: where the indexed dims go") {
  const Tensor x = count({2, 3, 4, 5});
  const Tensor rows = tensor({{0}, {1}}), columns = tensor({0, 2, 1});
  CHECK(x.index({rows, columns}).shape() == Shape{2, 3, 4, 5});
  CHECK(x.index({Slice(), columns, tensor({3, 0, 1})}).shape() == Shape{2, 3, 5});  // side by side: in place
  CHECK(x.index({rows, Slice(), columns}).shape() == Shape{2, 3, 3, 5});            // apart: in front
  CHECK(x.index({Slice(), {0, 2}, Slice(), {1, 1}}).shape() == Shape{2, 2, 4});     // in front of dim 0
  CHECK(x.index({Slice(), columns, None, tensor({3, 0, 1})}).shape() == Shape{3, 2, 1, 5});
  CHECK(x.index({0, Slice(), {1, 1}}).shape() == Shape{3, 2, 5});  // an integer is taken first, as in PyTorch
  CHECK(x.index({{0, 1}, 0, Slice(), {1, 1}}).shape() == Shape{2, 4});
  CHECK(x.index({None, columns.index({Slice(0, 2)}) * 0, Ellipsis}).shape() == Shape{1, 2, 3, 4, 5});
  // Every element against the definition, over layouts of x.
  for (const Layout layout : layouts) {
    const Tensor z = laid_out({2, 3, 4, 5}, layout, -1, 1, 3).detach();
    const Tensor beside = z.index({Slice(), {2, 0, 2}, {-1, 3, 0}, Slice(1, {}, 2)});
    const Tensor apart = z.index({Slice(), {2, 0, 2}, Slice(3, 4), {-1, 3, 0}});
    REQUIRE(beside.shape() == Shape{2, 3, 2});
    REQUIRE(apart.shape() == Shape{3, 2, 1});
    const std::int64_t a[] = {2, 0, 2}, b[] = {3, 3, 0}, c[] = {4, 3, 0};
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 3; ++j) {
        for (std::int64_t k = 0; k < 2; ++k)
          CHECK(beside.at<double>({i, j, k}) == z.at<double>({i, a[j], b[j], 1 + 2 * k}));
        CHECK(apart.at<double>({j, i, 0}) == z.at<double>({i, a[j], 3, c[j]}));
      }
  }
}

TEST_CASE("masks: over one dim, over several, beside other indices") {
  const Tensor x = count({2, 3});
  CHECK(same(x.index(x > 2), f64({3, 4, 5})));
  CHECK(same(x.index(tensor({false, true})), f64({{3, 4, 5}})));
  CHECK(same(x.index({Slice(), tensor({true, false, true})}), f64({{0, 2}, {3, 5}})));
  CHECK(same(x.index({tensor({true, true}), {2, 0}}), f64({2, 3})));  // broadcast with its places
  CHECK(same(x.index({Ellipsis, tensor({true, false, true}), None}), f64({{{0}, {2}}, {{3}, {5}}})));
  CHECK(x.index(x > 9).shape() == Shape{0});
  CHECK(x.index({tensor({false, false})}).shape() == Shape{0, 3});
  CHECK(same(x.index({tensor(true)}), count({1, 2, 3})));
  CHECK(x.index({tensor(false)}).shape() == Shape{0, 2, 3});
  CHECK(zeros({0, 3}).index(zeros({0}, {.dtype = Bool})).shape() == Shape{0, 3});
  const Tensor deep = count({2, 2, 3});
  CHECK(same(deep.index({1, x > 2}), f64({9, 10, 11})));
  CHECK(same(deep.index({Slice(), tensor({{true, false, false}, {false, false, true}})}), f64({{0, 5}, {6, 11}})));
}

TEST_CASE("index: what is refused") {
  const Tensor x = count({2, 3});
  CHECK(error_of([&] {
          x.index({Slice(), {0, 3}});
        }) == "index: index 3 at position 1 of the index tensor [2] is outside size 3 of dim 1 in [2, 3]");
  CHECK(error_of([&] {
          x.index({{0, -3}});
        }) == "index: index -3 at position 1 of the index tensor [2] is outside size 2 of dim 0 in [2, 3]");
  CHECK(error_of([&] { x.index({tensor(2)}); }) == "index: index 2 is outside size 2 in [2, 3]");
  CHECK(mentions(error_of([&] { x.index({{INT64_MIN}}); }), "index -9223372036854775808 at position 0"));
  CHECK(error_of([&] {
          x.index({{0, 1, 1}, {0, 1}});
        }) ==
        "index: shapes [3] and [2] do not broadcast: 3 against 2 in dim -1; sizes must be equal, or one of them 1");
  CHECK(error_of([&] { x.index(tensor({true, false, true})); }) == "index: the mask [3] does not fit [2] of [2, 3]");
  CHECK(error_of([&] { x.index({Slice(), x > 0}); }) == "index: too many indices (3) for [2, 3]");
  CHECK(error_of([&] { x.index(tensor({0.5})); }) == "index: index tensors must be Int64 or Bool, got Float32 [1]");
  CHECK(error_of([&] { x.index(Tensor()); }) == "index: an index tensor is an undefined tensor");
  CHECK(error_of([&] {
          x.index({zeros({1, 1, 1, 1, 1, 1, 1, 1}, {.dtype = Int64})});
        }) == "index: the result has 9 dims, more than 8");
  CHECK(error_of([&] {
          x.index({None, None, None, None, None, None, None});
        }) == "index: the result has 9 dims, more than 8");
  CHECK(count({1, 1, 1, 1, 1, 1, 1, 2}).index({None, 0}).shape() == Shape{1, 1, 1, 1, 1, 1, 1, 2});
}

TEST_CASE("gradients through index tensors and masks add up") {
  const Tensor x = leaf({{1, 2, 3}, {4, 5, 6}});
  CHECK(same(gradient_of(x.index({{0, 0, -2}, {1, 1, 2}}), x, f64({1, 10, 100})), f64({{0, 11, 100}, {0, 0, 0}})));
  CHECK(same(gradient_of(x.index(x > 4), x, f64({7, 8})), f64({{0, 0, 0}, {0, 7, 8}})));
  CHECK(same(gradient_of(x.index({List{}}), x), zeros({2, 3}, {.dtype = Float64})));
  // Second order: d²/dx² Σ x[i]³ = 6 x, times how often.
  const Tensor y = sum(pow(x.index({{1, 1}, {0, 0}}), 3.0));
  const Tensor dx = grad({y}, {x}, {}, {.create_graph = true})[0];
  CHECK(same(gradient_of(sum(dx), x), f64({{0, 0, 0}, {2 * 6 * 4, 0, 0}})));
}

TEST_CASE("index_put_: basic indices, index tensors, masks") {
  Tensor x = count({2, 3});
  CHECK(&x.index_put_({0, 1}, 9) == &x);
  CHECK(same(x, f64({{0, 9, 2}, {3, 4, 5}})));
  x.index_put_({Slice(), Slice(1, {})}, f64({{7}, {8}}));
  CHECK(same(x, f64({{0, 7, 7}, {3, 8, 8}})));
  x.index_put_({x > 6}, 0);
  CHECK(same(x, f64({{0, 0, 0}, {3, 0, 0}})));
  x.index_put_({{1, 0}, {-1, 0}}, f64({5, 6}));
  CHECK(same(x, f64({{6, 0, 0}, {3, 0, 5}})));
  x.index_put_({Slice(), {2, 0}}, f64({1, 2}));
  CHECK(same(x, f64({{2, 0, 1}, {2, 0, 1}})));
  x.index_put_({Ellipsis}, 1);
  CHECK(same(x, ones({2, 3}, {.dtype = Float64})));
  x.index_put_({List{}}, 5);
  x.index_put_({Slice(2, {})}, 5);
  CHECK(same(x, ones({2, 3}, {.dtype = Float64})));
  // A view, by strides: the base sees it.
  Tensor base = zeros({3, 4}, {.dtype = Int64});
  Tensor view = base.transpose(0, 1).slice(0, 1, {}, 2);
  view.index_put_({{0, 1, 1}, {0, 2, 0}}, tensor({1, 2, 3}));
  CHECK(same(base, tensor({{0, 1, 0, 3}, {0, 0, 0, 0}, {0, 0, 0, 2}})));
  view.index_put_({1}, tensor({true, false, true}), true);
  CHECK(same(base, tensor({{0, 1, 0, 4}, {0, 0, 0, 0}, {0, 0, 0, 3}})));
  // Out of place.
  const Tensor made = index_put(base, {0, {0, 3}}, 7);
  CHECK(same(made.select(0, 0), tensor({7, 1, 0, 7})));
  CHECK(base.at<std::int64_t>({0, 0}) == 0);
}

TEST_CASE("index_put_: the last of repeated indices wins, accumulate adds each") {
  Tensor x = f64({0, 0, 0});
  x.index_put_({tensor({{0, 2}, {0, 0}})}, f64({{1, 2}, {3, 4}}));
  CHECK(same(x, f64({4, 0, 2})));
  x.index_put_({{0, 0, 1}}, f64({1, 2, 3}), true);
  CHECK(same(x, f64({7, 3, 2})));
  x.index_put_({{2, 2}}, 5, true);
  CHECK(same(x, f64({7, 3, 12})));
  x.index_put_({Slice(0, 2)}, 1, true);
  CHECK(same(x, f64({8, 4, 12})));
  // Of the value, only what stays has a gradient.
  const Tensor v = leaf({{1, 2}, {3, 4}}), w = leaf({1, 1, 1});
  const Tensor y = index_put(w, {tensor({{0, 2}, {0, 0}})}, v);
  CHECK(same(y.detach(), f64({4, 1, 2})));
  CHECK(same(gradient_of(y, v, f64({10, 20, 30})), f64({{0, 30}, {0, 10}})));
  CHECK(same(gradient_of(y, w, f64({10, 20, 30})), f64({0, 20, 0})));
  const Tensor z = index_put(w, {tensor({{0, 2}, {0, 0}})}, v, true);
  CHECK(same(gradient_of(z, v, f64({10, 20, 30})), f64({{10, 30}, {10, 10}})));
  CHECK(same(gradient_of(z, w, f64({10, 20, 30})), f64({10, 20, 30})));
}

TEST_CASE("index_put_: gradients of a tensor with a history, and of the value") {
  const Tensor x = leaf({{1, 2}, {3, 4}}), v = leaf({5, 6}), g = f64({{1, 2}, {3, 4}});
  Tensor y = x * 10;
  y.retain_grad();
  y.index_put_({Slice(), {1}}, v.unsqueeze(1));
  CHECK(same(y.detach(), f64({{10, 5}, {30, 6}})));
  y.index_put_({0, Slice(0, 1)}, v.select(0, 0), true);
  y.backward(g);
  CHECK(same(x.grad(), f64({{10, 0}, {30, 0}})));
  CHECK(same(v.grad(), f64({3, 4})));
  CHECK(same(y.grad(), g));
  // A plain tensor becomes part of the value's history; a broadcast value gets the sum.
  Tensor plain = f64({0, 0, 0, 0});
  plain.index_put_({{0, 1, 3}}, v.select(0, 1));
  CHECK_FALSE(plain.is_leaf());
  CHECK(same(gradient_of(plain, v, f64({1, 2, 4, 8})), f64({0, 11})));
  // Into itself: read before it is written.
  Tensor row = count({5});
  row.index_put_({Slice(1, {})}, row.slice(0, 0, 4));
  CHECK(same(row, f64({0, 0, 1, 2, 3})));
  Tensor own = tensor({2, 0, 1});
  own.index_put_({own}, own);
  CHECK(same(own, tensor({0, 1, 2})));
  Tensor u = x * 1;
  u.index_put_({Slice()}, u);
  CHECK(same(gradient_of(u, x, g), g));
  Tensor same_numbers = f64({0, 0});
  same_numbers.index_put_({Slice()}, v);
  CHECK(same(gradient_of(same_numbers, v), f64({1, 1})));
  // Second order.
  const Tensor z = sum(pow(index_put(x, {x > 2}, v), 3.0));
  const Tensor dv = grad({z}, {v}, {}, {.create_graph = true})[0];
  CHECK(same(gradient_of(sum(dv), v), f64({30, 36})));
}

TEST_CASE("index_put_: what is refused changes nothing") {
  Tensor x = count({2, 3});
  const Tensor before = x.clone();
  const auto refused = [&](auto call) {
    const std::string text = error_of(call);
    CHECK(same(x, before));
    return text;
  };
  CHECK(refused([&] {
          x.index_put_({{0, 1, 2}}, 9);
        }) == "index_put_: index 2 at position 2 of the index tensor [3] is outside size 2 of dim 0 in [2, 3]");
  CHECK(refused([&] {
          x.index_put_({{0, 1}}, f64({1, 2}));
        }) == "index_put_: the value [2] does not broadcast to the indexed part [2, 3] of [2, 3]");
  CHECK(refused([&] { x.index_put_({0}, Tensor()); }) == "index_put_: the value is an undefined tensor");
  CHECK(refused([&] { x.index_put_({0, 0, 0}, 1); }) == "index_put_: too many indices (3) for [2, 3]");
  CHECK(refused([&] { x.index_put_({Slice(0, 1, 0)}, 1); }) ==
        "index_put_: the step must be at least 1, got 0; use flip for the reverse order");
  Tensor whole = tensor({1, 2});
  CHECK(error_of([&] { whole.index_put_({0}, 0.5); }) == "index_put_: the value 0.5 does not fit a tensor of Int64");
  CHECK(error_of([&] { whole.index_put_({0}, f64(1)); }) ==
        "index_put_: a value of Float64 cannot be written into Int64 [2]");
  Tensor flags = tensor({true, false});
  CHECK(error_of([&] { flags.index_put_({0}, true, true); }) ==
        "index_put_: accumulate has no meaning for Bool [2]; convert it with to()");
  Tensor leafy = leaf({1, 2});
  CHECK(mentions(error_of([&] { leafy.index_put_({0}, 1); }), "index_put_: a leaf that requires grad"));
  Tensor wide = f64({{1}, {2}}).expand({2, 2});
  CHECK(mentions(error_of([&] { wide.index_put_({0, {0}}, 1); }), "index_put_: elements of [2, 2] overlap in memory"));
  Tensor made = leafy * 2;
  const Tensor view = made.detach();
  CHECK(mentions(error_of([&] { made.index_put_({0}, 1); }), "index_put_: the memory of [2] is seen by other tensors"));
  CHECK(same(made.detach(), f64({2, 4})));
  Tensor none;
  CHECK(error_of([&] { none.index_put_({0}, 1); }) == "index_put_: the tensor is an undefined tensor");
  // A saved tensor that is changed afterwards is found.
  Tensor k = f64({3, 4});
  const Tensor product = sum(leafy * k);
  k.index_put_({{0}}, 1);
  CHECK(mentions(error_of([&] { product.backward(); }), "'mul' saved a tensor [2] at version 0"));
  {
    const NoGradGuard guard;
    leafy.index_put_({{1}}, 7);
  }
  CHECK(leafy.is_leaf());
  CHECK(same(leafy.detach(), f64({1, 7})));
}
