// Products beside oneDNN's, with the same number of threads, in turn.
#include "bench.h"

#if GRADUS_BENCH_ONEDNN
#include <dlfcn.h>
#include <dnnl.hpp>
#endif

using namespace gradus;

namespace bench {

#if GRADUS_BENCH_ONEDNN

namespace {

/// oneDNN's threads are OpenMP's, which reads its environment before main.
void same_number_of_threads() {
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(num_threads());
}

/// a [m, k] times b [k, n] by a primitive of oneDNN's that was prepared before.
class Prepared {
 public:
  Prepared(const Tensor& a, const Tensor& b, const Tensor& c)
      : a_(of(a)), b_(of(b)), c_(of(c)), product_(describe(a_.get_desc(), b_.get_desc(), c_.get_desc())) {}
  void operator()() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::memory of(const Tensor& x) {
    const dnnl::memory::desc layout({x.size(0), x.size(1)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
    return {layout, engine_, x.data<float>()};
  }
  dnnl::matmul::primitive_desc describe(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                        const dnnl::memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine_, a, b, c};
#else
    return {dnnl::matmul::desc(a, b, c), engine_};
#endif
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::memory a_, b_, c_;
  dnnl::matmul product_;
};

void product(std::int64_t m, std::int64_t k, std::int64_t n) {
  const std::string name = "product_" + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  if (!wanted(name)) return;
  const Tensor a = randn({m, k}), b = randn({k, n});
  Tensor c = zeros({m, n});
  Prepared prepared(a, b, c);
  const auto ours = [&] { matmul(a, b); };
  const auto by_primitive = [&] { prepared(); };
  const auto by_sgemm = [&] {
    dnnl_sgemm('N', 'N', m, n, k, 1, a.data<float>(), k, b.data<float>(), n, 0, c.data<float>(), n);
  };
  const auto check = [&](const char* call) {
    if (amax(abs(matmul(a, b) - c)).item() > 1e-5 * static_cast<double>(k))
      throw Error(std::string("gradus_bench: ") + call + " of oneDNN computes something else");
    c.fill_(0);
  };
  by_primitive();
  check("the primitive");
  by_sgemm();
  check("dnnl_sgemm");
  Both best = best_of_both(block_of(ours), block_of(by_primitive));
  const Both again = best_of_both(block_of(ours), block_of(by_sgemm));
  best = {std::min(best.ours, again.ours), std::min(best.reference, again.reference)};
  report(name, best);
}

}  // namespace

void products() {
  const NoGradGuard guard;
  same_number_of_threads();
  product(512, 512, 512);
  product(64, 64, 64);
  product(800, 512, 2048);
}

#else

void products() { throw Error("built without oneDNN: install libdnnl-dev and configure anew"); }

#endif

}  // namespace bench
