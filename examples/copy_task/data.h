#pragma once
// The sequences: where they come from, and which are held out.
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"

namespace copy_task {

/// Token numbers, without padding, start or end.
using Sequence = std::vector<std::int64_t>;

inline constexpr std::int64_t pad_token = 0, start_token = 1, end_token = 2, first_symbol = 3;

/// The tokens by number. Numbers go by value and other words by their characters, which is the order that `sort` sorts
/// in.
class Vocabulary {
 public:
  explicit Vocabulary(const std::set<std::string>& symbols);

  /// Of the symbols and the three special tokens.
  std::int64_t size() const { return first_symbol + static_cast<std::int64_t>(symbols_.size()); }
  /// The number of a symbol, or -1.
  std::int64_t find(const std::string& symbol) const;
  const std::string& symbol(std::int64_t token) const {
    return symbols_[static_cast<std::size_t>(token - first_symbol)];
  }

 private:
  std::vector<std::string> symbols_;
  std::map<std::string, std::int64_t> tokens_;
};

/// Sequences to train on without end, and others to test on that training never meets.
class Data {
 public:
  /// FileError for a file that cannot be used, UsageError where there are too few sequences to hold some out.
  explicit Data(const Options& options);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<Sequence>& held_out() const { return held_out_; }
  /// How many different sequences there are to train on; 0: random ones, made as they are needed.
  std::size_t training_size() const { return training_.size(); }
  /// The next sequence to train on: a random one, or of a file a line. Some lines are replaced by random tokens, for
  /// few lines alone teach to remember them rather than to copy.
  Sequence draw();

  /// UsageError for a symbol that the vocabulary lacks and for a text that is empty or too long.
  Sequence parse(std::string_view text) const;
  /// The symbols of a sequence as a person would write them, special tokens left out.
  std::string text(const Sequence& sequence) const;

 private:
  void hold_out_random(const Options& options);
  void hold_out_lines(std::vector<Sequence> lines, const Options& options);
  Sequence random_tokens(std::size_t length);
  Sequence random_sequence() { return random_tokens(1 + below(max_length_)); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  void shuffle(std::vector<Sequence>& sequences);

  bool chars_;
  std::size_t max_length_;
  std::mt19937_64 random_;
  Vocabulary vocabulary_;
  std::vector<Sequence> held_out_, training_;
  std::set<Sequence> never_train_on_;  // the held-out ones
  std::size_t next_ = 0;               // in training_
  std::size_t longest_ = 0;            // of a file's lines
  double noise_;
};

}  // namespace copy_task
