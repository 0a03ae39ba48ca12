// safetensors and npy files: good ones, hostile ones, and what a failing disk leaves behind.
#include <gradus/gradus.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base64.h"
#include "core_values.h"
#include "json.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;
namespace fs = std::filesystem;

namespace {

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

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
}

Json cases(const std::string& name) {
  return Json::parse(read_file(std::string(GRADUS_TEST_DIR) + "/files/" + name + ".json"));
}

/// Little-endian.
std::string number_bytes(std::uint64_t number, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> 8 * i & 255U);
  return bytes;
}

std::string safetensors_bytes(const std::string& header, const std::string& data = "") {
  return number_bytes(header.size(), 8) + header + data;
}

std::string npy_bytes(const std::string& header, const std::string& data = "", int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         number_bytes(header.size(), version == 1 ? 2 : 4) + header + data;
}

std::string npy_header(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

Safetensors parse_safetensors(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "file", bytes);
  return load_safetensors(folder / "file");
}
std::string refused_safetensors(const std::string& bytes) {
  return error_of([&] { parse_safetensors(bytes); });
}
Tensor parse_npy(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "file", bytes);
  return load_npy(folder / "file");
}
std::string refused_npy(const std::string& bytes) {
  return error_of([&] { parse_npy(bytes); });
}

/// A tensor from the nested lists of the case files, flattened.
void flatten(const Json& nested, std::vector<double>& into) {
  if (nested.is_array()) {
    for (const Json& entry : nested) flatten(entry, into);
  } else {
    into.push_back(number(nested));
  }
}
bool holds(const Tensor& tensor, const Json& nested) {
  std::vector<double> expected;
  flatten(nested, expected);
  return same(tensor.to(Float64), from_vector(expected, tensor.shape(), {.dtype = Float64}));
}

std::string f4(std::initializer_list<float> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(float)};
}

constexpr const char* one_a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

}  // namespace

TEST_CASE("safetensors: the good files of the collection") {
  const Json good = cases("safetensors_files")["good"];
  for (const auto& [name, file] : good.items()) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const Safetensors read = parse_safetensors(from_base64(file["file_b64"].get<std::string>()));
    for (const auto& [key, value] : file["expect"].items()) {
      const auto& entry = key;
      CAPTURE(entry);
      if (key == "metadata") {
        CHECK(read.metadata == value.get<FileMetadata>());
      } else {
        REQUIRE(read.tensors.contains(key));
        CHECK(holds(read.tensors.at(key), value));
      }
    }
    CHECK(read.tensors.size() == file["expect"].size() - file["expect"].count("metadata"));
  }
  const Safetensors swapped =
      parse_safetensors(from_base64(good["basic_order_swapped"]["file_b64"].get<std::string>()));
  CHECK(swapped.tensors.at("a").shape() == Shape{2, 2});
  CHECK(swapped.tensors.at("a").dtype() == Float32);
  CHECK(swapped.tensors.at("b").dtype() == Float64);
}

TEST_CASE("safetensors: every hostile file of the collection is refused, with the path and the reason") {
  const std::map<std::string, std::string> reasons = {
      {"empty_file", "the file size is 0 bytes, too small for the header length"},
      {"header_len_u64max", "the header length is 18446744073709551615, the file size 10 bytes"},
      {"header_len_wrap_minus4", "the header length is 18446744073709551612, the file size 10 bytes"},
      {"header_len_zero", "the header does not start with '{'"},
      {"array_header", "the header does not start with '{'"},
      {"invalid_utf8", "the header is not valid JSON in UTF-8"},
      {"dup_key_escaped", "duplicate key 'a' in the header"},
      {"overlap_partial", "[4, 12] of 'v' overlaps the one before it, which ends at 8"},
      {"trailing_data", "the data has 4 trailing bytes"},
      {"reversed_offsets", "the byte range [4, 0] of 'k' ends before it begins"},
      {"shape_vs_bytes", "the byte range [0, 16] of 'weight' is not that of [4] F64, which takes 32 bytes"},
      {"shape_product_wraps_to_0", "the shape [4294967296, 4294967296] F32 of 't' overflows 63 bits"},
      {"float_dim", "the shape of 't' holds a number with a fraction, or too large"},
      {"missing_dtype", "the header has no dtype for 't'"},
      {"metadata_not_string", "__metadata__ has a number under 'k'; it must be a text"}};
  const Json bad = cases("safetensors_files")["bad"];
  CHECK(bad.size() == reasons.size());
  for (const auto& [name, bytes] : bad.items()) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const std::string text = refused_safetensors(from_base64(bytes.get<std::string>()));
    CHECK(text.starts_with("load_safetensors: '"));
    CHECK(mentions(text, "/file': "));
    CHECK_MESSAGE(mentions(text, reasons.at(name)), text);
  }
}

TEST_CASE("I01 safetensors: a header length that lies is refused before anything is allocated") {
  const auto refused = [](const std::string& bytes) {
    const std::string text = refused_safetensors(bytes);
    return mentions(text, "/file'") && mentions(text, "header") && mentions(text, "file size");
  };
  CHECK(refused(""));
  CHECK(refused(std::string(7, '\0')));
  CHECK(refused(number_bytes(~std::uint64_t{0}, 8) + "{}"));
  CHECK(refused(number_bytes(std::uint64_t{1} << 63, 8) + "{}"));
  CHECK(refused(number_bytes(~std::uint64_t{0} - 3, 8) + "{}"));
  CHECK(refused(number_bytes(3, 8) + "{}"));
  CHECK(refused_safetensors(number_bytes(0, 8)) != "");
  CHECK(parse_safetensors(number_bytes(2, 8) + "{}").tensors.empty());
  // A header beyond what the format allows, in a file that really has it (of holes, which take no disk).
  const Folder folder;
  write_file(folder / "long", number_bytes(100'000'001, 8) + "{}");
  fs::resize_file(folder / "long", 100'000'100);
  CHECK(mentions(error_of([&] { load_safetensors(folder / "long"); }),
                 "the header length is 100000001, the file size 100000100 bytes; headers have at most 100000000"));
}

TEST_CASE("I03 safetensors: sizes are multiplied with care, and are whole numbers from 0 on") {
  const auto with_shape = [](const std::string& shape, const std::string& range = "[0,0]") {
    return safetensors_bytes(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + range + "}}");
  };
  CHECK(mentions(refused_safetensors(with_shape("[4294967296,4294967296]")), "overflows 63 bits"));
  CHECK(mentions(refused_safetensors(with_shape("[4294967296,4294967296,0]")), "overflows 63 bits"));
  CHECK(mentions(refused_safetensors(with_shape("[4611686018427387904]")), "overflows 63 bits"));
  CHECK(mentions(refused_safetensors(with_shape("[18446744073709551615]")), "overflows 63 bits"));
  CHECK(mentions(refused_safetensors(with_shape("[-5]")), "the shape of 't' holds a negative number"));
  CHECK(mentions(refused_safetensors(with_shape("[1.5]")), "the shape of 't' holds a number with a fraction"));
  CHECK(mentions(refused_safetensors(with_shape("[99999999999999999999]")), "the shape of 't' holds a number"));
  CHECK(mentions(refused_safetensors(with_shape("[1e0]")), "the shape of 't' holds a number"));
  CHECK(mentions(refused_safetensors(with_shape("[\"1\"]")), "the shape of 't' holds a text"));
  CHECK(mentions(refused_safetensors(with_shape("[1,1,1,1,1,1,1,1,1]")), "the shape of 't' has more than 8 sizes"));
  CHECK(mentions(refused_safetensors(with_shape("[0]", "[-4,0]")), "data_offsets of 't' holds a negative number"));
  CHECK(mentions(refused_safetensors(with_shape("[0]", "[0]")), "data_offsets of 't' must be two numbers"));
  CHECK(mentions(refused_safetensors(with_shape("[0]", "[0,0,0]")), "data_offsets of 't' holds a number"));
  CHECK(parse_safetensors(with_shape("[0,4294967296,4]")).tensors.at("t").shape() == Shape{0, 4294967296, 4});
}

TEST_CASE("I04 safetensors: no overlap, no hole, no trailing bytes, no name twice") {
  const auto two = [](const char* first, const char* second, const char* names = "kv") {
    return safetensors_bytes(std::string("{\"") + names[0] + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
                                 "},\"" + names[1] + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}",
                             f4({1, 2, 3}));
  };
  CHECK(mentions(refused_safetensors(two("[0,4]", "[0,4]")), "overlap"));
  CHECK(mentions(refused_safetensors(two("[0,4]", "[2,6]")), "overlap"));
  CHECK(mentions(refused_safetensors(two("[0,4]", "[8,12]")), "[8, 12] of 'v' leaves a hole (a gap)"));
  CHECK(mentions(refused_safetensors(two("[4,8]", "[8,12]")), "[4, 8] of 'k' leaves a hole"));
  CHECK(mentions(refused_safetensors(two("[0,4]", "[4,8]")), "trailing bytes"));
  CHECK(mentions(refused_safetensors(two("[0,4]", "[4,16]")), "lies outside the 12 bytes"));
  CHECK(mentions(refused_safetensors(two("[0,4]", "[4,8]", "aa")), "duplicate key 'a'"));
  CHECK(mentions(refused_safetensors(safetensors_bytes(
                     R"({"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", f4({1}))),
                 "duplicate key 'dtype' in the header, at 'a'"));
  CHECK(mentions(refused_safetensors(safetensors_bytes(R"({"__metadata__":{"x":"1","x":"2"}})")),
                 "duplicate key 'x' in the header, in __metadata__"));
  CHECK(mentions(refused_safetensors(safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})")), "duplicate key"));
  const Json good = cases("safetensors_files")["good"]["basic_order_swapped"];
  CHECK(parse_safetensors(from_base64(good["file_b64"].get<std::string>())).tensors.size() == 2);
}

TEST_CASE("safetensors: what else does not belong in a header") {
  CHECK(parse_safetensors(safetensors_bytes(one_a, f4({1}))).tensors.at("a").item() == 1);
  const auto refused = [](const std::string& header, const std::string& reason) {
    const std::string text = refused_safetensors(safetensors_bytes(header, f4({1})));
    CHECK_MESSAGE(mentions(text, reason), text);
  };
  refused(std::string(one_a) + '\0' + "anything", "contains a NUL");
  refused(std::string(one_a) + "{}", "not valid JSON");
  refused(std::string(one_a) + "   x", "not valid JSON");
  refused(" " + std::string(one_a), "does not start with '{'");
  refused("\xEF\xBB\xBF" + std::string(one_a), "does not start with '{'");
  refused("{", "not valid JSON");
  refused("{\"a\":", "not valid JSON");
  refused(R"({"a":1})", "the header has a number under 'a'; it must be an object");
  refused(R"({"a":[]})", "the header has a list under 'a'");
  refused(R"({"a":null})", "the header has null under 'a'");
  refused(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", "dtype of 'a' is a number; it must be a text");
  refused(R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", "dtype of 'a' is a list");
  refused(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "shape of 'a' is a number; it must be a list");
  refused(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "the shape of 'a' holds a list");
  refused(R"({"a":{"dtype":"F32","shape":[{}],"data_offsets":[0,4]}})", "the shape of 'a' holds an object");
  refused(R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", "the shape of 'a' holds a boolean");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":{}}})", "unknown key 'more'");
  refused(R"({"a":{"dtype":"F32","shape":[1]}})", "the header has no data_offsets for 'a'");
  refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "the header has no shape for 'a'");
  refused(R"({"__metadata__":[]})", "the header has a list under '__metadata__'");
  refused(R"({"__metadata__":{"x":{}}})", "__metadata__ has an object under 'x'");
  refused("{\"\\ud800\":{}}", "not valid JSON in UTF-8");
  refused("{" + std::string(100'000, '['), "not valid JSON");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  refused(deep, "unknown key 'a' in the header, at 'a'");
  for (const char* dtype : {"U64", "F8_E4M3", "F8_E5M2", "C64", "f32", ""})
    refused(std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":[1],"data_offsets":[0,4]}})",
            std::string("the dtype '") + dtype + "' of 'a' has no tensor here");
  CHECK(mentions(
      refused_safetensors(safetensors_bytes(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02")),
      "'m' holds the byte 2 as a Bool; it must be 0 or 1"));
  // A hostile name cannot write control characters to a terminal.
  const std::string text =
      refused_safetensors(safetensors_bytes("{\"\\u001b[31m\\n" + std::string(1000, 'x') + "\":1}"));
  CHECK(mentions(text, "'?[31m?xxx"));
  CHECK(text.size() < 600);
}

TEST_CASE("safetensors: files that Python wrote, and the same bytes back") {
  const Json files = cases("python_files")["safetensors"];
  const Folder folder;
  for (const auto& [name, file] : files.items()) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const std::string bytes = from_base64(file["file_b64"].get<std::string>());
    const Safetensors read = parse_safetensors(bytes);
    CHECK(read.metadata == file["metadata"].get<FileMetadata>());
    CHECK(read.tensors.size() == file["tensors"].size());
    for (const auto& [key, value] : file["tensors"].items()) {
      const auto& entry = key;
      CAPTURE(entry);
      REQUIRE(read.tensors.contains(key));
      CHECK(same(read.tensors.at(key), to_tensor(value)));
    }
    if (name != "own_types" && name != "nothing") continue;
    save_safetensors(folder / "again", read.tensors, read.metadata);
    CHECK(read_file(folder / "again") == bytes);
  }
}

TEST_CASE("I06 strided views are saved in row-major order, and two names for one tensor load equal") {
  const Folder folder;
  const Tensor transposed = reshape(arange(6), {2, 3}).to(Float32).transpose(0, 1);
  const Tensor sliced = reshape(arange(12), {3, 4}).to(Float64).narrow(1, 1, 2);
  const Tensor tied = uniform({2, 2}, -1, 1).requires_grad_();
  save_safetensors(folder / "views", {{"transposed", transposed},
                                      {"sliced", sliced},
                                      {"expanded", expand(tensor({{1}, {2}}), {2, 3})},
                                      {"tied", tied},
                                      {"head", tied}});
  const TensorMap read = load_safetensors(folder / "views").tensors;
  CHECK(same(read.at("transposed"), tensor({{0.0, 3.0}, {1.0, 4.0}, {2.0, 5.0}})));
  CHECK(same(read.at("sliced"), f64({{1, 2}, {5, 6}, {9, 10}})));
  CHECK(same(read.at("expanded"), tensor({{1, 1, 1}, {2, 2, 2}})));
  CHECK(same(read.at("tied"), tied.detach()));
  CHECK(same(read.at("head"), tied.detach()));
  CHECK_FALSE(read.at("tied").requires_grad());
  save_npy(folder / "view.npy", transposed);
  CHECK(same(load_npy(folder / "view.npy"), transposed));
}

TEST_CASE("I06 a module's state: equal models give equal bytes, and ties come back through the module") {
  struct Tied : nn::Module {
    nn::Linear in{3, 3};
    nn::Dropout drop{0.5};
    nn::Linear out{3, 3};
    Tied() { out = in; }
    void fields(nn::Fields& f) override { f("in", in)("drop", drop)("out", out); }
  };
  const Folder folder;
  manual_seed(1);
  const Tied model, other;
  save_safetensors(folder / "model", model.state_dict(), {{"format", "pt"}});
  save_safetensors(folder / "clone", nn::clone(model).state_dict(), {{"format", "pt"}});
  save_safetensors(folder / "other", other.state_dict(), {{"format", "pt"}});
  CHECK(read_file(folder / "model") == read_file(folder / "clone"));
  CHECK(read_file(folder / "model") != read_file(folder / "other"));

  Tied loaded;
  loaded.load_state_dict(load_safetensors(folder / "model").tensors);
  CHECK(loaded.parameters().size() == 2);
  for (const auto& [name, tensor] : loaded.state_dict()) CHECK(same(tensor, model.state_dict().at(name)));

  // A model with every kind of part.
  const auto big = nn::Transformer(5, 5, {.d_model = 8, .heads = 2, .layers = 1, .d_ff = 16});
  save_safetensors(folder / "transformer", big.state_dict());
  auto again = nn::Transformer(5, 5, {.d_model = 8, .heads = 2, .layers = 1, .d_ff = 16});
  again.load_state_dict(load_safetensors(fs::path(folder / "transformer")).tensors);
  for (const auto& [name, tensor] : again.state_dict()) CHECK(same(tensor, big.state_dict().at(name)));
}

TEST_CASE("safetensors: the exact bytes, and what cannot be saved") {
  const Folder folder;
  save_safetensors(folder / "a", {{"b", tensor({true})}, {"a", tensor({1.0, 2.0})}, {"c", tensor(5)}},
                   {{"by \"us\"", "1\n"}});
  const std::string header =
      R"({"__metadata__":{"by \"us\"":"1\n"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[16,17]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(read_file(folder / "a") == safetensors_bytes(padded, number_bytes(5, 8) + f4({1, 2}) + std::string("\x01", 1)));
  CHECK(load_safetensors(folder / "a").metadata == FileMetadata{{"by \"us\"", "1\n"}});
  const std::size_t before = folder.entries();
  CHECK(error_of([&] {
          save_safetensors(folder / "x", {{"w", Tensor()}});
        }) == "save_safetensors: 'w' is an undefined tensor");
  CHECK(mentions(error_of([&] {
                   save_safetensors(folder / "x", {{"__metadata__", ones({1})}});
                 }),
                 "a tensor cannot be named '__metadata__'"));
  CHECK(mentions(error_of([&] { save_safetensors(folder / "x", {{"\xff", ones({1})}}); }), "is not valid UTF-8"));
  CHECK(mentions(error_of([&] { save_safetensors(folder / "x", {}, {{"k", "\xc3("}}); }), "is not valid UTF-8"));
  CHECK(mentions(error_of([&] {
                   save_safetensors(folder / "x", {{"t", zeros({1LL << 40, 1LL << 40, 0})}});
                 }),
                 "overflow 63 bits"));
  CHECK(folder.entries() == before);
}

TEST_CASE("npy: the good files of the collection") {
  const Json good = cases("npy_files")["good"];
  for (const auto& [name, file] : good.items()) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const Tensor read = parse_npy(from_base64(file["file_b64"].get<std::string>()));
    CHECK(read.shape() == Shape(file["shape"].get<std::vector<std::int64_t>>()));
    CHECK(read.is_contiguous());
    CHECK(holds(read, file["expect"]));
  }
}

TEST_CASE("npy: every hostile file of the collection is refused, with the path and the reason") {
  const std::map<std::string, std::string> reasons = {
      {"bad_magic", "is not an .npy file"},
      {"header_len_65528", "the header length is 65528, the file size 10 bytes"},
      {"truncated", "the shape [2, 3] of descr '<f8' takes 48 bytes of data, the file has 47"},
      {"structured", "the descr is that of a structured type"},
      {"overflow_shape", "the shape [4294967296, 4294967296] of descr '<f8' overflows 63 bits"}};
  const Json bad = cases("npy_files")["bad"];
  CHECK(bad.size() == reasons.size());
  for (const auto& [name, bytes] : bad.items()) {
    const auto& label = name;  // clang 14 captures no binding
    CAPTURE(label);
    const std::string text = refused_npy(from_base64(bytes.get<std::string>()));
    CHECK(text.starts_with("load_npy: '"));
    CHECK(mentions(text, "/file': "));
    CHECK_MESSAGE(mentions(text, reasons.at(name)), text);
  }
}

TEST_CASE("I08 npy: versions, byte orders, and hostile headers") {
  const std::string two = f4({1, 2});
  const auto good = [&](const std::string& header, int version = 1) {
    return same(parse_npy(npy_bytes(header, two, version)), tensor({1.0, 2.0}));
  };
  CHECK(good(npy_header("'<f4'", "(2,)")));
  CHECK(good(npy_header("'<f4'", "(2,)"), 2));
  CHECK(good(npy_header("'<f4'", "(2,)"), 3));
  CHECK(good(npy_header("'=f4'", "(2,)", "True")));
  CHECK(good(npy_header("'f4'", "(2L,)")));
  CHECK(good("{ \"shape\":(2 , ),\"descr\":\"<f4\",'fortran_order':False}"));
  CHECK(same(parse_npy(npy_bytes(npy_header("'>f4'", "(2,)"), std::string("\x3f\x80\0\0\x40\0\0\0", 8))),
             tensor({1.0, 2.0})));
  CHECK(same(parse_npy(npy_bytes(npy_header("'<f8'", "()"), std::string("\0\0\0\0\0\0\xf0\x3f", 8))), f64(1)));
  CHECK(same(parse_npy(npy_bytes(npy_header("'|b1'", "(1, 2)"), std::string("\1\0", 2))), tensor({{true, false}})));
  CHECK(same(parse_npy(npy_bytes(npy_header("'?'", "(1, 2)"), std::string("\1\0", 2))), tensor({{true, false}})));

  const auto refused = [](const std::string& bytes, const std::string& reason) {
    const std::string text = refused_npy(bytes);
    CHECK_MESSAGE(mentions(text, reason), text);
    CHECK(mentions(text, "/file'"));
  };
  refused(npy_bytes(npy_header("'<f4'", "(2,)"), two, 9), "version 9.0 of the format is unknown");
  refused("\x93NUMPY" + std::string("\2\0", 2) + number_bytes(0xffffffff, 4), "the header length is 4294967295");
  refused("\x93NUMPY" + std::string("\2\0", 2) + "\1\2", "too small for the header length");
  refused("\x93NUMPY", "is not an .npy file");
  refused(npy_bytes(npy_header("'|O'", "(2,)"), two), "the descr '|O' has no tensor here");
  for (const char* descr : {"<u8", "<c8", "<f16", "<M8[s]", "|S4", "<U1", "|f4", "<b4", "<f3", "", "<"})
    refused(npy_bytes(npy_header("'" + std::string(descr) + "'", "(2,)"), two),
            "the descr '" + std::string(descr) + "' has no tensor here");
  refused(npy_bytes(npy_header("[('a', '<f4')]", "(2,)"), two), "the descr is that of a structured type");
  refused(npy_bytes(npy_header("'<f4'", "(-2,)"), two), "the shape has a negative size");
  refused(npy_bytes(npy_header("'<f4'", "(4294967296, 4294967296, 0)"), ""), "overflows 63 bits");
  refused(npy_bytes(npy_header("'<f4'", "(99999999999999999999,)"), two), "overflows 63 bits");
  refused(npy_bytes(npy_header("'<f4'", "(2)"), two), "the shape is a number, not a tuple");
  refused(npy_bytes(npy_header("'<f4'", "(2.0,)"), two), "the shape is not a tuple of whole numbers");
  refused(npy_bytes(npy_header("'<f4'", "(2 1)"), two), "the shape is not a tuple of whole numbers");
  refused(npy_bytes(npy_header("'<f4'", "(,)"), two), "the shape is not a tuple of whole numbers");
  refused(npy_bytes(npy_header("'<f4'", "[2]"), two), "the shape is not a tuple of whole numbers");
  refused(npy_bytes(npy_header("'<f4'", "(1,1,1,1,1,1,1,1,2)"), two), "the shape has more than 8 sizes");
  refused(npy_bytes(npy_header("'<f4'", "(2,)", "0"), two), "fortran_order is neither True nor False");
  refused(npy_bytes("{'descr': '<f4', 'shape': (2,)}", two), "the header has no fortran_order");
  refused(npy_bytes("{'fortran_order': False, 'shape': (2,)}", two), "the header has no descr");
  refused(npy_bytes("{'descr': '<f4', 'fortran_order': False}", two), "the header has no shape");
  refused(npy_bytes("{'descr': '<f4', 'descr': '<f4'}", two), "duplicate key 'descr'");
  refused(npy_bytes("{'descr': '<f4', 'more': 1}", two), "unknown key 'more'");
  refused(npy_bytes("{'descr': '<f4' 'shape': ()}", two), "'}' should stand before");
  refused(npy_bytes("{'descr", two), "should have a key, a text in quotes");
  refused(npy_bytes("", two), "is not the dict of an array");
  refused(npy_bytes(npy_header("'<f4'", "(2,)") + "import os", two), "goes on behind its dict");
  refused(npy_bytes(npy_header("'<f4'", "(2,)"), two + "more"), "takes 8 bytes of data, the file has 12");
  refused(npy_bytes(npy_header("'|b1'", "(2,)"), "\1\2"), "holds the byte 2 as a Bool");
}

TEST_CASE("npy: files that NumPy wrote, and the same bytes back") {
  const Json files = cases("python_files");
  const Folder folder;
  for (const char* group : {"npy", "npy_read_only"}) {
    for (const auto& [name, file] : files[group].items()) {
      const auto& label = name;  // clang 14 captures no binding
      CAPTURE(label);
      const std::string bytes = from_base64(file["file_b64"].get<std::string>());
      const Tensor read = parse_npy(bytes);
      CHECK(same(read, to_tensor(file)));
      save_npy(folder / "again.npy", read);
      if (std::string(group) == "npy") CHECK(read_file(folder / "again.npy") == bytes);
      CHECK(same(load_npy(folder / "again.npy"), read));
    }
  }
  CHECK(error_of([&] { save_npy(folder / "x", Tensor()); }) == "save_npy: the tensor is an undefined tensor");
}

TEST_CASE("files: every file cut short or changed in one byte is read or refused, never worse") {
  const auto attack = [](const std::string& bytes, auto&& read) {
    int refusals = 0;
    const auto attempt = [&](const std::string& changed) {
      try {
        read(changed);
      } catch (const Error&) {
        ++refusals;
      }
    };
    for (std::size_t i = 0; i < bytes.size(); ++i) attempt(bytes.substr(0, i));
    CHECK(refusals == static_cast<int>(bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const char c : {'\0', '\xff', '9', '"', '}', '-'}) {
        std::string changed = bytes;
        changed[i] = c;
        attempt(changed);
      }
    }
  };
  const Json files = cases("python_files");
  attack(from_base64(files["safetensors"]["own_types"]["file_b64"].get<std::string>()), parse_safetensors);
  attack(from_base64(files["npy_read_only"]["fortran_big_u2"]["file_b64"].get<std::string>()), parse_npy);
}

TEST_CASE("files: what is not there, not a file, or not allowed") {
  const Folder folder;
  CHECK(error_of([&] { load_npy(folder / "none"); }) ==
        "load_npy: '" + folder / "none" + "': cannot be opened: No such file or directory");
  CHECK(mentions(error_of([&] { load_safetensors(folder / ""); }), "is not a regular file"));
  CHECK(mentions(error_of([&] { load_npy("/dev/zero"); }), "is not a regular file"));
  CHECK(mentions(error_of([&] { save_npy("/dev/null", ones({1})); }), "exists and is not a regular file"));
  CHECK(mentions(error_of([&] { save_npy(folder / "", ones({1})); }), "exists and is not a regular file"));
  CHECK(mentions(error_of([&] { save_npy(folder / "no/such/place", ones({1})); }), "No such file or directory"));
  CHECK(error_of([] { save_npy("", ones({1})); }) == "save_npy: the path is empty");
  CHECK(mentions(error_of([&] { load_npy(folder / std::string("a\0b", 3)); }), "contains a NUL"));
}

TEST_CASE("files: a write that fails leaves the old file, and nothing beside it") {
  const Folder folder;
  save_npy(folder / "x.npy", ones({3}));
  save_safetensors(folder / "x", {{"a", ones({3})}});
  const std::string npy = read_file(folder / "x.npy"), safetensors = read_file(folder / "x");

  // No file may grow beyond 64 KiB: what a full disk does, without one.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 * 1024;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Tensor large = zeros({100'000});
  const std::string first = error_of([&] { save_npy(folder / "x.npy", large); });
  const std::string second = error_of([&] { save_safetensors(folder / "x", {{"a", large}}); });
  const std::string third = error_of([&] { save_npy(folder / "new.npy", large); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);

  CHECK(first == "save_npy: '" + folder / "x.npy" + "': cannot be written: File too large; nothing was changed");
  CHECK(mentions(second, "cannot be written: File too large"));
  CHECK(mentions(third, "cannot be written: File too large"));
  CHECK(read_file(folder / "x.npy") == npy);
  CHECK(read_file(folder / "x") == safetensors);
  CHECK(folder.entries() == 2);
  // Refused before it is opened.
  CHECK(error_of([&] { save_safetensors(folder / "x", {{"a", ones({1})}, {"b", Tensor()}}); }) != "");
  CHECK(read_file(folder / "x") == safetensors);
}

TEST_CASE("files: links, permissions, and long names survive a rewrite") {
  const Folder folder;
  save_npy(folder / "real.npy", ones({1}));
  fs::permissions(folder / "real.npy", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real.npy", folder / "link.npy");
  save_npy(folder / "link.npy", zeros({2}));
  CHECK(fs::is_symlink(folder / "link.npy"));
  CHECK(same(load_npy(folder / "real.npy"), zeros({2})));
  CHECK(fs::status(folder / "real.npy").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  const std::string longest(255, 'n');
  save_npy(folder / longest, ones({1}));
  CHECK(same(load_npy(folder / longest), ones({1})));
  CHECK(folder.entries() == 3);
  // A name without a folder stands in the current one.
  const fs::path here = fs::current_path();
  fs::current_path(fs::path(folder / "real.npy").parent_path());
  save_npy("plain.npy", ones({1}));
  const bool there = fs::exists("plain.npy");
  fs::current_path(here);
  CHECK(there);
}
