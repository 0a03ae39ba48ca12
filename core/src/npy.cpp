// NumPy's .npy format: "\x93NUMPY", version, header length, and a Python dict such as
// {'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }, padded with spaces and ended by a newline.
#include <gradus/files.h>
#include <gradus/layout.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "file.h"
#include "internal.h"

namespace gradus {
namespace {

using detail::Encoding;
using detail::in_quotes;

constexpr std::string_view magic("\x93NUMPY", 6);
constexpr std::uint64_t longest_header = 1 << 20;

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

/// Reads the dict: keys in any order, either quotes, commas at the end, and the L that Python 2 wrote behind numbers.
class DictReader {
 public:
  DictReader(const detail::InputFile& file, std::string_view text) : file_(file), text_(text) {}

  Header read() {
    Header header;
    bool has[3] = {};
    expect('{');
    while (!take('}')) {
      const std::string key = string("a key");
      constexpr std::string_view keys[] = {"descr", "fortran_order", "shape"};
      const auto which = static_cast<std::size_t>(std::find(keys, keys + 3, key) - keys);
      file_.check(which < 3, "unknown key ", in_quotes(key), " in the header");
      file_.check(!std::exchange(has[which], true), "duplicate key ", in_quotes(key), " in the header");
      expect(':');
      if (which == 0) header.descr = descr();
      if (which == 1) header.fortran_order = boolean();
      if (which == 2) header.shape = shape();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    space();
    file_.check(text_.empty(), "the header goes on behind its dict: ", in_quotes(std::string(text_)));
    file_.check(has[0], "the header has no descr");
    file_.check(has[1], "the header has no fortran_order");
    file_.check(has[2], "the header has no shape");
    return header;
  }

 private:
  void space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n\r\f"), text_.size())); }
  bool take(char c) {
    space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    file_.check(take(c), "the header is not the dict of an array: '", std::string(1, c), "' should stand before ",
                in_quotes(std::string(text_)));
  }
  std::string string(const char* what) {
    space();
    const char quote = text_.empty() ? '\0' : text_.front();
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    file_.check(end != std::string_view::npos, "the header should have ", what, ", a text in quotes, before ",
                in_quotes(std::string(text_)));
    const std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  std::string descr() {
    space();
    file_.check(text_.empty() || (text_.front() != '[' && text_.front() != '('),
                "the descr is that of a structured type, which no tensor can hold: ", in_quotes(std::string(text_)));
    return string("the descr");
  }
  bool boolean() {
    space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    file_.fail("fortran_order is neither True nor False");
  }
  Shape shape() {
    Shape shape;
    file_.check(take('('), "the shape is not a tuple of whole numbers");
    bool comma = true;  // (3) is a number, (3,) is a tuple
    while (!take(')')) {
      file_.check(comma, "the shape is not a tuple of whole numbers");
      space();
      file_.check(!text_.starts_with('-'), "the shape has a negative size");
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      file_.check(error != std::errc::result_out_of_range, "a size in the shape overflows 63 bits");
      file_.check(error == std::errc(), "the shape is not a tuple of whole numbers");
      file_.check(shape.size() < Shape::max_rank, "the shape has more than ", Shape::max_rank,
                  " sizes, the most that a tensor has here");
      shape.push_back(size);
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (text_.starts_with('L')) text_.remove_prefix(1);
      comma = take(',');
    }
    file_.check(comma || shape.size() != 1, "the shape is a number, not a tuple");
    return shape;
  }

  const detail::InputFile& file_;
  std::string_view text_;
};

/// The descr without its byte order.
Encoding encoding_of(const detail::InputFile& file, const std::string& descr, bool& big_endian) {
  static const std::pair<const char*, Encoding> known[] = {
      {"f8", Encoding::F64}, {"f4", Encoding::F32}, {"f2", Encoding::F16},  {"i8", Encoding::I64},
      {"i4", Encoding::I32}, {"i2", Encoding::I16}, {"i1", Encoding::I8},   {"u4", Encoding::U32},
      {"u2", Encoding::U16}, {"u1", Encoding::U8},  {"b1", Encoding::Bool}, {"?", Encoding::Bool}};
  const char order = descr.empty() ? '\0' : descr.front();
  const bool has_order = order == '<' || order == '>' || order == '=' || order == '|';
  big_endian = order == '>';
  for (const auto& [name, encoding] : known)
    if (descr.substr(has_order) == name && (order != '|' || detail::size_of(encoding) == 1)) return encoding;
  file.fail("the descr ", in_quotes(descr),
            " has no tensor here that holds its values; save the array as one of f8, f4, f2, i8, b1");
}

}  // namespace

Tensor load_npy(const std::string& path) {
  const detail::InputFile file("load_npy", path);
  file.check(file.size() >= 10 && file.text(0, 6) == magic, "is not an .npy file (no \\x93NUMPY at its start)");
  const std::string version = file.text(6, 2);
  const int major = static_cast<unsigned char>(version[0]), minor = static_cast<unsigned char>(version[1]);
  file.check(major >= 1 && major <= 3 && minor == 0, "version ", major, ".", minor,
             " of the format is unknown; versions 1.0, 2.0 and 3.0 are read");
  const std::uint64_t width = major == 1 ? 2 : 4, start = 8 + width;
  std::uint64_t length = 0;  // little-endian, without a sign
  file.check(file.size() >= start, "the file size is ", file.size(), " bytes, too small for the header length");
  file.read(8, &length, width);
  file.check(length <= file.size() - start && length <= longest_header, "the header length is ", length,
             ", the file size ", file.size(), " bytes", length > longest_header ? "; at most 1048576 are allowed" : "");
  const std::string text = file.text(start, length);
  const Header header = DictReader(file, text).read();

  bool big_endian = false;
  const Encoding encoding = encoding_of(file, header.descr, big_endian);
  std::int64_t bytes = 0;
  file.check(detail::bytes_of(header.shape, detail::size_of(encoding), bytes), "the shape ", header.shape, " of descr ",
             in_quotes(header.descr), " overflows 63 bits");
  const std::uint64_t rest = file.size() - start - length;
  file.check(rest == static_cast<std::uint64_t>(bytes), "the shape ", header.shape, " of descr ",
             in_quotes(header.descr), " takes ", bytes, " bytes of data, the file has ", rest);
  if (!header.fortran_order)
    return detail::read_tensor(file, start + length, header.shape, encoding, big_endian, "data");
  // Fortran's order is the row-major one of the reversed dims.
  Shape reversed = header.shape, dims = header.shape;
  std::reverse(reversed.begin(), reversed.end());
  for (int i = 0; i < dims.size(); ++i) dims[i] = dims.size() - 1 - i;
  return detail::packed(
      permute(detail::read_tensor(file, start + length, reversed, encoding, big_endian, "data"), dims));
}

void save_npy(const std::string& path, const Tensor& tensor) {
  check_defined(tensor, "save_npy", "the tensor");
  std::string sizes;
  for (const std::int64_t size : tensor.shape()) sizes += std::to_string(size) + (tensor.dim() == 1 ? "," : ", ");
  if (tensor.dim() > 1) sizes.resize(sizes.size() - 2);
  std::int64_t bytes = 0;
  check(detail::bytes_of(tensor.shape(), size_of(tensor.dtype()), bytes), "save_npy", "the bytes of ", tensor,
        " overflow 63 bits");
  constexpr const char* descrs[] = {"<f4", "<f8", "<i8", "|b1"};
  std::string header = std::string("{'descr': '") + descrs[static_cast<int>(tensor.dtype())] +
                       "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  const std::size_t before = magic.size() + 4;  // version and length
  header.append(63 - (before + header.size()) % 64, ' ') += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());

  detail::AtomicFile file("save_npy", path);
  file.write(magic.data(), magic.size());
  file.write("\x01", 2);  // 1.0
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  const Tensor values = detail::packed(tensor);
  file.write(detail::pointer(values), static_cast<std::uint64_t>(bytes));
  file.commit();
}

}  // namespace gradus
