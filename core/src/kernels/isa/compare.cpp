// Comparisons, selection and conversion between element types. Exact, so plain loops serve: the compiler vectorises
// them.
#include "families.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

template <class T, class F>
BinaryRun compare_of(F) {
  return [](i64 n, const void* a_, i64 sa, const void* b_, i64 sb, void* y_, i64 sy) {
    const T* a = static_cast<const T*>(a_);
    const T* b = static_cast<const T*>(b_);
    bool* y = static_cast<bool*>(y_);
    if (sa == 1 && sb == 1 && sy == 1)
      for (i64 i = 0; i < n; ++i) y[i] = F{}(a[i], b[i]);
    else if (sa == 1 && sb == 0 && sy == 1)
      for (i64 i = 0, c = 0; i < n; ++i) y[i] = F{}(a[i], b[c]);
    else
      for (i64 i = 0; i < n; ++i) y[i * sy] = F{}(a[i * sa], b[i * sb]);
  };
}

template <class T>
BinaryRun compare_for(Compare op) {
  switch (op) {
    case Compare::Eq:
      return compare_of<T>([](T a, T b) { return a == b; });
    case Compare::Ne:
      return compare_of<T>([](T a, T b) { return a != b; });
    case Compare::Lt:
      return compare_of<T>([](T a, T b) { return a < b; });
    case Compare::Le:
      return compare_of<T>([](T a, T b) { return a <= b; });
    case Compare::Gt:
      return compare_of<T>([](T a, T b) { return a > b; });
    case Compare::Ge:
      return compare_of<T>([](T a, T b) { return a >= b; });
  }
  return nullptr;
}

template <class T>
void select_run(i64 n, const bool* c, i64 sc, const void* a_, i64 sa, const void* b_, i64 sb, void* y_, i64 sy) {
  const T* a = static_cast<const T*>(a_);
  const T* b = static_cast<const T*>(b_);
  T* y = static_cast<T*>(y_);
  if (sc == 1 && sa == 1 && sb == 1 && sy == 1) {
    for (i64 i = 0; i < n; ++i) {
      const T u = a[i], v = b[i];
      y[i] = c[i] ? u : v;
    }
  } else {
    for (i64 i = 0; i < n; ++i) {
      const T u = a[i * sa], v = b[i * sb];
      y[i * sy] = c[i * sc] ? u : v;
    }
  }
}

template <class To, class From>
inline To converted(From x) {
  return static_cast<To>(x);
}
// Towards zero; NaN and what does not fit give 0.
template <>
inline i64 converted<i64, double>(double x) {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<i64>(x) : 0;
}
template <>
inline i64 converted<i64, float>(float x) {
  return converted<i64, double>(static_cast<double>(x));
}
template <>
inline bool converted<bool, double>(double x) {
  return x != 0;
}
template <>
inline bool converted<bool, float>(float x) {
  return x != 0;
}

template <class From, class To>
void cast_run(i64 n, const void* x_, i64 sx, void* y_, i64 sy, double, double) {
  const From* x = static_cast<const From*>(x_);
  To* y = static_cast<To*>(y_);
  if (sx == 1 && sy == 1) {
    for (i64 i = 0; i < n; ++i) y[i] = converted<To>(x[i]);
  } else if (sx == 0 && sy == 1) {
    const To value = converted<To>(x[0]);
    for (i64 i = 0; i < n; ++i) y[i] = value;
  } else {
    for (i64 i = 0; i < n; ++i) y[i * sy] = converted<To>(x[i * sx]);
  }
}

template <class From>
UnaryRun cast_from(DType to) {
  switch (to) {
    case DType::Float32:
      return cast_run<From, float>;
    case DType::Float64:
      return cast_run<From, double>;
    case DType::Int64:
      return cast_run<From, i64>;
    case DType::Bool:
      return cast_run<From, bool>;
  }
  return nullptr;
}

}  // namespace

BinaryRun compare(Compare op, DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return compare_for<float>(op);
    case DType::Float64:
      return compare_for<double>(op);
    case DType::Int64:
      return compare_for<i64>(op);
    case DType::Bool:
      return compare_for<bool>(op);
  }
  return nullptr;
}

SelectRun select(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return select_run<float>;
    case DType::Float64:
      return select_run<double>;
    case DType::Int64:
      return select_run<i64>;
    case DType::Bool:
      return select_run<bool>;
  }
  return nullptr;
}

UnaryRun cast(DType from, DType to) {
  switch (from) {
    case DType::Float32:
      return cast_from<float>(to);
    case DType::Float64:
      return cast_from<double>(to);
    case DType::Int64:
      return cast_from<i64>(to);
    case DType::Bool:
      return cast_from<bool>(to);
  }
  return nullptr;
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
