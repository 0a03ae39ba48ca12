// A Transformer learns to copy (or reverse, or sort) sequences of varying length, and shows how well it does.
#include <gradus/autograd.h>
#include <gradus/error.h>
#include <gradus/random.h>
#include <gradus/threads.h>

#include <csignal>
#include <iostream>
#include <new>

#include "decode.h"
#include "report.h"
#include "text.h"
#include "train.h"

namespace {

using namespace copy_task;

volatile std::sig_atomic_t interrupt = 0;

// The first Ctrl-C ends training after the step under way, the second one the program.
void stop_after_step(int) {
  interrupt = 1;
  std::signal(SIGINT, SIG_DFL);
}

// The sequence whose attention is drawn: the one asked for, else a held-out one of handy length.
const Example& to_draw(const Result& result) {
  if (result.asked) return *result.asked;
  const Example* best = &result.tested.front();
  const auto distance = [](const Example& e) { return std::abs(std::ssize(e.input) - 10); };
  for (const Example& example : result.tested) {
    if (distance(example) < distance(*best)) best = &example;
  }
  return *best;
}

int run(const Options& options) {
  if (!options.json.empty()) check_json(options.json);
  gradus::set_num_threads(options.threads);
  gradus::manual_seed(static_cast<std::uint64_t>(options.seed));
  Data data(options);
  std::optional<Sequence> asked;
  if (options.copy) asked = data.parse(*options.copy);

  auto model = make_model(options, data.vocabulary());
  Result result;
  result.parameters = model.num_parameters();
  std::cout << name(options.task) << ": " << result.parameters << " parameters, "
            << data.vocabulary().size() - first_symbol << " symbols, ";
  if (data.training_size() > 0) {
    std::cout << data.training_size() << " different lines to train on, ";
  } else {
    std::cout << "random sequences of 1 to " << options.max_length << ", ";
  }
  std::cout << data.held_out().size() << " held out, seed " << options.seed << ", " << options.threads
            << (options.threads == 1 ? " thread" : " threads") << std::endl;

  std::signal(SIGINT, stop_after_step);
  Progress progress(options.steps);
  result.training = train(model, data, options, std::ref(progress), [] { return interrupt != 0; });
  progress.finish(result.training);

  model.eval();
  result.tested = answers(model, data.held_out(), options.task);
  if (asked) result.asked = answers(model, {*asked}, options.task).front();
  result.attention = attention_map(model, to_draw(result));
  result.interrupted = interrupt != 0;
  print_report(std::cout, result, data, options.task);

  int status = result.interrupted ? interrupted : result.reached(options) ? target_reached : target_missed;
  if (result.training.steps < options.steps && result.interrupted) {
    std::cout << "stopped by Ctrl-C after " << result.training.steps << " of " << options.steps << " steps\n";
  } else {
    std::cout << "target: at least " << result.needed(options) << " exact\n";
  }
  if (result.training.diverged) {
    std::cerr << "copy_task: training broke down: the loss of step " << result.training.steps
              << " is not finite; try a smaller --lr" << std::endl;
  }
  try {
    if (!options.json.empty()) write_json(options.json, result, data, options);
  } catch (const FileError& error) {
    std::cerr << "copy_task: " << error.what() << std::endl;
    status = bad_file;
  }
  std::cout << last_line(result) << std::endl;
  if (std::cout) return status;
  std::cerr << "copy_task: cannot write to standard output" << std::endl;
  return bad_file;
}

}  // namespace

int main(int argc, char** argv) {
  const auto refuse = [](const std::string& why, ExitStatus status) {
    std::cerr << "copy_task: " << why << std::endl;
    return static_cast<int>(status);
  };
  try {
    const auto options = parse_options(argc, argv);
    return options ? run(*options) : static_cast<int>(target_reached);
  } catch (const UsageError& error) {
    return refuse(error.what(), bad_usage);
  } catch (const FileError& error) {
    return refuse(error.what(), bad_file);
  } catch (const gradus::Error& error) {
    return refuse(error.what(), bad_usage);
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for these sizes", bad_usage);
  }
}
