#pragma once
// Files as the loaders and savers see them: reading that checks, writing that is atomic, and numbers in bytes.
#include <gradus/tensor.h>

#include <cstdint>
#include <string>

#include "check.h"

namespace gradus::detail {

/// "'text'", shortened and without control characters: texts of foreign files stand in error messages.
std::string in_quotes(const std::string& text);

/// A regular file, open for reading. Its Errors begin with "caller: 'path': ".
class InputFile {
 public:
  InputFile(const char* caller, const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// The bytes [at, at + count), which must lie within size().
  void read(std::uint64_t at, void* into, std::uint64_t count) const;
  std::string text(std::uint64_t at, std::uint64_t count) const;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    detail::fail(caller_, in_quotes(path_), ": ", parts...);
  }
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      fail(parts...);
  }

 private:
  const char* caller_;
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// A temporary file beside `path` that takes its name with commit(); without, it disappears.
class AtomicFile {
 public:
  AtomicFile(const char* caller, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, std::uint64_t count);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  const char* caller_;
  std::string path_, target_, temporary_;
  int descriptor_ = -1;
};

/// How a file writes numbers.
enum class Encoding : std::uint8_t { F64, F32, F16, BF16, I64, I32, I16, I8, U32, U16, U8, Bool };
std::int64_t size_of(Encoding encoding);

/// The product of sizes [first, first + rank) times the bytes of one element; false where a step of it, from the left,
/// does not fit 63 bits.
bool bytes_of(const Shape& shape, std::int64_t element, std::int64_t& bytes);

/// A new tensor with the numbers at `at`, whose bytes are known to lie in the file; `what` names it in errors.
Tensor read_tensor(const InputFile& file, std::uint64_t at, const Shape& shape, Encoding encoding, bool big_endian,
                   const std::string& what);

}  // namespace gradus::detail
