#include "train.h"

#include <gradus/loss.h>
#include <gradus/optim/adam.h>
#include <gradus/optim/clip.h>
#include <gradus/optim/schedules.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "batch.h"

namespace copy_task {

using namespace gradus;

nn::Transformer make_model(const Options& options, const Vocabulary& vocabulary) {
  return nn::Transformer(vocabulary.size(), vocabulary.size(),
                         {.d_model = options.d_model,
                          .heads = options.heads,
                          .layers = options.layers,
                          .d_ff = options.d_ff,
                          .dropout = options.dropout,
                          .norm_first = true,  // trains at a higher rate and with a shorter warm-up
                          .max_len = options.max_length + 1});
}

Training train(nn::Transformer& model, Data& data, const Options& options,
               const std::function<void(const Training&)>& after_step, const std::function<bool()>& stop) {
  optim::Adam optimizer(model.named_parameters(), {.lr = options.lr, .betas = {0.9, 0.98}, .eps = 1e-9});
  const optim::WarmupCosineLR rate(options.lr, {.warmup = options.steps / 10, .total = options.steps});

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Training state;
  const std::int64_t points = std::min<std::int64_t>(options.steps, 60);
  std::int64_t first_of_point = 0;
  double sum = 0;

  // Random batches nearly always have a sequence of the greatest length. With one in every batch, all steps are alike
  // and recycle the same memory. Of a file's lines the longest may be far longer than the others.
  const std::size_t width = data.training_size() > 0 ? 0 : static_cast<std::size_t>(options.max_length) + 1;

  model.train();
  while (state.steps < options.steps && !state.diverged && !stop()) {
    std::vector<Sequence> inputs;
    for (std::int64_t i = 0; i < options.batch; ++i) inputs.push_back(data.draw());
    const Batch batch = make_batch(inputs, options.task, width);

    rate.apply(optimizer, state.steps);
    optimizer.zero_grad();
    const Tensor logits = model(batch.source, batch.decoder_input, batch.source_mask, batch.decoder_mask);
    const Tensor loss =
        cross_entropy(logits.flatten(0, 1), batch.expected.flatten(), {.ignore_index = pad_token});  // padding is free
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();

    ++state.steps;
    state.loss = loss.item();
    state.diverged = !std::isfinite(state.loss);
    state.tokens += batch.tokens;
    state.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    sum += state.loss;
    if (state.steps * points / options.steps > std::ssize(state.curve)) {
      state.curve.push_back({state.steps, sum / static_cast<double>(state.steps - first_of_point)});
      first_of_point = state.steps;
      sum = 0;
    }
    after_step(state);
  }
  return state;
}

}  // namespace copy_task
