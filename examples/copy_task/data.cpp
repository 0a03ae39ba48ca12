#include "data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unordered_map>

#include "text.h"

namespace copy_task {
namespace {

std::optional<long long> as_number(const std::string& word) {
  long long value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return value;
}

std::vector<std::string> split(std::string_view line, bool chars) {
  auto found = characters(line);
  if (!found) throw FileError("not UTF-8 text");
  return chars ? std::move(*found) : words(line);
}

// The next line, without its end. Bounded, since a device such as /dev/zero is one line that never ends.
bool read_line(std::istream& in, std::string& line, const std::string& place) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  line.clear();
  char c = 0;
  while (in.get(c) && c != '\n') {
    line += c;
    if (line.size() > longest) throw FileError(place + "more than " + std::to_string(longest) + " bytes");
  }
  return c == '\n' || !line.empty();
}

// The tokens of each line that has any.
std::vector<std::vector<std::string>> read_lines(const Options& options) {
  const std::string file = printable(options.data);
  std::error_code ignored;
  if (std::filesystem::is_directory(options.data, ignored)) throw FileError(file + " is a directory");
  std::ifstream in(options.data, std::ios::binary);
  if (!in) throw FileError("cannot open " + file + ": " + std::strerror(errno));

  std::vector<std::vector<std::string>> lines;
  std::string line;
  for (std::int64_t number = 1;; ++number) {
    const std::string place = file + ", line " + std::to_string(number) + ": ";
    if (!read_line(in, line, place)) break;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.ends_with('\r')) line.pop_back();
    if (!characters(line)) throw FileError(place + "not UTF-8 text");
    auto tokens = split(line, options.chars);
    if (static_cast<std::int64_t>(tokens.size()) > options.max_length) {
      throw FileError(place + std::to_string(tokens.size()) + (options.chars ? " characters" : " tokens") +
                      " are more than the model's maximum, " + std::to_string(options.max_length) + " (--max-length)");
    }
    if (!tokens.empty()) lines.push_back(std::move(tokens));
  }
  if (in.bad()) throw FileError("cannot read " + file + ": " + std::strerror(errno));
  if (lines.empty()) throw FileError(file + " is empty: it needs one sequence a line");
  return lines;
}

std::set<std::string> digits(std::int64_t n) {
  std::set<std::string> symbols;
  for (std::int64_t i = 0; i < n; ++i) symbols.insert(std::to_string(i));
  return symbols;
}

}  // namespace

Vocabulary::Vocabulary(const std::set<std::string>& symbols) : symbols_(symbols.begin(), symbols.end()) {
  if (std::all_of(symbols_.begin(), symbols_.end(), as_number)) {
    std::stable_sort(symbols_.begin(), symbols_.end(),
                     [](const auto& a, const auto& b) { return *as_number(a) < *as_number(b); });
  }
  for (const std::string& symbol : symbols_) tokens_.emplace(symbol, first_symbol + std::ssize(tokens_));
}

std::int64_t Vocabulary::find(const std::string& symbol) const {
  const auto found = tokens_.find(symbol);
  return found == tokens_.end() ? -1 : found->second;
}

Data::Data(const Options& options)
    : chars_(options.chars),
      max_length_(static_cast<std::size_t>(options.max_length)),
      random_(static_cast<std::uint64_t>(options.seed)),
      vocabulary_(digits(options.data.empty() ? options.symbols : 0)),
      noise_(options.noise) {
  if (options.data.empty()) {
    hold_out_random(options);
    return;
  }
  const auto lines = read_lines(options);
  std::set<std::string> symbols;
  for (const auto& line : lines) symbols.insert(line.begin(), line.end());
  vocabulary_ = Vocabulary(symbols);

  std::set<Sequence> different;  // a line that stands in the file twice could be held out and trained on
  for (const auto& line : lines) {
    Sequence sequence;
    for (const std::string& symbol : line) sequence.push_back(vocabulary_.find(symbol));
    different.insert(std::move(sequence));
  }
  hold_out_lines({different.begin(), different.end()}, options);
}

// Of the few sequences that exist of a small length, half are left to train on.
void Data::hold_out_random(const Options& options) {
  std::vector<std::int64_t> room(max_length_ + 1);
  std::int64_t room_in_all = 0;
  for (std::size_t length = 1; length <= max_length_; ++length) {
    const double exist = std::pow(static_cast<double>(options.symbols), static_cast<double>(length));
    room[length] = exist > 1e9 ? 1000000000 : static_cast<std::int64_t>(exist) / 2;
    room_in_all += room[length];
  }
  if (room_in_all < options.held_out) {
    throw UsageError("only " + std::to_string(room_in_all) +
                     " random sequences can be held out of those with --symbols " + std::to_string(options.symbols) +
                     " and --max-length " + std::to_string(options.max_length) + ", not --held-out " +
                     std::to_string(options.held_out));
  }
  while (std::ssize(held_out_) < options.held_out) {
    Sequence sequence = random_sequence();
    if (room[sequence.size()] == 0 || !never_train_on_.insert(sequence).second) continue;
    --room[sequence.size()];
    held_out_.push_back(std::move(sequence));
  }
}

void Data::hold_out_lines(std::vector<Sequence> lines, const Options& options) {
  const std::string file = printable(options.data);
  if (lines.size() < 2)
    throw FileError(file + " holds one line, or one again and again; it takes two, to hold one out");
  std::unordered_map<std::int64_t, std::int64_t> lines_with;  // by token, of those to train on
  const auto count = [&](const Sequence& line, std::int64_t by) {
    for (const std::int64_t token : std::set<std::int64_t>(line.begin(), line.end())) lines_with[token] += by;
  };
  for (const Sequence& line : lines) count(line, +1);

  const auto wanted = std::min(static_cast<std::size_t>(options.held_out), std::max<std::size_t>(lines.size() / 5, 1));
  shuffle(lines);
  for (Sequence& line : lines) {
    longest_ = std::max(longest_, line.size());
    const bool learnable =
        std::all_of(line.begin(), line.end(), [&](std::int64_t token) { return lines_with[token] > 1; });
    if (learnable && held_out_.size() < wanted) {
      count(line, -1);
      never_train_on_.insert(line);
      held_out_.push_back(std::move(line));
    } else {
      training_.push_back(std::move(line));
    }
  }
  if (held_out_.empty()) {
    throw FileError("no line of " + file + " can be held out: each has a token that no other line has");
  }
}

Sequence Data::random_tokens(std::size_t length) {
  Sequence sequence(length);
  const auto symbols = static_cast<std::size_t>(vocabulary_.size() - first_symbol);
  for (std::int64_t& token : sequence) token = first_symbol + static_cast<std::int64_t>(below(symbols));
  return sequence;
}

void Data::shuffle(std::vector<Sequence>& sequences) {
  for (std::size_t i = sequences.size(); i > 1; --i) std::swap(sequences[i - 1], sequences[below(i)]);
}

Sequence Data::draw() {
  if (training_.empty()) {
    Sequence sequence = random_sequence();
    while (never_train_on_.contains(sequence)) sequence = random_sequence();
    return sequence;
  }
  if (next_ == 0) shuffle(training_);
  const Sequence& line = training_[next_];
  next_ = (next_ + 1) % training_.size();
  if (static_cast<double>(below(1000000)) >= noise_ * 1e6) return line;
  // Up to twice as long as the line, since a file has few long lines, and each place of a sequence must be learned.
  Sequence sequence = random_tokens(1 + below(std::min(2 * line.size(), longest_)));
  return never_train_on_.contains(sequence) ? line : sequence;
}

Sequence Data::parse(std::string_view text) const {
  const auto found = characters(text);
  if (!found) throw UsageError("--copy is not UTF-8 text");
  const auto symbols = chars_ ? *found : words(text);
  if (symbols.empty()) throw UsageError("--copy needs a sequence of at least one token");
  if (symbols.size() > max_length_) {
    throw UsageError("--copy has " + std::to_string(symbols.size()) + (chars_ ? " characters" : " tokens") +
                     ", more than the model's maximum, " + std::to_string(max_length_) + " (--max-length)");
  }
  Sequence sequence;
  for (const std::string& symbol : symbols) {
    sequence.push_back(vocabulary_.find(symbol));
    if (sequence.back() < 0) throw UsageError("--copy: the model never sees the token '" + printable(symbol) + "'");
  }
  return sequence;
}

std::string Data::text(const Sequence& sequence) const {
  std::string shown;
  for (const std::int64_t token : sequence) {
    if (token < first_symbol) continue;
    if (!chars_ && !shown.empty()) shown += ' ';
    shown += printable(vocabulary_.symbol(token));
  }
  return shown;
}

}  // namespace copy_task
