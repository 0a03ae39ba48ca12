// Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Block b of the
// stream (seed, offset) is the cipher of the counter offset + b under the key seed; each block is four words.
#include "families.h"
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 lanes = Lanes<double>::count;  // blocks in a vector, one a 64-bit lane
constexpr int vectors = 2;                   // computed side by side, to fill the time that a product takes
constexpr i64 blocks_at_once = vectors * lanes;
constexpr i64 words_at_once = 4 * blocks_at_once;

// The 64-bit products of the lower halves of the lanes.
GRADUS_INLINE VecU64 product(VecU64 a, VecU64 b) {
#if defined(__AVX512F__)
  return (VecU64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecU64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (VecU64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Lanes of a and b in turn: the lower or the upper half of each.
template <int from, int... l>
GRADUS_INLINE VecU64 interleaved(VecU64 a, VecU64 b, Indices<l...>) {
  return __builtin_shufflevector(a, b, (from + l / 2 + l % 2 * static_cast<int>(lanes))...);
}

// The words of `blocks_at_once` blocks with counters from `counter` on. Only the lower half of each lane counts during
// the rounds, so that what a product leaves in the upper half needs no clearing.
GRADUS_INLINE void philox_blocks(std::uint64_t seed, std::uint64_t counter, std::uint32_t* words) {
  VecU64 c0[vectors], c1[vectors], c2[vectors] = {}, c3[vectors] = {};
  for (int v = 0; v < vectors; ++v) {
    c0[v] = (VecU64)lane_numbers<double>() + (counter + static_cast<std::uint64_t>(v * lanes));
    c1[v] = c0[v] >> 32;
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  const VecU64 m0 = std::uint64_t{0xD2511F53} - VecU64{}, m1 = std::uint64_t{0xCD9E8D57} - VecU64{};
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      const VecU64 p0 = product(c0[v], m0), p1 = product(c2[v], m1);
      c0[v] = (p1 >> 32) ^ c1[v] ^ std::uint64_t{k0};
      c1[v] = p1;
      c2[v] = (p0 >> 32) ^ c3[v] ^ std::uint64_t{k1};
      c3[v] = p0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  // Two words to a lane, in the order in which memory has them.
  const auto joined = [](VecU64 first, VecU64 second) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (second & 0xffffffffu) | (first << 32);
#else
    return (first & 0xffffffffu) | (second << 32);
#endif
  };
  constexpr IndicesTo<static_cast<int>(lanes)>::Type all{};
  for (int v = 0; v < vectors; ++v, words += 4 * lanes) {
    const VecU64 low = joined(c0[v], c1[v]), high = joined(c2[v], c3[v]);
    const VecU64 out[2] = {interleaved<0>(low, high, all), interleaved<static_cast<int>(lanes / 2)>(low, high, all)};
    __builtin_memcpy(words, out, sizeof out);
  }
}

// y = dropped ? 0 : x·scale, for up to a buffer full of words.
template <class T>
GRADUS_INLINE void drop(i64 n, const std::uint32_t* words, std::uint32_t threshold, T scale, const T* x, T* y) {
  for (i64 i = 0; i < n; ++i) {
    const T kept = x[i] * scale;
    y[i] = words[i] < threshold ? T(0) : kept;
  }
}

template <class T>
void dropout_of(const DropoutField& field, i64 first, i64 n, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  const double limit = field.p * 4294967296.0;
  if (!(limit < 4294967295.5)) {  // p = 1: all dropped
    for (i64 i = 0; i < n; ++i) y[i] = T(0);
    return;
  }
  const std::uint32_t threshold = static_cast<std::uint32_t>(limit + 0.5);
  const T scale = static_cast<T>(1 / (1 - field.p));
  constexpr i64 buffered = 8 * words_at_once;
  alignas(64) std::uint32_t words[buffered];
  for (i64 i = 0; i < n; i += buffered) {
    const i64 count = n - i < buffered ? n - i : buffered;
    philox(field.seed, field.offset, first + i, count, words);
    drop(count, words, threshold, scale, x + i, y + i);
  }
}

}  // namespace

void philox(std::uint64_t seed, std::uint64_t offset, i64 first, i64 n, std::uint32_t* words) {
  std::uint64_t counter = offset + static_cast<std::uint64_t>(first / 4);
  i64 i = 0;
  for (; i + words_at_once <= n; i += words_at_once, counter += static_cast<std::uint64_t>(blocks_at_once))
    philox_blocks(seed, counter, words + i);
  if (i < n) {
    std::uint32_t rest[words_at_once];
    philox_blocks(seed, counter, rest);
    for (i64 j = 0; i + j < n; ++j) words[i + j] = rest[j];
  }
}

void dropout(DType dtype, const DropoutField& field, i64 first, i64 n, const void* x, void* y) {
  GRADUS_FLOATS(dropout_of, dtype, field, first, n, x, y);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
