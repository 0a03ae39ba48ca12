#pragma once
// Tables of misuse: each call is refused with its exact text, changes nothing and leaves nothing alive.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "core_values.h"
#include "throws.h"

namespace gradus::test {

struct Misuse {
  std::function<void()> call;
  const char* text;
};

/// `watched` are tensors that the calls touch: neither their values nor their gradients may change.
inline void check_texts(const std::vector<Misuse>& table, const std::vector<Tensor>& watched = {}) {
  std::vector<Tensor> values, grads;
  for (const Tensor& x : watched) {
    values.push_back(x.detach().clone());
    grads.push_back(x.grad().defined() ? x.grad().clone() : Tensor());
  }
  const LiveObjects before = live_objects();
  for (const Misuse& misuse : table) {
    CHECK(error_of(misuse.call) == std::string(misuse.text));
    CHECK(live_objects() == before);
    for (std::size_t i = 0; i < watched.size(); ++i) {
      CHECK(same(watched[i].detach(), values[i]));
      CHECK(watched[i].grad().defined() == grads[i].defined());
      if (grads[i].defined()) CHECK(same(watched[i].grad(), grads[i]));
    }
  }
}

}  // namespace gradus::test
