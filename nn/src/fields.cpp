#include <gradus/nn/fields.h>
#include <gradus/nn/module.h>

namespace gradus::nn {

Fields::~Fields() = default;

Fields& Fields::operator()(std::string_view name, Tensor& parameter) {
  if (parameter.defined()) on_parameter(name, parameter);
  return *this;
}

Fields& Fields::buffer(std::string_view name, Tensor& buffer, const BufferOptions& options) {
  if (buffer.defined()) on_buffer(name, buffer, options);
  return *this;
}

Fields& Fields::operator()(std::string_view name, Module& module) {
  on_enter(name, module);
  around_.push_back(name);
  module.fields(*this);
  around_.pop_back();
  on_leave(module);
  return *this;
}

std::string Fields::item(std::string_view name, std::size_t i) {
  return name.empty() ? std::to_string(i) : std::string(name) + '.' + std::to_string(i);
}

std::string Fields::path(std::string_view name) const {
  std::string path;
  for (const std::string_view part : around_)
    if (!part.empty()) (path += part) += '.';
  return path += name;
}

}  // namespace gradus::nn
