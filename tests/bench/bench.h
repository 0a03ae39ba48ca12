#pragma once
// What the cases share: the clock, which cases are wanted, and the line that each prints.
#include <gradus/gradus.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

namespace bench {

inline double budget = 2;  // seconds for each case
inline std::string only;   // part of the names of the wanted cases, or =name

inline bool wanted(const std::string& name) {
  return only.starts_with('=') ? name == only.substr(1) : name.find(only) != std::string::npos;
}

/// A block of steps: called with a number of repeats, it returns the seconds that they took.
template <class Step>
auto block_of(const Step& step) {
  return [&step](int repeats) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) step();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
}

/// How many steps make a block of 20 ms; the first ones warm up.
template <class Block>
int block_length(const Block& block) {
  block(3);
  return std::max(1, static_cast<int>(0.02 / block(1)));
}

template <class Step>
double best_seconds(const Step& step) {
  const auto block = block_of(step);
  const int repeats = block_length(block);
  double best = 1e30;
  for (double spent = 0; spent < budget;) {
    const double seconds = block(repeats);
    spent += seconds;
    best = std::min(best, seconds / repeats);
  }
  return best;
}

struct Both {
  double ours = 1e30, reference = 1e30;
};

/// Blocks of two sides in turn, the least of each. Each block starts rested, since threads of another library spin on
/// for some milliseconds after its last step, and warm.
template <class Ours, class Reference>
Both best_of_both(const Ours& ours, const Reference& reference) {
  double spent = 0;
  const auto run = [&](const auto& block, int repeats, double& best) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    block(1);
    const double seconds = block(repeats);
    spent += seconds;
    best = std::min(best, seconds / repeats);
  };
  const int our_repeats = block_length(ours), reference_repeats = block_length(reference);
  Both best;
  while (spent < 2 * budget) {
    run(ours, our_repeats, best.ours);
    run(reference, reference_repeats, best.reference);
  }
  return best;
}

inline void report(const std::string& name, double seconds) {
  std::printf("%s\t%.9f\n", name.c_str(), seconds);
  std::fflush(stdout);
}
inline void report(const std::string& name, const Both& seconds) {
  std::printf("%s\t%.9f\t%.9f\n", name.c_str(), seconds.ours, seconds.reference);
  std::fflush(stdout);
}

// The cases, one file each. README.md says what a step of each is.
void training();
void single_ops();
void products();
void bandwidth();
void growth();
void memory();

}  // namespace bench
