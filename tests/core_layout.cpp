// Shapes and views: which elements, whose memory, and what is refused.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <sstream>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("reshape and view see row-major elements of any layout") {
  for (const Layout layout : layouts) {
    const Tensor x = laid_out({2, 6, 4}, layout, -1, 1, 1).detach();
    const Tensor plain = x.clone();
    for (const Shape& shape : {Shape{48}, Shape{2, -1}, Shape{12, 4}, Shape{2, 2, 3, 4}, Shape{2, 6, 2, 2},
                               Shape{1, 2, 6, 1, 4}, Shape{4, 12}, Shape{3, 16}}) {
      CAPTURE(name_of(layout));
      CAPTURE(shape);
      CHECK(same(reshape(x, shape), reshape(plain, shape)));
      CHECK(reshape(plain, shape).shares_storage(plain));
    }
  }
}

TEST_CASE("V02: view and reshape of a strided tensor; where strides allow a view, and the text where they do not") {
  const Tensor twelve = count({3, 4}).transpose(0, 1);
  CHECK(same(reshape(twelve, {2, 6}), f64({{0, 4, 8, 1, 5, 9}, {2, 6, 10, 3, 7, 11}})));
  CHECK(error_of([&] {
          twelve.view({2, 6});
        }) ==
        "view: the strides [1, 4] of [4, 3] allow no view of shape [2, 6]; use reshape, which copies where it must, "
        "or contiguous() before");
  CHECK(same(contiguous(twelve).view({2, 6}), reshape(twelve, {2, 6})));
  CHECK(twelve.contiguous().to_vector<double>() == std::vector<double>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  std::ostringstream text;
  text << twelve;
  std::ostringstream plain;
  plain << twelve.clone();
  CHECK(text.str() == plain.str());
  const Tensor left = count({3, 4}).slice(1, 0, 2);
  CHECK(left.view({3, 2, 1}).shares_storage(left));
  CHECK(same(left.view({3, 2, 1}).squeeze(-1), left));
  // Every op that makes a tensor of its own reads elements, not storage.
  for (const Tensor& t : {twelve, left, count({2, 1}).expand({2, 3}), count({5}).slice(0, 1, {}, 2)}) {
    const Tensor own = from_vector(t.to_vector<double>(), t.shape());
    CHECK(same(t.clone(), own));
    CHECK(same(t.contiguous(), own));
    CHECK(same(reshape(t, {-1}), reshape(own, {-1})));
    CHECK(same(flatten(t), flatten(own)));
    CHECK(same(cat({t, t}), cat({own, own})));
    CHECK(same(flip(t, {0}), flip(own, {0})));
    CHECK(same(t.to(Float32), own.to(Float32)));
    CHECK(same(t * 2, own * 2));
    CHECK(same(sum(t), sum(own)));
    CHECK(same(t.index({{1, 0}}), own.index({{1, 0}})));
    CHECK(same(index_select(t, 0, tensor({1, 1})), index_select(own, 0, tensor({1, 1}))));
    CHECK(same(gather(t, 0, zeros(t.shape(), {.dtype = Int64})), gather(own, 0, zeros(t.shape(), {.dtype = Int64}))));
  }

  const Tensor x = count({2, 3, 4});
  CHECK(x.view({6, -1}).shares_storage(x));
  const Tensor t = x.transpose(0, 1);
  CHECK(same(t.view({3, 2, 2, 2}), t.clone().view({3, 2, 2, 2})));
  CHECK(t.view({3, 2, 2, 2}).shares_storage(x));
  CHECK(error_of([&] {
          t.view({6, 4});
        }) ==
        "view: the strides [4, 12, 1] of [3, 2, 4] allow no view of shape [6, 4]; use reshape, which copies where it "
        "must, or contiguous() before");
  CHECK(error_of([&] { x.view({5, -1}); }) == "view: cannot give [2, 3, 4] (24 elements) the shape [5, -1]");
  CHECK(error_of([&] { x.reshape({-1, -1}); }) == "reshape: more than one -1 in [-1, -1]");
  CHECK(error_of([&] { x.reshape({7}); }) == "reshape: cannot give [2, 3, 4] (24 elements) the shape [7] (7 elements)");
  CHECK(error_of([&] { x.reshape({-2, 12}); }) == "reshape: negative size in [-2, 12]");
  CHECK(error_of([&] { zeros({0}).reshape({0, -1}); }) == "reshape: cannot give [0] (0 elements) the shape [0, -1]");
  CHECK(zeros({0, 3}).view({3, -1}).shape() == Shape{3, 0});
  CHECK(zeros({2, 0}).transpose(0, 1).view({0}).shape() == Shape{0});
  CHECK(same(f64(3).view({1, 1}), f64({{3}})));
  CHECK(same(f64({{3}}).view({}), f64(3)));
  // Size-1 dims may have any stride.
  const Tensor odd = count({4, 6}).slice(0, 1, 2).slice(1, 0, 6, 2);
  CHECK(same(odd.view({3}), f64({6, 8, 10})));
  CHECK(same(odd.transpose(0, 1).view({3, 1, 1}), f64({{{6}}, {{8}}, {{10}}})));
  CHECK(same(f64({{1}, {2}}).expand({2, 3}).reshape({6}), f64({1, 1, 1, 2, 2, 2})));
}

TEST_CASE("transpose, permute, squeeze, unsqueeze, flatten") {
  const Tensor x = count({2, 3, 4});
  CHECK(x.transpose(-1, 0).at<double>({3, 2, 1}) == x.at<double>({1, 2, 3}));
  CHECK(x.permute({2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(x.permute({2, 0, -2}).at<double>({3, 1, 2}) == x.at<double>({1, 2, 3}));
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(x.unsqueeze(0).shape() == Shape{1, 2, 3, 4});
  CHECK(x.unsqueeze(1).is_contiguous());
  CHECK(count({1, 3, 1}).squeeze().shape() == Shape{3});
  CHECK(count({1, 3, 1}).squeeze(0).shape() == Shape{3, 1});
  CHECK(count({1, 3, 1}).squeeze(1).shape() == Shape{1, 3, 1});
  CHECK(x.flatten().shape() == Shape{24});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(x.flatten(0, 1).shape() == Shape{6, 4});
  CHECK(f64(3).flatten().shape() == Shape{1});
  CHECK(f64(3).transpose(0, -1).shape() == Shape{});
  CHECK(f64(3).permute({}).shape() == Shape{});
  for (const Tensor& view : {x.transpose(0, 1), x.permute({2, 1, 0}), x.unsqueeze(1), x.squeeze(), x.narrow(0, 1, 1)})
    CHECK(view.shares_storage(x));
  CHECK_FALSE(x.transpose(0, 1).is_contiguous());
  CHECK(x.transpose(0, 1).contiguous().is_contiguous());
  CHECK(x.contiguous().is_same(x));
  CHECK_FALSE(x.clone().shares_storage(x));
}

TEST_CASE("Z01: expand repeats without memory, however often") {
  const Tensor x = f64({{1}, {2}});
  CHECK(same(x.expand({2, 3}), f64({{1, 1, 1}, {2, 2, 2}})));
  CHECK(same(x.expand({2, -1, -1}), f64({{{1}, {2}}, {{1}, {2}}})));
  CHECK(x.expand({2, 3}).shares_storage(x));
  const Tensor huge = f64({{1}}).expand({std::int64_t{1} << 31, 2});
  CHECK(huge.numel() == 4294967296);
  CHECK(huge.at<double>({123456789, 1}) == 1);
  CHECK(error_of([&] {
          f64(1).expand({std::int64_t{1} << 32, std::int64_t{1} << 32});
        }) == "Shape: the number of elements of [4294967296, 4294967296] does not fit 63 bits");
  CHECK(error_of([&] {
          x.expand({3, 3});
        }) == "expand: cannot expand [2, 1] to [3, 3]; only dims of size 1 and new leading dims can be repeated");
  CHECK(mentions(error_of([&] { x.expand({-1, 2, 3}); }), "cannot expand [2, 1] to [-1, 2, 3]"));
  CHECK(mentions(error_of([&] { x.expand({2}); }), "cannot expand"));
  CHECK(f64({{1}}).expand({0, 4}).shape() == Shape{0, 4});
}

TEST_CASE("cat and stack") {
  const Tensor a = f64({{1, 2}}), b = f64({{3, 4}, {5, 6}});
  CHECK(same(cat({a, b}), f64({{1, 2}, {3, 4}, {5, 6}})));
  CHECK(same(cat({b, b.transpose(0, 1)}, -1), f64({{3, 4, 3, 5}, {5, 6, 4, 6}})));
  CHECK(same(cat({zeros({0, 2}, {.dtype = Float64}), a}), a));
  CHECK(same(cat({a}), a));
  CHECK_FALSE(cat({a}).shares_storage(a));
  CHECK(same(stack({a, a * 2}, 0), f64({{{1, 2}}, {{2, 4}}})));
  CHECK(same(stack({a, a * 2}, -1), f64({{{1, 2}, {2, 4}}})));
  CHECK(same(stack({f64(1), f64(2)}), f64({1, 2})));
  CHECK(same(cat({tensor({1}), tensor({2.5})}), tensor({1.0, 2.5})));
  // Only one of the tensors asks for a gradient.
  const Tensor x = leaf({1, 2});
  const Tensor y = cat({f64({0}), x, f64({5})});
  CHECK(same(gradient_of(y, x, f64({1, 2, 3, 4})), f64({2, 3})));
}

TEST_CASE("G05: a stack of ten thousand tensors") {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 10000; ++i) leaves.push_back(ones({2, 2}, {.requires_grad = true}));
  const Tensor total = sum(stack(leaves));
  CHECK(total.item() == 40000);
  total.backward();
  bool right = true;
  for (const Tensor& leaf : leaves) right &= same(leaf.grad(), ones({2, 2}));
  CHECK(right);
}

TEST_CASE("flip") {
  const Tensor x = count({2, 3});
  CHECK(same(flip(x, {1}), f64({{2, 1, 0}, {5, 4, 3}})));
  CHECK(same(flip(x, {0, -1}), f64({{5, 4, 3}, {2, 1, 0}})));
  CHECK(same(flip(x.transpose(0, 1), {0}), flip(x, {1}).transpose(0, 1).contiguous()));
  CHECK(flip(zeros({0, 2}), {0}).shape() == Shape{0, 2});
  CHECK(same(flip(f64(1), {0}), f64(1)));
}

TEST_CASE("views see each other's changes, copies do not") {
  Tensor x = count({2, 3});
  const Tensor row = x.index({0}), copy = x.clone(), part = x.detach();
  x.fill_(7);
  CHECK(same(row, f64({7, 7, 7})));
  CHECK(same(part, x));
  CHECK(same(copy, count({2, 3})));
  Tensor column = x.select(1, 1);
  column.zero_();
  CHECK(same(x, f64({{7, 0, 7}, {7, 0, 7}})));
}
