#include "options.h"

#include <gradus/threads.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>

#include "text.h"

namespace copy_task {
namespace {

constexpr const char* description =
    "Trains a Transformer to copy, reverse or sort sequences of varying length and counts how many held-out "
    "sequences,\n"
    "which it never met in training, it then gets exactly right.";

constexpr const char* footer =
    "Held out: of random sequences, different ones, at most half of all that exist of a length; of a file, up to a\n"
    "fifth of its different lines, and only lines whose every token occurs in a line that is trained on.\n"
    "\n"
    "The words of any text, one a line:\n"
    "  grep -ohE '[[:alnum:]_]+' FILES | sort -u > words.txt\n"
    "  ./run copy_task --data words.txt --chars --copy gradient\n"
    "\n"
    "Exit status: 0 target reached, 1 not reached, 2 wrong usage, 3 trouble with a file, 130 stopped by Ctrl-C.";

// What depends on the task where it is not given.
struct TaskDefaults {
  std::int64_t steps;
  double target;
};
TaskDefaults defaults_of(Task task) {
  switch (task) {
    case Task::Copy:
      return {.steps = 800, .target = 99.9};
    case Task::Reverse:
    case Task::Sort:
      return {.steps = 1200, .target = 99};
  }
  return {};
}
constexpr TaskDefaults file_defaults{.steps = 1200, .target = 98};
constexpr std::int64_t file_max_length = 64;

// "--steps INT   Updates in training (default: 1000)"
class HelpFormat : public CLI::Formatter {
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string standard = option->get_default_str();
    return option->get_description() + (standard.empty() ? "" : " (default: " + standard + ")");
  }
};

void check(bool good, const std::string& otherwise) {
  if (!good) throw UsageError(otherwise);
}

void check_range(const char* flag, std::int64_t value, std::int64_t low, std::int64_t high) {
  check(value >= low && value <= high, std::string(flag) + " must be from " + std::to_string(low) + " to " +
                                           std::to_string(high) + ", is " + std::to_string(value));
}

void check(const Options& o) {
  check_range("--symbols", o.symbols, 2, 10000);
  check_range("--max-length", o.max_length, 1, 4096);
  check_range("--held-out", o.held_out, 1, 1000000);
  check_range("--steps", o.steps, 1, 1000000000);
  check_range("--batch", o.batch, 1, 65536);
  check_range("--seed", o.seed, 0, std::numeric_limits<std::int64_t>::max());
  check_range("--threads", o.threads, 1, 1024);
  check_range("--d-model", o.d_model, 1, 8192);
  check_range("--heads", o.heads, 1, 8192);
  check_range("--layers", o.layers, 1, 128);
  check_range("--d-ff", o.d_ff, 1, 65536);
  check(std::isfinite(o.lr) && o.lr > 0, "--lr must be a positive number, is " + CLI::detail::to_string(o.lr));
  check(o.dropout >= 0 && o.dropout < 1,
        "--dropout must be at least 0 and less than 1, is " + CLI::detail::to_string(o.dropout));
  check(o.target >= 0 && o.target <= 100, "--target must be from 0 to 100, is " + CLI::detail::to_string(o.target));
  check(o.noise >= 0 && o.noise <= 1, "--noise must be from 0 to 1, is " + CLI::detail::to_string(o.noise));
  check(o.d_model % o.heads == 0, "--heads " + std::to_string(o.heads) + " does not divide --d-model " +
                                      std::to_string(o.d_model) + ": each head takes an equal part of it");
}

}  // namespace

const char* name(Task task) {
  switch (task) {
    case Task::Copy:
      return "copy";
    case Task::Reverse:
      return "reverse";
    case Task::Sort:
      return "sort";
  }
  return "";
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options o;
  o.threads = gradus::num_threads();
  std::string task = name(o.task);
  std::optional<std::int64_t> steps, max_length;
  std::optional<double> target;

  CLI::App app(description, "copy_task");
  app.footer(footer);
  app.formatter(std::make_shared<HelpFormat>());
  app.get_formatter()->column_width(24);
  app.add_option("--task", task, "What to learn: copy, reverse or sort")
      ->check(CLI::IsMember({name(Task::Copy), name(Task::Reverse), name(Task::Sort)}))
      ->type_name("TASK")
      ->capture_default_str();
  auto* data = app.add_option("--data", o.data, "Sequences to learn from, one a line, of tokens between white space")
                   ->type_name("FILE")
                   ->default_str("random sequences");
  app.add_flag("--chars", o.chars, "The tokens of --data and --copy are characters, not words")->needs(data);
  app.add_option("--copy", o.copy, "Show what the trained model makes of this sequence, such as \"7 1 9 9 2\"")
      ->type_name("TEXT");
  auto* json = app.add_option("--json", o.json, "Write the results to this file too")->type_name("FILE");

  const auto number = [&app](const char* flag, auto& value, const char* text) {
    return app.add_option(flag, value, text)->capture_default_str();
  };
  number("--symbols", o.symbols, "How many different tokens random sequences have")->excludes(data);
  number("--max-length", max_length, "Tokens of the longest sequence")
      ->default_str(std::to_string(o.max_length) + "; --data: " + std::to_string(file_max_length));
  number("--held-out", o.held_out, "Sequences to test on, at most");
  number("--noise", o.noise, "Of the sequences that --data trains on, the share that is random tokens")->needs(data);
  number("--target", target, "Percent of them that must be exact for status 0")
      ->default_str("99.9; reverse, sort: 99; --data: 98");
  number("--steps", steps, "Updates in training")->default_str("800; reverse, sort, --data: 1200");
  number("--batch", o.batch, "Sequences an update");
  number("--lr", o.lr, "The highest learning rate, after the warm-up");
  number("--dropout", o.dropout, "The share of activations that training drops");
  number("--seed", o.seed, "The same seed gives the same result");
  number("--threads", o.threads, "Threads; the result does not depend on them");
  number("--d-model", o.d_model, "Size of the vectors between the layers");
  number("--heads", o.heads, "Attention heads; must divide --d-model");
  number("--layers", o.layers, "Layers of the encoder, and of the decoder");
  number("--d-ff", o.d_ff, "Size of the feed-forward layers");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return {};
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    throw UsageError(text + "; --help lists the flags");
  }

  for (const Task each : {Task::Copy, Task::Reverse, Task::Sort}) {
    if (task == name(each)) o.task = each;
  }
  const bool file = data->count() > 0;
  const TaskDefaults defaults = file ? file_defaults : defaults_of(o.task);
  o.steps = steps.value_or(defaults.steps);
  o.target = target.value_or(defaults.target);
  o.max_length = max_length.value_or(file ? file_max_length : o.max_length);
  check(!file || !o.data.empty(), "--data needs the name of a file");
  check(json->count() == 0 || !o.json.empty(), "--json needs the name of a file");
  std::error_code ignored;
  check(!file || json->count() == 0 || !std::filesystem::equivalent(o.data, o.json, ignored),
        "--json would overwrite the file of --data");
  check(o);
  return o;
}

}  // namespace copy_task
