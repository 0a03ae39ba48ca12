#pragma once
// The pool: pieces of a job on num_threads() threads, the caller being one of them.
#include <cstdint>
#include <type_traits>

namespace gradus::kernels {

/// Calls f(context, i) for each i in [0, pieces), in any order and on any thread, and returns when all are done. Runs
/// on the calling thread alone where there is one piece or one thread, where the pool is busy with another caller's
/// job, or from inside a piece. f must not throw.
void run_pieces(std::int64_t pieces, void (*f)(void* context, std::int64_t i), void* context);

/// The same for a callable.
template <class F>
void parallel(std::int64_t pieces, F&& f) {
  if (pieces == 1) return f(std::int64_t{0});
  run_pieces(
      pieces, [](void* context, std::int64_t i) { (*static_cast<std::remove_reference_t<F>*>(context))(i); }, &f);
}

}  // namespace gradus::kernels
