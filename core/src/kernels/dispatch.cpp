// Which instruction set's table is used. GRADUS_KERNELS_X86 is the highest x86-64 level that was compiled: 4, 3, or
// none.
#include <gradus/error.h>
#include <gradus/threads.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels.h"

#if GRADUS_KERNELS_X86
#include <cpuid.h>
#endif

namespace gradus {
namespace kernels {

extern const Table table_baseline;
#if GRADUS_KERNELS_X86
extern const Table table_x86_64_v3;
#endif
#if GRADUS_KERNELS_X86 >= 4
extern const Table table_x86_64_v4;
#endif

namespace {

struct Choice {
  const char* name;
  const Table* table;
  bool (*available)();
};

#if GRADUS_KERNELS_X86
// The features are asked for one by one, since older compilers do not know the names of the levels; f16c, movbe and
// lzcnt come straight from cpuid. The others imply that the system saves the wide registers.
bool has_v3() {
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2")))
    return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned movbe = 1u << 22, f16c = 1u << 29, lzcnt = 1u << 5;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & movbe) == 0 || (c & f16c) == 0) return false;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & lzcnt) != 0;
}
#endif
#if GRADUS_KERNELS_X86 >= 4
bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

// The best first.
constexpr Choice choices[] = {
#if GRADUS_KERNELS_X86 >= 4
    {"x86-64-v4", &table_x86_64_v4, has_v4},
#endif
#if GRADUS_KERNELS_X86
    {"x86-64-v3", &table_x86_64_v3, has_v3},
#endif
    {"baseline", &table_baseline, [] { return true; }},
};

const Choice& choose() {
  const char* pin = std::getenv("GRADUS_ISA");
  std::string available;
  for (const Choice& choice : choices) {
    if (!choice.available()) continue;
    if (!pin || *pin == '\0' || std::string(pin) == choice.name) return choice;
    available += (available.empty() ? "" : ", ") + std::string(choice.name);
  }
  throw Error("GRADUS_ISA: '" + std::string(pin) + "' is not available here; available: " + available);
}

// Set at first use; a race stores the same value twice.
std::atomic<const Choice*> chosen{nullptr};

const Choice& current() {
  const Choice* choice = chosen.load(std::memory_order_relaxed);
  if (!choice) chosen.store(choice = &choose(), std::memory_order_relaxed);
  return *choice;
}

}  // namespace

const Table& table() { return *current().table; }

}  // namespace kernels

const char* instruction_set() { return kernels::current().name; }

}  // namespace gradus
