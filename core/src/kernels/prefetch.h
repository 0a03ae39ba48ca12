#pragma once
// Memory that the processor does not foresee.

namespace gradus::kernels {

/// Asks for the line that p lies in, to be read or (write = 1) overwritten soon. p may be any address.
template <int write>
inline void prefetch([[maybe_unused]] const void* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p, write);
#endif
}

}  // namespace gradus::kernels
