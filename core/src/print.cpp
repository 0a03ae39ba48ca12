#include <fmt/format.h>
#include <gradus/layout.h>
#include <gradus/print.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "internal.h"

namespace gradus {

namespace {

thread_local PrintOptions current_options;

}  // namespace

PrintOptions print_options() { return current_options; }

void set_print_options(const PrintOptions& options) {
  check(options.precision >= 0 && options.precision <= 17, "set_print_options", "precision must be in [0, 17], got ",
        options.precision);
  check(options.threshold >= 0 && options.edge_items >= 1 && options.line_width >= 1, "set_print_options",
        "threshold, edge_items and line_width must be positive");
  current_options = options;
}

PrintOptionsGuard::PrintOptionsGuard(const PrintOptions& options) : before_(current_options) {
  set_print_options(options);
}
PrintOptionsGuard::~PrintOptionsGuard() { current_options = before_; }

namespace {

std::string number(double x, const PrintOptions& o, bool scientific) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  return scientific ? fmt::format("{:.{}e}", x, o.precision) : fmt::format("{:.{}f}", x, o.precision);
}

class Printer {
 public:
  Printer(const Tensor& x, const PrintOptions& options) : x_(x), options_(options) {
    summarise_ = x.numel() > options.threshold;
    for (const std::int64_t size : x.shape()) summarise_ |= size > options.threshold;  // also of no elements
    const NoGradGuard guard;
    if (is_floating(x.dtype())) {
      scientific_ = wants_exponents();
    }
    visit(0, 0, [this](std::int64_t offset) { width_ = std::max(width_, text(offset).size()); });
  }

  std::string str() {
    write(0, 0);
    return std::move(out_);
  }

 private:
  double value(std::int64_t offset) const {
    const void* p = x_.impl().bytes();
    return x_.dtype() == Float32 ? static_cast<const float*>(p)[offset] : static_cast<const double*>(p)[offset];
  }

  std::string text(std::int64_t offset) const {
    const void* p = x_.impl().bytes();
    switch (x_.dtype()) {
      case DType::Int64:
        return std::to_string(static_cast<const std::int64_t*>(p)[offset]);
      case DType::Bool:
        return static_cast<const bool*>(p)[offset] ? "true" : "false";
      default:
        return number(value(offset), options_, scientific_);
    }
  }

  /// Very large or very small numbers are shown with exponents, all of them, so that no common factor is needed.
  bool wants_exponents() {
    double largest = 0, smallest = std::numeric_limits<double>::infinity();
    visit(0, 0, [&](std::int64_t offset) {
      const double magnitude = std::abs(value(offset));
      if (!std::isfinite(magnitude) || magnitude == 0) return;
      largest = std::max(largest, magnitude);
      smallest = std::min(smallest, magnitude);
    });
    return largest >= 1e8 || (largest > 0 && smallest < 1e-4 && largest < 0.5 * std::pow(10, -options_.precision + 1));
  }

  bool cut(int dim) const { return summarise_ && x_.shape()[dim] > 2 * options_.edge_items; }

  template <class Use>
  void visit(int dim, std::int64_t offset, const Use& use) const {
    if (dim == x_.dim()) return use(offset);
    const std::int64_t n = x_.shape()[dim];
    for (std::int64_t i = 0; i < n; ++i) {
      if (cut(dim) && i == options_.edge_items) i = n - options_.edge_items;
      visit(dim + 1, offset + i * x_.strides()[dim], use);
    }
  }

  void write(int dim, std::int64_t offset) {
    if (dim == x_.dim()) {
      out_ += fmt::format("{:>{}}", text(offset), x_.dim() == 0 ? 0 : width_);
      return;
    }
    const bool innermost = dim + 1 == x_.dim();
    const std::int64_t n = x_.shape()[dim];
    const auto indent = static_cast<std::size_t>(dim) + 1;
    const auto per_line =
        std::max<std::size_t>(1, (static_cast<std::size_t>(options_.line_width) -
                                  std::min<std::size_t>(indent, static_cast<std::size_t>(options_.line_width))) /
                                     (width_ + 2));
    out_ += '[';
    std::size_t on_line = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i > 0) {
        out_ += ',';
        if (!innermost) {
          out_.append(static_cast<std::size_t>(x_.dim() - dim - 1), '\n').append(indent, ' ');
        } else if (on_line == per_line) {
          out_.append("\n").append(indent, ' ');
          on_line = 0;
        } else {
          out_ += ' ';
        }
      }
      if (cut(dim) && i == options_.edge_items) {
        out_ += "...,";
        out_ += innermost ? std::string(" ") : "\n" + std::string(indent, ' ');
        i = n - options_.edge_items;
      }
      write(dim + 1, offset + i * x_.strides()[dim]);
      ++on_line;
    }
    out_ += ']';
  }

  const Tensor& x_;
  PrintOptions options_;
  bool summarise_ = false, scientific_ = false;
  std::size_t width_ = 1;
  std::string out_;
};

}  // namespace

std::string str(const Tensor& x) {
  if (!x.defined()) return "undefined tensor";
  std::string text = Printer(x, current_options).str();
  if (!current_options.footer) return text;
  text += fmt::format("\n{} {}", x.shape().str(), name(x.dtype()));
  if (!x.name().empty()) text += fmt::format(" '{}'", x.name());
  if (x.requires_grad()) text += x.is_leaf() ? " requires_grad" : fmt::format(" from {}", x.impl().node->op);
  return text;
}

std::ostream& operator<<(std::ostream& os, const Tensor& x) { return os << str(x); }

}  // namespace gradus
