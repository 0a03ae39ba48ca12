#pragma once
#include <gradus/export.h>

namespace gradus {

/// The number of threads that ops use, the calling one included: set_num_threads, else GRADUS_NUM_THREADS, else the
/// cores. No result depends on it.
GRADUS_API int num_threads();
/// Obeyed at once. Error for less than 1.
GRADUS_API void set_num_threads(int n);

/// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline". The best that the processor has, unless
/// GRADUS_ISA pins a lower one; pinning one that the processor lacks, or an unknown name, is an Error at first use.
GRADUS_API const char* instruction_set();

}  // namespace gradus
