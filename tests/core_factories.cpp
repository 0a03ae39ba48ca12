// How tensors come into being, and how their numbers come out again.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include <memory>
#include <sstream>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

TEST_CASE("tensor of nested lists") {
  CHECK(tensor({{1, 2}, {3, 4}}).dtype() == Int64);
  CHECK(tensor({{1, 2.5}, {3, 4}}).dtype() == Float32);
  CHECK(tensor({true, false}).dtype() == Bool);
  CHECK(tensor({true, 2}).dtype() == Int64);
  CHECK(tensor({{1, 2}, {3, 4}}, {.dtype = Float64}).dtype() == Float64);
  CHECK(tensor(3).shape() == Shape{});
  CHECK(tensor({3}).shape() == Shape{1});
  CHECK(tensor({{3}}).shape() == Shape{1, 1});
  CHECK(tensor({{{1, 2, 3}}, {{4, 5, 6}}}).shape() == Shape{2, 1, 3});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK(tensor({}).dtype() == Float32);
  CHECK(tensor({{}, {}}).shape() == Shape{2, 0});
  CHECK(tensor({1.0, 2.0}, {.requires_grad = true}).requires_grad());
  CHECK(tensor({std::int64_t{1} << 60}).item<std::int64_t>() == std::int64_t{1} << 60);
  CHECK(same(tensor({0.5, 2.9}, {.dtype = Int64}), tensor({0, 2})));
  const std::string ragged = "; every list of one level must have the same length";
  CHECK(error_of([] {
          tensor({{1, 2}, {3}});
        }) ==
        "tensor: ragged nested list: at depth 1 the first item has the shape [2, 2] and another one differs" + ragged);
  CHECK(mentions(error_of([] { tensor({1, {2}}); }), "ragged nested list"));
  CHECK(mentions(error_of([] { tensor({{1}, 2}); }), "ragged nested list"));
  CHECK(mentions(error_of([] { tensor({{{1}}, {{1}, {2}}}); }), "ragged nested list"));
  CHECK(error_of([] {
          tensor({1, 2}, {.requires_grad = true});
        }) == "requires_grad_: only Float32 and Float64 carry gradients, got Int64 [2]");
  CHECK(error_of([] { tensor({1e300}, {.dtype = Int64}); }) == "Scalar: 1e+300 does not fit a 64-bit integer");
}

TEST_CASE("from_vector") {
  CHECK(same(from_vector(std::vector<float>{1, 2, 3, 4}, {2, 2}), tensor({{1.0, 2.0}, {3.0, 4.0}})));
  CHECK(from_vector(std::vector<double>{1}, {1}).dtype() == Float64);
  CHECK(from_vector(std::vector<double>{1}, {1}, {.dtype = Float32}).dtype() == Float32);
  CHECK(same(from_vector(std::vector<bool>{true, false}, {2}), tensor({true, false})));
  CHECK(same(from_vector(std::vector<std::int64_t>{5}, {}), tensor(5)));
  CHECK(from_vector(std::vector<float>{1}, {1}, {.requires_grad = true}).is_leaf());
  CHECK(error_of([] {
          from_vector(std::vector<float>{1, 2, 3}, {2, 2});
        }) == "from_vector: 3 values do not fill the shape [2, 2] (4 elements)");
}

TEST_CASE("from_blob keeps its owner as long as any tensor uses the memory") {
  auto owner = std::make_shared<std::vector<double>>(6, 1.5);
  const std::weak_ptr<void> alive = owner;
  double* data = owner->data();
  Tensor x = from_blob(data, {2, 3}, Float64, std::move(owner));
  data[4] = 7;
  CHECK(x.at<double>({1, 1}) == 7);
  x.fill_(2);
  CHECK(data[0] == 2);
  Tensor row = x.index({1});
  x = {};
  CHECK_FALSE(alive.expired());
  const Tensor product = row * 2;
  row = {};
  CHECK(alive.expired());
  CHECK(same(product, f64({4, 4, 4})));
  CHECK(error_of([&] { from_blob(data, {2}, Float64, std::shared_ptr<void>()); }) ==
        "from_blob: the owner is null: nothing would keep the memory alive; to copy, use from_vector");
  CHECK(mentions(error_of([&] { from_blob(nullptr, {2}, Float64, std::make_shared<int>(1)); }), "the memory is null"));
  std::vector<double> two(2);
  char* odd = reinterpret_cast<char*>(two.data()) + 1;
  CHECK(mentions(error_of([&] { from_blob(odd, {1}, Float64, std::make_shared<int>(1)); }), "not aligned for Float64"));
}

TEST_CASE("a foreign leaf takes gradients, and is never accumulated into") {
  auto owner = std::make_shared<std::vector<double>>(3, 2.0);
  const Tensor x = from_blob(owner->data(), {3}, Float64, owner);
  x.requires_grad_();
  auto memory = std::make_shared<std::vector<double>>(3, 1.0);
  x.set_grad(from_blob(memory->data(), {3}, Float64, memory));
  sum(x * x).backward();
  CHECK(same(x.grad(), f64({5, 5, 5})));
  CHECK(*memory == std::vector<double>(3, 1.0));
  CHECK(*owner == std::vector<double>(3, 2.0));
}

TEST_CASE("filled tensors") {
  CHECK(same(zeros({2}), tensor({0.0, 0.0})));
  CHECK(same(ones({1, 2}, {.dtype = Int64}), tensor({{1, 1}})));
  CHECK(same(full({2}, 2.5), tensor({2.5, 2.5})));
  CHECK(full({2}, true).dtype() == Bool);
  CHECK(full({}, 3).dtype() == Float32);
  CHECK(zeros_like(tensor({1, 2})).dtype() == Int64);
  CHECK(ones_like(tensor({1, 2}), {.dtype = Float64}).dtype() == Float64);
  CHECK(same(full_like(f64({1, 2}), 9), f64({9, 9})));
  CHECK(empty_like(f64({{1, 2}})).shape() == Shape{1, 2});
  CHECK(same(eye(2, 3), tensor({{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}})));
  CHECK(eye(0).shape() == Shape{0, 0});
  CHECK(same(arange(3), tensor({0, 1, 2})));
  CHECK(same(arange(1, 7, 2), tensor({1, 3, 5})));
  CHECK(same(arange(3, 0, -1), tensor({3, 2, 1})));
  CHECK(arange(0, 1, 0.1).shape() == Shape{10});
  CHECK(arange(2.0).dtype() == Float32);
  CHECK(same(arange(0, 2, 1, {.dtype = Float64}), f64({0, 1})));
  CHECK(arange(5, 0).shape() == Shape{0});
  CHECK(error_of([] { arange(0, 5, 0); }) == "arange: the step must not be 0");
}

TEST_CASE("Z01: sizes are checked in 64 bits") {
  const std::int64_t big = std::int64_t{1} << 32;
  CHECK(mentions(error_of([&] { zeros({2, 2, 1, std::int64_t{1} << 61}); }), "[2, 2, 1, 2305843009213693952]"));
  CHECK(mentions(error_of([&] { empty({big, big}); }), "[4294967296, 4294967296]"));
  CHECK(error_of([&] { empty({std::int64_t{1} << 60}); }) ==
        "empty: the bytes of [1152921504606846976] Float32 do not fit 63 bits");
  CHECK(mentions(error_of([&] { empty({std::int64_t{1} << 58}); }), "memory: the system has no"));
  CHECK(mentions(error_of([&] { empty({std::int64_t{1} << 58}); }), " bytes left for [288230376151711744] Float32"));
  CHECK(error_of([] { zeros({2, -1}); }) == "empty: negative size in [2, -1]");
  CHECK(zeros({0, std::int64_t{1} << 62, 4}).numel() == 0);
  CHECK(zeros({std::int64_t{1} << 62, 4, 0}).numel() == 0);
  const Tensor none = zeros({0, std::int64_t{1} << 62, 4});
  CHECK((none + none).transpose(0, 2).unsqueeze(1).shape() == Shape{4, 1, std::int64_t{1} << 62, 0});
  CHECK(none.unsqueeze(1).is_contiguous());
  CHECK(error_of([] { zeros({0, -1}); }) == "empty: negative size in [0, -1]");
  CHECK(error_of([] { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }) == "Shape: rank 9 is above the limit of 8");
  CHECK(error_of([] {
          zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0);
        }) == "unsqueeze: [1, 1, 1, 1, 1, 1, 1, 1] has as many dims as a tensor can have");
}

TEST_CASE("numbers come out again") {
  const Tensor x = f64({{1, 2}, {3, 4.75}});
  CHECK(x.at<double>({1, 1}) == 4.75);
  CHECK(x.index({1, 1}).item<std::int64_t>() == 4);
  CHECK(x.index({1, 1}).item<bool>());
  CHECK(x.transpose(0, 1).to_vector<float>() == std::vector<float>{1, 3, 2, 4.75f});
  CHECK(tensor({true, false}).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
  CHECK(error_of([&] { static_cast<void>(x.item()); }) ==
        "item: needs exactly one element, got [2, 2]; index it or reduce it first");
  CHECK(error_of([&] { x.data<float>(); }) == "data: the tensor is Float64, not Float32: [2, 2]; convert with to()");
  CHECK(error_of([&] { x.at<double>({0, 2}); }) == "at: index [0, 2] is outside [2, 2]");
  CHECK(error_of([&] { x.at<double>({0}); }) == "at: needs 2 indices for [2, 2], got [0]");
  CHECK(error_of([&] { static_cast<void>(x.size(2)); }) == "size: dim 2 is outside [2, 2]");
  CHECK(error_of([] { static_cast<void>(Tensor().shape()); }) ==
        "Tensor: this tensor is undefined; only defined() may be asked of it");
  CHECK(x.size(-1) == 2);
}

TEST_CASE("printing") {
  const auto text = [](const Tensor& x) {
    std::ostringstream os;
    os << x;
    return os.str();
  };
  CHECK(text(tensor({{1, 20}, {-3, 4}})) == "[[ 1, 20],\n [-3,  4]]\n[2, 2] Int64");
  CHECK(text(tensor({1.5, -0.25})) == "[ 1.5000, -0.2500]\n[2] Float32");
  CHECK(text(tensor({true, false})) == "[ true, false]\n[2] Bool");
  CHECK(text(f64(2)) == "2.0000\n[] Float64");
  CHECK(text(f64({nan_value, infinity, -infinity, 1})) == "[   nan,    inf,   -inf, 1.0000]\n[4] Float64");
  CHECK(text(zeros({0})) == "[]\n[0] Float32");
  CHECK(text(zeros({2, 0})) == "[[],\n []]\n[2, 0] Float32");
  CHECK(text(count({2, 1, 2})) == "[[[0.0000, 1.0000]],\n\n [[2.0000, 3.0000]]]\n[2, 1, 2] Float64");
  CHECK(text(f64({1e-7, 3e9})) == "[1.0000e-07, 3.0000e+09]\n[2] Float64");
  CHECK(text(count({2, 2}).transpose(0, 1)) == "[[0.0000, 2.0000],\n [1.0000, 3.0000]]\n[2, 2] Float64");
  const Tensor w = leaf({1}).set_name("w");
  CHECK(text(w) == "[1.0000]\n[1] Float64 'w' requires_grad");
  CHECK(text(w * 2) == "[2.0000]\n[1] Float64 from mul");
  CHECK(text(Tensor()) == "undefined tensor");
  {
    const PrintOptionsGuard guard({.precision = 1, .threshold = 6, .edge_items = 2, .footer = false});
    CHECK(text(count({10})) == "[0.0, 1.0, ..., 8.0, 9.0]");
    CHECK(text(count({5, 2})) == "[[0.0, 1.0],\n [2.0, 3.0],\n ...,\n [6.0, 7.0],\n [8.0, 9.0]]");
  }
  {
    const PrintOptionsGuard guard({.precision = 0, .line_width = 12, .footer = false});
    CHECK(text(count({6})) == "[0, 1, 2,\n 3, 4, 5]");
  }
  CHECK(text(f64(2)) == "2.0000\n[] Float64");
  CHECK(error_of([] { set_print_options({.precision = -1}); }) ==
        "set_print_options: precision must be in [0, 17], got -1");
}

TEST_CASE("arange counts integers exactly, wherever they lie") {
  constexpr std::int64_t far = std::int64_t{1} << 62, lowest = INT64_MIN, highest = INT64_MAX;
  CHECK(arange(far, far + 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{far, far + 1, far + 2});
  CHECK(arange((far >> 9) + 1, (far >> 9) + 4).numel() == 3);
  CHECK(arange(lowest, highest, highest).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{lowest, -1, highest - 1});
  CHECK(arange(3, -4, -3).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 0, -3});
  CHECK(arange(3, 3).numel() == 0);
  CHECK(arange(3, 4, -1).numel() == 0);
  CHECK(error_of([] { eye(-1); }) == "eye: sizes must not be negative, got -1 and -1");
}

TEST_CASE("numbers that do not fit are refused") {
  CHECK(error_of([] { full({1}, UINT64_MAX, {.dtype = Int64}); }) ==
        "Scalar: 1.84467e+19 does not fit a 64-bit integer");
  CHECK(full({1}, UINT64_MAX, {.dtype = Float64}).item() == 0x1p64);
  CHECK(error_of([] { tensor(300).item<std::uint8_t>(); }) == "item: the number 300 does not fit the type asked for");
  CHECK(error_of([] { tensor(-1).item<std::uint64_t>(); }) == "item: the number -1 does not fit the type asked for");
  CHECK(tensor(255).item<std::uint8_t>() == 255);
}
