#pragma once
// One row for each op that the tape can record, and the numbers on which its gradients are checked.
#include <gradus/core.h>

#include <set>
#include <string>
#include <vector>

namespace gradus::test {

struct OpRow {
  const char* op;             ///< its name on the tape
  std::string about;          ///< what this row tries
  std::vector<Shape> shapes;  ///< of the inputs
  TensorFunction f;           ///< must record `op`
  double low = -2, high = 2;  ///< where the inputs lie
};

const std::vector<OpRow>& ops_table();

/// The names of the ops in y's history, leaves left out.
std::set<std::string> ops_on_tape(const Tensor& y);

}  // namespace gradus::test
