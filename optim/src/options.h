#pragma once
// What the options of all optimizers have in common.
#include <cmath>

#include "check.h"

namespace gradus::optim {

inline void check_not_negative(const char* optimizer, const char* option, double value) {
  check(value >= 0 && std::isfinite(value), optimizer, option, " must be finite and not negative, is ", value);
}

}  // namespace gradus::optim
