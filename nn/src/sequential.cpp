#include <gradus/nn/sequential.h>

#include "check.h"

namespace gradus::nn {

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor y = x;
  for (const Step& step : steps_) y = step->call(y);
  return y;
}

void Sequential::fields(Fields& f) {
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (Module* module = steps_[i]->module()) f(std::to_string(i), *module);
}

void* Sequential::find(std::size_t i, const std::type_info& type) const {
  check(i < steps_.size(), "Sequential::get", "there is no layer ", i, " among ", steps_.size());
  void* layer = steps_[i]->get(type);
  check(layer != nullptr, "Sequential::get", "layer ", i, " is of another type; ask for the type that was put in");
  return layer;
}

}  // namespace gradus::nn
