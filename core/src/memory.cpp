#include "memory.h"

#include <gradus/error.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// Under AddressSanitizer every block comes from and goes to the system, so that it can tell a use after the end.
#if defined(__SANITIZE_ADDRESS__)
#define GRADUS_PLAIN_MEMORY true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADUS_PLAIN_MEMORY true
#endif
#endif
#if !defined(GRADUS_PLAIN_MEMORY)
#define GRADUS_PLAIN_MEMORY false
#endif

namespace gradus::detail {
namespace {

constexpr bool plain_memory = GRADUS_PLAIN_MEMORY;

constexpr std::size_t alignment = 64;

void* system_allocate(std::size_t bytes) {
  void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!block) throw Error("memory: the system has no " + std::to_string(bytes) + " bytes left");
  return block;
}

// Blocks are kept in classes of like size: multiples of 64 bytes up to 1 KiB, then four classes an octave, so that at
// most a fifth of a block is unused.
constexpr std::size_t small_limit = 1024;
constexpr int small_classes = small_limit / alignment;
constexpr int classes = small_classes + 4 * 38;

int class_of(std::size_t bytes) {
  if (bytes <= small_limit) return static_cast<int>((bytes + alignment - 1) / alignment) - (bytes > 0);
  const auto octave = static_cast<int>(std::bit_width(bytes - 1)) - 1;  // 2^octave < bytes <= 2^(octave+1)
  const auto quarter = static_cast<int>((bytes - 1) >> (octave - 2)) & 3;
  return small_classes + (octave - 10) * 4 + quarter;
}

std::size_t class_size(int index) {
  if (index < small_classes) return static_cast<std::size_t>(index + 1) * alignment;
  const int octave = (index - small_classes) / 4 + 10;
  const auto quarter = static_cast<std::size_t>((index - small_classes) % 4);
  return (std::size_t{1} << octave) + (quarter + 1) * (std::size_t{1} << (octave - 2));
}

struct FreeBlock {
  FreeBlock* next;
};

// What a pool holds is bounded by what was in use at the busiest moment, `peak`: memory never grows beyond a fixed
// multiple of what the program needs, and a step as large as the last one needs nothing from the system.
constexpr std::size_t most_held(std::size_t peak) { return peak + peak / 4 + (std::size_t{32} << 20); }

// Small blocks: a list for each class and thread, without locks. The bound is for what a thread keeps unused, so that
// one that only frees what others allocate does not hoard.
struct ThreadState;
struct Registry {
  std::mutex mutex;
  std::vector<ThreadState*> threads;
  std::array<std::int64_t, 3> ended{};  // counts of threads that are gone
};
// Never destroyed: tensors may outlive every other static object.
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

struct ThreadState {
  std::array<FreeBlock*, small_classes> free{};
  std::size_t kept = 0;   // bytes in the lists
  std::int64_t used = 0;  // bytes allocated here less those freed here: negative where others' blocks are freed
  std::int64_t peak = 0;  // the largest that was
  // Written by this thread only, read by others: relaxed loads and stores are enough, and cheap.
  std::array<std::atomic<std::int64_t>, 3> counts{};

  ThreadState() {
    std::lock_guard lock(registry().mutex);
    registry().threads.push_back(this);
  }
  ~ThreadState();
};

// The state is reached through a plain pointer, which is null before the first use and after the thread's end.
thread_local ThreadState* state_pointer = nullptr;
thread_local bool state_ended = false;

ThreadState::~ThreadState() {
  state_pointer = nullptr;
  state_ended = true;
  for (FreeBlock* block : free) {
    while (block) std::free(std::exchange(block, block->next));
  }
  std::lock_guard lock(registry().mutex);
  for (std::size_t i = 0; i < counts.size(); ++i) registry().ended[i] += counts[i].load(std::memory_order_relaxed);
  std::erase(registry().threads, this);
}

[[gnu::noinline]] ThreadState* make_state() {
  if (state_ended) return nullptr;
  thread_local ThreadState state;
  return state_pointer = &state;
}

ThreadState* thread_state() {
  ThreadState* state = state_pointer;
  return state ? state : make_state();
}

// Large blocks: lists shared by all threads.
class LargePool {
 public:
  void* allocate(int index) {
    const std::size_t bytes = class_size(index);
    {
      std::lock_guard lock(mutex_);
      in_use_ += bytes;
      peak_ = std::max(peak_, in_use_);
      auto& list = free_[static_cast<std::size_t>(index)];
      if (FreeBlock* block = list) {
        list = block->next;
        unused_ -= bytes;
        return block;
      }
      trim();
    }
    try {
      return system_allocate(bytes);
    } catch (...) {
      std::lock_guard lock(mutex_);
      in_use_ -= bytes;
      throw;
    }
  }

  void release(void* block, int index) noexcept {
    const std::size_t bytes = class_size(index);
    std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    auto& list = free_[static_cast<std::size_t>(index)];
    list = new (block) FreeBlock{list};
    unused_ += bytes;
    trim();
  }

 private:
  // Gives the largest unused blocks back while there are too many.
  void trim() noexcept {
    const std::size_t bound = most_held(peak_);
    for (int i = classes - 1; i >= small_classes && in_use_ + unused_ > bound; --i) {
      auto& list = free_[static_cast<std::size_t>(i)];
      while (list && in_use_ + unused_ > bound) {
        unused_ -= class_size(i);
        std::free(std::exchange(list, list->next));
      }
    }
  }

  std::mutex mutex_;
  std::array<FreeBlock*, classes> free_{};
  std::size_t in_use_ = 0, unused_ = 0, peak_ = 0;
};

LargePool& large_pool() {
  static auto* pool = new LargePool;
  return *pool;
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  const int index = class_of(bytes);
  if (plain_memory || index >= classes) return system_allocate(std::max(bytes, alignment));
  if (index >= small_classes) return large_pool().allocate(index);
  if (ThreadState* state = thread_state()) {
    const auto i = static_cast<std::size_t>(index);
    const std::size_t size = class_size(index);
    state->used += static_cast<std::int64_t>(size);
    state->peak = std::max(state->peak, state->used);
    if (FreeBlock* block = state->free[i]) {
      state->free[i] = block->next;
      state->kept -= size;
      return block;
    }
  }
  return system_allocate(class_size(index));
}

void pool_free(void* block, std::size_t bytes) noexcept {
  if (plain_memory) return std::free(block);
  const int index = class_of(bytes);
  if (index >= small_classes && index < classes) return large_pool().release(block, index);
  if (index < small_classes) {
    ThreadState* state = thread_state();
    const auto i = static_cast<std::size_t>(index);
    const std::size_t size = class_size(index);
    if (state) state->used -= static_cast<std::int64_t>(size);
    if (state && state->kept < most_held(static_cast<std::size_t>(state->peak))) {
      state->free[i] = new (block) FreeBlock{state->free[i]};
      state->kept += size;
      return;
    }
  }
  std::free(block);
}

void count(Counter counter, std::int64_t by) noexcept {
  const auto i = static_cast<std::size_t>(counter);
  if (ThreadState* state = thread_state()) {
    auto& slot = state->counts[i];
    slot.store(slot.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  } else {
    std::lock_guard lock(registry().mutex);
    registry().ended[i] += by;
  }
}

std::int64_t counted(Counter counter) {
  const auto i = static_cast<std::size_t>(counter);
  std::lock_guard lock(registry().mutex);
  std::int64_t total = registry().ended[i];
  for (const ThreadState* state : registry().threads) total += state->counts[i].load(std::memory_order_relaxed);
  return total;
}

}  // namespace gradus::detail
