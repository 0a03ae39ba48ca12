#include "text.h"

#include <algorithm>
#include <cstdio>

namespace copy_task {
namespace {

struct CodePoint {
  char32_t value;
  std::size_t bytes;  // 0: not UTF-8
};

// The code point that `text`, which is not empty, begins with.
CodePoint first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {0, 0};
  char32_t value = lead & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest[bytes] || value > 0x10FFFF || surrogate) return {0, 0};
  return {value, bytes};
}

// Roughly what wcwidth() says, for every locale: combining marks take no column, East Asian and emoji two.
int columns_of(char32_t c) {
  const auto in = [c](char32_t low, char32_t high) { return c >= low && c <= high; };
  if (in(0x300, 0x36F) || in(0x200B, 0x200F) || in(0x20D0, 0x20FF) || in(0xFE00, 0xFE0F)) return 0;
  if (in(0x1100, 0x115F) || in(0x2E80, 0xA4CF) || in(0xAC00, 0xD7A3) || in(0xF900, 0xFAFF) || in(0xFE30, 0xFE6F) ||
      in(0xFF00, 0xFF60) || in(0xFFE0, 0xFFE6) || in(0x1F300, 0x1FAFF) || in(0x20000, 0x3FFFD)) {
    return 2;
  }
  return 1;
}

}  // namespace

std::optional<std::vector<std::string>> characters(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    if (c.bytes == 0) return {};
    found.emplace_back(text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
  return found;
}

std::vector<std::string> words(std::string_view text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  std::vector<std::string> found;
  for (auto begin = text.find_first_not_of(space); begin != text.npos; begin = text.find_first_not_of(space, begin)) {
    const auto end = std::min(text.find_first_of(space, begin), text.size());
    found.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    const bool control =
        c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0) || (c.value >= 0x202A && c.value <= 0x202E);
    const std::size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    for (std::size_t i = 0; i < bytes; ++i) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[i]));
      shown += c.bytes == 0 || control ? escaped : std::string(1, text[i]);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

int columns(std::string_view text) {
  int sum = 0;
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    sum += columns_of(c.value);
    text.remove_prefix(std::max<std::size_t>(c.bytes, 1));
  }
  return sum;
}

std::string fit(std::string_view text, int columns) {
  std::string shown;
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    const int needed = columns_of(c.value);
    if (c.bytes == 0 || needed > columns) break;
    shown += text.substr(0, c.bytes);
    columns -= needed;
    text.remove_prefix(c.bytes);
  }
  return shown + std::string(static_cast<std::size_t>(columns), ' ');
}

}  // namespace copy_task
