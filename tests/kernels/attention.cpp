// What attention's kernels promise beyond right numbers: only NaN and infinities make them give up.
#include <doctest/doctest.h>

#include "numbers.h"

using namespace gradus;
using namespace gradus::kernels;
using namespace gradus::test;

namespace {

/// One or more heads, each with operands, result and gradients of its own.
template <class T>
struct Heads {
  static constexpr DType dtype = dtype_of<T>::value;
  i64 count, queries, keys, depth;
  std::vector<T> q, k, v, g, y, numbers_of_rows, kept, dq, dk, dv, workspace;
  std::vector<char> seen;
  AttentionJob job{};
  std::vector<i64> q_at, k_at, mask_at;

  Heads(i64 heads, i64 m, i64 n, i64 d, double p) : count(heads), queries(m), keys(n), depth(d) {
    q = numbers<T>(heads * m * d, 1), k = numbers<T>(heads * n * d, 2), v = numbers<T>(heads * n * d, 3);
    g = numbers<T>(heads * m * d, 4), y = dq = q, dk = dv = k;
    numbers_of_rows.resize(static_cast<std::size_t>(2 * heads * m));
    seen.resize(static_cast<std::size_t>(m * n), 1);
    for (i64 h = 0; h < heads; ++h) q_at.push_back(h * m * d), k_at.push_back(h * n * d), mask_at.push_back(0);
    AttentionHead& first = job.first;
    first.queries = m, first.keys = n, first.depth = first.width = d;
    first.q = q.data(), first.k = k.data(), first.v = v.data();
    first.q_row = first.k_row = first.v_row = d;
    first.scale = 0.3;
    first.seen = reinterpret_cast<const bool*>(seen.data());
    first.mask_row = n, first.mask_col = 1;
    first.dropout = {.seed = 7, .offset = 0, .p = p};
    job.heads = heads, job.q = q_at.data(), job.k = job.v = k_at.data(), job.mask = mask_at.data();
    kept.resize(static_cast<std::size_t>(attention_kept(job)), static_cast<T>(not_a_number));
    first.kept = kept.empty() ? nullptr : kept.data();
    workspace.resize(static_cast<std::size_t>(attention_workspace(job)));
  }
  bool forward() { return attention(dtype, job, y.data(), q_at.data(), depth, numbers_of_rows.data()); }
  bool backward() {
    return attention_backward(
        dtype, job,
        {.g = g.data(),
         .g_row = depth,
         .y = y.data(),
         .y_row = depth,
         .top_scale = numbers_of_rows.data(),
         .dq = dq.data(),
         .dq_row = depth,
         .dk = dk.data(),
         .dk_row = depth,
         .dv = dv.data(),
         .dv_row = depth},
        {.g = q_at.data(), .y = q_at.data(), .dq = q_at.data(), .dk = k_at.data(), .dv = k_at.data()},
        workspace.data());
  }
};

}  // namespace

TEST_CASE_TEMPLATE("kernels: attention reads nothing that it did not write, and takes queries that see nothing", T,
                   float, double) {
  struct Size {
    i64 heads, queries, keys, depth;
  };
  // The last ones are cut by their queries, into parts of which the last is small.
  for (const Size s : {Size{3, 10, 10, 16},
                       {3, 10, 6, 16},
                       {2, 6, 13, 8},
                       {2, 3, 7, 8},
                       {1, 74, 10, 720},
                       {1, 74, 6, 1200},
                       {1, 34, 7, 2880}})
    for (const double p : {0., 0.1})
      for (const bool blind : {false, true}) {
        CAPTURE(s.queries);
        CAPTURE(s.keys);
        CAPTURE(p);
        CAPTURE(blind);
        Heads<T> heads(s.heads, s.queries, s.keys, s.depth, p);
        for (i64 j = 0; j < s.keys && blind; ++j) heads.seen[static_cast<std::size_t>(s.queries * s.keys - 1 - j)] = 0;
        CHECK(heads.forward());
        CHECK(heads.backward());
        for (i64 c = 0; c < s.depth && blind; ++c) {  // of the last query of the last head
          CHECK(heads.y[heads.y.size() - 1 - static_cast<std::size_t>(c)] == 0);
          CHECK(heads.dq[heads.dq.size() - 1 - static_cast<std::size_t>(c)] == 0);
        }
        heads.v[0] = static_cast<T>(not_a_number);
        CHECK_FALSE(heads.forward());
      }
}
