// One step of an optimizer on one parameter, in a single pass over its numbers.
#include "families.h"
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Adam (Kingma & Ba), its decoupled weight decay (AdamW) and amsgrad (v_max not null), in PyTorch's order:
// m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← θ - lr/c₁ · m/(√v/√c₂ + eps).
template <class T>
void adam_of(i64 n, const AdamStep& s, void* param_, const void* grad_, void* m_, void* v_, void* v_max_) {
  T* param = static_cast<T*>(param_);
  const T* grad = static_cast<const T*>(grad_);
  T* ms = static_cast<T*>(m_);
  T* vs = static_cast<T*>(v_);
  T* v_max = static_cast<T*>(v_max_);
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = s.decoupled ? T(0) : static_cast<T>(s.weight_decay);
  const T keep = s.decoupled ? static_cast<T>(1 - s.lr * s.weight_decay) : T(1);
  const T b1 = static_cast<T>(s.beta1), rest1 = static_cast<T>(1 - s.beta1);
  const T b2 = static_cast<T>(s.beta2), rest2 = static_cast<T>(1 - s.beta2);
  const T rate = static_cast<T>(s.lr / s.correction1);
  const T root = static_cast<T>(1 / __builtin_sqrt(s.correction2));
  const T eps = static_cast<T>(s.eps);
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    Vec<T> p = load_up_to(param + i, count);
    Vec<T> g = load_up_to(grad + i, count) * sign;
    if (decay != T(0)) g += p * decay;
    p *= keep;
    const Vec<T> m = load_up_to(ms + i, count) * b1 + g * rest1;
    Vec<T> v = load_up_to(vs + i, count) * b2 + g * g * rest2;
    store_up_to<T>(ms + i, m, count);
    store_up_to<T>(vs + i, v, count);
    if (v_max) {
      const Vec<T> old = load_up_to(v_max + i, count);
      v = ((old > v) | (old != old)) ? old : v;
      store_up_to<T>(v_max + i, v, count);
    }
    store_up_to<T>(param + i, p - rate * (m / (sqrt(v) * root + eps)), count);
  });
}

// d = g + λθ; with momentum: b ← μb + (1-τ)d (b = d at first), d = b, or d + μb with nesterov; θ ← θ - lr·d.
template <class T>
void sgd_of(i64 n, const SgdStep& s, void* param_, const void* grad_, void* buffer_) {
  T* param = static_cast<T*>(param_);
  const T* grad = static_cast<const T*>(grad_);
  T* buffer = static_cast<T*>(buffer_);
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = static_cast<T>(s.weight_decay);
  const T momentum = static_cast<T>(s.momentum), rest = static_cast<T>(1 - s.dampening);
  const T lr = static_cast<T>(s.lr);
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    const Vec<T> p = load_up_to(param + i, count);
    Vec<T> d = load_up_to(grad + i, count) * sign;
    if (decay != T(0)) d += p * decay;
    if (s.momentum != 0) {
      const Vec<T> b = s.first ? d : load_up_to(buffer + i, count) * momentum + d * rest;
      store_up_to<T>(buffer + i, b, count);
      d = s.nesterov ? d + b * momentum : b;
    }
    store_up_to<T>(param + i, p - d * lr, count);
  });
}

}  // namespace

void adam(DType dtype, i64 n, const AdamStep& s, void* param, const void* grad, void* m, void* v, void* v_max) {
  GRADUS_FLOATS(adam_of, dtype, n, s, param, grad, m, v, v_max);
}

void sgd(DType dtype, i64 n, const SgdStep& s, void* param, const void* grad, void* buffer) {
  GRADUS_FLOATS(sgd_of, dtype, n, s, param, grad, buffer);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
