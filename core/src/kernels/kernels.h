#pragma once
// The number crunching behind the ops: raw pointers, sizes and strides, no Tensor.
//
// These functions choose the instruction set, whose functions stand in table.h, cut the work into pieces whose size
// never depends on the number of threads (so neither does any result), and run them on the pool.
#include <gradus/shape.h>

#include "table.h"

namespace gradus::kernels {

/// The table of the instruction set in use: the best one that the processor has, or a lower one pinned by GRADUS_ISA.
const Table& table();

/// Elements that one piece of an elementwise job holds.
inline constexpr i64 piece = 16384;

// ---- elementwise over arbitrary strides: dims of `shape`, one Shape of strides an operand; y is written.
void unary(UnaryRun run, DType in, DType out, const Shape& shape, const void* x, const Shape& sx, void* y,
           const Shape& sy, double p = 0, double q = 0);
void binary(BinaryRun run, DType in, DType out, const Shape& shape, const void* a, const Shape& sa, const void* b,
            const Shape& sb, void* y, const Shape& sy);
void select(DType dtype, const Shape& shape, const bool* c, const Shape& sc, const void* a, const Shape& sa,
            const void* b, const Shape& sb, void* y, const Shape& sy);

// ---- the same, cut into pieces, of the functions in the table
void reduce(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, const void* x, void* y);
void variance(DType dtype, i64 outer, i64 n, i64 inner, double divisor, bool root, const void* x, void* y);
/// y[o, r, i] = Σ x[o, s, i] over s ≤ r, floats summed in double; x and y are [outer, n, inner] contiguous.
void cumsum(DType dtype, i64 outer, i64 n, i64 inner, const void* x, void* y);
void argmax_rows(DType dtype, i64 rows, i64 n, const void* x, i64* y);
/// `batch` products like `first`, the i-th with a, b and c moved on by a_offsets[i], b_offsets[i] and i·c_step
/// elements. Large products are cut by rows of C, small ones bundled.
void gemm(DType dtype, i64 batch, const Gemm& first, const i64* a_offsets, const i64* b_offsets, i64 c_step);
/// Many heads like `first`, the h-th with its operands moved on by the h-th of its offsets (in elements).
struct AttentionJob {
  AttentionHead first;
  i64 heads;
  const i64 *q, *k, *v, *mask;  // mask is null where there is none
};
/// Where keys are few, weights take no more memory than the operands, and backward is faster with them: so many
/// elements, or 0. They are kept at first.kept, head by head, unless that is null.
i64 attention_kept(const AttentionJob& job);
/// The results lie at y + y_offsets[h] and, two numbers a query, at top_scale; see Table.
bool attention(DType dtype, const AttentionJob& job, void* y, const i64* y_offsets, i64 y_row, void* top_scale);
/// `first` says where the gradients of the head without offsets lie; those of g are g_offsets, of y y_offsets, of the
/// others dq_offsets and so on.
struct AttentionOffsets {
  const i64 *g, *y, *dq, *dk, *dv;
};
/// Backward needs that many elements of working memory besides.
i64 attention_workspace(const AttentionJob& job);
bool attention_backward(DType dtype, const AttentionJob& job, const AttentionGradients& first,
                        const AttentionOffsets& offsets, void* workspace);
void softmax(DType dtype, i64 rows, i64 n, const void* x, void* y);
void softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
/// x and y are row-major of `shape` (at least one dim); the mask has strides of its own.
void masked_softmax(DType dtype, const Shape& shape, const void* x, const bool* mask, const Shape& mask_strides,
                    void* y);
void masked_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
void log_softmax(DType dtype, i64 rows, i64 n, const void* x, void* y);
void log_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
void logsumexp(DType dtype, i64 rows, i64 n, const void* x, void* y);
void layer_norm(DType dtype, i64 rows, i64 n, const void* x, const void* gamma, const void* beta, double eps, void* y,
                void* mean, void* rstd);
/// dgamma and dbeta (n numbers each) may both be null.
void layer_norm_backward(DType dtype, i64 rows, i64 n, const void* g, const void* x, const void* gamma,
                         const void* mean, const void* rstd, void* dx, void* dgamma, void* dbeta);
void cross_entropy(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                   const void* weight, void* loss, double* top_sum);
void cross_entropy_backward(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                            double smoothing, const void* weight, const double* top_sum, const void* scale, void* dx);
void dropout(DType dtype, const DropoutField& field, i64 n, const void* x, void* y);
void adam(DType dtype, i64 n, const AdamStep& s, void* param, const void* grad, void* m, void* v, void* v_max);
void sgd(DType dtype, i64 n, const SgdStep& s, void* param, const void* grad, void* buffer);
/// y[r, :] = table[index[r], :] for rows of n elements.
void gather_rows(DType dtype, i64 rows, i64 n, const void* x, const i64* index, void* y);
/// y[index[r], :] += g[r, :] into y of `y_rows` rows, in the order of r whatever the number of threads.
void scatter_add_rows(DType dtype, i64 rows, i64 n, const void* g, const i64* index, i64 y_rows, void* y);

}  // namespace gradus::kernels
