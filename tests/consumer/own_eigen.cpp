// Eigen in the user's program and Eigen inside the library, compiled for different processors, side by side.
#include <gradus/eigen.h>
#include <gradus/gradus.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

int main() {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const int n = 67;  // no multiple of any vector width
  std::vector<float> a(n * n), b(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[static_cast<std::size_t>(i)] = static_cast<float>(i * 37 % 101) / 101.0F - 0.5F;
    b[static_cast<std::size_t>(i)] = static_cast<float>(i * 53 % 97) / 97.0F - 0.5F;
  }
  const auto product = [&] {
    const Matrix c = Eigen::Map<const Matrix>(a.data(), n, n) * Eigen::Map<const Matrix>(b.data(), n, n);
    return std::vector<float>(c.data(), c.data() + c.size());
  };
  const std::vector<float> before = product();
  const gradus::Tensor ours = gradus::matmul(gradus::from_vector(a, {n, n}), gradus::from_vector(b, {n, n}));
  const std::vector<float> inside = ours.to_vector<float>(), after = product();

  float worst = 0;
  for (std::size_t i = 0; i < before.size(); ++i) worst = std::max(worst, std::abs(inside[i] - before[i]));
  // Maps over the library's memory, and a copy of ours in it.
  const Matrix shared = gradus::eigen_matrix<const float>(ours);
  const bool same = gradus::from_eigen(shared).to_vector<float>() == inside;
  std::cout << "largest difference " << worst << '\n';
  return worst < 1e-4F && before == after && same ? 0 : 1;
}
