#pragma once
#include <gradus/export.h>

#include <stdexcept>
#include <string>

namespace gradus {

/// What every refused call throws: "op: what is wrong, with the shapes met, and what to do".
/// Thrown before anything is changed, so the tensors and modules involved are as they were.
class GRADUS_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gradus
