// A module as text: one line a module, with what it holds itself.
#include <gradus/nn/module.h>

#include <cstdlib>
#include <memory>
#include <ostream>
#include <typeinfo>
#include <unordered_set>
#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

#include "walk.h"

namespace gradus::nn {
namespace {

/// "1234567" as "1,234,567".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

class Tree final : public Fields {
 public:
  std::string text;
  std::int64_t total = 0;

 private:
  void on_enter(std::string_view name, Module& module) override {
    flush();
    if (name.empty() && depth_ > 0) {  // listed without a name of its own: its members stand among its owner's
      ++unnamed_;
      return;
    }
    line_ = std::string(2 * depth_, ' ');
    if (!name.empty()) (line_ += name) += ": ";
    line_ += module.type_name();
    if (const std::string extra = module.extra(); !extra.empty()) line_ += '(' + extra + ')';
    ++depth_;
  }
  void on_leave(Module&) override {
    flush();
    if (unnamed_ > 0) {
      --unnamed_;
    } else {
      --depth_;
    }
  }
  void on_parameter(std::string_view name, Tensor& parameter) override {
    const bool is_new = seen_.insert(&parameter.impl()).second;
    if (is_new) total += parameter.numel();
    if (is_new) count_ += parameter.numel();
    hold(name, parameter, is_new ? "" : " (shared)");
  }
  void on_buffer(std::string_view name, Tensor& buffer, const BufferOptions&) override {
    hold(name, buffer, " (buffer)");
  }
  void hold(std::string_view name, const Tensor& tensor, const char* note) {
    if (!members_.empty()) members_ += ", ";
    ((members_ += name) += ' ') += tensor.shape().str() + note;
  }
  void flush() {
    if (!line_.empty()) text += line_;
    if (!members_.empty()) text += (line_.empty() ? std::string(2 * depth_, ' ') : "  ") + members_;
    if (count_ > 0) text += "  " + grouped(count_);
    if (!line_.empty() || !members_.empty()) text += '\n';
    line_.clear();
    members_.clear();
    count_ = 0;
  }

  std::string line_, members_;  // of the module whose line is being written
  std::int64_t count_ = 0;
  std::size_t depth_ = 0, unnamed_ = 0;
  std::unordered_set<const void*> seen_;
};

}  // namespace

std::string Module::type_name() const {
  std::string name = typeid(*this).name();
#if __has_include(<cxxabi.h>)
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  if (status == 0) name = text.get();
#endif
  const std::size_t colon = name.substr(0, name.find('<')).rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

std::ostream& operator<<(std::ostream& os, const Module& module) {
  Tree tree;
  walk(module, tree);
  return os << tree.text << grouped(tree.total) << " parameters";
}

}  // namespace gradus::nn
