#pragma once
#include <gradus/nn/module.h>

namespace gradus::nn {

/// Shows all members of a module to a visitor that changes none of them. `fields` is not const, so that one list serves
/// the visitors that do; hence the cast.
inline void walk(const Module& module, Fields& visitor) { visitor("", const_cast<Module&>(module)); }

}  // namespace gradus::nn
