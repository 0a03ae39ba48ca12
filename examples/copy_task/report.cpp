#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "text.h"

namespace copy_task {
namespace {

std::string formatted(const char* format, double number) {
  if (std::isnan(number)) return "nan";  // and not "-nan"
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

std::string progress_line(const Training& state, std::int64_t steps) {
  const double left = state.seconds / static_cast<double>(state.steps) * static_cast<double>(steps - state.steps);
  const auto seconds = static_cast<long long>(std::ceil(left));
  std::ostringstream line;
  line << "step " << state.steps << "/" << steps << "  loss " << formatted("%.4f", state.loss) << "  "
       << formatted("%.0f", state.tokens_per_second()) << " tokens/s  " << seconds / 60 << ":"
       << formatted("%02.0f", static_cast<double>(seconds % 60)) << " left";
  return line.str();
}

// Bars of eighths of a character cell, of the loss on a logarithmic scale.
void print_curve(std::ostream& out, const Training& training) {
  std::vector<double> logs;
  for (const CurvePoint& point : training.curve) logs.push_back(std::log10(std::max(point.loss, 1e-9)));
  std::erase_if(logs, [](double x) { return !std::isfinite(x); });
  if (logs.empty()) return;
  const auto [low, high] = std::minmax_element(logs.begin(), logs.end());
  const double range = std::max(*high - *low, 1e-9);

  constexpr int rows = 8;
  constexpr const char* eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  out << "learning curve (loss, logarithmic scale)\n";
  for (int row = rows - 1; row >= 0; --row) {
    std::string loss(9, ' ');
    if (row == rows - 1) loss = formatted("%9.2g", std::pow(10, *high));
    if (row == rows / 2) loss = formatted("%9.2g", std::pow(10, *low + range * (row + 0.5) / rows));
    if (row == 0) loss = formatted("%9.2g", std::pow(10, *low));
    out << loss << " |";
    for (const double x : logs) {
      const double height = std::max((x - *low) / range * rows * 8, 1.0);  // a bar for the lowest, too
      out << eighths[static_cast<int>(std::clamp(std::round(height) - 8 * row, 0.0, 8.0))];
    }
    out << '\n';
  }
  out << std::string(10, ' ') << '+' << std::string(logs.size(), '-') << '\n';
  const std::string last = std::to_string(training.curve.back().step);
  out << std::string(11, ' ') << "1"
      << std::string(std::max<std::size_t>(logs.size(), last.size() + 2) - last.size() - 1, ' ') << last << " steps\n";
}

void print_example(std::ostream& out, const Example& example, const Data& data) {
  out << "  input   " << data.text(example.input) << "\n  output  " << data.text(example.output);
  if (example.exact()) {
    out << "   exact\n";
  } else {
    out << "\n  wrong, expected\n          " << data.text(example.expected) << '\n';
  }
}

// Three of them, and a wrong one among them where there is any.
void print_examples(std::ostream& out, const std::vector<Example>& tested, const Data& data) {
  std::vector<const Example*> shown;
  for (std::size_t i = 0; i < std::min<std::size_t>(tested.size(), 3); ++i) shown.push_back(&tested[i]);
  const auto wrong = std::find_if(tested.begin(), tested.end(), [](const Example& e) { return !e.exact(); });
  if (wrong - tested.begin() >= std::ssize(shown) && wrong != tested.end()) shown.back() = &*wrong;
  out << "decoded held-out sequences\n";
  for (const Example* example : shown) print_example(out, *example, data);
}

std::string label(const Data& data, std::int64_t token) {
  if (token == end_token) return "∎";
  return token < first_symbol ? "?" : printable(data.vocabulary().symbol(token));
}

const char* how_to_read(Task task) {
  switch (task) {
    case Task::Copy:
      return "copying reads the same place of the input,\nso the dark cells fall from the top left to the bottom "
             "right.";
    case Task::Reverse:
      return "reversing reads the input from its end,\nso the dark cells rise from the bottom left to the top right.";
    case Task::Sort:
      return "sorting looks up values, so in a row\nthe cells are dark whose value is the one to write or its "
             "neighbour "
             "in order.";
  }
  return "";
}

// 0 is white, 4 is black.
int shade(double weight) { return (weight > 0.1) + (weight > 0.25) + (weight > 0.45) + (weight > 0.7); }

void print_attention(std::ostream& out, const AttentionMap& map, const Data& data, Task task) {
  const auto longest_label = [&data](const Sequence& tokens) {
    int longest = 1;
    for (const std::int64_t token : tokens) longest = std::max(longest, columns(label(data, token)));
    return longest;
  };
  const int label_columns = std::min(longest_label(map.rows), 12);
  const int cell_columns = map.columns.size() > 36 ? 1 : longest_label(map.columns) > 1 ? 3 : 2;

  out << "cross-attention of the last decoder layer, mean of its heads\n"
      << "How to read it: a row is an output token, a column an input token (∎ is the end), and a cell is the darker\n"
      << "the more the model looks at that input token to write that output token; " << how_to_read(task) << '\n';
  out << "  " << fit("", label_columns) << ' ';
  for (const std::int64_t token : map.columns)
    out << fit(fit(label(data, token), cell_columns == 3 ? 2 : 1), cell_columns);
  out << '\n';
  constexpr const char* shades[] = {" ", "░", "▒", "▓", "█"};
  for (std::size_t i = 0; i < map.rows.size(); ++i) {
    out << "  " << fit(label(data, map.rows[i]), label_columns) << ' ';
    for (const double weight : map.weight[i]) {
      for (int column = 0; column < cell_columns; ++column) out << shades[shade(weight)];
    }
    out << '\n';
  }
}

}  // namespace

std::int64_t Result::exact() const {
  return std::count_if(tested.begin(), tested.end(), [](const Example& example) { return example.exact(); });
}

std::int64_t Result::needed(const Options& options) const {
  const double share = options.target / 100 * static_cast<double>(tested.size());
  return static_cast<std::int64_t>(std::ceil(share - 1e-6));  // 99.9 % of 1000 is 999, also in binary
}

Progress::Progress(std::int64_t steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::operator()(const Training& state) {
  if (terminal_) {
    if (state.seconds - shown_at_ < 0.1 && state.steps > 1) return;
    std::cout << '\r' << progress_line(state, steps_) << "\033[K" << std::flush;
  } else {
    const std::int64_t interval = std::max<std::int64_t>(steps_ / 10, 1);
    if (state.steps % interval != 0 && state.steps != 1 && state.seconds - shown_at_ < 10) return;
    std::cout << progress_line(state, steps_) << std::endl;
  }
  shown_at_ = state.seconds;
}

void Progress::finish(const Training& state) {
  if (terminal_) std::cout << "\r\033[K";
  std::cout << "trained " << state.steps << " of " << steps_ << " steps in " << formatted("%.1f", state.seconds)
            << " s, " << formatted("%.0f", state.tokens_per_second()) << " tokens/s, last loss "
            << formatted("%.4g", state.loss) << std::endl;
}

void print_report(std::ostream& out, const Result& result, const Data& data, Task task) {
  out << '\n';
  print_curve(out, result.training);
  out << '\n';
  print_examples(out, result.tested, data);
  if (result.asked) {
    out << "\nasked for with --copy\n";
    print_example(out, *result.asked, data);
  }
  out << '\n';
  print_attention(out, result.attention, data, task);
  out << '\n';
}

std::string last_line(const Result& result) {
  return "exact copies: " + std::to_string(result.exact()) + " of " + std::to_string(result.tested.size()) +
         " held-out sequences";
}

}  // namespace copy_task
