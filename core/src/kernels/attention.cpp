// Attention of many heads, cut into pieces, and what of their scores can be seen at all.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "kernels.h"
#include "parallel.h"
#include "typed.h"

namespace gradus::kernels {
namespace {

/// One past the last key of [j0, j1) that the mask's row `row` shows, from j0 on; 0 where it shows none.
i64 last_shown(const AttentionHead& h, DType dtype, i64 row, i64 j0, i64 j1) {
  const i64 from = row * h.mask_row;
  if (h.seen && h.mask_col == 1) {
    if (!std::memchr(h.seen + from + j0, 1, static_cast<std::size_t>(j1 - j0))) return 0;
    for (i64 j = j1; j > j0; --j)
      if (h.seen[from + j - 1]) return j - j0;
    return 0;
  }
  const auto hidden = [&](i64 j) {
    const i64 place = from + j * h.mask_col;
    if (h.seen && !h.seen[place]) return true;
    if (!h.added) return false;
    return dtype == DType::Float32
               ? static_cast<const float*>(h.added)[place] == -std::numeric_limits<float>::infinity()
               : static_cast<const double*>(h.added)[place] == -std::numeric_limits<double>::infinity();
  };
  for (i64 j = j1; j > j0; --j)
    if (!hidden(j - 1)) return j - j0;
  return 0;
}

/// How many of the `n` keys from j0 on the mask's row shows before it hides one.
i64 first_hidden(const AttentionHead& h, i64 row, i64 j0, i64 n) {
  if (h.added) return 0;  // there is something to add, in any case
  if (!h.seen) return n;
  const bool* seen = h.seen + row * h.mask_row + j0 * h.mask_col;
  if (h.mask_col == 1) {
    const void* hidden = std::memchr(seen, 0, static_cast<std::size_t>(n));
    return hidden ? static_cast<const bool*>(hidden) - seen : n;
  }
  for (i64 j = 0; j < n; ++j)
    if (!seen[j * h.mask_col]) return j;
  return n;
}

SeenTile look(const AttentionHead& h, DType dtype, i64 i0, i64 i1, i64 j0, i64 j1) {
  // Of the causal triangle the last query sees most, the first least.
  const i64 most = h.causal ? std::clamp<i64>(i1 + h.last - j0, 0, j1 - j0) : j1 - j0;
  const i64 rows_end = h.mask_row == 0 ? i0 + 1 : i1;
  i64 end = most;
  if (h.seen || h.added) {
    end = 0;
    for (i64 i = i0; i < rows_end && end < most; ++i) end = std::max(end, last_shown(h, dtype, i, j0, j0 + most));
  }
  i64 shown = h.causal ? std::clamp<i64>(i0 + h.last + 1 - j0, 0, end) : end;
  for (i64 i = i0; i < rows_end && shown > 0; ++i) shown = first_hidden(h, i, j0, shown);
  return {static_cast<std::int32_t>(end), static_cast<std::int32_t>(shown)};
}

/// What can be seen of the heads' scores, looked at once for each mask: tile by tile, and the bias of short heads.
class Seen {
 public:
  Seen(DType dtype, const AttentionJob& job) : first_(job.first), dtype_(dtype) {
    const Table& t = table();
    const AttentionBlocks by = t.attention_blocks();
    const i64 queries = by.queries, keys = by.keys;
    const AttentionHead& h = job.first;
    const i64 blocks = (h.queries + queries - 1) / queries, tiles = (h.keys + keys - 1) / keys;
    size_ = blocks * tiles;
    bias_size_ = h.queries * t.short_bias_row(dtype, h);
    // Heads that share a mask mostly follow one another; a mask met again later is looked at again.
    plane_.resize(static_cast<std::size_t>(job.heads));
    std::vector<i64> masks;
    for (i64 i = 0; i < job.heads; ++i) {
      const i64 mask = job.mask ? job.mask[i] : 0;
      if (masks.empty() || masks.back() != mask) masks.push_back(mask);
      plane_[static_cast<std::size_t>(i)] = std::ssize(masks) - 1;
    }
    const i64 planes = std::ssize(masks);
    tiles_.resize(static_cast<std::size_t>(planes * size_));
    bias_.resize(static_cast<std::size_t>(planes * bias_size_ * size_of(dtype)));
    const i64 bundle = std::max<i64>(1, piece / (queries * keys));
    const i64 count = std::ssize(tiles_);
    parallel((count + bundle - 1) / bundle, [&](i64 part) {
      for (i64 n = part * bundle; n < std::min(count, (part + 1) * bundle); ++n) {
        const i64 plane = n / size_, i = n % size_ / tiles * queries, j = n % tiles * keys;
        const AttentionHead head = masked(masks[static_cast<std::size_t>(plane)]);
        tiles_[static_cast<std::size_t>(n)] =
            look(head, dtype, i, std::min(h.queries, i + queries), j, std::min(h.keys, j + keys));
        if (bias_size_ > 0 && n % size_ == 0) t.short_bias(dtype, head, at(bias_.data(), plane * bias_size_, dtype));
      }
    });
  }
  const SeenTile* tiles(i64 head) const { return tiles_.data() + plane_[static_cast<std::size_t>(head)] * size_; }
  /// Of a short head.
  const void* bias(i64 head) const {
    return at(bias_.data(), plane_[static_cast<std::size_t>(head)] * bias_size_, dtype_);
  }

 private:
  AttentionHead masked(i64 mask) const {
    AttentionHead head = first_;
    if (head.seen) head.seen += mask;
    if (head.added) head.added = at(head.added, mask, dtype_);
    return head;
  }

  const AttentionHead& first_;
  DType dtype_;
  i64 size_, bias_size_;    // of a plane
  std::vector<i64> plane_;  // of each head: the same where the mask is
  std::vector<SeenTile> tiles_;
  std::vector<char> bias_;
};

/// Calls f(head i, i) for the heads [from, to) of the job; without `seen` they have no tiles.
template <class F>
void each_head(DType dtype, const AttentionJob& job, const Seen* seen, i64 from, i64 to, F f) {
  const AttentionHead& first = job.first;
  AttentionHead head = first;
  for (i64 i = from; i < to; ++i) {
    head.q = at(first.q, job.q[i], dtype);
    head.k = at(first.k, job.k[i], dtype);
    head.v = at(first.v, job.v[i], dtype);
    if (first.seen) head.seen = first.seen + job.mask[i];
    if (first.added) head.added = at(first.added, job.mask[i], dtype);
    if (seen) head.tiles = seen->tiles(i);
    head.first_weight = i * first.queries * first.keys;
    if (first.kept) head.kept = at(first.kept, i * first.queries * kept_row(first.keys), dtype);
    f(head, i);
  }
}

/// Heads are the pieces, several at once where they are small. A few large ones are cut, by `step` of `n` queries or
/// keys; how far depends on the sizes alone.
struct Cut {
  i64 bundle, parts, length;  // heads a piece; parts of a head, each of so many queries or keys
  Cut(const AttentionHead& h, i64 heads, i64 n, i64 step) {
    constexpr i64 worthwhile = 1 << 15, few = 8;
    const i64 work = std::max<i64>(1, h.queries * h.keys * (h.depth + h.width));
    const i64 steps = (n + step - 1) / step;
    parts = heads >= few || work < 32 * worthwhile ? 1 : std::min(steps, (few + heads - 1) / heads);
    length = (steps + parts - 1) / parts * step;
    parts = (n + length - 1) / length;
    bundle = std::max<i64>(1, worthwhile / work);
  }
};

}  // namespace

i64 attention_kept(const AttentionJob& job) {
  const AttentionHead& h = job.first;
  const bool one_tile = h.keys <= table().attention_blocks().keys;  // backward relies on that
  return one_tile && keeps_powers(h) ? job.heads * h.queries * kept_row(h.keys) : 0;
}

bool attention(DType dtype, const AttentionJob& job, void* y, const i64* y_offsets, i64 y_row, void* top_scale) {
  const Table& t = table();
  const AttentionHead& first = job.first;
  const bool is_short = t.short_bias_row(dtype, first) > 0;
  const Seen seen(dtype, job);
  const Cut cut(first, job.heads, first.queries, t.attention_blocks().queries);
  std::atomic<bool> finite{true};
  parallel((job.heads + cut.bundle - 1) / cut.bundle * cut.parts, [&](i64 piece_index) {
    const i64 bundle = piece_index / cut.parts, i0 = piece_index % cut.parts * cut.length;
    const i64 end = std::min(job.heads, (bundle + 1) * cut.bundle), i1 = std::min(first.queries, i0 + cut.length);
    each_head(dtype, job, &seen, bundle * cut.bundle, end, [&](const AttentionHead& head, i64 h) {
      void* const result = at(y, y_offsets[h], dtype);
      void* const numbers = at(top_scale, 2 * h * first.queries, dtype);
      if (is_short && t.short_attention(dtype, head, seen.bias(h), i0, i1, result, y_row, numbers)) return;
      if (!t.attention(dtype, head, i0, i1, result, y_row, numbers)) finite.store(false, std::memory_order_relaxed);
    });
  });
  return finite.load();
}

i64 attention_workspace(const AttentionJob& job) {
  const AttentionHead& h = job.first;
  return (Cut(h, job.heads, h.keys, table().attention_blocks().keys).parts - 1) * job.heads * h.queries * h.depth;
}

bool attention_backward(DType dtype, const AttentionJob& job, const AttentionGradients& first,
                        const AttentionOffsets& offsets, void* parts) {
  const Table& t = table();
  const AttentionHead& shape = job.first;
  const bool is_short = shape.kept && t.short_bias_row(dtype, shape) > 0;
  std::optional<Seen> seen;
  if (!is_short) seen.emplace(dtype, job);
  const Cut cut(shape, job.heads, shape.keys, t.attention_blocks().keys);
  // Where a head is cut by its keys, each part but the first has a dQ of its own, added to the first's in their order.
  const i64 size = shape.queries * shape.depth;
  std::atomic<bool> finite{true};
  parallel((job.heads + cut.bundle - 1) / cut.bundle * cut.parts, [&](i64 piece_index) {
    const i64 bundle = piece_index / cut.parts, part = piece_index % cut.parts, j0 = part * cut.length;
    const i64 end = std::min(job.heads, (bundle + 1) * cut.bundle), j1 = std::min(shape.keys, j0 + cut.length);
    AttentionGradients d = first;
    each_head(dtype, job, seen ? &*seen : nullptr, bundle * cut.bundle, end, [&](const AttentionHead& head, i64 h) {
      d.g = at(first.g, offsets.g[h], dtype);
      d.y = at(first.y, offsets.y[h], dtype);
      d.top_scale = at(first.top_scale, 2 * h * shape.queries, dtype);
      d.dq = at(first.dq, offsets.dq[h], dtype);
      d.dk = at(first.dk, offsets.dk[h], dtype);
      d.dv = at(first.dv, offsets.dv[h], dtype);
      if (part > 0) {
        d.dq = at(parts, ((part - 1) * job.heads + h) * size, dtype);
        d.dq_row = shape.depth;
      }
      if (!(is_short ? t.short_attention_backward(dtype, head, d) : t.attention_backward(dtype, head, d, j0, j1)))
        finite.store(false, std::memory_order_relaxed);
    });
  });
  if (cut.parts > 1) {
    const BinaryRun add = t.binary(Binary::Add, dtype);
    const i64 bundle = std::max<i64>(1, piece / shape.depth);
    const i64 bundles = (shape.queries + bundle - 1) / bundle;
    parallel(job.heads * bundles, [&](i64 n) {
      const i64 h = n / bundles, i0 = n % bundles * bundle;
      for (i64 i = i0; i < std::min(shape.queries, i0 + bundle); ++i) {
        void* to = at(first.dq, offsets.dq[h] + i * first.dq_row, dtype);
        for (i64 part = 0; part + 1 < cut.parts; ++part)
          add(shape.depth, to, 1, at(parts, (part * job.heads + h) * size + i * shape.depth, dtype), 1, to, 1);
      }
    });
  }
  return finite.load();
}

}  // namespace gradus::kernels
