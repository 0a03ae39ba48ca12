#pragma once
// What the tests of the engine share: tensors with known numbers, the layouts an input can have, and comparisons.
#include <gradus/core.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gradus::test {

/// Under a sanitizer the largest cases are a tenth of their size: it makes everything ten times as slow and as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::int64_t smaller = 10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr std::int64_t smaller = 10;
#else
inline constexpr std::int64_t smaller = 1;
#endif
#else
inline constexpr std::int64_t smaller = 1;
#endif

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// Float64 numbers.
inline Tensor f64(const NestedList& data) { return tensor(data, {.dtype = Float64}); }
/// The same as a leaf that requires grad.
inline Tensor leaf(const NestedList& data) { return tensor(data, {.dtype = Float64, .requires_grad = true}); }
/// start, start + 1, … in Float64.
inline Tensor count(const Shape& shape, double start = 0) {
  return reshape(arange(start, start + static_cast<double>(shape.numel()), 1, {.dtype = Float64}), shape);
}
/// Uniform numbers that depend on the seed alone.
inline Tensor uniform(const Shape& shape, double low, double high, std::uint64_t seed = 1, DType dtype = Float64) {
  Generator generator(seed);
  Tensor x = empty(shape, {.dtype = dtype});
  uniform_(x, low, high, &generator);
  return x;
}

/// How the elements of an input lie in memory.
enum class Layout { Contiguous, Transposed, Sliced, Expanded };
inline constexpr Layout layouts[] = {Layout::Contiguous, Layout::Transposed, Layout::Sliced, Layout::Expanded};
inline const char* name_of(Layout layout) {
  constexpr const char* names[] = {"contiguous", "transposed", "sliced", "expanded"};
  return names[static_cast<int>(layout)];
}

/// Uniform numbers of the shape in the layout: a view of a leaf that requires grad. Rank 0 knows one layout only, and
/// rank 1 is "transposed" as a column.
inline Tensor laid_out(const Shape& shape, Layout layout, double low, double high, std::uint64_t seed) {
  const auto base = [&](const Shape& s) { return uniform(s, low, high, seed).requires_grad_(); };
  if (shape.empty()) return base(shape);
  switch (layout) {
    case Layout::Contiguous:
      break;
    case Layout::Transposed: {
      if (shape.size() == 1) return select(base({shape[0], 2}), 1, 1);
      Shape swapped = shape;
      std::swap(swapped[0], swapped[swapped.size() - 1]);
      return transpose(base(swapped), 0, -1);
    }
    case Layout::Sliced: {
      Shape wide = shape;
      for (std::int64_t& size : wide) size = 2 * size + 1;
      Tensor x = base(wide);
      for (int i = 0; i < shape.size(); ++i) x = slice(x, i, 1, {}, 2);
      return x;
    }
    case Layout::Expanded: {
      Shape narrow = shape;
      narrow[0] = 1;
      return expand(base(narrow), shape);
    }
  }
  return base(shape);
}

/// Equal shapes, dtypes and bits (any NaN is like any other).
inline bool same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.dtype() == Int64) return a.to_vector<std::int64_t>() == b.to_vector<std::int64_t>();
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool both_nan = std::isnan(x[i]) && std::isnan(y[i]);
    if (!both_nan && (x[i] != y[i] || std::signbit(x[i]) != std::signbit(y[i]))) return false;
  }
  return true;
}

/// The largest |a - b|/(1 + |b|) over the elements; infinite where shapes differ or only one is NaN.
inline double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.shape() != b.shape()) return infinity;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double d = std::abs(x[i] - y[i]) / (1 + std::abs(y[i]));
    worst = std::isnan(d) ? infinity : std::max(worst, d);
  }
  return worst;
}
inline bool close(const Tensor& a, const Tensor& b, double tolerance = 1e-12) { return distance(a, b) <= tolerance; }

inline bool any_nan(const Tensor& x) { return any(x != x); }

/// The gradient of Σ g∘y with respect to x (Σ y without g).
inline Tensor gradient_of(const Tensor& y, const Tensor& x, const Tensor& g = {}) {
  return grad({y}, {x}, {g.defined() ? g : ones_like(y)}, {.retain_graph = true})[0];
}

/// Restores the number of threads.
class ThreadsGuard {
 public:
  ThreadsGuard() : before_(num_threads()) {}
  ~ThreadsGuard() { set_num_threads(before_); }
  ThreadsGuard(const ThreadsGuard&) = delete;
  ThreadsGuard& operator=(const ThreadsGuard&) = delete;

 private:
  int before_;
};

}  // namespace gradus::test
