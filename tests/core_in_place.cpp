// Changes in place, and what set_data replaces.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("in place, with a history: the gradient is that of the op") {
  const Tensor x = leaf({1, 2, 3}), k = leaf({2, 2, 2});
  Tensor y = x * 1;
  y.add_(k);
  y.sub_(f64({1, 1, 1}));
  y.mul_(3);
  y.div_(2);
  y += 1;
  y -= k;
  y *= f64({1, 2, 3});
  y /= 4;
  CHECK_FALSE(y.is_leaf());
  y.masked_fill_(tensor({true, false, false}), 9);
  CHECK(close(y, f64({9, (4.5 + 1 - 2) / 2, (6.0 + 1 - 2) * 0.75}), 1e-15));
  sum(y).backward();
  CHECK(close(x.grad(), f64({0, 0.75, 1.125})));
  CHECK(close(k.grad(), f64({0, 0.25, 0.375})));
  Tensor cut = x * 2;
  cut.zero_();
  CHECK(same(gradient_of(cut, x), f64({0, 0, 0})));
  Tensor plain = f64({0, 0, 0});
  plain.add_(x);
  CHECK(plain.requires_grad());
  CHECK(same(gradient_of(plain, x), f64({1, 1, 1})));
}

TEST_CASE("copy_ converts, broadcasts, passes gradients on, and reads before it writes") {
  const Tensor x = leaf({1, 2});
  Tensor y = zeros({3, 2}, {.dtype = Float64});
  y.copy_(x);
  CHECK(same(y.detach(), f64({{1, 2}, {1, 2}, {1, 2}})));
  CHECK(same(gradient_of(y, x), f64({3, 3})));
  Tensor z = f64({0, 0});
  z.copy_(x);
  CHECK_FALSE(z.is_leaf());  // a result of its own, not the leaf
  z.retain_grad();
  sum(z * 5).backward();
  CHECK(same(x.grad(), f64({5, 5})));
  CHECK(same(z.grad(), f64({5, 5})));
  Tensor whole = tensor({0, 0});
  whole.copy_(f64({1.9, -1.9}));
  CHECK(same(whole, tensor({1, -1})));
  Tensor square = count({3, 3});
  square.copy_(square.transpose(0, 1));
  CHECK(same(square, count({3, 3}).transpose(0, 1).contiguous()));
  Tensor row = count({5});
  row.narrow(0, 1, 4).copy_(row.narrow(0, 0, 4));
  CHECK(same(row, f64({0, 0, 1, 2, 3})));
}

TEST_CASE("V01 an expanded tensor is not changed in place, by any op, and stays as it was") {
  const Tensor a = f64({{1}}), mask = tensor({true});
  const std::vector<std::pair<std::string, std::function<void(Tensor&)>>> ops = {
      {"add_", [](Tensor& b) { b.add_(1); }},
      {"add_", [](Tensor& b) { b.add_(f64({{2}})); }},
      {"add_", [](Tensor& b) { b += 1; }},
      {"sub_", [](Tensor& b) { b.sub_(1); }},
      {"sub_", [](Tensor& b) { b.sub_(f64({{2}})); }},
      {"mul_", [](Tensor& b) { b.mul_(2); }},
      {"mul_", [](Tensor& b) { b.mul_(f64({{2}})); }},
      {"div_", [](Tensor& b) { b.div_(2); }},
      {"div_", [](Tensor& b) { b.div_(f64({{2}})); }},
      {"masked_fill_", [&](Tensor& b) { b.masked_fill_(mask, 3); }},
      {"copy_", [](Tensor& b) { b.copy_(f64({{2}})); }},
      {"fill_", [](Tensor& b) { b.fill_(2); }},
      {"zero_", [](Tensor& b) { b.zero_(); }},
      {"index_put_",
       [](Tensor& b) {
         b.index_put_({0, 0}, 2);
       }},
      {"index_put_", [](Tensor& b) { b.index_put_({{0}}, 2, true); }},
      {"uniform_", [](Tensor& b) { uniform_(b, 0, 1); }},
      {"normal_", [](Tensor& b) { normal_(b, 0, 1); }},
  };
  for (const bool recording : {true, false}) {
    std::optional<NoGradGuard> guard;
    if (!recording) guard.emplace();
    for (const auto& entry : ops) {
      CAPTURE(entry.first);
      Tensor b = a.expand({4, 5});
      CHECK(error_of([&] { entry.second(b); }) ==
            entry.first + ": elements of [4, 5] overlap in memory (it is expanded); clone() it first");
      CHECK(same(a, f64({{1}})));
      Tensor own = b.clone();
      entry.second(own);
    }
  }
}

TEST_CASE("in place is refused where a history would break") {
  Tensor x = leaf({1, 2});
  const std::string leaf_text =
      ": a leaf that requires grad cannot be changed in place: [2]; change it inside a NoGradGuard, or use the "
      "out-of-place "
      "op";
  CHECK(error_of([&] { x.add_(1); }) == "add_" + leaf_text);
  CHECK(error_of([&] { x.zero_(); }) == "zero_" + leaf_text);
  Tensor row = x.narrow(0, 0, 1);
  CHECK(mentions(error_of([&] { row.add_(1); }), "add_: the memory of [1] is seen by other tensors"));
  {
    const NoGradGuard guard;
    x.mul_(2);
  }
  CHECK(same(x.detach(), f64({2, 4})));
  CHECK(x.is_leaf());
  Tensor y = x * 2;
  const Tensor view = y.detach();
  CHECK(error_of([&] { y.add_(1); }) ==
        "add_: the memory of [2] is seen by other tensors (views, detached or saved ones), whose history would break; "
        "use "
        "the out-of-place op");
  Tensor e = exp(x);  // exp keeps its own result
  CHECK(mentions(error_of([&] { e.mul_(2); }), "mul_: the memory of [2] is seen by other tensors"));
  Tensor wide = f64({{1}}).expand({2, 2});
  CHECK(mentions(error_of([&] { wide.add_(1); }), "overlap in memory"));
  Tensor whole = tensor({1, 2});
  CHECK(error_of([&] { whole.add_(0.5); }) ==
        "add_: a result of Float32 cannot be written into Int64 [2]; use the out-of-place op, or convert with to()");
  Tensor small = f64({1, 2});
  CHECK(error_of([&] { small.add_(f64({{1, 2}, {3, 4}})); }) == "add_: the result [2, 2] does not fit into [2]");
  CHECK(error_of([&] { small.add_(Tensor()); }) == "add_: the other tensor is an undefined tensor");
  CHECK(same(small, f64({1, 2})));
  CHECK(same(whole, tensor({1, 2})));
}

TEST_CASE("a saved tensor that was changed is found, through views and detach") {
  const std::string cure = "; change a clone() of it, or change it after backward";
  const auto changed = [&](int versions) {
    return "backward: 'mul' saved a tensor [2] at version 0 that an in-place change has brought to version " +
           std::to_string(versions) + cure;
  };
  const Tensor x = leaf({1, 2});
  for (int way = 0; way < 4; ++way) {
    Tensor k = f64({3, 4});
    const Tensor y = sum(x * k);
    Tensor seen = way == 0 ? k : way == 1 ? k.detach() : way == 2 ? k.narrow(0, 1, 1) : k.view({2, 1});
    seen.add_(1);
    if (way == 3) seen.fill_(0);
    CHECK(error_of([&] { y.backward(); }) == changed(way == 3 ? 2 : 1));
    CHECK_FALSE(x.grad().defined());
  }
  // The leaf itself, under NoGradGuard, by fused updates and by random numbers.
  for (int way = 0; way < 3; ++way) {
    Tensor w = leaf({1, 2});
    const Tensor y = sum(w * w);
    const NoGradGuard guard;
    if (way == 0) w.sub_(1);
    if (way == 1) scale_(w, 2);
    if (way == 2) uniform_(w, 0, 1);
    CHECK(mentions(error_of([&] { y.backward(); }), "'mul' saved a tensor [2] at version 0"));
  }
  // What no formula reads may be changed.
  Tensor k = f64({3, 4});
  const Tensor y = sum(x + k);
  k.zero_();
  y.backward();
  CHECK(same(x.grad(), f64({1, 1})));
  // Changed after the op that reads it, before one that comes later.
  Tensor h = x * 1;
  h.mul_(2);
  const Tensor z = sum(h * h);
  x.zero_grad();
  z.backward();
  CHECK(same(x.grad(), f64({8, 16})));
}

TEST_CASE("set_data keeps a leaf's place in the history and its hooks, or is refused") {
  const Tensor w = leaf({1, 2}), x = f64({3, 4});
  int calls = 0;
  const HookId hook = w.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  // Between forward and backward: the gradient is that of the forward pass, at the old numbers.
  Tensor y = sum(w * w * x);
  w.set_data(f64({10, 20}));
  y.backward();
  CHECK(same(w.grad(), f64({6, 16})));
  CHECK(calls == 1);
  CHECK(same(w.detach(), f64({10, 20})));
  // Another shape or dtype would not fit that gradient.
  y = sum(w * x);
  CHECK(error_of([&] {
          w.set_data(f64({1, 2, 3}));
        }) ==
        "set_data: a recorded history still leads to [2] Float64, whose gradient would not fit [3] Float64; call "
        "backward before, or let go of the results made from it");
  CHECK(mentions(error_of([&] { w.set_data(tensor({1.0, 2.0})); }), "would not fit [2] Float32"));
  CHECK(same(w.detach(), f64({10, 20})));
  CHECK(w.grad().defined());
  y.backward();
  CHECK(same(w.grad(), f64({9, 20})));
  CHECK(calls == 2);
  // With nothing recorded any shape and dtype will do, and the hooks stay.
  w.set_data(tensor({1.0, 2.0, 3.0}));
  CHECK_FALSE(w.grad().defined());
  sum(w * 2).backward();
  CHECK(same(w.grad(), tensor({2.0, 2.0, 2.0})));
  CHECK(calls == 3);
  w.remove_hook(hook);
  sum(w).backward();
  CHECK(calls == 3);
}

TEST_CASE("names and set_data") {
  const Tensor w = leaf({{1, 2}}).set_name("W");
  CHECK(w.name() == "W");
  CHECK(error_of([&] { matmul(w, f64({{1, 2}})); }) == "matmul: inner sizes differ: a is 'W' [1, 2], b is [1, 2]");
  const Tensor same_handle = w;
  sum(w).backward();
  w.set_data(tensor({1.0, 2.0, 3.0}));
  CHECK(same_handle.shape() == Shape{3});
  CHECK(same_handle.dtype() == Float32);
  CHECK(same_handle.requires_grad());
  CHECK_FALSE(w.grad().defined());
  sum(w * 2).backward();
  CHECK(same(same_handle.grad(), tensor({2.0, 2.0, 2.0})));
  CHECK(mentions(error_of([&] { (w * 2).set_data(w); }), "only a leaf's data can be replaced"));
  CHECK(error_of([&] { w.set_data(tensor({1})); }) == "set_data: a tensor that requires grad cannot be Int64");
}

TEST_CASE("what a constant overwrites passes the gradient 0 on") {
  const Tensor x = leaf({1, 2}), constant = f64({5, 6});
  for (int form = 0; form < 3; ++form) {
    CAPTURE(form);
    x.zero_grad();
    Tensor y = x * 1;
    if (form == 0) y.zero_();
    if (form == 1) y.fill_(3);
    if (form == 2) y.copy_(constant);
    (y * 2).sum().backward();
    CHECK(same(x.grad(), f64({0, 0})));
  }
  CHECK_FALSE(constant.requires_grad());
}

TEST_CASE("in-place ops refuse in their own words") {
  Tensor x = f64({1, 2}), whole = tensor({1, 2});
  CHECK(error_of([&] {
          x.sub_(f64({1, 2, 3}));
        }) ==
        "sub_: shapes [2] and [3] do not broadcast: 2 against 3 in dim -1; sizes must be equal, or one of them 1");
  CHECK(error_of([&] { whole.fill_(nan_value); }) == "fill_: Scalar: nan does not fit a 64-bit integer");
  Tensor wide = x.unsqueeze(0).expand({2, 2});
  CHECK(mentions(error_of([&] { wide.zero_(); }), "zero_: elements of [2, 2] overlap"));
}
