// What backward and grad promise: accumulation, graphs kept and consumed, orders, and what stays untouched.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("G01: diamonds and shared nodes count each path once") {
  const Tensor x = leaf(1), a = leaf(1);
  const Tensor xa = x * a, x2 = x * x;
  (x * xa + x2 * a + x * xa).backward();
  CHECK(x.grad().item() == 6);
  const Tensor s = leaf(1);
  const Tensor b = s + s, c = b + b;
  c.backward();
  CHECK(s.grad().item() == 4);
  const Tensor u = leaf(2), v = leaf(3);
  const Tensor sum_uv = u + v, product = u * v;
  ((sum_uv + product) + sum_uv * product).backward();
  CHECK(u.grad().item() == 25);
  CHECK(v.grad().item() == 19);
}

TEST_CASE("gradients accumulate until they are zeroed, and leave out what asks for none") {
  const Tensor x = leaf({1, 2}), k = f64({3, 4});
  CHECK_FALSE(x.grad().defined());
  sum(x * k).backward();
  sum(x * k).backward();
  CHECK(same(x.grad(), f64({6, 8})));
  CHECK_FALSE(k.grad().defined());
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  sum(x * k).backward();
  CHECK(same(x.grad(), f64({3, 4})));
  x.set_grad(f64({10, 20}));
  sum(x * k).backward();
  CHECK(same(x.grad(), f64({13, 24})));
  CHECK(error_of([&] { x.set_grad(f64({1})); }) == "set_grad: the gradient is [1] Float64, the tensor [2] Float64");
  // A leaf may be the result itself.
  const Tensor y = leaf(3);
  y.backward();
  y.backward(f64(5));
  CHECK(y.grad().item() == 6);
}

TEST_CASE("G10: a second backward is explained, and changes nothing") {
  const std::string consumed =
      " was consumed by an earlier backward and cannot be walked a second time; pass {.retain_graph = true} to the "
      "first "
      "call, or compute the result anew";
  const Tensor x = leaf({1, 2});
  for (const Tensor& s : {sum(x * x), sum(x + 1)}) {
    x.zero_grad();
    s.backward();
    const Tensor before = x.grad().clone();
    CHECK(error_of([&] { s.backward(); }) == "backward: the graph at 'sum' []" + consumed);
    CHECK(error_of([&] { grad({s}, {x}); }) == "grad: the graph at 'sum' []" + consumed);
    CHECK(same(x.grad(), before));
  }
  const Tensor shared = x * x;
  const Tensor l1 = sum(shared * 2), l2 = sum(shared * 3);
  x.zero_grad();
  l1.backward();
  CHECK(error_of([&] { l2.backward(); }) == "backward: the graph at 'mul' [2]" + consumed);
  CHECK(same(x.grad(), f64({4, 8})));
  x.zero_grad();
  const Tensor s = sum(x * x);
  s.backward({}, {.retain_graph = true});
  s.backward();
  CHECK(same(x.grad(), f64({4, 8})));
  // create_graph keeps the graph unless told otherwise.
  const Tensor t = sum(x * x);
  t.backward({}, {.create_graph = true});
  t.backward({}, {.retain_graph = false, .create_graph = true});
  CHECK(error_of([&] { t.backward(); }).starts_with("backward: the graph at"));
}

TEST_CASE("G11: backward of something that is not a scalar") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = x * 2;
  CHECK(
      error_of([&] { y.backward(); }) ==
      "backward: only a scalar (one element) needs no gradient, and the result is [3]; pass a gradient of that shape, "
      "or reduce the result to a scalar");
  CHECK(error_of([&] { y.backward(ones({2}, {.dtype = Float64})); }) ==
        "backward: the gradient is [2] Float64, the result [3] Float64");
  CHECK(mentions(error_of([&] { y.backward(ones({3})); }), "[3] Float32, the result [3] Float64"));
  CHECK(error_of([&] { f64({1}).backward(); }) ==
        "backward: the result [1] does not require grad: no input of the ops that made it does, or they ran under "
        "NoGradGuard");
  CHECK(mentions(error_of([&] { Tensor().backward(); }), "undefined tensor"));
  CHECK_FALSE(x.grad().defined());
  y.backward(ones({3}, {.dtype = Float64}));
  CHECK(same(x.grad(), f64({2, 2, 2})));
  const Tensor one = leaf({{5}});
  (one * 3).backward();
  CHECK(same(one.grad(), f64({{3}})));
}

TEST_CASE("grad: several inputs and outputs, unused ones, intermediates, and no .grad() touched") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), unused = leaf(1);
  const Tensor h = x * w, y = h * h, z = sum(h);
  const auto g = grad({y, z}, {x, w, h}, {f64({1, 1}), {}}, {.retain_graph = true});
  CHECK(same(g[2], f64({7, 17})));
  CHECK(same(g[0], f64({21, 68})));
  CHECK(same(g[1], f64({7, 34})));
  for (const Tensor& t : {x, w}) CHECK_FALSE(t.grad().defined());
  CHECK(error_of([&] {
          grad({z}, {x, unused}, {}, {.retain_graph = true});
        }) == "grad: no output depends on input 1: []; pass {.allow_unused = true} to get an undefined tensor for it");
  const auto some = grad({z}, {x, unused}, {}, {.retain_graph = true, .allow_unused = true});
  CHECK(same(some[0], f64({3, 4})));
  CHECK_FALSE(some[1].defined());
  CHECK(same(grad({z}, {z}, {}, {.retain_graph = true})[0], f64(1)));
  CHECK(error_of([&] { grad({z}, {f64({1})}); }) == "grad: input 0 does not require grad: [1]");
  CHECK(error_of([&] { grad({}, {x}); }) == "grad: needs at least one output and one input");
  CHECK(error_of([&] { grad({z}, {x}, {f64(1), f64(1)}); }) == "grad: got 1 outputs but 2 grad_outputs");
}

TEST_CASE("grad walks no further than its inputs, so that a derivation can go step by step") {
  const Tensor q = leaf({{1, 2}}), k = leaf({{3, 1}, {0, 2}});
  const Tensor s = matmul(q, k), p = softmax(s, -1), out = sum(p * p);
  const Tensor dp = grad({out}, {p})[0];
  const Tensor ds = grad({p}, {s}, {dp})[0];
  const auto rest = grad({s}, {q, k}, {ds});
  const Tensor q2 = q.detach().requires_grad_(), k2 = k.detach().requires_grad_();
  const Tensor p2 = softmax(matmul(q2, k2), -1);
  sum(p2 * p2).backward();
  CHECK(same(rest[0], q2.grad()));
  CHECK(same(rest[1], k2.grad()));
}

TEST_CASE("create_graph: derivatives of any order") {
  const Tensor x = leaf(2);
  Tensor y = pow(x, 5);
  const double wanted[] = {80, 160, 240, 240, 120};
  for (const double value : wanted) {
    y = grad({y}, {x}, {}, {.create_graph = true})[0];
    CHECK(y.item() == doctest::Approx(value));
  }
  // Through backward: the gradient that the leaf keeps has a history.
  const Tensor w = leaf({1, 2});
  sum(w * w * w).backward({}, {.create_graph = true});
  const Tensor first = w.grad();
  w.zero_grad();
  sum(first * first).backward();
  CHECK(same(w.grad(), f64({36, 288})));  // 2·3w²·6w
  CHECK_FALSE(w.grad().requires_grad());
}

TEST_CASE("G03: gradients of two tensors are not one buffer") {
  const Tensor x = leaf({2, 2}), y = leaf({3, 3});
  const Tensor z = x + y;
  sum(x / z).backward();
  CHECK(close(x.grad(), f64({.12, .12}), 1e-15));
  CHECK(close(y.grad(), f64({-.08, -.08}), 1e-15));
  const Tensor a = leaf({1, 1}), b = leaf({2, 2}), c = leaf({2, 2});
  sum(a + b + c.reshape({2, 1}).reshape({2})).backward();
  Tensor edited = a.grad();
  edited.mul_(0);
  CHECK(same(b.grad(), f64({1, 1})));
  CHECK(same(c.grad(), f64({1, 1})));
  CHECK(a.grad().is_contiguous());
}

TEST_CASE("gradients that others hold are never written into") {
  const Tensor x = leaf({1, 2}), y = leaf({1, 2});
  const Tensor given = f64({3, 4});
  (x + y).backward(given);
  (x + y).backward(given);
  x.backward(given);
  x.backward(given);
  CHECK(same(given, f64({3, 4})));
  CHECK(same(x.grad(), f64({12, 16})));
  const Tensor held = x.grad(), view = y.grad().detach();
  (x * y).backward(given);
  CHECK(same(held, f64({12, 16})));
  CHECK(same(view, f64({6, 8})));
  CHECK(same(x.grad(), f64({15, 24})));
  // Nor what a hook hands back or keeps, nor a gradient that was set.
  Tensor kept;
  const Tensor replaced = f64({1, 1}), set = f64({5, 5});
  const Tensor w = leaf({1, 2});
  w.set_grad(set);
  w.register_hook([&](const Tensor& g) {
    kept = g;
    return replaced;
  });
  sum(w * 2).backward();
  sum(w * 2).backward();
  CHECK(same(replaced, f64({1, 1})));
  CHECK(same(set, f64({5, 5})));
  CHECK(same(kept, f64({2, 2})));
  CHECK(same(w.grad(), f64({7, 7})));
}

TEST_CASE("an error in the middle of backward leaves every gradient as it was") {
  const Tensor x = leaf({1, 2}), w = leaf({1, 2});
  x.set_grad(f64({7, 7}));
  const auto failing = [](const Tensor& t) {
    return record("failing", t.detach() * 2, wrt(t, [](const Tensor&) -> Tensor { throw std::runtime_error("no"); }));
  };
  CHECK_THROWS_WITH(sum(failing(x) + w * x).backward(), "no");
  CHECK(same(x.grad(), f64({7, 7})));
  CHECK_FALSE(w.grad().defined());
  const auto misshapen = [](const Tensor& t) {
    return record("misshapen", t.detach() * 2, wrt(t, [](const Tensor& g) { return sum(g); }));
  };
  CHECK(error_of([&] { sum(w * x + misshapen(x)).backward(); }) ==
        "backward: the gradient formula of 'misshapen' gave [] Float64 for an input of [2] Float64");
  CHECK(same(x.grad(), f64({7, 7})));
  CHECK_FALSE(w.grad().defined());
  // The process lives on.
  sum(w * x).backward();
  CHECK(same(w.grad(), f64({1, 2})));
}

TEST_CASE("a formula is given the shape of its input, whatever it is") {
  for (const Shape& shape : {Shape{}, Shape{2, 1, 3}, Shape{1, 2, 1, 2, 3, 1, 1, 2}, Shape{0, std::int64_t{1} << 40}}) {
    CAPTURE(shape.str());
    const Tensor x = zeros(shape, {.dtype = Float64, .requires_grad = true});
    struct alignas(64) Wide {
      double number = 3;
    };
    const Tensor y = record("flattened", x.detach().reshape({-1}),
                            wrt(x, saving(x), [w = Wide()](const Tensor& g, const Tensor& X, const Shape& s) {
                              volatile auto at = reinterpret_cast<std::uintptr_t>(&w);  // not known beforehand
                              CHECK(at % alignof(Wide) == 0);
                              CHECK(X.shape() == s);
                              return reshape(g * w.number, s);
                            }));
    y.backward(ones_like(y));
    CHECK(x.grad().shape() == shape);
    CHECK(same(x.grad(), full(shape, 3, {.dtype = Float64})));
  }
}

TEST_CASE("a formula may say zero with an undefined tensor") {
  const Tensor x = leaf({1, 2});
  const Tensor y = record("silent", x.detach() * 2, wrt(x, [](const Tensor&) { return Tensor(); }));
  sum(y + x * 3).backward();
  CHECK(same(x.grad(), f64({3, 3})));
}

TEST_CASE("G13: modes end with their scope, also by an exception, and per thread") {
  const Tensor x = leaf({1, 2});
  CHECK(grad_enabled());
  try {
    const NoGradGuard guard;
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE((x * 2).requires_grad());
    {
      const EnableGradGuard again;
      CHECK((x * 2).requires_grad());
    }
    CHECK_FALSE(grad_enabled());
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  CHECK(grad_enabled());
  CHECK((x * 2).requires_grad());
  auto outer = std::make_unique<NoGradGuard>();
  outer.reset();
  CHECK(grad_enabled());
  // A formula that throws leaves the mode alone, too.
  const Tensor y = record("failing", x.detach() * 2, wrt(x, [](const Tensor&) -> Tensor { throw Error("no"); }));
  CHECK(error_of([&] { sum(y).backward(); }) == "no");
  CHECK(grad_enabled());
}

TEST_CASE("an op may be called leaf") {
  const Tensor x = leaf(1);
  const Tensor y = record("leaf", x.detach() * 2, wrt(x, [](const Tensor& g) { return g * 2; }));
  CHECK(!y.is_leaf());
  (y * 1).backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("leaves and detached tensors") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  CHECK(x.is_leaf());
  CHECK_FALSE(y.is_leaf());
  CHECK(f64(1).is_leaf());
  CHECK(y.detach().is_leaf());
  CHECK_FALSE(y.detach().requires_grad());
  CHECK(y.detach().shares_storage(y));
  CHECK(same(gradient_of(sum(y.detach() * x), x), f64({2, 4})));
  CHECK(error_of([&] { y.requires_grad_(); }) ==
        "requires_grad_: only leaves can be asked, and [2] was made by 'mul'; use detach() first");
  CHECK(error_of([] {
          tensor({1, 2}).requires_grad_();
        }) == "requires_grad_: only Float32 and Float64 carry gradients, got Int64 [2]");
  // A wish that is taken back: the leaf gets nothing any more.
  const Tensor z = sum(x * 3);
  x.requires_grad_(false);
  CHECK_FALSE((x * 2).requires_grad());
  z.backward();
  CHECK_FALSE(x.grad().defined());
  x.requires_grad_();
  sum(x * 3).backward();
  CHECK(same(x.grad(), f64({3, 3})));
}
