#pragma once
// What the sweep tells an observer; see tape.cpp.
#include <gradus/detail/node.h>
#include <gradus/tape.h>

#include <optional>
#include <span>

namespace gradus::detail {

/// This thread's observer, if there is one.
extern constinit thread_local const BackwardObserver* observer;

/// Shows a step, and gives the view of its node for its contributions.
std::optional<TapeNode> show_step(Node& node, const Tensor& upstream, std::span<const Tensor> gradients);
void show_contribution(const TapeNode& node, std::size_t slot, const Node& input, const Tensor& gradient,
                       const Tensor& before);

}  // namespace gradus::detail
