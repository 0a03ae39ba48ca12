#pragma once
// All of gradus: the engine, the modules, the optimizers. A program that wants less includes less.
#include <gradus/core.h>
#include <gradus/nn/activation.h>
#include <gradus/nn/attention.h>
#include <gradus/nn/dropout.h>
#include <gradus/nn/embedding.h>
#include <gradus/nn/feed_forward.h>
#include <gradus/nn/init.h>
#include <gradus/nn/layer_norm.h>
#include <gradus/nn/linear.h>
#include <gradus/nn/masks.h>
#include <gradus/nn/module.h>
#include <gradus/nn/positional_encoding.h>
#include <gradus/nn/sequential.h>
#include <gradus/nn/transformer.h>
#include <gradus/nn/transformer_layers.h>
#include <gradus/optim/adam.h>
#include <gradus/optim/clip.h>
#include <gradus/optim/schedules.h>
#include <gradus/optim/sgd.h>

// Programs that compute with a model want std::sqrt and its like beside it.
#include <cmath>
