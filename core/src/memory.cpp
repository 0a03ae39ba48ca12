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

void* system_allocate(std::size_t bytes, std::size_t aligned_to = alignment) {
  void* block = nullptr;
  if (posix_memalign(&block, aligned_to, bytes) != 0)
    throw Error("memory: the system has no " + std::to_string(bytes) + " bytes left");
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

// How much of a pool is in use, and what it may keep unused beside that: together a little more than what was in use at
// the busiest moment. So memory never grows beyond a fixed multiple of what the program needs, and a step as large as
// the last one needs nothing from the system. (Of small blocks each thread may keep as much, until it ends.)
struct Use {
  std::int64_t bytes = 0, peak = 0;
  void add(std::int64_t by) {
    bytes += by;
    peak = std::max(peak, bytes);
  }
  std::int64_t may_keep() const { return peak - bytes + peak / 4 + (std::int64_t{32} << 20); }
};

// Small blocks are cut from slabs, side by side: a long history is a million of them, and is walked in the order in
// which they lie. A slab's address tells where its header is, and its size leaves room for the system's own header, so
// that the next one lies right behind it.
constexpr std::size_t slab_size = std::size_t{64} << 10;
constexpr std::size_t slab_bytes = slab_size - alignment;

struct alignas(alignment) Slab {
  int index;                                  // of the class of its blocks
  std::uint32_t handed_out = 0;               // blocks that are not here
  std::size_t cut = sizeof(Slab);             // where those begin that never were handed out
  FreeBlock* free = nullptr;                  // those that came back
  Slab *next = nullptr, *previous = nullptr;  // those of its class that have blocks to hand out

  static Slab* of(void* block) {
    return reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(block) & ~(slab_size - 1));
  }
  bool exhausted() const { return !free && cut + class_size(index) > slab_bytes; }
};

// The slabs of all threads. What is called holds the registry's lock.
class Slabs {
 public:
  /// Puts blocks on the list: one, and more as long as they come to no more than `bytes`. How many those are.
  std::size_t take(int index, std::size_t bytes, FreeBlock*& list) {
    Slab*& first = first_[static_cast<std::size_t>(index)];
    if (!first) link(new (system_allocate(slab_bytes, slab_size)) Slab{.index = index});
    Slab& slab = *first;
    const std::size_t size = class_size(index), most = std::max<std::size_t>(bytes / size, 1);
    std::size_t n = 0;
    FreeBlock** end = &list;
    for (; n < most && !slab.exhausted(); ++n) {
      FreeBlock* block = slab.free;
      if (block) {
        slab.free = block->next;
      } else {
        block = new (reinterpret_cast<std::byte*>(&slab) + slab.cut) FreeBlock{nullptr};
        slab.cut += size;
      }
      *end = block;
      end = &block->next;
    }
    *end = nullptr;
    slab.handed_out += static_cast<std::uint32_t>(n);
    if (slab.exhausted()) unlink(slab);
    return n;
  }

  void put(void* block) noexcept {
    Slab& slab = *Slab::of(block);
    if (slab.exhausted()) link(&slab);
    slab.free = new (block) FreeBlock{slab.free};
    if (--slab.handed_out > 0) return;
    unlink(slab);
    std::free(&slab);
  }

 private:
  void link(Slab* slab) {
    Slab*& first = first_[static_cast<std::size_t>(slab->index)];
    slab->next = first;
    slab->previous = nullptr;
    if (first) first->previous = slab;
    first = slab;
  }
  void unlink(Slab& slab) {
    (slab.previous ? slab.previous->next : first_[static_cast<std::size_t>(slab.index)]) = slab.next;
    if (slab.next) slab.next->previous = slab.previous;
  }
  std::array<Slab*, small_classes> first_{};
};

// A list of small blocks for each class and thread, without locks. What is in use is counted for all threads together,
// since blocks are freed on other threads than those that allocated them; each reports to that count now and then.
constexpr std::size_t taken_at_once = 4096;
constexpr std::int64_t unreported_at_most = std::int64_t{1} << 20;

struct ThreadState;
struct Registry {
  std::mutex mutex;
  std::vector<ThreadState*> threads;
  std::array<std::int64_t, 3> ended{};  // counts of threads that are gone
  Use small;
  Slabs slabs;
};
// Never destroyed: tensors may outlive every other static object.
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

struct ThreadState {
  std::array<FreeBlock*, small_classes> free{};
  std::int64_t kept = 0;                     // bytes in the lists
  std::int64_t may_keep = Use{}.may_keep();  // by the last report
  std::int64_t unreported = 0;               // bytes allocated here less those freed here since then
  // Written by this thread only, read by others: relaxed loads and stores are enough, and cheap.
  std::array<std::atomic<std::int64_t>, 3> counts{};

  ThreadState() {
    std::lock_guard lock(registry().mutex);
    registry().threads.push_back(this);
  }
  ~ThreadState();

  void use(std::int64_t bytes) noexcept {
    unreported += bytes;
    if (unreported >= unreported_at_most || unreported <= -unreported_at_most) report();
  }
  void report() noexcept {
    std::lock_guard lock(registry().mutex);
    registry().small.add(std::exchange(unreported, 0));
    may_keep = registry().small.may_keep();
    give_back(may_keep);
  }
  // With the registry's lock: all but so many bytes of what is kept, the largest blocks first.
  void give_back(std::int64_t all_but) noexcept;
};

// The state is reached through a plain pointer, which is null before the first use and after the thread's end.
thread_local ThreadState* state_pointer = nullptr;
thread_local bool state_ended = false;

void ThreadState::give_back(std::int64_t all_but) noexcept {
  for (int i = small_classes - 1; i >= 0 && kept > all_but; --i) {
    FreeBlock*& list = free[static_cast<std::size_t>(i)];
    while (list && kept > all_but) {
      kept -= static_cast<std::int64_t>(class_size(i));
      registry().slabs.put(std::exchange(list, list->next));
    }
  }
}

ThreadState::~ThreadState() {
  state_pointer = nullptr;
  state_ended = true;
  report();
  std::lock_guard lock(registry().mutex);
  give_back(0);
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
    const auto bytes = static_cast<std::int64_t>(class_size(index));
    {
      std::lock_guard lock(mutex_);
      use_.add(bytes);
      auto& list = free_[static_cast<std::size_t>(index)];
      if (FreeBlock* block = list) {
        list = block->next;
        unused_ -= bytes;
        return block;
      }
      trim();
    }
    try {
      return system_allocate(class_size(index));
    } catch (...) {
      std::lock_guard lock(mutex_);
      use_.add(-bytes);
      throw;
    }
  }

  void release(void* block, int index) noexcept {
    const auto bytes = static_cast<std::int64_t>(class_size(index));
    std::lock_guard lock(mutex_);
    use_.add(-bytes);
    auto& list = free_[static_cast<std::size_t>(index)];
    list = new (block) FreeBlock{list};
    unused_ += bytes;
    trim();
  }

 private:
  // Gives the largest unused blocks back while there are too many.
  void trim() noexcept {
    const std::int64_t most = use_.may_keep();
    for (int i = classes - 1; i >= small_classes && unused_ > most; --i) {
      auto& list = free_[static_cast<std::size_t>(i)];
      while (list && unused_ > most) {
        unused_ -= static_cast<std::int64_t>(class_size(i));
        std::free(std::exchange(list, list->next));
      }
    }
  }

  std::mutex mutex_;
  std::array<FreeBlock*, classes> free_{};
  Use use_;
  std::int64_t unused_ = 0;
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
  const std::size_t size = class_size(index);
  ThreadState* state = thread_state();
  FreeBlock* one = nullptr;
  FreeBlock*& list = state ? state->free[static_cast<std::size_t>(index)] : one;
  if (!list) [[unlikely]] {
    std::lock_guard lock(registry().mutex);
    const std::size_t taken = registry().slabs.take(index, state ? taken_at_once : 0, list);
    if (state)
      state->kept += static_cast<std::int64_t>(taken * size);
    else
      registry().small.add(static_cast<std::int64_t>(size));
  }
  void* block = std::exchange(list, list->next);
  if (!state) return block;
  state->kept -= static_cast<std::int64_t>(size);
  state->use(static_cast<std::int64_t>(size));
  return block;
}

void pool_free(void* block, std::size_t bytes) noexcept {
  if (plain_memory) return std::free(block);
  const int index = class_of(bytes);
  if (index >= small_classes && index < classes) return large_pool().release(block, index);
  if (index >= classes) return std::free(block);
  ThreadState* state = thread_state();
  const auto size = static_cast<std::int64_t>(class_size(index));
  if (state) state->use(-size);
  if (!state || state->kept >= state->may_keep) {
    std::lock_guard lock(registry().mutex);
    if (!state) registry().small.add(-size);
    return registry().slabs.put(block);
  }
  FreeBlock*& list = state->free[static_cast<std::size_t>(index)];
  list = new (block) FreeBlock{list};
  state->kept += size;
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
