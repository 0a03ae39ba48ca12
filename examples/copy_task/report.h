#pragma once
// What the program prints, apart from errors, and the same facts for programs.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "decode.h"
#include "train.h"

namespace copy_task {

struct Result {
  Training training;
  std::vector<Example> tested;   ///< the held-out sequences
  std::optional<Example> asked;  ///< --copy
  AttentionMap attention;
  std::int64_t parameters = 0;
  bool interrupted = false;

  std::int64_t exact() const;
  /// How many of them must be exact.
  std::int64_t needed(const Options& options) const;
  bool reached(const Options& options) const { return exact() >= needed(options); }
};

/// Shows how far training is: one line that changes where standard output is a terminal, else a line now and then.
class Progress {
 public:
  explicit Progress(std::int64_t steps);
  void operator()(const Training& state);
  /// After the last step.
  void finish(const Training& state);

 private:
  std::int64_t steps_;
  bool terminal_;
  double shown_at_ = -1;  // seconds
};

/// The learning curve, examples and the attention map.
void print_report(std::ostream& out, const Result& result, const Data& data, Task task);
/// "exact copies: N of M held-out sequences"
std::string last_line(const Result& result);

/// FileError where `path` cannot be written. Leaves nothing behind.
void check_json(const std::string& path);
/// Writes it whole or not at all. FileError.
void write_json(const std::string& path, const Result& result, const Data& data, const Options& options);

}  // namespace copy_task
