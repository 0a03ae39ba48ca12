#pragma once
// Text on terminals: UTF-8 characters, the columns they take, and control characters made visible.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace copy_task {

/// The characters (code points) of UTF-8 text; nothing where it is not UTF-8.
std::optional<std::vector<std::string>> characters(std::string_view text);
/// The parts between white space.
std::vector<std::string> words(std::string_view text);
/// The text with control characters and broken UTF-8 as \xNN, so that printing it does nothing but print.
std::string printable(std::string_view text);
/// How many columns of a terminal UTF-8 text takes.
int columns(std::string_view text);
/// Cut (at a whole character) or filled with spaces to exactly `columns` columns of a terminal.
std::string fit(std::string_view text, int columns);

}  // namespace copy_task
