// Several threads: the same bits whatever their number, and graphs in several threads at once.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.impl().bytes(), y.impl().bytes(), static_cast<std::size_t>(x.numel() * size_of(x.dtype()))) == 0;
}

using Results = std::map<std::string, Tensor>;

/// Runs with 1, 2 and 3 threads and compares every result.
void check_same(Results (*run)()) {
  const ThreadsGuard guard;
  Results first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    CHECK(num_threads() == threads);
    const Results now = run();
    if (first.empty()) first = now;
    for (const auto& entry : now) {
      CAPTURE(threads);
      CAPTURE(entry.first);
      CHECK(same_bits(entry.second, first.at(entry.first)));
      CHECK_FALSE(any_nan(entry.second));
    }
  }
}

Tensor normal(const Shape& shape, std::uint64_t seed) {
  Generator generator(seed);
  return randn(shape, {}, &generator);
}

}  // namespace

TEST_CASE("the same bits for 1, 2 and 3 threads: products") {
  check_same([] {
    Results r;
    const Tensor a = normal({257, 331}, 1), b = normal({331, 129}, 2), batch = normal({7, 65, 33}, 3);
    r["odd sizes"] = matmul(a, b);
    r["transposed"] = matmul(b.transpose(0, 1), a.transpose(0, 1));
    r["large"] = matmul(normal({512, 512}, 4), normal({512, 512}, 5));
    r["tall and thin"] = matmul(normal({20000, 16}, 4), normal({16, 8}, 5));
    r["long inner"] = matmul(normal({8, 50000}, 4), normal({50000, 8}, 5));
    r["batch"] = matmul(batch, batch.transpose(1, 2));
    r["linear"] = linear(normal({9, 31, 331}, 6), b.transpose(0, 1), normal({129}, 7));
    r["double"] = matmul(a.to(Float64), b.to(Float64));
    return r;
  });
}

TEST_CASE("the same bits for 1, 2 and 3 threads: sums and rows") {
  check_same([] {
    Results r;
    const std::int64_t n = 10'000 / smaller;
    const Tensor wide = normal({n * 1000}, 1), x = normal({1001, 257}, 2);
    r["sum"] = sum(wide);
    r["sum of columns"] = sum(wide.view({n, 1000}), {0});
    r["sum of rows"] = sum(wide.view({1000, n}), {1});
    r["mean of a middle dim"] = mean(wide.view({n / 100, 1000, 100}), {1});
    r["amax"] = amax(wide.view({1000, n}), {0});
    r["add"] = wide + wide.view({-1});
    r["gelu"] = gelu(wide.narrow(0, 1, n * 300 + 1));
    r["softmax"] = softmax(x, -1);
    r["softmax of columns"] = softmax(x, 0);
    r["log_softmax"] = log_softmax(x, -1);
    r["dropout"] = [&] {
      Generator generator(3);
      return dropout(x, 0.3, true, &generator);
    }();
    return r;
  });
}

TEST_CASE("the same bits for 1, 2 and 3 threads: gradients") {
  check_same([] {
    Results r;
    const Tensor x = normal({2003, 130}, 1).requires_grad_(), w = normal({130}, 2).requires_grad_(),
                 b = normal({130}, 3).requires_grad_(), table = normal({50, 130}, 4).requires_grad_();
    Generator generator(5);
    const Tensor ids = randint(0, 50, {2003}, {}, &generator), classes = randint(0, 130, {2003}, {}, &generator);
    const Tensor h = layer_norm(x + embedding(table, ids, 7), w, b);
    const Tensor loss = cross_entropy(gelu(dropout(h, 0.2, true, &generator)), classes, {.label_smoothing = 0.1});
    r["loss"] = loss;
    loss.backward();
    r["x"] = x.grad();
    r["weight"] = w.grad();
    r["bias"] = b.grad();
    r["table"] = table.grad();
    return r;
  });
}

TEST_CASE("the same bits for 1, 2 and 3 threads: a short training run") {
  check_same([] {
    Generator generator(1);
    const Tensor x = randn({300, 40}, {}, &generator), y = randint(0, 10, {300}, {}, &generator);
    const Tensor w1 = (randn({128, 40}, {}, &generator) * 0.1).requires_grad_(),
                 w2 = (randn({10, 128}, {}, &generator) * 0.1).requires_grad_(),
                 b = zeros({128}, {.requires_grad = true});
    std::vector<Tensor> means, squares;
    const std::vector<Tensor> parameters = {w1, w2, b};
    for (const Tensor& p : parameters) {
      means.push_back(zeros_like(p));
      squares.push_back(zeros_like(p));
    }
    Results r;
    for (std::int64_t step = 1; step <= 30; ++step) {
      const Tensor h = dropout(relu(linear(x, w1, b)), 0.1, true, &generator);
      const Tensor loss = cross_entropy(linear(h, w2), y);
      for (const Tensor& p : parameters) p.zero_grad();
      loss.backward();
      scale_(w1.grad(), 1 / (1 + total_norm({w1.grad(), w2.grad()})));
      for (std::size_t i = 0; i < parameters.size(); ++i)
        adam_update(parameters[i], parameters[i].grad(), means[i], squares[i], {},
                    {.lr = 1e-2,
                     .beta1 = 0.9,
                     .beta2 = 0.999,
                     .eps = 1e-8,
                     .weight_decay = 0.01,
                     .decoupled_weight_decay = true,
                     .maximize = false,
                     .step = step});
      r["loss"] = loss.detach();
    }
    CHECK(r["loss"].item() < 1.5);
    r["w1"] = w1;
    r["w2"] = w2;
    r["b"] = b;
    return r;
  });
}

TEST_CASE("G15: backward in several threads, with leaves of their own and a shared one") {
  constexpr int threads = 4, rounds = 60;
  const Tensor shared = ones({3}, {.dtype = Float64, .requires_grad = true});
  const Tensor weight = uniform({17, 17}, -1, 1).requires_grad_();
  std::atomic<int> wrong = 0;
  const LiveObjects before = live_objects();
  {
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        for (int round = 0; round < rounds; ++round) {
          const double value = t + 1;
          const Tensor own = full({3}, value, {.dtype = Float64, .requires_grad = true});
          Tensor y = own * shared;
          for (int i = 0; i < round % 7; ++i) y = y + 0;
          sum(y).backward();
          if (!same(own.grad(), ones({3}, {.dtype = Float64}))) ++wrong;
          // Reading shared parameters without touching their gradient.
          const Tensor x = uniform({17, 17}, -1, 1, static_cast<std::uint64_t>(t)).requires_grad_();
          const Tensor dx = grad({sum(square(matmul(x, weight)))}, {x})[0];
          if (!close(dx, matmul(matmul(x.detach(), weight.detach()), weight.detach().transpose(0, 1)) * 2)) ++wrong;
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
  CHECK(wrong == 0);
  CHECK(same(shared.grad(), full({3}, rounds * (1 + 2 + 3 + 4), {.dtype = Float64})));
  shared.zero_grad();
  CHECK(live_objects() == before);
}

TEST_CASE("large ops in several threads at once share the pool and keep their bits") {
  const ThreadsGuard guard;
  set_num_threads(3);
  const Tensor a = normal({200, 300}, 1), b = normal({300, 100}, 2), wide = normal({500'000}, 3);
  const Tensor product = matmul(a, b), total = sum(wide), rows = softmax(wide.view({500, 1000}), 1);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t) {
    workers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        wrong += !same_bits(matmul(a, b), product);
        wrong += !same_bits(sum(wide), total);
        wrong += !same_bits(softmax(wide.view({500, 1000}), 1), rows);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(wrong == 0);
}

TEST_CASE("a graph may be built in one thread and walked in another; modes are each thread's own") {
  const Tensor x = leaf({1, 2});
  Tensor y;
  std::thread([&] { y = sum(exp(x) * x); }).join();
  const NoGradGuard guard;
  bool elsewhere = false;
  std::thread([&] {
    elsewhere = grad_enabled();
    y.backward();
  }).join();
  CHECK(elsewhere);
  CHECK_FALSE(grad_enabled());
  CHECK(close(x.grad(), exp(x) * (x + 1), 1e-14));
}

TEST_CASE("threads and instruction sets: what is refused") {
  CHECK(error_of([] { set_num_threads(0); }) == "set_num_threads: 0 is not between 1 and 1024");
  const std::string isa = instruction_set();
  CHECK((isa == "baseline" || isa == "x86-64-v3" || isa == "x86-64-v4"));
}

namespace {

/// Switches flushing off again.
struct FlushGuard {
  FlushGuard() = default;
  ~FlushGuard() { set_flush_denormals(false); }
  FlushGuard(const FlushGuard&) = delete;
  FlushGuard& operator=(const FlushGuard&) = delete;
};

/// Elements whose bits are all 0: a comparison would flush, too.
std::int64_t zeros_in(const Tensor& x) {
  const auto count_zeros = [&](auto zero) {
    std::vector<decltype(zero)> bits(static_cast<std::size_t>(x.numel()));
    std::memcpy(bits.data(), x.impl().bytes(), bits.size() * sizeof zero);
    return static_cast<std::int64_t>(std::count(bits.begin(), bits.end(), zero));
  };
  return x.dtype() == Float32 ? count_zeros(std::uint32_t{0}) : count_zeros(std::uint64_t{0});
}

}  // namespace

TEST_CASE("Z03: subnormal numbers are kept at first, flushed on request, alike in every thread of the pool") {
  const FlushGuard flush;
  const ThreadsGuard guard;
  set_num_threads(3);
  const std::int64_t n = 2'000'000 / smaller;
  const Tensor tiny = full({n}, 1e-40F), small = full({n}, 1e-310, {.dtype = Float64});
  const Tensor square_of_tiny = full({300, 300}, 1e-40F), one = ones({300, 300});
  CHECK_FALSE(flush_denormals());
  for (const bool on : {false, true, false}) {
    CAPTURE(on);
    REQUIRE(set_flush_denormals(on));
    CHECK(flush_denormals() == on);
    for (int round = 0; round < 20; ++round) {  // so that each thread has its turn
      CHECK(zeros_in(tiny * 1.5) == (on ? n : 0));
      CHECK(zeros_in(small + small) == (on ? n : 0));
      CHECK(zeros_in(full({n}, 1e-20F) * 1e-20F) == (on ? n : 0));
    }
    CHECK(zeros_in(matmul(square_of_tiny, one)) == (on ? 90'000 : 0));
    if (!on) CHECK((tiny * 1.5).select(0, n - 1).item<float>() == 1e-40F * 1.5F);
  }
  // It belongs to the thread that calls: another one's jobs on the same pool are computed as that one wants.
  REQUIRE(set_flush_denormals(true));
  std::thread([&] {
    CHECK(flush_denormals());  // handed down
    set_flush_denormals(false);
    CHECK(zeros_in(tiny * 1.5) == 0);
  }).join();
  CHECK(zeros_in(tiny * 1.5) == n);
}

TEST_CASE("Z03: with flushing, moments that fade away never become subnormal, which is what would be slow") {
  const FlushGuard flush;
  const auto subnormals_after_fading = [](bool on) {
    REQUIRE(set_flush_denormals(on));
    const Tensor p = ones({1000}), zero = zeros({1000}), mean = full({1000}, 1e-36), square = full({1000}, 1e-36);
    const double smallest = std::numeric_limits<float>::min();
    std::int64_t subnormals = 0;
    for (std::int64_t step = 1; step <= 300; ++step) {
      adam_update(p, zero, mean, square, {},
                  {.lr = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.999,
                   .eps = 1e-8,
                   .weight_decay = 0,
                   .decoupled_weight_decay = false,
                   .maximize = false,
                   .step = step});
      for (const double number : mean.to_vector<double>()) subnormals += number != 0 && std::abs(number) < smallest;
    }
    return subnormals;
  };
  CHECK(subnormals_after_fading(false) > 0);
  CHECK(subnormals_after_fading(true) == 0);
}
