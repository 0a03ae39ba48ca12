#pragma once
// What the losses share.
#include <gradus/loss.h>

#include "internal.h"

namespace gradus::detail {

/// What `reduction` makes of the elements of a loss.
Tensor reduced(const Tensor& losses, Reduction reduction);
/// q·v, of one shape, but 0 where q is 0, whatever v is : dq = v·G, dv = q·G, by the same rule.
Tensor weighted(const Tensor& q, const Tensor& v);

}  // namespace gradus::detail
