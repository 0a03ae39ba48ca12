// --json: the results for programs.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "report.h"
#include "text.h"

namespace copy_task {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& path) {
  throw FileError("cannot write " + printable(path) + ": " + std::strerror(errno));
}

// Where a link leads, so that the file is replaced and not the link to it.
fs::path real_path(const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  return real.empty() ? fs::path(path) : real;
}

// A pipe or a device is written to; only files are replaced.
bool is_replaceable(const fs::path& path) {
  std::error_code ignored;
  return !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
}

std::string temporary_name(const fs::path& path) { return path.string() + ".tmp" + std::to_string(getpid()); }

int open_to_write(const std::string& path, const std::string& shown) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail(shown);
  return file;
}

std::vector<std::string> symbols(const Sequence& sequence, const Data& data) {
  std::vector<std::string> found;
  for (const std::int64_t token : sequence) {
    found.push_back(token == end_token     ? "<end>"
                    : token < first_symbol ? "<special>"
                                           : data.vocabulary().symbol(token));
  }
  return found;
}

Json to_json(const Example& example, const Data& data) {
  return {{"input", symbols(example.input, data)},
          {"output", symbols(example.output, data)},
          {"expected", symbols(example.expected, data)},
          {"exact", example.exact()}};
}

Json to_json(const Result& result, const Data& data, const Options& o) {
  const Training& training = result.training;
  Json curve = Json::array();
  for (const CurvePoint& point : training.curve) curve.push_back({{"step", point.step}, {"loss", point.loss}});
  Json examples = Json::array();
  for (std::size_t i = 0; i < std::min<std::size_t>(result.tested.size(), 3); ++i) {
    examples.push_back(to_json(result.tested[i], data));
  }
  Json wrong = Json::array();
  for (const Example& example : result.tested) {
    if (!example.exact() && wrong.size() < 20) wrong.push_back(to_json(example, data));
  }
  return {{"task", name(o.task)},
          {"data", o.data.empty() ? Json() : Json(o.data)},
          {"options",
           {{"chars", o.chars},
            {"max_length", o.max_length},
            {"steps", o.steps},
            {"batch", o.batch},
            {"lr", o.lr},
            {"dropout", o.dropout},
            {"seed", o.seed},
            {"threads", o.threads},
            {"d_model", o.d_model},
            {"heads", o.heads},
            {"layers", o.layers},
            {"d_ff", o.d_ff}}},
          {"symbols", data.vocabulary().size() - first_symbol},
          {"parameters", result.parameters},
          {"training_sequences", data.training_size() == 0 ? Json() : Json(data.training_size())},
          {"steps", training.steps},
          {"seconds", training.seconds},
          {"tokens", training.tokens},
          {"tokens_per_second", training.tokens_per_second()},
          {"loss", training.loss},
          {"curve", curve},
          {"held_out", result.tested.size()},
          {"exact", result.exact()},
          {"target_percent", o.target},
          {"reached", result.reached(o)},
          {"interrupted", result.interrupted},
          {"examples", examples},
          {"wrong", wrong},
          {"copy", result.asked ? to_json(*result.asked, data) : Json()},
          {"attention",
           {{"rows", symbols(result.attention.rows, data)},
            {"columns", symbols(result.attention.columns, data)},
            {"weights", result.attention.weight}}}};
}

void write_all(int file, const std::string& text, const std::string& shown) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(shown);
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

void check_json(const std::string& path) {
  const fs::path real = real_path(path);
  if (fs::is_directory(real)) throw FileError("cannot write " + printable(path) + ": it is a directory");
  if (!is_replaceable(real)) {
    if (access(real.c_str(), W_OK) != 0) fail(path);
    return;
  }
  const std::string temporary = temporary_name(real);
  close(open_to_write(temporary, path));
  unlink(temporary.c_str());
}

void write_json(const std::string& path, const Result& result, const Data& data, const Options& options) {
  const std::string text = to_json(result, data, options).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const fs::path real = real_path(path);
  const bool replace = is_replaceable(real);
  const std::string written = replace ? temporary_name(real) : real.string();
  const int file = open_to_write(written, path);
  try {
    write_all(file, text, path);
    if (replace && (fsync(file) != 0 || std::rename(written.c_str(), real.c_str()) != 0)) fail(path);
  } catch (...) {
    close(file);
    if (replace) unlink(written.c_str());
    throw;
  }
  close(file);
}

}  // namespace copy_task
