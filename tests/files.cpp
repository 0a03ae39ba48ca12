// What both kinds of files share: damaged ones, paths, and what a failing disk leaves behind.
#include <gradus/gradus.h>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "file_bytes.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

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
