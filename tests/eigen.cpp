// Eigen over gradus memory, and copies in.
#include <gradus/core.h>
#include <gradus/eigen.h>

#include <doctest/doctest.h>

#include <type_traits>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

namespace {

template <class T>
concept MapsTemporary = requires {
  eigen_matrix<float>(T{});
};
static_assert(!MapsTemporary<Tensor>);

}  // namespace

TEST_CASE("eigen: a matrix map reads and writes the tensor's memory, whatever its strides") {
  const Tensor x = count({3, 4});
  auto map = eigen_matrix<double>(x);
  CHECK(map.rows() == 3);
  CHECK(map.cols() == 4);
  CHECK(map(1, 2) == 6);
  map(1, 2) = -1;
  CHECK(x.at<double>({1, 2}) == -1);
  map(1, 2) = 6;

  const Tensor transposed = x.transpose(0, 1), part = x.slice(1, 1, {}, 2).narrow(0, 1, 2);
  const auto t = eigen_matrix<double>(transposed), p = eigen_matrix<double>(part);
  CHECK(t == map.transpose());
  CHECK(p.rows() == 2);
  CHECK(p.cols() == 2);
  CHECK((p.array() == (Eigen::Array22d() << 5, 7, 9, 11).finished()).all());
  eigen_matrix<double>(part).setZero();
  CHECK(same(x, f64({{0, 1, 2, 3}, {4, 0, 6, 0}, {8, 0, 10, 0}})));

  // Products agree with the library's.
  const Tensor a = uniform({5, 7}, -1, 1), b = uniform({6, 7}, -1, 1, 2), bt = b.transpose(0, 1);
  const Eigen::MatrixXd product = eigen_matrix<const double>(a) * eigen_matrix<const double>(bt);
  CHECK(close(from_eigen(product), matmul(a, bt), 1e-14));
}

TEST_CASE("eigen: dtypes, vectors, empty and expanded tensors") {
  const Tensor f = tensor({{1.5, 2.5}}), i = tensor({{1, 2}, {3, 4}}), b = tensor({{true, false}});
  CHECK(eigen_matrix<float>(f).sum() == 4);
  CHECK(eigen_matrix<std::int64_t>(i).trace() == 5);
  CHECK(eigen_matrix<bool>(b)(0, 0));
  const Tensor v = count({6}), every_second = v.slice(0, 0, {}, 2);
  CHECK(eigen_vector<double>(v).dot(eigen_vector<double>(v)) == 55);
  CHECK(eigen_vector<double>(every_second) == Eigen::Vector3d(0, 2, 4));
  eigen_vector<double>(every_second) *= 10;
  CHECK(same(v, f64({0, 1, 20, 3, 40, 5})));

  const Tensor none = zeros({0, 3});
  CHECK(eigen_matrix<float>(none).size() == 0);
  CHECK(eigen_matrix<float>(none).cols() == 3);
  const Tensor wide = expand(f64({{1}, {2}}), {2, 3});
  CHECK(eigen_matrix<const double>(wide).sum() == 9);
  const Tensor one = expand(f64({7}), {3});
  CHECK(eigen_vector<const double>(one).sum() == 21);
  static_assert(!std::is_assignable_v<decltype(eigen_matrix<const float>(f)(0, 0)), float>);
}

TEST_CASE("eigen: from_eigen copies matrices, arrays, vectors and expressions") {
  Eigen::MatrixXf m(2, 3);  // column-major
  m << 1, 2, 3, 4, 5, 6;
  const Tensor x = from_eigen(m);
  CHECK(same(x, tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}})));
  CHECK(x.is_contiguous());
  m.setZero();
  CHECK(x.at<float>({1, 2}) == 6);
  CHECK(same(from_eigen(Eigen::Vector2d(1, 2)), f64({1, 2})));
  CHECK(same(from_eigen(Eigen::RowVector2d(1, 2)), f64({1, 2})));
  CHECK(same(from_eigen(Eigen::Array22d::Constant(2)), f64({{2, 2}, {2, 2}})));
  CHECK(same(from_eigen(Eigen::Matrix2d::Identity() * 3), f64({{3, 0}, {0, 3}})));
  CHECK(same(from_eigen(Eigen::Matrix2d::Identity() * Eigen::Matrix2d::Ones()), f64({{1, 1}, {1, 1}})));
  CHECK(same(from_eigen(Eigen::Vector2i(1, 2).cast<std::int64_t>()), tensor({1, 2})));
  CHECK(same(from_eigen(Eigen::Array2d(1, 2) > 1.5), tensor({false, true})));
  CHECK(from_eigen(Eigen::MatrixXd(0, 4)).shape() == Shape{0, 4});
  CHECK(from_eigen(Eigen::VectorXd(0)).shape() == Shape{0});

  const Tensor p = from_eigen(Eigen::Vector2d(1, 2), {.dtype = Float32, .requires_grad = true});
  CHECK(p.dtype() == Float32);
  CHECK(p.is_leaf());
  sum(p * p).backward();
  CHECK(same(p.grad(), tensor({2.0, 4.0})));
  const Tensor back = p.grad();
  CHECK(eigen_vector<const float>(back) == Eigen::Vector2f(2, 4));
}

TEST_CASE("eigen: what is refused") {
  const Tensor x = zeros({2, 3}), undefined;
  CHECK(error_of([&] { eigen_matrix<double>(x); }) ==
        "eigen_matrix: the tensor is Float32, the map is asked for Float64: [2, 3]; convert with to()");
  CHECK(error_of([&] { eigen_vector<float>(x); }) ==
        "eigen_vector: needs a tensor of rank 1, got [2, 3]; reshape or index it");
  const Tensor deep = zeros({1, 2, 3}), scalar = zeros({});
  CHECK(mentions(error_of([&] { eigen_matrix<float>(deep); }), "needs a tensor of rank 2, got [1, 2, 3]"));
  CHECK(mentions(error_of([&] { eigen_vector<float>(scalar); }), "needs a tensor of rank 1, got []"));
  CHECK(error_of([&] { eigen_matrix<float>(undefined); }) == "eigen_matrix: the tensor is an undefined tensor");
  const Tensor wide = expand(zeros({1, 3}), {2, 3});
  CHECK(mentions(error_of([&] { eigen_matrix<float>(wide); }), "overlap in memory"));
  CHECK(error_of([&] { eigen_matrix<const float>(wide); }).empty());
  CHECK(mentions(error_of([] { from_eigen(Eigen::Vector2d(1, 2), {.dtype = Int64, .requires_grad = true}); }),
                 "only Float32 and Float64 carry gradients"));
}
