// The pool, and that no number of threads changes a bit.
#include <doctest/doctest.h>

#include <gradus/threads.h>
#include <atomic>
#include <thread>

#include "../../core/src/kernels/parallel.h"
#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

TEST_CASE("kernels: the pool") {
  const int before = num_threads();
  for (int threads : {1, 2, 3, 8, 2}) {
    set_num_threads(threads);
    CHECK(num_threads() == threads);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::atomic<int>> hits(97);
      parallel(97, [&](i64 i) {
        parallel(3, [&](i64) { hits[static_cast<std::size_t>(i)].fetch_add(1, std::memory_order_relaxed); });  // nested
      });
      bool once = true;
      for (const auto& h : hits) once = once && h.load() == 3;
      CHECK(once);
    }
  }
  // Callers on several threads at once: one gets the pool, the others work alone.
  std::vector<std::thread> callers;
  std::atomic<i64> total{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) parallel(10, [&](i64 i) { total += i; });
    });
  for (auto& caller : callers) caller.join();
  CHECK(total == 4 * 100 * 45);
  CHECK_THROWS_WITH(set_num_threads(0), "set_num_threads: 0 is not between 1 and 1024");
  set_num_threads(before);
}

TEST_CASE("kernels: the same bits for any number of threads") {
  const int before = num_threads();
  const auto x = numbers<float>(300 * 700), w = numbers<float>(700 * 200, 2);
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<float> out(300 * 200 + 700 + 1 + 300 * 700);
    const i64 zero = 0;
    kernels::gemm(Float32, 1, {300, 200, 700, x.data(), 700, 1, w.data(), 200, 1, out.data(), 200, false, nullptr},
                  &zero, &zero, 0);
    kernels::reduce(Reduce::Sum, Float32, 1, 300, 700, x.data(), &out[300 * 200]);
    kernels::reduce(Reduce::Sum, Float32, 1, 300 * 700, 1, x.data(), &out[300 * 200 + 700]);
    kernels::softmax(Float32, 300, 700, x.data(), &out[300 * 200 + 701]);
    results.push_back(out);
  }
  CHECK(same_bits(results[0].data(), results[1].data(), results[0].size() * 4));
  CHECK(same_bits(results[0].data(), results[2].data(), results[0].size() * 4));
  set_num_threads(before);
}
