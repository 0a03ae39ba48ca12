// The resident memory, in bytes, at the busiest moment of training on a long sequence. The kernel keeps it for the
// whole process: ask for one case at a time.
#include <fstream>

#include "bench.h"

using namespace gradus;

namespace bench {
namespace {

constexpr std::int64_t length = 16384, d_model = 512, heads = 8;

double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  throw Error("gradus_bench: /proc/self/status does not tell VmHWM");
}

/// Two steps: the gradients of the first are still there at the second.
template <class Module, class Forward>
void train(const char* name, const Module& net, const Forward& forward) {
  if (!wanted(name)) return;
  optim::SGD opt(net.parameters(), {.lr = 1e-3});
  const Tensor x = randn({1, length, d_model}, {.requires_grad = true});
  for (int step = 0; step < 2; ++step) {
    forward(x).sum().backward();
    opt.step();
  }
  std::printf("%s\t%.0f\n", name, peak_bytes());
}

}  // namespace

void memory() {
  const nn::MultiHeadAttention net(heads, d_model);
  const auto split = [](const Tensor& x) { return x.view({1, length, heads, d_model / heads}).transpose(1, 2); };
  if (wanted("memory_mask_16384")) {
    const Tensor mask = nn::subsequent_mask(length);  // 256 MiB itself
    train("memory_mask_16384", net, [&](const Tensor& x) { return net(x, x, x, mask); });
  }
  train("memory_causal_16384", net, [&](const Tensor& x) {
    const Tensor y = scaled_dot_product_attention(split(net.linears[0](x)), split(net.linears[1](x)),
                                                  split(net.linears[2](x)), {.is_causal = true});
    return net.linears[3](y.transpose(1, 2).reshape({1, length, d_model}));
  });
}

}  // namespace bench
