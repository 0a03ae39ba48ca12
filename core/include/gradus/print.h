#pragma once
#include <gradus/tensor.h>

#include <iosfwd>
#include <string>

namespace gradus {

struct PrintOptions {
  int precision = 4;              ///< digits after the point
  std::int64_t threshold = 1000;  ///< more elements than this are summarised with "..."
  std::int64_t edge_items = 3;    ///< how many of each end a summary shows
  int line_width = 100;           ///< where rows of one dim wrap
  bool footer = true;             ///< shape, dtype and gradient below the numbers
};
/// This thread's options for operator<< and str().
GRADUS_API PrintOptions print_options();
GRADUS_API void set_print_options(const PrintOptions& options);
/// Sets the options until the end of the scope.
class GRADUS_API PrintOptionsGuard {
 public:
  explicit PrintOptionsGuard(const PrintOptions& options);
  ~PrintOptionsGuard();
  PrintOptionsGuard(const PrintOptionsGuard&) = delete;
  PrintOptionsGuard& operator=(const PrintOptionsGuard&) = delete;

 private:
  PrintOptions before_;
};

/// NumPy's form: aligned columns, no common factor, brackets by dim, and a footer.
GRADUS_API std::string str(const Tensor& x);
GRADUS_API std::ostream& operator<<(std::ostream& os, const Tensor& x);

}  // namespace gradus
