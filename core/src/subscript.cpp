// x[...] with everything that can stand in the brackets, read and written.
#include <gradus/elementwise.h>
#include <gradus/index.h>
#include <gradus/layout.h>
#include <gradus/mask.h>

#include <algorithm>

#include "internal.h"
#include "lookup.h"

namespace gradus {

using detail::alias;
using detail::packed;
using detail::Rows;

Index::Index(const std::vector<std::int64_t>& list)
    : Index(from_vector(list, {static_cast<std::int64_t>(list.size())})) {}

namespace {

bool is_mask(const Index& i) { return i.kind() == Index::Kind::List && i.list().dtype() == Bool; }
bool is_number(const Index& i) {
  return i.kind() == Index::Kind::Integer || (i.kind() == Index::Kind::List && !is_mask(i) && i.list().dim() == 0);
}

/// The places where the mask is true, in row-major order: an index tensor a dim.
std::vector<Tensor> places_of(const Tensor& mask) {
  const Tensor list = packed(mask);
  const bool* p = list.data<bool>();
  std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(mask.dim()));
  for (std::int64_t i = 0; i < list.numel(); ++i) {
    if (!p[i]) continue;
    std::int64_t rest = i;
    for (int d = mask.shape().size() - 1; d >= 0; --d) {
      places[static_cast<std::size_t>(d)].push_back(rest % mask.shape()[d]);
      rest /= mask.shape()[d];
    }
  }
  std::vector<Tensor> tensors;
  for (const auto& column : places) tensors.push_back(from_vector(column, {static_cast<std::int64_t>(column.size())}));
  return tensors;
}

/// An index list sorted out for a tensor of one shape: `basic` without index tensors, which gives a view, and an index
/// tensor for each dim of that view (undefined: the whole dim), broadcast against each other. Negative ones are
/// wrapped, all are checked.
struct Subscript {
  std::vector<Index> basic;
  std::vector<Tensor> lists;
  bool has_lists = false;
};

class Sorter {
 public:
  Sorter(const Tensor& x, const std::vector<Index>& indices, const char* op) : x_(x), op_(op) {
    std::int64_t named = 0, ellipses = 0;
    for (const Index& i : indices) {
      if (i.kind() == Index::Kind::List) {
        check_defined(i.list(), op, "an index tensor");
        check(i.list().dtype() == Int64 || is_mask(i), op, "index tensors must be Int64 or Bool, got ",
              i.list().dtype(), " ", i.list());
      }
      named += is_mask(i) ? i.list().dim() : i.kind() != Index::Kind::Rest && i.kind() != Index::Kind::NewDim;
      ellipses += i.kind() == Index::Kind::Rest;
    }
    check(ellipses <= 1, op, "more than one Ellipsis");
    check(named <= x.dim(), op, "too many indices (", named, ") for ", x);
    for (const Index& i : indices) add(i, x.dim() - named);
    while (dim_ < x.dim()) whole();
    check(result.lists.size() <= Shape::max_rank, op, "the result has ", result.lists.size(), " dims, more than ",
          Shape::max_rank);
    broadcast();
  }
  Subscript result;

 private:
  std::int64_t size() const { return x_.shape()[dim_]; }

  void add(const Index& i, std::int64_t rest) {
    if (is_number(i)) {
      const std::int64_t at = i.kind() == Index::Kind::Integer ? i.integer() : i.list().item<std::int64_t>();
      check(at >= -size() && at < size(), op_, "index ", at, " is outside size ", size(), " in ", x_);
      result.basic.emplace_back(at);
      ++dim_;
    } else if (i.kind() == Index::Kind::Range) {
      check(i.slice().step >= 1, op_, "the step must be at least 1, got ", i.slice().step,
            "; use flip for the reverse order");
      result.basic.push_back(i);
      result.lists.emplace_back();
      ++dim_;
    } else if (i.kind() == Index::Kind::Rest) {
      while (rest-- > 0) whole();
    } else if (i.kind() == Index::Kind::NewDim) {
      result.basic.emplace_back(None);
      result.lists.emplace_back();
    } else if (is_mask(i)) {
      mask(i.list());
    } else {
      list(checked(i.list()));
      ++dim_;
    }
  }

  void whole() {
    result.basic.emplace_back(Slice());
    result.lists.emplace_back();
    ++dim_;
  }

  void list(Tensor indices) {
    result.basic.emplace_back(Slice());
    result.lists.push_back(std::move(indices));
    result.has_lists = true;
  }

  void mask(const Tensor& m) {
    if (m.dim() == 0) {  // a new dim, with one element or none
      result.basic.emplace_back(None);
      result.lists.push_back(zeros({m.item<bool>() ? 1 : 0}, {.dtype = Int64}));
      result.has_lists = true;
      return;
    }
    const Shape there(x_.shape().begin() + dim_, x_.shape().begin() + dim_ + m.dim());
    check(m.shape() == there, op_, "the mask ", m, " does not fit ", there, " of ", x_);
    for (const Tensor& places : places_of(m)) {
      list(places);
      ++dim_;
    }
  }

  /// The indices in memory of their own, wrapped to be in [0, size).
  Tensor checked(const Tensor& indices) const {
    Tensor own = detail::make(indices.shape(), Int64);
    detail::write(own, indices);
    auto* p = own.data<std::int64_t>();
    for (std::int64_t i = 0; i < own.numel(); ++i) {
      check(p[i] >= -size() && p[i] < size(), op_, "index ", p[i], " at position ", i, " of the index tensor ", indices,
            " is outside size ", size(), " of dim ", dim_, " in ", x_);
      if (p[i] < 0) p[i] += size();
    }
    return own;
  }

  void broadcast() {
    Shape shape;
    for (const Tensor& list : result.lists)
      if (list.defined()) shape = detail::broadcast_shapes(shape, list.shape(), op_);
    for (Tensor& list : result.lists)
      if (list.defined()) list = expand(list, shape);
  }

  const Tensor& x_;
  const char* op_;
  std::int64_t dim_ = 0;  // of x, the next to be named
};

bool covers(const Slice& slice, std::int64_t size) {
  return slice.step == 1 && slice.start.value_or(0) == 0 && (!slice.stop || *slice.stop >= size);
}

/// The view that integers, Slices and None give. Integers first, which make room for new dims.
Tensor view_of(const Tensor& x, const std::vector<Index>& basic) {
  Tensor y = x;
  std::int64_t dim = 0;
  for (const Index& i : basic) {
    if (i.kind() == Index::Kind::Integer) {
      y = select(y, dim, i.integer());
    } else {
      dim += i.kind() == Index::Kind::Range;
    }
  }
  dim = 0;
  for (const Index& i : basic) {
    if (i.kind() == Index::Kind::Integer) continue;
    if (i.kind() == Index::Kind::NewDim) y = unsqueeze(y, dim);
    if (i.kind() == Index::Kind::Range && !covers(i.slice(), y.size(dim)))
      y = slice(y, dim, i.slice().start, i.slice().stop, i.slice().step);
    ++dim;
  }
  return y;
}

/// The rows of a view of `shape` that index tensors name.
Rows rows_of(const Shape& shape, const std::vector<Tensor>& lists, const char* op) {
  int first = -1, last = -1, named = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (!lists[static_cast<std::size_t>(i)].defined()) continue;
    if (first < 0) first = i;
    last = i;
    ++named;
  }
  const Shape together = lists[static_cast<std::size_t>(first)].shape();
  check(together.size() + shape.size() - named <= Shape::max_rank, op, "the result has ",
        together.size() + shape.size() - named, " dims, more than ", Shape::max_rank);
  // `together` stands where the named dims stand side by side, else in front.
  const int front = named == last - first + 1 ? first : 0;
  Shape numbered;  // the dims of the result that number rows
  for (int i = 0; i < front; ++i) numbered.push_back(shape[i]);
  for (const std::int64_t size : together) numbered.push_back(size);
  for (int i = front; i < last; ++i)
    if (!lists[static_cast<std::size_t>(i)].defined()) numbered.push_back(shape[i]);
  Shape result = numbered;
  for (int i = last + 1; i < shape.size(); ++i) result.push_back(shape[i]);
  if (result.numel() == 0) return {last + 1, detail::make({0}, Int64), result};

  const Shape steps = detail::row_major_strides(Shape(shape.begin(), shape.begin() + last + 1));
  Tensor numbers = zeros({}, {.dtype = Int64});
  int next = front + together.size();                      // where the next dim between named ones stands
  const auto along = [&](const Tensor& indices, int at) {  // from dim `at` of `numbered` on
    Shape column = numbered;
    std::fill(column.begin(), column.end(), 1);
    std::copy(indices.shape().begin(), indices.shape().end(), column.begin() + at);
    return reshape(indices, column);
  };
  for (int i = 0; i <= last; ++i) {
    const Tensor& list = lists[static_cast<std::size_t>(i)];
    const Tensor part = list.defined() ? along(list, front) : along(arange(shape[i]), i < front ? i : next++);
    numbers = numbers + part * steps[i];
  }
  return {last + 1, packed(expand(numbers, numbered)), result};
}

/// What an index list names in a tensor: a view, and rows of that view where there are index tensors.
struct Part {
  std::vector<Index> basic;
  std::optional<Rows> rows;
};

Part part_of(const Tensor& x, const std::vector<Index>& indices, const char* op) {
  const NoGradGuard guard;
  Subscript subscript = Sorter(x, indices, op).result;
  Part part{std::move(subscript.basic), {}};
  if (subscript.has_lists) part.rows = rows_of(view_of(alias(x, nullptr), part.basic).shape(), subscript.lists, op);
  return part;
}

Tensor read(const Tensor& x, const Part& part) {
  const Tensor view = view_of(x, part.basic);
  return part.rows ? detail::lookup("index", view, *part.rows) : view;
}

/// x's elements that the part names become v, of the part's shape, or grow by it. No history, no checks.
void write_part(const Tensor& x, const Part& part, const Tensor& v, bool accumulate) {
  const NoGradGuard guard;
  const Tensor view = view_of(alias(x, nullptr), part.basic);
  if (part.rows) {
    detail::put_rows(view, v, *part.rows, accumulate);
  } else if (accumulate) {
    detail::accumulate_into(view, v);
  } else {
    detail::write(view, v);
  }
}

/// True for each row of the part that a later one overwrites; undefined where there is none.
Tensor overwritten(const Rows& rows) {
  const std::int64_t n = rows.list.numel();
  const std::int64_t* p = rows.list.data<std::int64_t>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [p](std::int64_t a, std::int64_t b) { return p[a] < p[b]; });
  Tensor lost;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (p[order[i - 1]] != p[order[i]]) continue;
    if (!lost.defined()) lost = zeros({n}, {.dtype = Bool});
    lost.data<bool>()[order[i - 1]] = true;
  }
  if (!lost.defined()) return lost;
  Shape column = rows.list.shape();
  while (column.size() < rows.result.size()) column.push_back(1);
  return lost.reshape(column);
}

Tensor put(const Tensor& x, const Part& part, const Tensor& v, bool accumulate);

/// y, which is to become x with v (of the part's shape) at the part, with its place in the history.
Tensor record_put(const Tensor& y, const Tensor& x, const Tensor& v, const Part& part, bool accumulate) {
  const bool find_lost = part.rows && !accumulate && grad_enabled() && v.requires_grad();
  const Tensor list = part.rows ? part.rows->list : detail::make({0}, Int64);
  const Tensor lost = find_lost ? overwritten(*part.rows) : Tensor();
  Part plain = part;  // for the formulas: the list is saved
  if (plain.rows) plain.rows->list = {};
  const auto with = [](Part p, const Tensor& L) {
    if (p.rows) p.rows->list = L;
    return p;
  };
  // y[P] = v :  dx = G with 0 at P (G where it is +=),  dv = G[P], 0 for what was overwritten
  return record(
      "index_put", y,
      wrt(x, saving(list),
          [plain, with, accumulate, s = v.shape()](const Tensor& g, const Tensor& L) {
            if (accumulate) return g;
            return put(g, with(plain, L), expand(zeros({}, {.dtype = g.dtype()}), s), false);
          }),
      wrt(v, saving(list, lost.defined() ? lost : list),
          [plain, with, some_lost = lost.defined()](const Tensor& g, const Tensor& L, const Tensor& lost_rows) {
            const Tensor dv = read(g, with(plain, L));
            return some_lost ? masked_fill(dv, lost_rows, 0) : dv;
          }));
}

/// x with v (of the part's shape) at the part, in memory of its own.
Tensor put(const Tensor& x, const Part& part, const Tensor& v, bool accumulate) {
  const Tensor y = clone(x.detach());
  const Tensor recorded = record_put(y, x, v, part, accumulate);
  write_part(y, part, v, accumulate);
  return recorded;
}

/// The value in x's dtype, repeated to the part's shape.
Tensor fitting(const Tensor& x, const Part& part, const Tensor& value, bool accumulate, const char* op) {
  check(!accumulate || x.dtype() != Bool, op, "accumulate has no meaning for Bool ", x, "; convert it with to()");
  check(promote(value.dtype(), x.dtype()) == x.dtype() || is_floating(x.dtype()), op, "a value of ", value.dtype(),
        " cannot be written into ", x.dtype(), " ", x);
  const Shape shape = part.rows ? part.rows->result : view_of(x.detach(), part.basic).shape();
  check(detail::broadcasts_to(value.shape(), shape), op, "the value ", value,
        " does not broadcast to the indexed part ", shape, " of ", x);
  return expand(to(value, x.dtype()), shape);
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Index>& indices) {
  check_defined(x, "index", "the tensor");
  return read(x, part_of(x, indices, "index"));
}

Tensor index_put(const Tensor& x, const std::vector<Index>& indices, const Tensor& value, bool accumulate) {
  check_defined(x, "index_put", "the tensor");
  check_defined(value, "index_put", "the value");
  const Part part = part_of(x, indices, "index_put");
  return put(x, part, fitting(x, part, value, accumulate, "index_put"), accumulate);
}

Tensor index_put(const Tensor& x, const std::vector<Index>& indices, Scalar value, bool accumulate) {
  return index_put(x, indices, detail::number_like(value, x, "index_put"), accumulate);
}

Tensor Tensor::index(std::initializer_list<Index> indices) const {
  return gradus::index(*this, std::vector<Index>(indices));
}
Tensor Tensor::index(const Tensor& index) const { return gradus::index(*this, {Index(index)}); }

Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Tensor& value, bool accumulate) {
  check_defined(value, "index_put_", "the value");
  detail::check_in_place(*this, "index_put_", {&value});
  const Part part = part_of(*this, std::vector<Index>(indices), "index_put_");
  Tensor v = fitting(*this, part, value, accumulate, "index_put_");
  if (value.shares_storage(*this)) v = gradus::clone(v);  // read before it is overwritten
  const Tensor recorded = record_put(alias(*this, nullptr), alias(*this, impl().node), v, part, accumulate);
  write_part(*this, part, v, accumulate);
  detail::bump_version(*this);
  if (grad_enabled()) detail::move_to(*this, recorded.impl().node);
  return *this;
}

Tensor& Tensor::index_put_(std::initializer_list<Index> indices, Scalar value, bool accumulate) {
  return index_put_(indices, detail::number_like(value, *this, "index_put_"), accumulate);
}

}  // namespace gradus
