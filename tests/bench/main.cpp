// The speed comparison's own side: prints one line per case, name<TAB>seconds for one step (best of the repeats), as
// peer/peer_torch.cpp does for the same work in libtorch; cases that have their reference in this program add its
// seconds in a third column. README.md says what a step of each case is.
//
//   gradus_bench [--section NAME] [seconds for each case] [only the cases with this in their name, or =NAME]
//   gradus_bench --isa                 the instruction set in use
//
// The section is `peer` (what libtorch does too), unless `products`, `bandwidth`, `growth` or `memory` is asked for.
// Threads come from GRADUS_NUM_THREADS or, where that is not set, OMP_NUM_THREADS.
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench.h"

namespace {

struct Section {
  const char* name;
  void (*run)();
};

void peer() {
  bench::training();
  bench::single_ops();
}

constexpr Section sections[] = {{"peer", peer},
                                {"products", bench::products},
                                {"bandwidth", bench::bandwidth},
                                {"growth", bench::growth},
                                {"memory", bench::memory}};

const Section* find(const std::string& name) {
  for (const Section& section : sections)
    if (name == section.name) return &section;
  return nullptr;
}

int usage() {
  std::fprintf(stderr,
               "usage: gradus_bench [--section peer|products|bandwidth|growth|memory] [seconds for each case]\n"
               "                    [part of the names of the wanted cases, or =NAME]\n"
               "       gradus_bench --isa\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const Section* section = &sections[0];
  try {
    if (words == std::vector<std::string>{"--isa"}) {
      std::printf("%s\n", gradus::instruction_set());
      return 0;
    }
    if (words.size() > 1 && words[0] == "--section") {
      section = find(words[1]);
      words.erase(words.begin(), words.begin() + 2);
    }
    if (!words.empty()) bench::budget = std::atof(words[0].c_str());
    if (words.size() > 1) bench::only = words[1];
    if (!section || words.size() > 2 || bench::budget <= 0) return usage();
    const char* threads = std::getenv("OMP_NUM_THREADS");
    if (threads && !std::getenv("GRADUS_NUM_THREADS")) gradus::set_num_threads(std::atoi(threads));
    gradus::manual_seed(0);
    section->run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_bench: %s\n", error.what());
    return 1;
  }
}
