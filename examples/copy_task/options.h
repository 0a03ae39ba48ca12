#pragma once
// What the command line says, checked.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace copy_task {

enum class Task { Copy, Reverse, Sort };
const char* name(Task task);

struct Options {
  Task task = Task::Copy;
  std::string data;  ///< a file; empty: random sequences
  bool chars = false;
  std::optional<std::string> copy;
  std::string json;

  std::int64_t symbols = 10;
  std::int64_t max_length = 20;
  std::int64_t held_out = 1000;
  double noise = 0.75;   ///< of a file: the share of training sequences that are random
  double target = 99.9;  ///< percent of the held-out sequences

  std::int64_t steps = 800;
  std::int64_t batch = 64;
  double lr = 3e-3;
  double dropout = 0;
  std::int64_t seed = 1;
  int threads = 1;

  std::int64_t d_model = 64;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  std::int64_t d_ff = 128;
};

enum ExitStatus { target_reached = 0, target_missed = 1, bad_usage = 2, bad_file = 3, interrupted = 130 };

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing where --help was asked for, which is printed then. UsageError, of one line, for what makes no sense.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace copy_task
