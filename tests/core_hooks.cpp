// Hooks and retained gradients.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
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

TEST_CASE("a hook may walk a part of the graph that is being walked") {
  const Tensor x = leaf(1), a = x * 2, b = a * a;
  double inner = 0;
  b.register_hook([&](const Tensor& g) {
    inner = grad({a}, {x}, {}, {.retain_graph = true})[0].item();
    return g;
  });
  (3 * b + b).backward();
  CHECK(inner == 2);
  CHECK(x.grad().item() == 32);
}

TEST_CASE("what a hook consumes of the graph that is being walked is an error, and never walked") {
  // In the last one nothing but the graph itself holds the ops below b.
  const auto below = [](const Tensor& x, int kind) {
    if (kind == 0) return x * 2;
    const Tensor a = x * 2;
    return kind == 1 ? a * a : sin(a) * sin(a);
  };
  for (int kind = 0; kind < 3; ++kind) {
    for (const bool all : {false, true}) {
      const Tensor x = leaf(1), b = below(x, kind), d = b * 3;
      d.register_hook([&](const Tensor&) {
        if (all)
          b.backward();
        else
          grad({b}, {x});
        return Tensor();
      });
      const Tensor loss = d * 5 + b;
      CHECK(mentions(error_of([&] { loss.backward(); }), "was consumed by an earlier backward"));
    }
  }
}

TEST_CASE("a hook that calls itself without end is an error") {
  const Tensor x = leaf(1), y = x * 2;
  y.register_hook([&](const Tensor&) {
    grad({y}, {x}, {}, {.retain_graph = true});
    return Tensor();
  });
  CHECK(mentions(error_of([&] { (y * 3).backward(); }), "does a hook call it for its own tensor?"));
  const Tensor z = x * 2;
  z.backward();  // as ever
  CHECK(x.grad().item() == 2);
}

TEST_CASE("a hook may drop and change what backward and grad were called with") {
  for (const bool retain : {false, true}) {
    const Tensor x = leaf(3);
    auto root = std::make_unique<Tensor>(x * x);
    const Tensor middle = x * 1;
    root->register_hook([&](const Tensor&) {
      root.reset();
      return Tensor();
    });
    root->backward({}, {.retain_graph = retain});
    CHECK(x.grad().item() == 6);

    auto other = std::make_unique<Tensor>(middle * middle);
    other->retain_grad();
    middle.register_hook([&](const Tensor&) {
      other.reset();
      return Tensor();
    });
    x.zero_grad();
    other->backward({}, {.retain_graph = retain});
    CHECK(x.grad().item() == 6);
  }
  const Tensor x = leaf(2);
  std::vector<Tensor> outputs{x * x}, inputs{x};
  x.register_hook([&](const Tensor&) {
    x.requires_grad_(false);
    outputs.clear();
    inputs.clear();
    return Tensor();
  });
  CHECK(grad(outputs, inputs)[0].item() == 4);
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
