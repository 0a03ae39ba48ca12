// In-place forms. Each computes the out-of-place op, writes the result over the tensor, and gives the tensor the
// result's place in the history.
#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/mask.h>

#include "internal.h"

namespace gradus {

void detail::move_to(Tensor& x, const Ref<Node>& node) {
  auto& impl = x.impl();
  if (impl.node && impl.node->sink == &impl) {
    const SpinGuard guard(impl.node->lock);
    impl.node->sink = nullptr;
    if (node) node->sink = &impl;
  }
  impl.node = node;
}

namespace {

/// What an op threw, in the words of its in-place form.
Error in_words_of(const std::string& in_place, const Error& error) {
  const std::string plain = in_place.substr(0, in_place.size() - 1), text = error.what();
  if (text.starts_with(in_place + ':')) return error;
  return Error(in_place + (text.starts_with(plain + ':') ? text.substr(plain.size()) : ": " + text));
}

/// Another handle on x's data for the op to see: if it saves x, the changed version will tell, and no cycle can form.
Tensor before(Tensor& x, const char* name, std::initializer_list<const Tensor*> sources) {
  for (const Tensor* source : sources) check_defined(*source, name, "the other tensor");
  detail::check_in_place(x, name, sources);
  return detail::alias(x, x.impl().node);
}

/// x = value, with its history; `old` is what x was.
void overwrite(Tensor& x, const char* name, const Tensor& old, const Tensor& value) {
  check(value.shape() == x.shape(), name, "the result ", value.shape(), " does not fit into ", x);
  check(promote(value.dtype(), x.dtype()) == x.dtype() || is_floating(x.dtype()), name, "a result of ", value.dtype(),
        " cannot be written into ", x.dtype(), " ", x, "; use the out-of-place op, or convert with to()");
  Tensor fitting = to(value, x.dtype());
  // y = c, whatever x was :  dx = 0
  if (grad_enabled() && x.requires_grad() && !fitting.requires_grad()) {
    fitting =
        record("overwritten", detail::alias(fitting, nullptr), wrt(old, [](const Tensor& g) { return zeros_like(g); }));
  }
  detail::write(x, fitting);
  detail::bump_version(x);
  if (grad_enabled()) detail::move_to(x, fitting.impl().node);
}

template <class Op>
Tensor& assign(Tensor& x, const char* name, std::initializer_list<const Tensor*> sources, Op op) {
  const Tensor old = before(x, name, sources);
  Tensor value;
  try {
    value = op(old);
  } catch (const Error& error) {
    throw in_words_of(name, error);
  }
  overwrite(x, name, old, value);
  return x;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other) {
  return assign(*this, "add_", {&other}, [&](const Tensor& x) { return gradus::add(x, other); });
}
Tensor& Tensor::sub_(const Tensor& other) {
  return assign(*this, "sub_", {&other}, [&](const Tensor& x) { return gradus::sub(x, other); });
}
Tensor& Tensor::mul_(const Tensor& other) {
  return assign(*this, "mul_", {&other}, [&](const Tensor& x) { return gradus::mul(x, other); });
}
Tensor& Tensor::div_(const Tensor& other) {
  return assign(*this, "div_", {&other}, [&](const Tensor& x) { return gradus::div(x, other); });
}
Tensor& Tensor::add_(Scalar other) {
  return assign(*this, "add_", {}, [&](const Tensor& x) { return gradus::add(x, other); });
}
Tensor& Tensor::sub_(Scalar other) {
  return assign(*this, "sub_", {}, [&](const Tensor& x) { return gradus::sub(x, other); });
}
Tensor& Tensor::mul_(Scalar other) {
  return assign(*this, "mul_", {}, [&](const Tensor& x) { return gradus::mul(x, other); });
}
Tensor& Tensor::div_(Scalar other) {
  return assign(*this, "div_", {}, [&](const Tensor& x) { return gradus::div(x, other); });
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  return assign(*this, "masked_fill_", {&mask}, [&](const Tensor& x) { return gradus::masked_fill(x, mask, value); });
}
Tensor& Tensor::copy_(const Tensor& source) {
  return assign(*this, "copy_", {&source}, [&](const Tensor& x) {
    check(detail::broadcasts_to(source.shape(), x.shape()), "copy_", "the source ", source, " does not broadcast to ",
          x);
    const Tensor values = gradus::expand(gradus::to(source, x.dtype()), x.shape());
    // Memory that is about to be overwritten is read first; and the source's place in the history is the source's own.
    const bool own_place = values.is_same(source) && source.requires_grad();
    return own_place || values.shares_storage(x) ? gradus::clone(values) : values;
  });
}
Tensor& Tensor::fill_(Scalar value) {
  return assign(*this, "fill_", {}, [&](const Tensor& x) { return full(x.shape(), value, {.dtype = x.dtype()}); });
}
Tensor& Tensor::zero_() {
  return assign(*this, "zero_", {}, [](const Tensor& x) { return zeros_like(x); });
}

}  // namespace gradus
