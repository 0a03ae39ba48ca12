#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "internal.h"

namespace gradus::detail {

// The formats are little-endian, and so is every machine that this was written for.
static_assert(std::endian::native == std::endian::little);

std::string in_quotes(const std::string& text) {
  constexpr std::size_t longest = 300;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > longest) result += "...";
  return result + "'";
}

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

void check_path(const char* caller, const std::string& path) {
  check(!path.empty(), caller, "the path is empty");
  check(path.find('\0') == std::string::npos, caller, "the path ", in_quotes(path), " contains a NUL");
}

}  // namespace

// ---- reading

InputFile::InputFile(const char* caller, const std::string& path) : caller_(caller), path_(path) {
  check_path(caller, path);
  // A pipe would wait for its writer here, only to be refused below.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail("cannot be opened: ", reason(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail("is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t at, void* into, std::uint64_t count) const {
  auto* to = static_cast<std::byte*>(into);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, to, std::min<std::uint64_t>(count, 1U << 30), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read: ", reason(errno));
    check(got > 0, "ended early, at byte ", at, ": it was cut while it was read");
    to += got;
    at += static_cast<std::uint64_t>(got);
    count -= static_cast<std::uint64_t>(got);
  }
}

std::string InputFile::text(std::uint64_t at, std::uint64_t count) const {
  std::string result(count, '\0');
  read(at, result.data(), count);
  return result;
}

// ---- writing

void AtomicFile::fail(const char* what, int error) const {
  detail::fail(caller_, in_quotes(path_), ": ", what, ": ", reason(error), "; nothing was changed");
}

AtomicFile::AtomicFile(const char* caller, const std::string& path) : caller_(caller), path_(path) {
  check_path(caller, path);
  // What a symbolic link names is replaced, not the link.
  std::error_code not_there;
  target_ = std::filesystem::canonical(path, not_there).string();
  if (not_there) target_ = path;
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  check(!exists || S_ISREG(status.st_mode), caller, in_quotes(path), " exists and is not a regular file");
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail("may not be written", errno);

  const std::filesystem::path place(target_);
  static std::atomic<std::uint32_t> next{0};
  do {
    const std::string name = place.filename().string().substr(0, 200) + ".tmp-" + std::to_string(::getpid()) + "-" +
                             std::to_string(next.fetch_add(1));
    temporary_ = (place.parent_path() / name).string();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("no file can be created beside it", error);
  }
  // The new file keeps the old one's permissions, as far as the system lets us.
  if (exists && ::fchmod(descriptor_, status.st_mode & 07777) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::uint64_t count) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, from, std::min<std::uint64_t>(count, 1U << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written", errno);
    from += written;
    count -= static_cast<std::uint64_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot be written", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be written", errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot be replaced", errno);
  temporary_.clear();
  // Makes the new name last through a power cut. Where the system cannot, the old file may come back: still a whole
  // one.
  const std::string parent = std::filesystem::path(target_).parent_path().string();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  static_cast<void>(::fsync(directory));
  ::close(directory);
}

// ---- numbers

namespace {

struct EncodingTraits {
  std::int64_t bytes;
  DType dtype;
  bool as_it_is;  // the bytes are those of the dtype
};

EncodingTraits traits(Encoding encoding) {
  switch (encoding) {
    case Encoding::F64:
      return {8, Float64, true};
    case Encoding::F32:
      return {4, Float32, true};
    case Encoding::F16:
    case Encoding::BF16:
      return {2, Float32, false};
    case Encoding::I64:
      return {8, Int64, true};
    case Encoding::I32:
    case Encoding::U32:
      return {4, Int64, false};
    case Encoding::I16:
    case Encoding::U16:
      return {2, Int64, false};
    case Encoding::I8:
    case Encoding::U8:
      return {1, Int64, false};
    case Encoding::Bool:
      return {1, Bool, true};
  }
  return {};
}

/// IEEE half precision: 1 sign, 5 exponent, 10 fraction bits.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31U, fraction = half & 1023U;
  if (exponent == 0) {  // zero or subnormal: fraction·2⁻²⁴
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float bfloat_to_float(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

template <class From, class To, class Convert>
void convert(const std::byte* from, To* to, std::int64_t count, Convert&& one) {
  for (std::int64_t i = 0; i < count; ++i) {
    From number;
    std::memcpy(&number, from + static_cast<std::size_t>(i) * sizeof number, sizeof number);
    to[i] = one(number);
  }
}

/// `count` encoded numbers as those of the tensor's dtype.
void decode(const std::byte* from, const Tensor& to, std::int64_t start, std::int64_t count, Encoding encoding) {
  const auto integers = [&]<class From>(From) {
    convert<From>(from, to.data<std::int64_t>() + start, count, [](From x) { return std::int64_t{x}; });
  };
  switch (encoding) {
    case Encoding::F16:
      return convert<std::uint16_t>(from, to.data<float>() + start, count, half_to_float);
    case Encoding::BF16:
      return convert<std::uint16_t>(from, to.data<float>() + start, count, bfloat_to_float);
    case Encoding::I32:
      return integers(std::int32_t{});
    case Encoding::U32:
      return integers(std::uint32_t{});
    case Encoding::I16:
      return integers(std::int16_t{});
    case Encoding::U16:
      return integers(std::uint16_t{});
    case Encoding::I8:
      return integers(std::int8_t{});
    case Encoding::U8:
      return integers(std::uint8_t{});
    default:
      return;
  }
}

void swap_bytes(std::byte* numbers, std::int64_t count, std::int64_t size) {
  for (std::int64_t i = 0; i < count; ++i) std::reverse(numbers + i * size, numbers + (i + 1) * size);
}

}  // namespace

std::int64_t size_of(Encoding encoding) { return traits(encoding).bytes; }

bool bytes_of(const Shape& shape, std::int64_t element, std::int64_t& bytes) {
  bytes = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return false;
  return !__builtin_mul_overflow(bytes, element, &bytes);
}

Tensor read_tensor(const InputFile& file, std::uint64_t at, const Shape& shape, Encoding encoding, bool big_endian,
                   const std::string& what) {
  const auto [size, dtype, as_it_is] = traits(encoding);
  const Tensor result = make(shape, dtype);
  const std::int64_t numel = result.numel();
  if (as_it_is) {
    std::byte* bytes = result.impl().bytes();
    file.read(at, bytes, static_cast<std::uint64_t>(numel * size));
    if (big_endian) swap_bytes(bytes, numel, size);
    if (dtype == Bool) {
      const std::byte* wrong = std::find_if(bytes, bytes + numel, [](std::byte b) { return b > std::byte{1}; });
      if (wrong != bytes + numel)
        file.fail(what, " holds the byte ", static_cast<int>(*wrong), " as a Bool; it must be 0 or 1");
    }
    return result;
  }
  constexpr std::int64_t at_once = 1 << 16;
  std::vector<std::byte> part(static_cast<std::size_t>(std::min(numel, at_once) * size));
  for (std::int64_t start = 0; start < numel; start += at_once) {
    const std::int64_t count = std::min(at_once, numel - start);
    file.read(at + static_cast<std::uint64_t>(start * size), part.data(), static_cast<std::uint64_t>(count * size));
    if (big_endian) swap_bytes(part.data(), count, size);
    decode(part.data(), result, start, count, encoding);
  }
  return result;
}

}  // namespace gradus::detail
