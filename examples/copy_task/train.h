#pragma once
// The training loop.
#include <gradus/nn/transformer.h>

#include <functional>
#include <vector>

#include "data.h"

namespace copy_task {

/// An encoder-decoder of the sizes asked for. Draws its starting values, so seed first.
gradus::nn::Transformer make_model(const Options& options, const Vocabulary& vocabulary);

/// The mean loss of some steps in a row.
struct CurvePoint {
  std::int64_t step;  ///< the last of them, counted from 1
  double loss;
};

/// How far training is, or got.
struct Training {
  std::int64_t steps = 0;  ///< done
  double loss = 0;         ///< of the last step
  std::int64_t tokens = 0;
  double seconds = 0;
  std::vector<CurvePoint> curve;  ///< at most 60 points, however many steps
  bool diverged = false;          ///< the loss became NaN or infinite, which ended training
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// Takes options.steps steps, fewer where `stop` says so after one. `after_step` sees the state after each.
Training train(gradus::nn::Transformer& model, Data& data, const Options& options,
               const std::function<void(const Training&)>& after_step, const std::function<bool()>& stop);

}  // namespace copy_task
