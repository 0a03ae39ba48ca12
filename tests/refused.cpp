// Misuse that a first user met: refused with a text, before anything changed.
#include <gradus/gradus.h>

#include <doctest/doctest.h>

#include "throws.h"

using namespace gradus;
using gradus::test::error_of;

namespace {

struct Mixed : nn::Module {
  Tensor weight = zeros({2}), counts = zeros({2}, {.dtype = Int64});
  void fields(nn::Fields& f) override { f("weight", weight)("counts", counts); }
};

}  // namespace

TEST_CASE("embedding_scatter: rows that do not fit their indices, and Bool") {
  CHECK(error_of([] {
          embedding_scatter(zeros({0, 3}), tensor({0, 1}), 3);
        }) == "embedding_scatter: rows [0, 3] do not fit the indices [2]");
  CHECK(error_of([] {
          embedding_scatter(zeros({3, 0}), tensor({0, 1}), 3);
        }) == "embedding_scatter: rows [3, 0] do not fit the indices [2]");
  CHECK(error_of([] {
          embedding_scatter(ones({2, 3}, {.dtype = Bool}), tensor({0, 1}), 3);
        }) == "embedding_scatter: has no meaning for Bool [2, 3]; convert it with to()");
  const Tensor flags = ones({3}, {.dtype = Bool});
  CHECK(error_of([&] { scatter_add(flags, 0, zeros({3}, {.dtype = Int64}), flags); }) ==
        "scatter_add: has no meaning for Bool [3]; convert it with to()");
}

TEST_CASE("optimizers: a parameter that cannot be updated is refused before any has moved") {
  const Tensor a = ones({2}, {.requires_grad = true});
  const Tensor b = ones({2, 3}).transpose(0, 1).requires_grad_();
  CHECK(error_of([&] {
          optim::Adam({a, b}, {});
        }) == "Adam: parameter 1 [3, 2] is not row-major; optimize a contiguous() copy made before requires_grad_()");
  const Tensor c = ones({3}, {.requires_grad = true});
  optim::Adam adam({a, c}, {.lr = 0.1});
  (a.sum() + c.sum()).backward();
  adam.step();
  const std::vector<float> before = a.to_vector<float>();
  c.set_data(ones({4}));
  (a.sum() + c.sum()).backward();
  CHECK(error_of([&] { adam.step(); }) == "Adam: parameter 1 is now [4], its state still [3]");
  CHECK(a.to_vector<float>() == before);
}

TEST_CASE("modules: requires_grad_ checks all parameters first; MultiHeadAttention needs its four maps") {
  const Mixed mixed;
  CHECK(error_of([&] { mixed.requires_grad_(); }) ==
        "Module::requires_grad_: parameter counts [2] is Int64, which carries no gradient; list it with buffer()");
  CHECK_FALSE(mixed.weight.requires_grad());
  nn::MultiHeadAttention attention(2, 4);
  attention.linears.clear();
  const Tensor x = zeros({1, 2, 4});
  CHECK(error_of([&] { attention(x, x, x); }) == "MultiHeadAttention: needs its 4 linears, has 0");
}

TEST_CASE("sizes without elements, and Shape outside its entries") {
  const Tensor vast = zeros({std::int64_t{1} << 62, 0});
  CHECK(str(vast).find("...") != std::string::npos);
  CHECK(error_of([&] { cat({vast, vast}); }) == "cat: the sizes of dim 0 do not fit 63 bits together");
  Shape shape{1, 2};
  CHECK(error_of([&] { shape.insert(-1, 5); }) == "Shape: cannot insert at -1 into [1, 2]");
  CHECK(error_of([&] { shape.erase(2); }) == "Shape: cannot erase 2 of [1, 2]");
  CHECK(shape == Shape{1, 2});
}

TEST_CASE("any and all of Bool tensors") {
  CHECK(any(tensor({false, true})));
  CHECK_FALSE(any(tensor({false, false})));
  CHECK(all(tensor({true, true})));
  CHECK_FALSE(all(tensor({true, false})));
  CHECK(tensor({{false, true}, {false, false}}).amax({1}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(tensor({false, true}).argmax().item<std::int64_t>() == 1);
}
