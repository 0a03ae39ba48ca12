#pragma once
// What the tests of files share: folders that vanish, the collections of tests/files, and files of given bytes.
#include <gradus/files.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base64.h"
#include "core_values.h"
#include "json.h"

namespace gradus::test {

namespace fs = std::filesystem;

/// A folder of its own for a test, removed at its end.
class Folder {
 public:
  Folder() {
    static int next = 0;
    path_ = fs::temp_directory_path() / ("gradus-files-" + std::to_string(::getpid()) + "-" + std::to_string(next++));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  fs::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
}

inline Json cases(const std::string& name) {
  return Json::parse(read_file(std::string(GRADUS_TEST_DIR) + "/files/" + name + ".json"));
}

/// Little-endian.
inline std::string number_bytes(std::uint64_t number, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> 8 * i & 255U);
  return bytes;
}

inline Safetensors parse_safetensors(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "file", bytes);
  return load_safetensors(folder / "file");
}
inline Tensor parse_npy(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "file", bytes);
  return load_npy(folder / "file");
}
/// A tensor from the nested lists of the case files, flattened.
inline void flatten(const Json& nested, std::vector<double>& into) {
  if (nested.is_array()) {
    for (const Json& entry : nested) flatten(entry, into);
  } else {
    into.push_back(number(nested));
  }
}
inline bool holds(const Tensor& tensor, const Json& nested) {
  std::vector<double> expected;
  flatten(nested, expected);
  return same(tensor.to(Float64), from_vector(expected, tensor.shape(), {.dtype = Float64}));
}

inline std::string f4(std::initializer_list<float> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(float)};
}

}  // namespace gradus::test
