// A training step that repeats asks the system for nothing: neither for tensors, nor for their data, nor for the nodes
// of the tape. A program of its own, since it stands between everything and malloc.
#include <gradus/gradus.h>

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

using namespace gradus;

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t n, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

/// Calls that asked the system for memory, and who they were.
struct Calls {
  std::int64_t pool = 0;     // posix_memalign: recycled memory, for tensors, their data and nodes (core/src/memory.cpp)
  std::int64_t scratch = 0;  // aligned operator new: the kernels' working memory (core/src/kernels/scratch.cpp)
  std::int64_t other = 0;    // the rest: short lists, names
};

std::atomic<bool> counting{false};
std::atomic<std::int64_t> pool_calls{0}, scratch_calls{0}, other_calls{0};

void note(std::atomic<std::int64_t>& calls) {
  if (counting) ++calls;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) {
  note(other_calls);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
  note(other_calls);
  return __libc_calloc(n, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  note(other_calls);
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note(other_calls);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  note(pool_calls);
  *block = __libc_memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  note(scratch_calls);
  if (void* block = __libc_memalign(static_cast<std::size_t>(alignment), bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

using Step = std::function<void()>;

Calls calls_of(const Step& step) {
  pool_calls = scratch_calls = other_calls = 0;
  counting = true;
  step();
  counting = false;
  return {pool_calls, scratch_calls, other_calls};
}

Step attention_step() {
  const nn::MultiHeadAttention attend(4, 64);
  const Tensor x = randn({8, 32, 64}, {.requires_grad = true});
  const Tensor mask = nn::subsequent_mask(32);
  return [=] {
    attend.zero_grad();
    x.zero_grad();
    attend(x, x, x, mask).sum().backward();
  };
}

Step mlp_step() {
  const nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 1));
  const auto opt = std::make_shared<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
  const Tensor x = randn({100, 2}), y = randn({100, 1});
  return [=] {
    opt->zero_grad();
    mse_loss(net(x), y).backward();
    opt->step();
  };
}

Step copy_step(std::int64_t d_model, std::int64_t batch) {
  constexpr std::int64_t vocabulary = 11, length = 10, padding = 0;
  const nn::Transformer net(vocabulary, vocabulary,
                            {.d_model = d_model, .heads = 4, .layers = 2, .d_ff = 2 * d_model, .max_len = 64});
  const auto opt = std::make_shared<optim::Adam>(net.parameters(), optim::AdamOptions{.lr = 1e-3});
  return [=] {
    const Tensor source = randint(1, vocabulary, {batch, length});
    const Tensor target = source.slice(1, 0, length - 1), next = source.slice(1, 1, length);
    const Tensor logits = net(source, target, nn::padding_mask(source, padding), nn::subsequent_mask(length - 1));
    opt->zero_grad();
    cross_entropy(logits.reshape({-1, vocabulary}), next.reshape({-1})).backward();
    opt->step();
  };
}

/// A graph that holds more than a hundred megabytes in small blocks.
Step long_step() {
  const Tensor x = randn({4}, {.requires_grad = true});
  return [=] {
    x.zero_grad();
    Tensor sum = x;
    for (int i = 0; i < 300'000; ++i) sum = sum + x;
    sum.sum().backward();
  };
}

struct Case {
  std::string name;
  Step step;
};

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  REQUIRE((statm >> size >> resident));
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("the counters see who asks for memory") {
  CHECK(calls_of([] { std::free(std::malloc(1)); }).other == 1);
  CHECK(calls_of([] { delete new int; }).other == 1);
  CHECK(calls_of([] { empty({12'345'678}); }).pool == 2);  // the tensor, and its data
  CHECK(calls_of([] { ::operator delete (::operator new (64, std::align_val_t{64}), std::align_val_t{64}); }).scratch ==
        1);
}

TEST_CASE("from the third step on nothing is allocated for tensors, their data or nodes") {
  const int before = num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const Case& c : {Case{"attention", attention_step()},
                          {"an MLP with SGD", mlp_step()},
                          {"the copy Transformer with Adam", copy_step(64, 32)}}) {
      CAPTURE(c.name);
      CAPTURE(threads);
      c.step();
      c.step();
      const Calls third = calls_of(c.step);
      CHECK(third.pool == 0);
      for (int i = 3; i < 20; ++i) {
        const Calls now = calls_of(c.step);
        CHECK(now.pool == 0);
        // When a second thread starts and what it meets first is chance.
        if (threads == 2) continue;
        CHECK(now.scratch == 0);
        CHECK(now.other == third.other);  // lists of a sweep, names of parameters: as many in each step
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("threads that free what others allocated keep no more than was in use at the busiest moment") {
  std::vector<Tensor> box;
  std::barrier both(2);
  const auto take_turns = [&](int me) {
    for (int phase = 0; phase < 4; ++phase) {
      for (int round = 0; round < 200; ++round) {
        if (me == phase % 2)
          for (int i = 0; i < 2000; ++i) box.push_back(empty({16}));
        both.arrive_and_wait();
        if (me != phase % 2) box.clear();
        both.arrive_and_wait();
      }
    }
  };
  const std::int64_t before = resident_bytes();
  std::thread other(take_turns, 1);
  take_turns(0);
  other.join();
  CHECK(resident_bytes() - before < 128 * 1024 * 1024);  // 400 MiB went through
}

TEST_CASE("small blocks that are unused are given back, and serve tensors of other sizes") {
  const std::int64_t before = resident_bytes();
  for (std::int64_t numel = 16; numel <= 144; numel += 32) {  // 150 MiB each time, in classes of their own
    std::vector<Tensor> box;
    for (std::int64_t i = 0; i < (std::int64_t{150} << 20) / (4 * numel + 256); ++i) box.push_back(empty({numel}));
  }
  CHECK(resident_bytes() - before < 400 * 1024 * 1024);  // at most 150 + 150/4 + 32 MiB, and the box
}

TEST_CASE("a graph of hundreds of thousands of ops asks for nothing either, once it was there") {
  const Step step = long_step();
  step();
  CHECK(calls_of(step).pool == 0);
}

TEST_CASE("resident memory is flat over 5000 steps") {
  for (const Case& c : {Case{"an MLP with SGD", mlp_step()}, {"a Transformer with Adam", copy_step(8, 2)}}) {
    CAPTURE(c.name);
    for (int i = 0; i < 500; ++i) c.step();
    const std::int64_t before = resident_bytes();
    for (int i = 500; i < 5000; ++i) c.step();
    CHECK(resident_bytes() - before < 128 * 1024);  // 30 bytes a step
  }
}
