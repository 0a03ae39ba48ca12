#pragma once
#include <gradus/error.h>

#include <string>

namespace gradus::test {

/// The text of the Error that `run` throws; empty where it throws none.
template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

inline bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace gradus::test
