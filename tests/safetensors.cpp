// safetensors files, good and hostile.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <limits>

#include "file_bytes.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

std::string safetensors_bytes(const std::string& header, const std::string& data = "") {
  return number_bytes(header.size(), 8) + header + data;
}

std::string refused_safetensors(const std::string& bytes) {
  return error_of([&] { parse_safetensors(bytes); });
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
