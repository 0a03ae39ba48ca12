// The pool of threads.
#include "parallel.h"

#include <gradus/error.h>
#include <gradus/threads.h>
#include <pthread.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gradus {
namespace kernels {
namespace {

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

/// The bits of this thread's floating-point control that flush subnormal numbers to 0.
std::uint64_t flush_bits() {
#if defined(__SSE2__)
  return _mm_getcsr() & 0x8040U;  // results, and operands
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control & (std::uint64_t{1} << 24);
#else
  return 0;
#endif
}

void set_flush_bits([[maybe_unused]] std::uint64_t bits) {
#if defined(__SSE2__)
  _mm_setcsr((_mm_getcsr() & ~0x8040U) | static_cast<unsigned>(bits));
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = (control & ~(std::uint64_t{1} << 24)) | bits;
  asm volatile("msr fpcr, %0" : : "r"(control));
#endif
}

constexpr auto spin_time = std::chrono::microseconds(40);

/// One job at a time, that of whoever holds `busy`. The gate says whether workers may still join it: its lowest bit is
/// "open", the next 15 count the workers inside, the rest number the jobs. A worker that wakes too late finds the gate
/// closed (or the number changed) and leaves the job alone, so the caller waits only for those who joined.
class Pool {
 public:
  bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // The rest is for the holder.

  void shrink(int workers) {
    if (static_cast<int>(threads_.size()) <= workers) return;
    {
      const std::lock_guard lock(mutex_);
      wanted_.store(workers, std::memory_order_seq_cst);
    }
    wake_.notify_all();
    while (static_cast<int>(threads_.size()) > workers) {
      threads_.back().join();
      threads_.pop_back();
    }
  }

  void resize(int workers) {
    if (static_cast<int>(threads_.size()) == workers) return;
    shrink(workers);
    wanted_.store(workers, std::memory_order_seq_cst);
    while (static_cast<int>(threads_.size()) < workers) {
      const int index = static_cast<int>(threads_.size());
      try {
        threads_.emplace_back([this, index] { work(index); });
      } catch (...) {
        return;  // the system has no more threads to give: the job runs on those there are
      }
    }
  }

  void run(std::int64_t pieces, void (*f)(void*, std::int64_t), void* context) {
    f_ = f;
    context_ = context;
    pieces_ = pieces;
    flush_ = flush_bits();
    next_.store(0, std::memory_order_relaxed);
    const std::uint64_t number = (gate_.load(std::memory_order_relaxed) | (one_job - 1)) + 1;
    gate_.store(number | open, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      { const std::lock_guard lock(mutex_); }
      wake_.notify_all();
    }
    take_pieces();
    gate_.fetch_and(~open, std::memory_order_acq_rel);
    for (int i = 0; gate_.load(std::memory_order_acquire) != number; ++i)
      i < 4096 ? pause() : std::this_thread::yield();
  }

 private:
  static constexpr std::uint64_t open = 1, one_worker = 2, one_job = 1 << 16;

  void take_pieces() {
    for (;;) {
      const std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= pieces_) return;
      f_(context_, i);
    }
  }

  void work(int index) {
    std::uint64_t seen = 0;
    for (;;) {
      if (!wait(index, seen)) return;
      std::uint64_t gate = gate_.load(std::memory_order_acquire);
      seen = gate / one_job;
      while ((gate & open) != 0 && gate / one_job == seen) {
        if (gate_.compare_exchange_weak(gate, gate + one_worker, std::memory_order_acq_rel)) {
          // The caller's arithmetic, so that no result depends on who computes it.
          if (flush_bits() != flush_) set_flush_bits(flush_);
          take_pieces();
          gate_.fetch_sub(one_worker, std::memory_order_acq_rel);
          break;
        }
      }
    }
  }

  bool called(std::uint64_t seen) const {
    const std::uint64_t gate = gate_.load(std::memory_order_seq_cst);
    return (gate & open) != 0 && gate / one_job != seen;
  }
  bool dismissed(int index) const { return index >= wanted_.load(std::memory_order_seq_cst); }

  /// Until there is a job not seen before; false when the worker should end. Spins for a moment, since ops follow each
  /// other closely in training, and then sleeps.
  bool wait(int index, std::uint64_t seen) {
    const auto start = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 64; ++i) {
        if (dismissed(index)) return false;
        if (called(seen)) return true;
        pause();
      }
    } while (std::chrono::steady_clock::now() - start < spin_time);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return dismissed(index) || called(seen); });
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return !dismissed(index);
  }

  std::atomic<bool> busy_{false};
  std::vector<std::thread> threads_;
  std::atomic<int> wanted_{0};

  void (*f_)(void*, std::int64_t) = nullptr;
  void* context_ = nullptr;
  std::int64_t pieces_ = 0;
  std::uint64_t flush_ = 0;
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint64_t> gate_{one_job};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
};

/// Never destroyed: jobs may still come while the program ends, and run on their caller then. A forked child, which has
/// none of the threads, gets a pool of its own.
std::atomic<Pool*> the_pool{nullptr};
std::atomic<bool> ended{false};

Pool& pool() {
  static const bool created = [] {
    the_pool.store(new Pool, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, [] { the_pool.store(new Pool, std::memory_order_release); });
    std::atexit([] {
      ended.store(true);
      Pool& p = *the_pool.load(std::memory_order_acquire);
      if (p.try_acquire()) p.shrink(0);
    });
    return true;
  }();
  static_cast<void>(created);
  return *the_pool.load(std::memory_order_acquire);
}

int initial_threads() {
  const char* text = std::getenv("GRADUS_NUM_THREADS");
  if (!text || *text == '\0') {
    const unsigned cores = std::thread::hardware_concurrency();
    return cores < 1 ? 1 : cores > 1024 ? 1024 : static_cast<int>(cores);
  }
  int n = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), n);
  if (error != std::errc() || *end != '\0' || n < 1 || n > 1024)
    throw Error("GRADUS_NUM_THREADS: '" + std::string(text) + "' is not a number of threads from 1 to 1024");
  return n;
}

std::atomic<int> wanted_threads{0};

}  // namespace

void run_pieces(std::int64_t pieces, void (*f)(void* context, std::int64_t i), void* context) {
  if (pieces > 1) {
    const int threads = num_threads();
    if (threads > 1 && !ended.load(std::memory_order_relaxed)) {
      Pool& p = pool();
      if (p.try_acquire()) {
        p.resize(threads - 1);
        p.run(pieces, f, context);
        p.release();
        return;
      }
    }
  }
  for (std::int64_t i = 0; i < pieces; ++i) f(context, i);
}

}  // namespace kernels

bool set_flush_denormals(bool on) {
#if defined(__SSE2__)
  kernels::set_flush_bits(on ? 0x8040U : 0);
#else
  kernels::set_flush_bits(on ? std::uint64_t{1} << 24 : 0);
#endif
  return flush_denormals() == on;
}

bool flush_denormals() { return kernels::flush_bits() != 0; }

int num_threads() {
  int n = kernels::wanted_threads.load(std::memory_order_relaxed);
  if (n == 0) kernels::wanted_threads.store(n = kernels::initial_threads(), std::memory_order_relaxed);
  return n;
}

void set_num_threads(int n) {
  if (n < 1 || n > 1024) throw Error("set_num_threads: " + std::to_string(n) + " is not between 1 and 1024");
  kernels::wanted_threads.store(n, std::memory_order_relaxed);
  // Threads too many end now, unless a job is running: then they end with the next one.
  if (kernels::the_pool.load(std::memory_order_acquire) && !kernels::ended.load()) {
    kernels::Pool& p = kernels::pool();
    if (p.try_acquire()) {
      p.shrink(n - 1);
      p.release();
    }
  }
}

}  // namespace gradus
