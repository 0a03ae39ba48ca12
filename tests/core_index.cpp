// Parts of tensors, and rows by index tensors.
#include <gradus/core.h>

#include <doctest/doctest.h>

#include "core_values.h"
#include "throws.h"

using namespace gradus;
using namespace gradus::test;

using List = std::vector<std::int64_t>;

TEST_CASE("slices clip as Python's, count steps, and are views") {
  const Tensor x = count({10});
  const auto numbers = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  using Numbers = std::vector<std::int64_t>;
  CHECK(numbers(x.slice(0, 2, 5)) == Numbers{2, 3, 4});
  CHECK(numbers(x.slice(0, -3, {})) == Numbers{7, 8, 9});
  CHECK(numbers(x.slice(0, {}, -8)) == Numbers{0, 1});
  CHECK(numbers(x.slice(0, 1, 9, 3)) == Numbers{1, 4, 7});
  CHECK(numbers(x.slice(0, 1, 100, 4)) == Numbers{1, 5, 9});
  CHECK(numbers(x.slice(0, -100, 2)) == Numbers{0, 1});
  CHECK(numbers(x.slice(0, 5, 2)).empty());
  CHECK(numbers(x.slice(0, 20, 30)).empty());
  CHECK(numbers(x.slice(0, 3, {}, std::int64_t{1} << 62)) == Numbers{3});
  CHECK(numbers(x.slice(0, 0, {}, 2).slice(0, 1, {}, 2)) == Numbers{2, 6});
  CHECK(x.slice(0, 1, 9, 3).shares_storage(x));
  CHECK(numbers(x.narrow(0, -3, 2)) == Numbers{7, 8});
  CHECK(numbers(x.narrow(0, 10, 0)).empty());
  CHECK(x.select(0, -1).item() == 9);
  const Tensor leafy = count({5}).requires_grad_();
  const Tensor none = leafy.slice(0, 4, 2);
  CHECK(same(gradient_of(none, leafy), zeros({5}, {.dtype = Float64})));
}

TEST_CASE("index: integers, slices, Ellipsis, None") {
  const Tensor x = count({2, 3, 4});
  CHECK(x.index({1, 2, 3}).item() == 23);
  CHECK(same(x.index({-1}), count({3, 4}, 12)));
  CHECK(same(x.index({Ellipsis, 0}), f64({{0, 4, 8}, {12, 16, 20}})));
  CHECK(same(x.index({0, Slice(1, {}), Slice({}, {}, 2)}), f64({{4, 6}, {8, 10}})));
  CHECK(x.index({None, Ellipsis, None}).shape() == Shape{1, 2, 3, 4, 1});
  CHECK(same(x.index({0, Ellipsis, Slice(1, 3), None}), x.select(0, 0).slice(1, 1, 3).unsqueeze(-1)));
  CHECK(same(x.index({Ellipsis}), x));
  CHECK(x.index({Slice(), 0}).shape() == Shape{2, 4});
  CHECK(error_of([&] { x.index({2}); }) == "index: index 2 is outside size 2 in [2, 3, 4]");
  CHECK(error_of([&] { x.index({0, 0, 0, 0}); }) == "index: too many indices (4) for [2, 3, 4]");
  CHECK(error_of([&] { x.index({Ellipsis, 0, Ellipsis}); }) == "index: more than one Ellipsis");
}

TEST_CASE("split, chunk and unbind give every element back once") {
  const Tensor x = count({7, 3}).requires_grad_();
  const auto parts = split(x, 3);
  REQUIRE(parts.size() == 3);
  CHECK(parts[2].shape() == Shape{1, 3});
  CHECK(same(cat(parts).detach(), x.detach()));
  CHECK(chunk(x, 3).size() == 3);
  CHECK(chunk(x, 5).size() == 4);  // as torch: ceil(7/5) = 2 rows each
  CHECK(chunk(x, 100, 1).size() == 3);
  CHECK(split(zeros({0, 3}), 2).size() == 1);
  const auto rows = unbind(x);
  REQUIRE(rows.size() == 7);
  CHECK(same(stack(rows).detach(), x.detach()));
  sum(rows[1] * rows[1] + rows[6]).backward();
  Tensor wanted = zeros({7, 3}, {.dtype = Float64});
  for (std::int64_t j = 0; j < 3; ++j) {
    wanted.at<double>({1, j}) = 2 * static_cast<double>(3 + j);
    wanted.at<double>({6, j}) = 1;
  }
  CHECK(same(x.grad(), wanted));
  CHECK(unbind(count({2, 3}), -1).size() == 3);
}

TEST_CASE("E01: repeated indices add up") {
  const Tensor x = leaf({.1});
  CHECK(same(gradient_of(gather(x, 0, tensor({0, 0})), x, f64({.2, .3})), f64({.5})));
  const Tensor table = zeros({3, 2}, {.dtype = Float64, .requires_grad = true});
  const Tensor y = embedding(table, tensor({{1, 1}, {1, 2}}));
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(same(gradient_of(y, table, count({2, 2, 2}, 1)), f64({{0, 0}, {9, 12}, {7, 8}})));
  const Tensor z = leaf({1, 2});
  CHECK(same(gradient_of(index_select(z, 0, tensor({0, 0})).select(0, 0), z), f64({1, 0})));
  CHECK(same(gradient_of(z.index({{0, 0}}).select(0, 0), z), f64({1, 0})));
  // Every op that reads by index, against a sum over the places, with create_graph off and on.
  const Tensor list = tensor({2, 0, 2, 2}), column = list.reshape({4, 1}),
               w = uniform({3, 1}, -1, 1, 1).requires_grad_();
  const Tensor g = f64({{1}, {20}, {300}, {4000}}), right = f64({{20}, {0}, {4301}});
  for (const Tensor& read : {gather(w, 0, column), embedding(w, list), index_select(w, 0, list), w.index(list),
                             w.index({list, {0}}).unsqueeze(1), w.index({column, 0}), w.index({{2, 0, 2, 2}})}) {
    for (const bool create_graph : {false, true})
      CHECK(same(grad({read}, {w}, {g}, {.retain_graph = true, .create_graph = create_graph})[0].detach(), right));
  }
  // And that write by index.
  const Tensor zero = zeros({3, 1}, {.dtype = Float64});
  CHECK(same(scatter_add(zero, 0, column, g), right));
  CHECK(same(embedding_scatter(g, list, 3), right));
  CHECK(same(index_put(zero, {list}, g, true), right));
}

TEST_CASE("embedding: padding, strided tables and indices, nothing to look up") {
  const Tensor table = count({4, 3}).requires_grad_();
  const Tensor ids = tensor({{0, 1}, {1, 3}});
  const Tensor y = embedding(table, ids, 1);
  CHECK(same(select(y.detach().view({4, 3}), 0, 1), f64({3, 4, 5})));  // the row itself is read
  const Tensor g = ones({2, 2, 3}, {.dtype = Float64});
  CHECK(same(gradient_of(y, table, g), f64({{1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}})));
  CHECK(same(grad({y}, {table}, {g}, {.create_graph = true})[0].detach(),
             f64({{1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}})));
  const Tensor wide = count({3, 8}).transpose(0, 1);
  CHECK(same(embedding(wide, ids.transpose(0, 1)), embedding(wide.clone(), ids.transpose(0, 1).clone())));
  CHECK(embedding(table, zeros({0}, {.dtype = Int64})).shape() == Shape{0, 3});
  CHECK(embedding(table, tensor(2)).shape() == Shape{3});
  CHECK(embedding(zeros({2, 0}), tensor({0, 1, 1})).shape() == Shape{3, 0});
  const Tensor empty_ids = embedding(table, zeros({0}, {.dtype = Int64}));
  CHECK(same(gradient_of(empty_ids, table), zeros({4, 3}, {.dtype = Float64})));
}

TEST_CASE("E03: indices outside the table") {
  const Tensor table = zeros({3, 2}, {.requires_grad = true});
  CHECK(error_of([&] {
          embedding(table, tensor({0, 3}));
        }) == "embedding: index 3 at position 1 is outside a table of 3 rows");
  CHECK(error_of([&] { embedding(table, tensor({-1})); }) ==
        "embedding: index -1 at position 0 is outside a table of 3 rows");
  CHECK(mentions(error_of([&] { embedding(table, tensor({std::int64_t{1} << 40})); }), "index 1099511627776"));
  CHECK(error_of([&] { embedding(table, tensor({0.0})); }) == "embedding: indices must be Int64, got Float32 [1]");
  CHECK(mentions(error_of([&] { index_select(table, 1, tensor({2})); }), "index 2 at position 0"));
  CHECK(mentions(error_of([&] { gather(table, 0, tensor({{0, 3}})); }), "gather: index 3 at position 1"));
  CHECK(error_of([&] { embedding(zeros({3}), tensor({0})); }) == "embedding: the weight must be [num, dim], got [3]");
  CHECK(embedding(table, zeros({0}, {.dtype = Int64})).shape() == Shape{0, 2});
  // Only index() counts negative ones from the back.
  const Tensor past = tensor({0, 3}), huge = tensor({std::int64_t{1} << 40}), before = tensor({-1});
  for (const Tensor& ids : {past, huge, before}) {
    const Tensor column = ids.reshape({-1, 1}), rows = ones({ids.numel(), 2});
    const std::string wrong = "index " + std::to_string(ids.select(0, -1).item<std::int64_t>()) + " at position " +
                              std::to_string(ids.numel() - 1);
    const std::string rows_text = " is outside a table of 3 rows";
    CHECK(error_of([&] { index_select(table, 0, ids); }) == "index_select: " + wrong + rows_text);
    CHECK(error_of([&] { gather(table, 0, column); }) == "gather: " + wrong + rows_text);
    CHECK(error_of([&] { scatter_add(table, 0, column, rows); }) == "scatter_add: " + wrong + rows_text);
    CHECK(error_of([&] { embedding_scatter(rows, ids, 3); }) == "embedding_scatter: " + wrong + rows_text);
    if (ids.is_same(before)) continue;
    CHECK(mentions(error_of([&] { table.index(ids); }), wrong + " of the index tensor"));
    CHECK(mentions(error_of([&] { index_put(table, {ids}, 1); }), wrong + " of the index tensor"));
  }
  // The indices that backward goes by are those of the forward pass.
  Tensor ids = tensor({0, 1});
  const Tensor read = sum(embedding(table, ids));
  ids.fill_(1 << 20);
  CHECK(mentions(error_of([&] { read.backward(); }), "'embedding' saved a tensor [2] at version 0"));
  CHECK_FALSE(table.grad().defined());
}

TEST_CASE("gather, scatter_add and index_select of 0-d and empty tensors, as PyTorch's") {
  const Tensor zero = leaf(5), one = leaf({5}), at = tensor(0), row = tensor({0});
  CHECK(same(gather(zero, 0, row).detach(), f64({5})));
  CHECK(same(gather(zero, -1, at).detach(), f64(5)));
  CHECK(same(gather(one, 0, at).detach(), f64(5)));
  CHECK(same(gradient_of(gather(zero, 0, row), zero, f64({3})), f64(3)));
  CHECK(same(gradient_of(gather(one, 0, at), one, f64(3)), f64({3})));
  CHECK(same(index_select(zero, 0, row).detach(), f64(5)));
  CHECK(same(index_select(zero, 0, at).detach(), f64(5)));
  CHECK(same(index_select(one, 0, at).detach(), f64({5})));
  CHECK(same(gradient_of(index_select(zero, 0, row), zero, f64(3)), f64(3)));
  CHECK(error_of([&] {
          index_select(zero, 0, tensor({0, 0}));
        }) == "index_select: a 0-d tensor has one element to select, the index is [2]");
  CHECK(error_of([&] { index_select(zero, 0, tensor({1})); }) ==
        "index_select: index 1 at position 0 is outside a table of 1 rows");
  CHECK(error_of([&] { index_select(zero, 1, row); }) ==
        "index_select: dim 1 is outside a tensor of rank 0; it must be in [-1, 0]");
  CHECK(error_of([&] { gather(zero, 0, tensor({{0}})); }) == "gather: the ranks of [1] and of the index [1, 1] differ");
  CHECK(same(scatter_add(zero, 0, at, leaf(2)).detach(), f64(7)));
  CHECK(same(scatter_add(zero, 0, row, f64({2})).detach(), f64(7)));
  CHECK(same(scatter_add(zero, 0, at, f64({2, 9})).detach(), f64(7)));

  // An empty index reads and adds nothing, whatever its rank is.
  const Tensor none = zeros({0}, {.dtype = Int64}), wide = leaf({{1, 2}, {3, 4}});
  CHECK(gather(wide, 1, none).shape() == Shape{0});
  CHECK(gather(wide, 1, zeros({2, 0}, {.dtype = Int64})).shape() == Shape{2, 0});
  CHECK(gather(wide, 1, tensor({})).shape() == Shape{0});
  CHECK(same(gradient_of(gather(wide, 1, none), wide), zeros({2, 2}, {.dtype = Float64})));
  CHECK(same(scatter_add(wide, 1, none, f64({1, 2})).detach(), wide.detach()));
  const Tensor src = leaf({1, 2});
  CHECK(same(gradient_of(scatter_add(wide, 1, none, src), src), f64({0, 0})));
  CHECK(same(gradient_of(scatter_add(wide, 1, none, src), wide), f64({{1, 1}, {1, 1}})));
  CHECK(index_select(wide, 1, none).shape() == Shape{2, 0});
  CHECK(gather(zeros({0, 2}), 1, zeros({0, 5}, {.dtype = Int64})).shape() == Shape{0, 5});
  CHECK(mentions(error_of([&] { gather(zeros({0}), 0, row); }), "index 0 at position 0 is outside a table of 0 rows"));
  CHECK(scatter_add(zeros({0, 2}), 0, zeros({0, 2}, {.dtype = Int64}), ones({3, 2})).shape() == Shape{0, 2});
  CHECK(same(scatter_add(tensor({1, 2}), 0, tensor({1, 1}), tensor({5, 6})), tensor({1, 13})));
  CHECK(error_of([&] {
          scatter_add(wide, 0, tensor({{0}}), ones({1, 1}));
        }) == "scatter_add: the dtypes of [2, 2] Float64 and the source [1, 1] Float32 differ");
  CHECK(error_of([&] { scatter_add(wide, 0, tensor({{0.0}}), f64({{1}})); }) ==
        "scatter_add: indices must be Int64, got Float32 [1, 1]");
}

TEST_CASE("slices of tensors without elements, near the largest sizes and bounds") {
  constexpr std::int64_t vast = std::int64_t{1} << 62, most = INT64_MAX, least = INT64_MIN;
  for (const Shape& shape : {Shape{vast, 0}, Shape{0, vast, vast}, Shape{vast, vast, 0, vast}}) {
    const Tensor x = zeros(shape);
    for (std::int64_t d = 0; d < x.dim(); ++d) {
      CAPTURE(shape);
      CAPTURE(d);
      const std::int64_t n = x.size(d);
      CHECK(x.slice(d, 1, {}, most).size(d) == (n > 0 ? 1 : 0));
      CHECK(x.slice(d, least, most, 3).size(d) == (n + 2) / 3);
      CHECK(x.slice(d, most, least).size(d) == 0);
      CHECK(x.narrow(d, n, 0).size(d) == 0);
      CHECK(x.narrow(d, n / 2, n - n / 2).size(d) == n - n / 2);
      CHECK(split(x, most, d).size() == 1);
      CHECK(chunk(x, 2, d).front().size(d) == n / 2);
    }
    CHECK(x.index({Ellipsis, Slice(-1, most, most)}).numel() == 0);
  }
  const Tensor x = zeros({vast, 3, 0});
  CHECK(x.select(0, vast - 1).shape() == Shape{3, 0});
  CHECK(x.index({vast - 1, {0, 2, 1, 1}}).shape() == Shape{4, 0});
  CHECK(x.index({Slice(), {0, 2, 1, 1}}).shape() == Shape{vast, 4, 0});
  CHECK(x.index({{-1}, Slice(), List{}}).shape() == Shape{0, 3});
  CHECK(index_select(x, 1, tensor({2, 0})).shape() == Shape{vast, 2, 0});
  CHECK(same(count({3}).slice(0, least, most, most).detach(), f64({0})));
  CHECK(error_of([&] { count({3}).slice(0, 0, 1, least); }) ==
        "slice: the step must be at least 1, got -9223372036854775808; use flip for the reverse order");
  CHECK(mentions(error_of([&] { count({3}).narrow(0, most, most); }), "narrow: elements 9223372036854775807"));
  CHECK(mentions(error_of([&] { count({3}).narrow(0, least, 1); }), "lie outside dim 0"));
  CHECK(mentions(error_of([&] { count({3}).select(0, least); }), "select: index -9223372036854775808 is outside"));
  CHECK(chunk(count({3}), most).size() == 3);
  CHECK(split(count({3}), most).size() == 1);
}

TEST_CASE("index_select, gather and scatter_add against loops") {
  for (const Layout layout : layouts) {
    const Tensor x = laid_out({3, 4, 2}, layout, -1, 1, 1).detach();
    const Tensor list = tensor({2, 0, 2, 1});
    for (int dim = 0; dim < 2; ++dim) {
      const Tensor y = index_select(x, dim, list);
      for (std::int64_t i = 0; i < 4; ++i) CHECK(same(y.select(dim, i), x.select(dim, list.at<std::int64_t>({i}))));
    }
    const Tensor index = tensor({{{0, 3}, {1, 1}}, {{2, 0}, {0, 0}}});
    const Tensor gathered = gather(x, 1, index);
    Tensor scattered = x.clone(), source = uniform({2, 2, 2}, -1, 1, 9);
    for (std::int64_t a = 0; a < 2; ++a)
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t c = 0; c < 2; ++c) {
          const std::int64_t at = index.at<std::int64_t>({a, b, c});
          CHECK(gathered.at<double>({a, b, c}) == x.at<double>({a, at, c}));
          scattered.at<double>({a, at, c}) += source.at<double>({a, b, c});
        }
    CHECK(close(scatter_add(x, 1, index, source), scattered, 1e-15));
  }
  CHECK(same(gather(f64(5), 0, tensor(0)), f64(5)));
  CHECK(gather(zeros({0, 3}), 0, zeros({0, 3}, {.dtype = Int64})).shape() == Shape{0, 3});
  CHECK(same(index_select(tensor({5, 6, 7}), 0, tensor(1)), tensor({6})));
  CHECK(same(index_select(tensor({true, false}), 0, tensor({1, 0})), tensor({false, true})));
}

TEST_CASE("slice_scatter is the adjoint of slice") {
  CHECK(same(slice_scatter(f64({1, 2}), 0, 5, 1, 2), f64({0, 1, 0, 2, 0})));
  CHECK(slice_scatter(zeros({0}), 0, 3, 3, 1).shape() == Shape{3});
  CHECK(error_of([] {
          slice_scatter(f64({1, 2}), 0, 3, 1, 2);
        }) == "slice_scatter: the places from 1 in steps of 2 for [2] lie outside size 3 of dim 0");
  CHECK(mentions(error_of([] { slice_scatter(f64({1, 2}), 0, 3, INT64_MAX, INT64_MAX); }), "lie outside size 3"));
  // Of nothing: the gradient is nothing too, wherever it stands.
  const Tensor none = zeros({0, 3}, {.dtype = Float64, .requires_grad = true});
  CHECK(gradient_of(slice_scatter(none, 0, 7, 1, 3), none).shape() == Shape{0, 3});
  const Tensor x = uniform({7, 3}, -1, 1, 1), g = uniform({3, 3}, -1, 1, 2);
  CHECK(sum(slice(x, 0, 1, 7, 2) * g).item() == doctest::Approx(sum(x * slice_scatter(g, 0, 7, 1, 2)).item()));
}
