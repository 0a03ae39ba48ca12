// npy files, good and hostile.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include <limits>

#include "file_bytes.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

std::string npy_bytes(const std::string& header, const std::string& data = "", int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         number_bytes(header.size(), version == 1 ? 2 : 4) + header + data;
}

std::string npy_header(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string refused_npy(const std::string& bytes) {
  return error_of([&] { parse_npy(bytes); });
}

}  // namespace

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
