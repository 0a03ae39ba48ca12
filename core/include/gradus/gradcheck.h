#pragma once
#include <gradus/tensor.h>

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

struct GradcheckOptions {
  double eps = 1e-6;             ///< half the step of the central difference
  std::optional<double> atol{};  ///< default 1e-7; must be given for Float32 inputs
  std::optional<double> rtol{};  ///< default 1e-5; must be given for Float32 inputs
};

/// What a check found: the element that is furthest off. Printable: `std::cout << gradcheck(f, {x})`.
struct GradcheckResult {
  bool ok = true;
  std::int64_t elements = 0;  ///< how many were compared
  std::size_t input = 0;      ///< which input
  std::string name;           ///< its name, if it has one
  Shape index;                ///< where in it
  double analytic = 0, numeric = 0;
  double error = 0;  ///< |analytic - numeric| / (atol + rtol·|numeric|): above 1 fails
  std::string what;  ///< one sentence on the failure; empty where ok
  explicit operator bool() const { return ok; }
};

GRADUS_API std::ostream& operator<<(std::ostream& os, const GradcheckResult& result);

using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;

/// Compares the gradient of Σ v∘f(inputs), v a fixed random direction, with central differences in every element of
/// each input that requires one; also compares create_graph on against off. Float64 unless tolerances are given.
/// Each input counts on its own, also where one tensor is given twice or is a view of another.
/// Error for an empty function, for one that gives no floating tensor or not always the same shape, and for one that
/// reads an input by capture instead of the argument, which nothing could move.
GRADUS_API GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                     const GradcheckOptions& options = {});
/// The same for the gradient itself: second derivatives.
GRADUS_API GradcheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                         const GradcheckOptions& options = {});

}  // namespace gradus
