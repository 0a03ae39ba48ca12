#include <gradus/elementwise.h>
#include <gradus/factories.h>
#include <gradus/layout.h>
#include <gradus/nn/masks.h>

#include "check.h"

namespace gradus::nn {

Tensor subsequent_mask(std::int64_t n) {
  check(n >= 0, "subsequent_mask", "n must not be negative, is ", n);
  const Tensor position = arange(n);
  return (position.unsqueeze(0) <= position.unsqueeze(1)).unsqueeze(0);  // key ≤ query
}

Tensor padding_mask(const Tensor& tokens, std::int64_t pad) {
  check_defined(tokens, "padding_mask", "tokens");
  check(tokens.dim() == 2, "padding_mask", "tokens must be [B, L], are ", tokens);
  return (tokens != pad).unsqueeze(1);
}

}  // namespace gradus::nn
