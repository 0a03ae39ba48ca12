// Hooks, retained gradients, and changes in place.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("G08: a hook is called once, with the complete gradient, in the order of registration") {
  const Tensor x = leaf(1);
  int calls = 0;
  double seen = 0;
  {
    const Tensor y = x + 1;
    y.register_hook([&](const Tensor& g) {
      ++calls;
      seen = g.item();
      return g * 2;
    });
    (2 * y + 3 * y).backward();
    CHECK(calls == 1);
    CHECK(seen == 5);
    CHECK(x.grad().item() == 10);
  }
  x.zero_grad();
  const Tensor y = x + 1;
  y.register_hook([](const Tensor& g) { return g * 2; });
  y.register_hook([](const Tensor& g) { return g + 1; });
  y.retain_grad();
  (2 * y + 3 * y).backward();
  CHECK(x.grad().item() == 11);
  CHECK(y.grad().item() == 11);
}

TEST_CASE("hooks on leaves, on what is not reached, and hooks that only look") {
  const Tensor x = leaf({1, 2}), other = leaf({1, 2});
  int calls = 0, elsewhere = 0;
  x.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensor unreached = other * 2;
  unreached.register_hook([&](const Tensor& g) {
    ++elsewhere;
    return g;
  });
  sum(x * x + x).backward();
  CHECK(calls == 1);
  CHECK(elsewhere == 0);
  CHECK(same(x.grad(), f64({3, 5})));
  // grad() calls them too, for what lies between.
  CHECK(same(grad({sum(x * 2)}, {x})[0], f64({2, 2})));
  CHECK(calls == 2);
}

TEST_CASE("hooks can be removed, also while they run") {
  const Tensor x = leaf(1);
  HookId first = 0;
  int calls = 0;
  first = x.register_hook([&](const Tensor& g) {
    ++calls;
    x.remove_hook(first);
    return g * 10;
  });
  const HookId second = x.register_hook([](const Tensor& g) { return g + 1; });
  (x * 1).backward();
  CHECK(x.grad().item() == 11);
  x.zero_grad();
  (x * 1).backward();
  CHECK(calls == 1);
  CHECK(x.grad().item() == 2);
  x.remove_hook(second);
  x.remove_hook(second);
  x.zero_grad();
  (x * 1).backward();
  CHECK(x.grad().item() == 1);
}

TEST_CASE("a hook is any function of a gradient: a null one is refused, whatever it is") {
  struct Doubled {
    explicit operator bool() const { return false; }  // which says nothing of it as a hook
    Tensor operator()(const Tensor& g) const { return g * 2; }
  };
  const auto gradient_with = [](const Hook& hook) {
    const Tensor x = leaf(3);
    x.register_hook(hook);
    (x * 1).backward();
    return x.grad().item();
  };
  CHECK(gradient_with([](const Tensor& g) { return g * 5; }) == 5);
  CHECK(gradient_with([factor = std::make_unique<double>(7)](const Tensor& g) { return g * *factor; }) == 7);
  CHECK(gradient_with(static_cast<Tensor (*)(const Tensor&)>(neg)) == -1);
  CHECK(gradient_with(&Tensor::neg) == -1);
  CHECK(gradient_with(std::function<Tensor(const Tensor&)>(Doubled())) == 2);
  CHECK(gradient_with(Doubled()) == 2);

  const Tensor x = leaf(3);
  const std::string empty = "register_hook: the hook is empty";
  CHECK(error_of([&] { x.register_hook(std::function<Tensor(const Tensor&)>()); }) == empty);
  CHECK(error_of([&] { x.register_hook(static_cast<Tensor (*)(const Tensor&)>(nullptr)); }) == empty);
  CHECK(error_of([&] { x.register_hook(static_cast<decltype(&Tensor::neg)>(nullptr)); }) == empty);
}

TEST_CASE("a hook's result must fit; with create_graph it is part of the history") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  const HookId id = y.register_hook([](const Tensor& g) { return sum(g); });
  CHECK(error_of([&] { sum(y).backward({}, {.retain_graph = true}); }) ==
        "register_hook: a hook on [2] Float64 returned [] Float64");
  CHECK_FALSE(x.grad().defined());
  y.remove_hook(id);
  CHECK(error_of([] { f64(1).register_hook([](const Tensor& g) { return g; }); }) ==
        "register_hook: the tensor does not require grad: []");
  CHECK(error_of([&] { x.register_hook({}); }) == "register_hook: the hook is empty");
  const Tensor w = leaf(3);
  const Tensor z = w * w;
  z.register_hook([&](const Tensor& g) { return g * w; });
  const Tensor slope = grad({z}, {w}, {}, {.create_graph = true})[0];  // w·2w
  CHECK(slope.item() == 18);
  CHECK(grad({slope}, {w})[0].item() == 12);
}

TEST_CASE("retain_grad keeps the gradient of what an op made, and adds up") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  y.retain_grad();
  const Tensor z = sum(y * y);
  z.backward({}, {.retain_graph = true});
  CHECK(same(y.grad(), f64({4, 8})));
  z.backward();
  CHECK(same(y.grad(), f64({8, 16})));
  CHECK_FALSE(z.grad().defined());
  CHECK(error_of([] { f64({1}).retain_grad(); }) == "retain_grad: the tensor does not require grad: [1]");
  // The wish goes along with a change in place, and dies with the tensor.
  const Tensor w = leaf({1, 2});
  Tensor total;
  {
    Tensor h = w * 3;
    h.retain_grad();
    h.add_(1);
    total = sum(h * h);
    const Tensor seen = h;
    total.backward({}, {.retain_graph = true});
    CHECK(same(seen.grad(), f64({8, 14})));
  }
  // What now stands where h stood gets nothing of its gradient.
  std::vector<Tensor> later;
  for (int i = 0; i < 8; ++i) later.push_back(f64({0, 0}));
  total.backward();
  CHECK(same(w.grad(), f64({48, 84})));
  for (const Tensor& tensor : later) CHECK_FALSE(tensor.grad().defined());
}

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

TEST_CASE("a hook that changes its gradient in place is refused") {
  const Tensor x = leaf({1, 2}), z = leaf({3, 4});
  x.register_hook([](const Tensor& g) {
    Tensor same = g;
    same.mul_(10);
    return Tensor();
  });
  CHECK(error_of([&] {
          (x + z).backward(f64({1, 1}));
        }) ==
        "register_hook: a hook on [2] changed the gradient in place, which others may hold; return the new gradient "
        "instead");
  CHECK_FALSE(z.grad().defined());
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
