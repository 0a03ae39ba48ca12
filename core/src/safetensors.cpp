// The safetensors format: 8 bytes of header length, a JSON object {"name": {"dtype", "shape", "data_offsets"}, ...}
// with an optional "__metadata__" of texts, and the tensors' bytes, which the ranges cover exactly.
#include <gradus/files.h>

// The templates of nlohmann's library that this file instantiates are symbols of its own: a program that links a
// static gradus may use that library too, built in other ways.
#define nlohmann gradus_json
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "file.h"
#include "internal.h"

namespace gradus {
namespace {

using detail::Encoding;
using detail::in_quotes;
using Json = nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;  // as in the reference implementation
constexpr const char* metadata_key = "__metadata__";

/// What the header says about one tensor.
struct Entry {
  std::string name, dtype;
  Shape shape;
  std::vector<std::uint64_t> range;
  std::int64_t bytes = 0;
};

/// Takes the header's JSON event by event, so that a key given twice is seen (a parsed object has only one of them),
/// and refuses whatever does not belong there.
class HeaderReader {
 public:
  explicit HeaderReader(const detail::InputFile& file) : file_(file) {}
  std::vector<Entry> entries;
  FileMetadata metadata;

  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(number_integer_t) { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) { unexpected("a number with a fraction, or too large"); }
  bool binary(binary_t&) { unexpected("bytes"); }
  bool number_unsigned(number_unsigned_t number) {
    if (place_ == Place::Shape) {
      Entry& entry = entries.back();
      file_.check(entry.shape.size() < Shape::max_rank, "the shape of ", in_quotes(entry.name), " has more than ",
                  Shape::max_rank, " sizes, the most that a tensor has here");
      file_.check(number <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}, "the size ", number,
                  " in the shape of ", in_quotes(entry.name), " overflows 63 bits");
      entry.shape.push_back(static_cast<std::int64_t>(number));
    } else if (place_ == Place::Range && entries.back().range.size() < 2) {
      entries.back().range.push_back(number);
    } else {
      unexpected("a number");
    }
    return true;
  }
  bool string(string_t& text) {
    if (place_ == Place::Metadata) {
      metadata[key_] = std::move(text);
    } else if (place_ == Place::Entry && key_ == "dtype") {
      entries.back().dtype = std::move(text);
    } else {
      unexpected("a text");
    }
    return true;
  }
  bool start_object(std::size_t) {
    if (place_ == Place::Outside) {
      place_ = Place::Top;
      return true;
    }
    if (place_ != Place::Top) unexpected("an object");
    keys_.clear();
    if (key_ == metadata_key) {
      place_ = Place::Metadata;
    } else {
      place_ = Place::Entry;
      entries.push_back({.name = key_, .dtype = {}, .shape = {}, .range = {}});
    }
    return true;
  }
  bool key(string_t& key) {
    auto& seen = place_ == Place::Top ? names_ : keys_;
    file_.check(seen.insert(key).second, "duplicate key ", in_quotes(key), " in the header", inside());
    file_.check(place_ != Place::Entry || key == "dtype" || key == "shape" || key == "data_offsets", "unknown key ",
                in_quotes(key), " in the header", inside());
    key_ = std::move(key);
    return true;
  }
  bool end_object() {
    if (place_ == Place::Entry) {
      for (const char* needed : {"dtype", "shape", "data_offsets"})
        file_.check(keys_.count(needed) == 1, "the header has no ", needed, " for ", in_quotes(entries.back().name));
      file_.check(entries.back().range.size() == 2, "data_offsets of ", in_quotes(entries.back().name),
                  " must be two numbers");
    }
    place_ = place_ == Place::Top ? Place::Outside : Place::Top;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ != Place::Entry || key_ == "dtype") unexpected("a list");
    place_ = key_ == "shape" ? Place::Shape : Place::Range;
    return true;
  }
  bool end_array() {
    place_ = Place::Entry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    file_.fail("the header is not valid JSON in UTF-8, at its byte ", position);
  }

 private:
  enum class Place { Outside, Top, Metadata, Entry, Shape, Range };

  std::string inside() const {
    if (place_ == Place::Metadata) return std::string(", in ") + metadata_key;
    return place_ == Place::Entry ? ", at " + in_quotes(entries.back().name) : "";
  }
  [[noreturn]] void unexpected(const char* what) const {
    switch (place_) {
      case Place::Outside:
        file_.fail("the header is ", what, ", not an object");
      case Place::Top:
        file_.fail("the header has ", what, " under ", in_quotes(key_), "; it must be an object");
      case Place::Metadata:
        file_.fail(metadata_key, " has ", what, " under ", in_quotes(key_), "; it must be a text");
      case Place::Entry:
        file_.fail(key_, " of ", in_quotes(entries.back().name), " is ", what, "; it must be a ",
                   key_ == "dtype" ? "text" : "list");
      case Place::Shape:
        file_.fail("the shape of ", in_quotes(entries.back().name), " holds ", what,
                   "; it must hold whole numbers from 0 on");
      case Place::Range:
        file_.fail("data_offsets of ", in_quotes(entries.back().name), " holds ", what,
                   "; it must be two whole numbers from 0 on");
    }
    file_.fail("the header is wrong");
  }

  const detail::InputFile& file_;
  Place place_ = Place::Outside;
  std::string key_;
  std::set<std::string> names_, keys_;  // of the header, and of the object inside it
};

Encoding encoding_of(const detail::InputFile& file, const Entry& entry) {
  static const std::pair<const char*, Encoding> known[] = {
      {"F64", Encoding::F64}, {"F32", Encoding::F32}, {"F16", Encoding::F16}, {"BF16", Encoding::BF16},
      {"I64", Encoding::I64}, {"I32", Encoding::I32}, {"I16", Encoding::I16}, {"I8", Encoding::I8},
      {"U32", Encoding::U32}, {"U16", Encoding::U16}, {"U8", Encoding::U8},   {"BOOL", Encoding::Bool}};
  for (const auto& [name, encoding] : known)
    if (entry.dtype == name) return encoding;
  file.fail("the dtype ", in_quotes(entry.dtype), " of ", in_quotes(entry.name),
            " has no tensor here that holds its numbers; convert it to one of F64, F32, F16, BF16, I64, BOOL");
}

/// The ranges, sorted, must follow each other from 0 to `size` without a hole or an overlap.
void check_ranges(const detail::InputFile& file, std::vector<Entry>& entries, std::uint64_t size) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.range < b.range; });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    const std::uint64_t from = entry.range[0], to = entry.range[1];
    const std::string range =
        "the byte range [" + std::to_string(from) + ", " + std::to_string(to) + "] of " + in_quotes(entry.name);
    file.check(from <= to, range, " ends before it begins");
    file.check(to <= size, range, " lies outside the ", size, " bytes of data in the file");
    file.check(from >= end, range, " overlaps the one before it, which ends at ", end);
    file.check(from == end, range, " leaves a hole (a gap) behind the one before it, which ends at ", end);
    file.check(to - from == static_cast<std::uint64_t>(entry.bytes), range, " is not that of ", entry.shape, " ",
               entry.dtype, ", which takes ", entry.bytes, " bytes");
    end = to;
  }
  file.check(end == size, "the data has ", size - end, " trailing bytes that no tensor covers");
}

// ---- writing

const char* dtype_text(DType dtype) {
  constexpr const char* texts[] = {"F32", "F64", "I64", "BOOL"};
  return texts[static_cast<int>(dtype)];
}

/// A JSON string.
std::string json_text(const std::string& text, const char* what) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    detail::fail("save_safetensors", what, " ", in_quotes(text), " is not valid UTF-8");
  }
}

}  // namespace

Safetensors load_safetensors(const std::string& path) {
  const detail::InputFile file("load_safetensors", path);
  file.check(file.size() >= 8, "the file size is ", file.size(), " bytes, too small for the header length");
  std::uint64_t length = 0;
  file.read(0, &length, sizeof length);
  const std::uint64_t rest = file.size() - 8;
  file.check(length <= rest && length <= longest_header, "the header length is ", length, ", the file size ",
             file.size(), " bytes", length <= rest ? "; headers have at most 100000000" : "");
  const std::string header = file.text(8, length);
  file.check(header.starts_with('{'), "the header does not start with '{'");
  // To the parser a NUL is the end of the text.
  file.check(header.find('\0') == std::string::npos, "the header contains a NUL");
  HeaderReader reader(file);
  file.check(Json::sax_parse(header, &reader), "the header is not valid JSON");

  for (Entry& entry : reader.entries) {
    file.check(detail::bytes_of(entry.shape, detail::size_of(encoding_of(file, entry)), entry.bytes), "the shape ",
               entry.shape, " ", entry.dtype, " of ", in_quotes(entry.name), " overflows 63 bits");
  }
  check_ranges(file, reader.entries, rest - length);

  Safetensors result;
  result.metadata = std::move(reader.metadata);
  for (const Entry& entry : reader.entries) {
    result.tensors.emplace(entry.name, detail::read_tensor(file, 8 + length + entry.range[0], entry.shape,
                                                           encoding_of(file, entry), false, in_quotes(entry.name)));
  }
  return result;
}

void save_safetensors(const std::string& path, const TensorMap& tensors, const FileMetadata& metadata) {
  const char* const op = "save_safetensors";
  // The widest types come first, so that every tensor is aligned; then the names' order.
  std::vector<std::pair<std::string, Tensor>> order;
  for (const auto& [name, tensor] : tensors) {
    check(name != metadata_key, op, "a tensor cannot be named '", metadata_key, "': the format uses that name");
    check(tensor.defined(), op, in_quotes(name), " is an undefined tensor");
    order.emplace_back(name, tensor);
  }
  const auto place = [](const Tensor& tensor) {
    constexpr int places[] = {2, 1, 0, 3};  // Int64, Float64, Float32, Bool
    return places[static_cast<int>(tensor.dtype())];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return place(a.second) < place(b.second); });

  std::string header = "{";
  if (!metadata.empty()) {
    header += std::string("\"") + metadata_key + "\":{";
    for (const auto& [key, value] : metadata)
      header += json_text(key, "the metadata key") + ":" + json_text(value, "the metadata") + ",";
    header.back() = '}';
    header += ',';
  }
  std::int64_t end = 0;
  for (const auto& [name, tensor] : order) {
    std::string sizes;
    for (const std::int64_t size : tensor.shape()) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    std::int64_t bytes = 0;
    const std::int64_t start = end;
    check(
        detail::bytes_of(tensor.shape(), size_of(tensor.dtype()), bytes) && !__builtin_add_overflow(start, bytes, &end),
        op, "the bytes of ", in_quotes(name), " ", tensor.shape(), " overflow 63 bits");
    header += json_text(name, "the name") + ":{\"dtype\":\"" + dtype_text(tensor.dtype()) + "\",\"shape\":[" + sizes +
              "],\"data_offsets\":[" + std::to_string(start) + "," + std::to_string(end) + "]},";
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  check(length <= longest_header, op, "the header would have ", length, " bytes; at most 100000000 are allowed");

  detail::AtomicFile file(op, path);
  file.write(&length, sizeof length);
  file.write(header.data(), length);
  for (const auto& [name, tensor] : order) {
    const Tensor values = detail::packed(tensor);
    file.write(detail::pointer(values), static_cast<std::uint64_t>(values.numel() * size_of(values.dtype())));
  }
  file.commit();
}

}  // namespace gradus
