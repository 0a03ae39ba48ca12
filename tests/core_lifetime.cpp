// What lives how long: counts return to where they started, and depth needs no stack.
#include <gradus/core.h>

#include <doctest/doctest.h>
#include <pthread.h>

#include <exception>
#include <functional>
#include <memory>

#include "core_values.h"
#include "ops_table.h"

using namespace gradus;
using namespace gradus::test;

namespace {

/// Runs on a thread with a stack of 256 KiB.
void on_small_stack(std::function<void()> run) {
  struct Job {
    std::function<void()> run;
    std::exception_ptr failure;
  } job{std::move(run), {}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    Job& j = *static_cast<Job*>(argument);
    try {
      j.run();
    } catch (...) {
      j.failure = std::current_exception();
    }
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, body, &job) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (job.failure) std::rethrow_exception(job.failure);
}

constexpr std::int64_t million = 1'000'000 / smaller;

/// A chain of a million ops, back-propagated; the gradient of its input.
double long_chain() {
  const Tensor x = leaf(1);
  Tensor y = x;
  for (std::int64_t i = 0; i < million; ++i) y = y + 1;
  y.backward();
  return y.item<std::int64_t>() == million + 1 ? x.grad().item() : -1;
}

}  // namespace

// The name is what tests/CMakeLists.txt runs under `ulimit -s 256`.
TEST_CASE("a chain of a million ops runs, back-propagates and is freed") {
  const LiveObjects before = live_objects();
  CHECK(long_chain() == 1);
  CHECK(live_objects() == before);
}

TEST_CASE("deep graphs on a small stack: consumed, dropped, saved values, and gradients with a history") {
  const LiveObjects before = live_objects();
  on_small_stack([] {
    // Dropped without backward; every op keeps its input and its output alive.
    const Tensor x = leaf(1);
    Tensor y = x;
    for (std::int64_t i = 0; i < million / 4; ++i) y = sigmoid(y * x);
    y = {};
    // Diamonds in a row: many paths, one visit a node.
    Tensor z = x;
    for (int i = 0; i < 50; ++i) z = z + z;
    z.backward();
    if (x.grad().item() != 0x1p50) throw Error("the gradient of the diamonds is wrong");
    // A gradient that is itself deep.
    Tensor w = x;
    for (std::int64_t i = 0; i < million / 10; ++i) w = w * 1.0;
    x.zero_grad();
    (w * w).backward({}, {.create_graph = true});
    if (x.grad().item() != 2) throw Error("the gradient with a history is wrong");
  });
  CHECK(live_objects() == before);
}

TEST_CASE("long chains of gradients of gradients, and of owners of memory, end on a small stack") {
  const LiveObjects before = live_objects();
  constexpr std::int64_t links = 300'000 / smaller;
  on_small_stack([] {
    {
      Tensor chain = f64({1});
      for (std::int64_t i = 0; i < links; ++i) {
        const Tensor next = f64({1});
        next.set_grad(chain);
        chain = next;
      }
    }
    {
      Tensor chain = f64({1});
      for (std::int64_t i = 0; i < links; ++i) {
        double* data = chain.data<double>();
        chain = from_blob(data, {1}, Float64, std::make_shared<Tensor>(chain));
      }
    }
    {  // in turn, with a history between them
      Tensor chain = leaf({1});
      for (std::int64_t i = 0; i < links; ++i) {
        const Tensor made = chain * 2.0;
        const Tensor next = from_blob(made.data<double>(), {1}, Float64, std::make_shared<Tensor>(made));
        next.set_grad(made.detach());
        chain = i % 2 == 0 ? next.requires_grad_() : next;
      }
    }
  });
  CHECK(live_objects() == before);
}

TEST_CASE("G06: every op's result can be dropped without backward, and after it in every mode") {
  for (const OpRow& row : ops_table()) {
    CAPTURE(row.op);
    CAPTURE(row.about);
    const LiveObjects before = live_objects();
    for (int mode = 0; mode < 4; ++mode) {
      std::vector<Tensor> inputs;
      for (std::size_t i = 0; i < row.shapes.size(); ++i)
        inputs.push_back(uniform(row.shapes[i], row.low, row.high, i).requires_grad_());
      const Tensor y = row.f(inputs);
      y.retain_grad();
      if (mode == 1) sum(y).backward();
      if (mode == 2) sum(y).backward({}, {.create_graph = true});
      if (mode == 3) {
        sum(square(y)).backward({}, {.create_graph = true});
        const Tensor dx = inputs[0].grad();
        if (dx.requires_grad()) sum(square(dx)).backward({}, {.create_graph = true});
      }
    }
    CHECK(live_objects() == before);
  }
}

TEST_CASE("backward frees the history and what it saved, unless it is to be retained") {
  const Tensor x = leaf({1, 2});
  const LiveObjects before = live_objects();
  Tensor y = exp(x * x);
  const LiveObjects built = live_objects();
  CHECK(built.nodes == before.nodes + 2);
  const Tensor total = sum(y);
  total.backward({}, {.retain_graph = true});
  CHECK(live_objects().nodes == before.nodes + 3);
  total.backward();
  CHECK(live_objects().nodes == before.nodes + 2);  // those of y and total, which are still held
  y = {};
  CHECK(live_objects().nodes == before.nodes + 1);
}

TEST_CASE("data that no formula needs is freed at once") {
  const Tensor x = ones({1000}, {.requires_grad = true});
  const LiveObjects before = live_objects();
  Tensor y = x;
  for (int i = 0; i < 100; ++i) y = y + 1;
  CHECK(live_objects().storages == before.storages + 1);
  CHECK(live_objects().nodes == before.nodes + 100);
  {
    const NoGradGuard guard;
    for (int i = 0; i < 100; ++i) y = y * 2;
  }
  CHECK(live_objects().nodes == before.nodes);
}

TEST_CASE("a training loop keeps a constant number of objects") {
  const Tensor w = uniform({4, 4}, -1, 1).requires_grad_(), x = uniform({8, 4}, -1, 1, 2);
  Tensor buffer;
  LiveObjects after_two{};
  for (int step = 0; step < 20; ++step) {
    w.zero_grad();
    mean(square(layer_norm(tanh(matmul(x, w))) - x)).backward();
    sgd_update(w, w.grad(), buffer,
               {.lr = 0.1, .momentum = 0.9, .dampening = 0, .weight_decay = 0, .nesterov = false, .maximize = false});
    if (step == 2) after_two = live_objects();
  }
  CHECK(live_objects() == after_two);
}

TEST_CASE("hooks and errors leave nothing behind") {
  const LiveObjects before = live_objects();
  {
    const Tensor x = leaf({1, 2}), kept = leaf(3);
    const Tensor y = x * 2;
    y.register_hook([kept](const Tensor& g) { return g * kept; });
    sum(y).backward({}, {.create_graph = true});
    CHECK_THROWS_AS(matmul(x, f64({1})), Error);
    CHECK_THROWS_AS(x.reshape({5}), Error);
    const Tensor bad = record("bad", x.detach(), wrt(x, [](const Tensor&) -> Tensor { throw Error("no"); }));
    CHECK_THROWS_AS(sum(bad).backward(), Error);
  }
  CHECK(live_objects() == before);
}
