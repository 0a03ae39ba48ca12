// Ops that memory holds up, beside a plain copy that moves as many bytes with as many threads.
#include <atomic>
#include <cstring>
#include <vector>

#include "bench.h"

using namespace gradus;

namespace bench {
namespace {

/// Copies one tensor onto another, each thread its part. The threads live for a block and spin between the copies, so
/// that waking them counts for nothing.
class Copy {
 public:
  explicit Copy(const Shape& shape) : from_(randn(shape)), to_(zeros(shape)) {}

  double operator()(int repeats) const {
    const int threads = num_threads();
    std::atomic<int> arrived{0};
    const auto meet = [&](int round) {
      arrived.fetch_add(1);
      while (arrived.load() < threads * round) {
      }
    };
    const auto work = [&](int thread) {
      meet(1);
      for (int i = 0; i < repeats; ++i) {
        part(thread, threads);
        meet(i + 2);
      }
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    meet(1);
    const auto steps = [&] {
      for (int i = 0; i < repeats; ++i) {
        part(0, threads);
        meet(i + 2);
      }
    };
    const double seconds = block_of(steps)(1);
    for (std::thread& other : others) other.join();
    return seconds;
  }

 private:
  void part(std::int64_t thread, std::int64_t threads) const {
    const std::int64_t n = from_.numel(), first = n * thread / threads, last = n * (thread + 1) / threads;
    std::memcpy(to_.data<float>() + first, from_.data<float>() + first,
                static_cast<std::size_t>(last - first) * sizeof(float));
  }

  Tensor from_, to_;
};

/// An op that must read and write `moved` numbers for each element, beside a copy, which moves 2.
template <class Step>
void against_copy(const std::string& name, const Copy& copy, double moved, const Step& step) {
  if (!wanted(name)) return;
  Both best = best_of_both(block_of(step), copy);
  best.reference *= moved / 2;
  report(name, best);
}

void all_ops(const std::string& suffix, std::int64_t rows) {
  constexpr std::int64_t n = 512;
  const Shape shape{rows, n};
  const Copy copy(shape);
  const Tensor x = randn(shape), g = randn(shape);
  const Tensor leaf = randn(shape, {.requires_grad = true});
  const Tensor weight = ones({n}, {.requires_grad = true}), bias = zeros({n}, {.requires_grad = true});
  const Tensor target = randint(0, n, {rows});
  const auto row = [&](const char* name, double moved, const auto& step) {
    against_copy(name + suffix, copy, moved, step);
  };
  const auto trained = [&](const auto& op) {
    leaf.zero_grad();
    weight.zero_grad();
    bias.zero_grad();
    op(leaf);
  };

  row("softmax_forward", 2, [&] { softmax(x, -1); });
  row("softmax", 5, [&] { trained([&](const Tensor& in) { softmax(in, -1).backward(g); }); });
  {
    const NoGradGuard guard;
    row("layer_norm_forward", 2, [&] { layer_norm(x, weight, bias); });
  }
  row("layer_norm", 5, [&] { trained([&](const Tensor& in) { layer_norm(in, weight, bias).backward(g); }); });
  row("cross_entropy_forward", 1, [&] { cross_entropy(x, target); });
  row("cross_entropy", 3, [&] { trained([&](const Tensor& in) { cross_entropy(in, target).backward(); }); });
  row("gelu_forward", 2, [&] { gelu(x); });
  if (wanted("gelu_backward" + suffix)) {
    const Tensor y = gelu(leaf);
    row("gelu_backward", 3, [&] { trained([&](const Tensor&) { y.backward(g, {.retain_graph = true}); }); });
  }
  if (wanted("adam" + suffix)) {
    leaf.set_grad(g);
    optim::Adam opt({leaf}, {.lr = 1e-3});
    row("adam", 7, [&] { opt.step(); });
  }
}

}  // namespace

void bandwidth() {
  all_ops("", 32768);       // 64 MiB a tensor, beyond every cache
  all_ops("_cached", 128);  // 256 KiB
}

}  // namespace bench
