// The read-only view of the tape, its picture, and the observer of backward.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <map>
#include <sstream>
#include <stdexcept>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

const TapeNode& find(const std::vector<TapeNode>& nodes, const std::string& op) {
  for (const TapeNode& node : nodes)
    if (node.op == op) return node;
  throw std::runtime_error("no " + op);
}

std::vector<Shape> saved_shapes(const TapeNode& node) {
  std::vector<Shape> shapes;
  for (const TapeSaved& saved : node.saved) shapes.push_back(saved.shape);
  return shapes;
}

}  // namespace

TEST_CASE("the tape lists ops, shapes, inputs, names and saved tensors, oldest first") {
  const Tensor w = uniform({3, 2}, -1, 1).requires_grad_().set_name("w");
  const Tensor x = uniform({4, 3}, -1, 1, 2);  // no gradient: no place in the history
  const Tensor h = matmul(x, w), y = softmax(h, -1), loss = sum(y * y);
  const auto nodes = tape(loss);
  REQUIRE(nodes.size() == 5);
  std::string ops;
  for (const TapeNode& node : nodes) ops += node.op + " ";
  CHECK(ops == "leaf matmul softmax mul sum ");
  for (std::size_t i = 1; i < nodes.size(); ++i) CHECK(nodes[i - 1].id < nodes[i].id);

  const TapeNode& leaf_node = nodes[0];
  CHECK(leaf_node.is_leaf);
  CHECK(leaf_node.name == "w");
  CHECK(leaf_node.shape == Shape{3, 2});
  CHECK(leaf_node.dtype == Float64);
  CHECK(leaf_node.inputs.empty());
  CHECK(leaf_node.value.shares_storage(w));
  CHECK_FALSE(leaf_node.value.requires_grad());
  CHECK_FALSE(leaf_node.grad.defined());

  CHECK(nodes[1].inputs == std::vector<std::uint64_t>{0, leaf_node.id});  // x asks for nothing
  CHECK(saved_shapes(nodes[1]) == std::vector<Shape>{{4, 3}});            // what dw needs
  CHECK(nodes[1].saved[0].slot == 1);
  CHECK(nodes[1].saved[0].id == 0);
  CHECK(nodes[1].saved[0].bytes == 96);
  CHECK(nodes[1].saved[0].value.shares_storage(x));
  CHECK_FALSE(nodes[1].value.defined());  // nobody keeps it

  REQUIRE(nodes[2].saved.size() == 1);
  CHECK(nodes[2].saved[0].is_output);
  CHECK(nodes[2].saved[0].id == nodes[2].id);
  CHECK(same(nodes[2].value, y.detach()));

  CHECK(nodes[3].inputs == std::vector<std::uint64_t>{nodes[2].id, nodes[2].id});
  CHECK(nodes[3].saved.size() == 2);
  CHECK(nodes[3].saved[0].id == nodes[2].id);
  CHECK(nodes[4].shape == Shape{});
  CHECK(nodes[4].inputs == std::vector<std::uint64_t>{nodes[3].id});

  std::ostringstream text;
  text << nodes[1];
  CHECK(text.str() == "#" + std::to_string(nodes[1].id) + " matmul [4, 2] Float64 from #" +
                          std::to_string(leaf_node.id) + ", saves [4, 3] (96 bytes)");
  CHECK(str(leaf_node) == "#" + std::to_string(leaf_node.id) + " leaf 'w' [3, 2] Float64");
}

TEST_CASE("the tape knows retained tensors, consumed nodes, and tensors that died") {
  const Tensor x = leaf({1, 2}).set_name("x");
  const Tensor h = exp(x).set_name("h");
  CHECK(find(tape(h), "exp").name.empty());  // until it keeps its gradient
  h.retain_grad();
  const Tensor loss = sum(h * h);
  loss.backward();
  const auto after = tape(loss);
  REQUIRE(after.size() == 1);  // backward let go of the rest
  CHECK(after[0].consumed);
  CHECK(mentions(str(after[0]), ", consumed"));
  const TapeNode node = find(tape(h), "exp");
  CHECK(node.name == "h");
  CHECK(same(node.value, h.detach()));
  CHECK(same(node.grad, h.grad()));
  CHECK(node.saved.empty());

  Tensor y;
  {
    const Tensor gone = leaf({1, 2}).set_name("gone");
    y = gone * 2;
  }
  const auto nodes = tape(y);
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].is_leaf);
  CHECK(nodes[0].name.empty());
  CHECK_FALSE(nodes[0].value.defined());
}

TEST_CASE("the tape of several roots, of no history, and of nothing") {
  const Tensor x = leaf({1, 2});
  CHECK(tape({x * 2, x * 3, x}).size() == 3);
  CHECK(tape(f64({1})).empty());
  CHECK(tape(x).size() == 1);
  CHECK(error_of([] { tape(Tensor()); }) == "tape: the tensor is an undefined tensor");
}

TEST_CASE("looking keeps nothing alive that counts, and changes nothing") {
  const Tensor x = leaf({1, 2});
  const LiveObjects before = live_objects();
  {
    const Tensor y = sum(exp(x) * x);
    const auto nodes = tape(y);
    const std::string dot = to_dot(y, {.values = true, .gradients = true, .saved = true});
    y.backward();
    CHECK(close(x.grad(), exp(x).detach() * (x.detach() + 1)));
  }
  x.zero_grad();
  CHECK(live_objects() == before);
}

TEST_CASE("a chain of a million ops can be listed, drawn and watched") {
  const int length = static_cast<int>(1'000'000 / smaller);
  const Tensor x = leaf(1);
  Tensor y = x;
  for (int i = 0; i < length; ++i) y = y + 0;
  CHECK(tape(y).size() == static_cast<std::size_t>(length) + 1);
  const std::string dot = to_dot(y);
  CHECK(mentions(dot, "n0 -> n1"));
  CHECK(mentions(dot, "n" + std::to_string(length - 1) + " -> n" + std::to_string(length)));
  int steps = 0;
  const BackwardObserverGuard watch({.step = [&](const BackwardStep&) { ++steps; }});
  y.backward();
  CHECK(steps == length);
  CHECK(x.grad().item() == 1);
}

TEST_CASE("to_dot: the exact text") {
  const Tensor w = leaf({{1, 2}, {3, 4}}).set_name("w \"1\"");
  const Tensor x = leaf({{5}, {6}});
  const Tensor h = matmul(w, x).set_name("h");
  h.retain_grad();
  const Tensor loss = sum(square(h));
  CHECK(to_dot(loss) ==
        "digraph tape {\n"
        "  node [shape=box, fontname=\"monospace\"];\n"
        "  n0 [label=\"w \\\"1\\\"\\n[2, 2] Float64\", style=filled, fillcolor=\"#d9e8fb\"];\n"
        "  n1 [label=\"leaf\\n[2, 1] Float64\", style=filled, fillcolor=\"#d9e8fb\"];\n"
        "  n2 [label=\"h = matmul\\n[2, 1] Float64\"];\n"
        "  n3 [label=\"square\\n[2, 1] Float64\"];\n"
        "  n4 [label=\"sum\\n[] Float64\"];\n"
        "  n0 -> n2 [label=\"0\"];\n"
        "  n1 -> n2 [label=\"1\"];\n"
        "  n2 -> n3;\n"
        "  n3 -> n4;\n"
        "}\n");
  loss.backward({}, {.retain_graph = true});
  const std::string full = to_dot(loss, {.values = true, .gradients = true, .saved = true, .title = "a\nb"});
  CHECK(mentions(full, "label=\"a\\nb\";"));
  CHECK(mentions(full, "\\nvalue\\n[[1.0000, 2.0000],\\l [3.0000, 4.0000]]\\l"));
  CHECK(mentions(full,
                 "n2 [label=\"h = matmul\\n[2, 1] Float64\\nsaves [2, 1] [2, 2]\\n"
                 "value\\n[[17.0000],\\l [39.0000]]\\l\\ngradient\\n[[34.0000],\\l [78.0000]]\\l\"];"));
  // The numbers of an output that only its user saved.
  const Tensor z = leaf({1, 2});
  CHECK(mentions(to_dot(square(z * 3), {.values = true}), "mul\\n[2] Float64\\nvalue\\n[3.0000, 6.0000]\\l"));
  CHECK(to_dot(f64({1})) == "digraph tape {\n  node [shape=box, fontname=\"monospace\"];\n}\n");
}

TEST_CASE("an observer sees each op's upstream gradient, what it gives, and each +=") {
  const Tensor x = leaf({1, 2}).set_name("x");
  const Tensor product = x * x, e = exp(x), y = product + e;
  std::string steps;
  std::map<std::uint64_t, Tensor> gathered;
  std::vector<std::string> sums;
  const std::uint64_t x_id = tape(x)[0].id;
  {
    const BackwardObserverGuard watch({
        .step =
            [&](const BackwardStep& s) {
              CHECK_FALSE(grad_enabled());
              steps += s.node.op + " ";
              CHECK(s.gradients.size() == s.node.inputs.size());
              if (s.node.op == "exp") {
                CHECK(same(s.upstream, f64({1, 10})));
                CHECK(close(s.gradients[0], exp(x.detach()) * f64({1, 10})));
                REQUIRE(s.node.saved.size() == 1);
                CHECK(s.node.saved[0].is_output);
              }
            },
        .contribution =
            [&](const BackwardContribution& c) {
              if (c.input != x_id) return;
              sums.push_back(c.node.op + std::to_string(c.slot));
              // What had been gathered is what was seen to be added before.
              CHECK(c.before.defined() == gathered.contains(c.input));
              if (c.before.defined()) CHECK(same(c.before, gathered[c.input]));
              gathered[c.input] = c.before.defined() ? c.before + c.gradient : c.gradient;
            },
    });
    y.backward(f64({1, 10}));
  }
  CHECK(steps == "add exp mul ");
  CHECK(sums == std::vector<std::string>{"exp0", "mul0", "mul1"});
  CHECK(same(gathered[x_id], x.grad()));
  CHECK(close(x.grad(), (2 * x.detach() + exp(x.detach())) * f64({1, 10})));
  (x * 2).backward(f64({1, 1}));  // no longer watched
  CHECK(steps == "add exp mul ");
}

TEST_CASE("tensors that an observer keeps are not overwritten") {
  const Tensor x = leaf({1, 2});
  std::vector<Tensor> kept, copies;
  const auto keep = [&](const Tensor& t) {
    if (!t.defined()) return;
    kept.push_back(t);
    copies.push_back(t.clone());
  };
  const BackwardObserverGuard watch({.step =
                                         [&](const BackwardStep& s) {
                                           keep(s.upstream);
                                           for (const Tensor& g : s.gradients) keep(g);
                                         },
                                     .contribution =
                                         [&](const BackwardContribution& c) {
                                           keep(c.gradient);
                                           keep(c.before);
                                         }});
  Tensor y = x * 2 + x * 3 + x * x;
  for (int i = 0; i < 2; ++i) sum(y * y).backward({}, {.retain_graph = true});
  CHECK(kept.size() > 20);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(same(kept[i], copies[i]));
}

TEST_CASE("an observer finds the op that makes the first NaN") {
  const Tensor x = leaf({0, 4});
  std::string culprit;
  const BackwardObserverGuard watch({.step = [&](const BackwardStep& s) {
    if (!culprit.empty() || any_nan(s.upstream)) return;
    for (const Tensor& g : s.gradients)
      if (g.defined() && any_nan(g)) culprit = s.node.op;
  }});
  sum(sqrt(x) * f64({0, 1}) + exp(x)).backward();  // 0/0 at 0
  CHECK(culprit == "sqrt");
}

TEST_CASE("an observer that throws leaves gradients, modes and later backwards as they should be") {
  const Tensor x = leaf({1, 2});
  x.set_grad(f64({7, 7}));
  const Tensor y = exp(x * 2);
  const LiveObjects before = live_objects();
  for (const bool in_step : {true, false}) {
    BackwardObserver observer;
    const auto blow = [](const auto& seen) {
      if (seen.node.op == "mul") throw std::logic_error("enough");
    };
    if (in_step) observer.step = blow;
    if (!in_step) observer.contribution = blow;
    const BackwardObserverGuard watch(observer);
    const Tensor z = exp(x * 2);
    CHECK_THROWS_AS(sum(z).backward(), std::logic_error);
    CHECK(same(x.grad(), f64({7, 7})));
    CHECK(grad_enabled());
    // The observer is still there, the graph that was walked is not.
    CHECK_THROWS_AS((x * 2).backward(f64({1, 1})), std::logic_error);
    CHECK(mentions(error_of([&] { z.backward(f64({1, 1})); }), "was consumed by an earlier backward"));
  }
  CHECK(live_objects() == before);
  y.backward(f64({1, 1}));
  CHECK(close(x.grad(), 7 + 2 * exp(2 * x.detach())));
}

TEST_CASE("observers watch grad() and create_graph, not themselves, and inner ones take over") {
  const Tensor x = leaf(2);
  std::string outer, inner;
  const BackwardObserverGuard watch({.step = [&](const BackwardStep& s) {
    outer += s.node.op + " ";
    const EnableGradGuard record;
    const Tensor own = leaf(1);
    (own * own).backward();  // not watched
  }});
  const Tensor y = x * x;
  const Tensor dx = grad({y}, {x}, {}, {.create_graph = true})[0];
  CHECK(outer == "mul ");
  CHECK(grad({dx}, {x})[0].item() == 2);
  {
    const BackwardObserverGuard second({.step = [&](const BackwardStep& s) { inner += s.node.op + " "; }});
    exp(x).backward();
    CHECK(inner == "exp ");
    const BackwardObserverGuard nobody{BackwardObserver{}};
    exp(x).backward();
    CHECK(inner == "exp ");
  }
  const std::string seen = outer;
  exp(x).backward();
  CHECK(outer == seen + "exp ");
  // What leads to no wanted input is not added up, and not told.
  const Tensor a = leaf(1), b = leaf(1);
  int told = 0;
  const BackwardObserverGuard third({.contribution = [&](const BackwardContribution&) { ++told; }});
  grad({a * b}, {a});
  CHECK(told == 1);
}
