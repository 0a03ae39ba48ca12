// The gradient of a part of a tensor: added straight into the whole, by nobody else's leave.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

/// Stands in for a sweep: one buffer for the only input.
class Buffer final : public detail::GradientBuffers {
 public:
  explicit Buffer(const Tensor& x) : sum(zeros_like(x)) {}
  const Tensor* of(std::size_t slot, bool) override {
    if (slot != 0) throw Error("there is one input");
    ++asked;
    return &sum;
  }
  Tensor sum;
  int asked = 0;
};

/// The ops whose result is a part of their input.
struct PartOp {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
};
const std::vector<PartOp> part_ops = {
    {"slice", [](const Tensor& x) { return slice(x, 1, 1, {}, 2); }},
    {"narrow", [](const Tensor& x) { return narrow(x, 0, 1, 2); }},
    {"embedding",
     [](const Tensor& x) {
       return embedding(x, tensor({{1, 1}, {2, 0}}));
     }},
    {"embedding",
     [](const Tensor& x) {
       return embedding(x, tensor({1, 1, 2}), 1);
     }},
    {"index_select",
     [](const Tensor& x) {
       return index_select(x, 1, tensor({3, 0, 3}));
     }},
    {"gather",
     [](const Tensor& x) {
       return gather(x, 1, tensor({{0, 0, 3}, {1, 2, 1}}));
     }},
    {"index",
     [](const Tensor& x) {
       return x.index({Ellipsis, {-1, 0, -1}});
     }},
    {"index", [](const Tensor& x) { return x.index(x > 0); }},
};

}  // namespace

TEST_CASE("V04 the gradient of a part is added to the whole's, without a tensor of the whole's size for each part") {
  const Tensor five = leaf({5, 5, 5, 5, 5});
  Tensor y = f64(0);
  for (std::int64_t i = 0; i < 5; ++i) y = y + five.select(0, i) * static_cast<double>(i);
  CHECK(same(gradient_of(y, five), count({5})));

  for (const PartOp& op : part_ops) {
    CAPTURE(op.name);
    const Tensor x = uniform({3, 4}, -1, 1, 5).requires_grad_();
    const Tensor part = op.f(x), g = uniform(part.shape(), -1, 1, 6);
    detail::Node& node = *part.impl().node;
    REQUIRE(std::string(node.op) == (std::string(op.name) == "narrow" ? "slice" : op.name));
    Buffer buffer(x);
    std::vector<Tensor> into(1);
    {
      const NoGradGuard guard;
      node.gradients(g, into, &buffer);
      node.gradients(g, into, &buffer);
    }
    CHECK(buffer.asked == 2);
    CHECK_FALSE(into[0].defined());
    const Tensor by_formula = grad({part}, {x}, {g}, {.create_graph = true})[0].detach();
    CHECK(close(buffer.sum, by_formula * 2, 1e-15));
    CHECK(same(gradient_of(part, x, g), by_formula));
  }
}

TEST_CASE("V04 parts of one tensor share one buffer, and the formula serves create_graph alone") {
  std::vector<const void*> seen;
  int formulas = 0;
  const auto part = [&](const Tensor& x) {
    return record("slice", x.detach().narrow(0, 0, 1).clone(),
                  wrt_part(
                      x, saving(x),
                      [&formulas](const Tensor& g, const Tensor& X) {
                        ++formulas;
                        return slice_scatter(g, 0, X.size(0), 0);
                      },
                      [&seen](const Tensor& dx, const Tensor& g, const Tensor& X) {
                        if (dx.shape() != X.shape() || dx.requires_grad()) throw Error("not a buffer for X");
                        seen.push_back(dx.data<double>());
                        dx.data<double>()[0] += g.item();
                      }));
  };
  const Tensor x = leaf({1, 2, 3});
  Tensor y = part(x);
  for (int i = 1; i < 10; ++i) y = y + part(x) * (i + 1.0);
  CHECK(same(gradient_of(y, x), f64({55, 0, 0})));
  CHECK(formulas == 0);
  REQUIRE(seen.size() == 10);
  for (const void* p : seen) CHECK(p == seen[0]);
  grad({y}, {x}, {ones_like(y)}, {.create_graph = true});
  CHECK(formulas == 10);
  CHECK(seen.size() == 10);
}

TEST_CASE("adding a part's gradient touches no tensor that others see") {
  // The caller's upstream gradient of the whole.
  const Tensor x = leaf({1, 2, 3});
  const Tensor u = x * 1, head = u.narrow(0, 0, 2), gu = f64({1, 1, 1}), gh = f64({5, 7});
  CHECK(same(grad({u, head}, {x}, {gu, gh}, {.retain_graph = true})[0], f64({6, 8, 1})));
  CHECK(same(grad({head, u}, {u}, {gh, gu}, {.retain_graph = true})[0], f64({6, 8, 1})));
  CHECK(same(gu, f64({1, 1, 1})));
  CHECK(same(gh, f64({5, 7})));

  // The gradient that another tensor keeps: clone hands its own on. The slice is older, so that it comes after.
  {
    const Tensor v = x * 1, part = v.narrow(0, 1, 1), twin = v.clone();
    twin.retain_grad();
    v.retain_grad();
    (sum(twin * f64({1, 2, 3})) + sum(part)).backward();
    CHECK(same(twin.grad(), f64({1, 2, 3})));
    CHECK(same(v.grad(), f64({1, 3, 3})));
    CHECK(same(x.grad(), f64({1, 3, 3})));
  }
  // What a hook has seen stays as it was, and the next walk starts anew.
  {
    std::vector<Tensor> seen;
    const Tensor v = x * 1;
    v.register_hook([&](const Tensor& g) {
      seen.push_back(g);
      return Tensor();
    });
    const Tensor y = sum(v.narrow(0, 0, 2) * 2) + sum(v.select(0, 0)) + sum(v * 10);
    CHECK(same(gradient_of(y, x), f64({13, 12, 10})));
    CHECK(same(gradient_of(y, x), f64({13, 12, 10})));
    REQUIRE(seen.size() == 2);
    CHECK(same(seen[0], f64({13, 12, 10})));
    CHECK(same(seen[1], f64({13, 12, 10})));
    CHECK_FALSE(seen[0].shares_storage(seen[1]));
  }
  // A gradient that was there before.
  x.zero_grad();
  const Tensor given = f64({1, 1, 1});
  x.set_grad(given);
  x.select(0, 2).backward();
  CHECK(same(x.grad(), f64({1, 1, 2})));
  CHECK(same(given, f64({1, 1, 1})));
  // Expanded, and from a formula that gives a view.
  const Tensor z = x * 1, first = z.select(0, 0), total = sum(z);
  CHECK(same(gradient_of(total + first * 4, x), f64({5, 1, 1})));
}

TEST_CASE("a part whose whole is not asked for costs nothing, and parts of parts add up") {
  const Tensor x = leaf({{1, 2}, {3, 4}}), w = leaf({1, 1});
  const Tensor y = sum(x.select(0, 0) * w) + sum(x.index({{1, 1}, 0}));
  CHECK(same(gradient_of(y, w), f64({1, 2})));
  CHECK(same(gradient_of(y, x), f64({{1, 1}, {2, 0}})));
  CHECK(same(gradient_of(sum(slice(slice(x, 0, 1, 2), 1, 1, 2) * 3) + sum(x), x), f64({{1, 1}, {1, 4}})));
  const Tensor none = x.slice(0, 2, {});
  CHECK(same(gradient_of(none, x), zeros({2, 2}, {.dtype = Float64})));
}

TEST_CASE("an observer of backward sees the gradient of each part") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor last = x.select(0, 2), twice = x.index({{0, 0}}), y = last * 5 + sum(twice);  // the newest first
  std::vector<Tensor> parts;
  Tensor dx;
  {
    const BackwardObserverGuard watch({.contribution = [&](const BackwardContribution& c) {
      if (c.input == x.impl().node->order) parts.push_back(c.gradient);
    }});
    dx = gradient_of(y, x);
  }
  REQUIRE(parts.size() == 2);
  CHECK(same(parts[0], f64({2, 0, 0})));
  CHECK(same(parts[1], f64({0, 0, 5})));
  CHECK(same(dx, f64({2, 0, 5})));
  CHECK(same(gradient_of(y, x), dx));
}

TEST_CASE("an error while a part is added leaves every gradient as it was") {
  const Tensor x = leaf({1, 2});
  x.set_grad(f64({3, 4}));
  Tensor list = tensor({0, 1});
  const Tensor y = sum(embedding(x.reshape({2, 1}), list) * 2) + sum(x.select(0, 1));
  list.fill_(0);
  CHECK(mentions(error_of([&] { y.backward(); }), "'embedding' saved a tensor [2] at version 0"));
  CHECK(same(x.grad(), f64({3, 4})));
}
