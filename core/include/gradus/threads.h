#pragma once
#include <gradus/export.h>

namespace gradus {

/// The number of threads that ops use, the calling one included: set_num_threads, else GRADUS_NUM_THREADS, else the
/// cores. No result depends on it.
GRADUS_API int num_threads();
/// Obeyed at once. Error for less than 1.
GRADUS_API void set_num_threads(int n);

/// Whether ops called from this thread take subnormal numbers (Float32 below 1.2e-38, Float64 below 2.2e-308) for 0, in
/// what they read and in what they write. Off at first: results are those of IEEE arithmetic. On, numbers that fade
/// away (an optimizer's moments, saturated activations) cost no more than others: some processors take a hundred times
/// as long for subnormal ones. The setting is the processor's for this thread, so code of yours sees it too, and so do
/// threads that this one starts later; the pool's threads follow, op by op, the thread that calls the op.
/// False where the processor cannot; nothing has changed then.
GRADUS_API bool set_flush_denormals(bool on);
GRADUS_API bool flush_denormals();

/// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline". The best that the processor has, unless
/// GRADUS_ISA pins a lower one; pinning one that the processor lacks, or an unknown name, is an Error at first use.
GRADUS_API const char* instruction_set();

}  // namespace gradus
