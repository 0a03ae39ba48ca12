#pragma once
// What the files of this folder give to the table.
#include "../table.h"

namespace gradus::kernels::GRADUS_ISA_NS {

// elementwise.cpp: arithmetic and functions of Float32 and Float64; integer.cpp: those of Int64 and Bool
UnaryRun unary_float(Unary op, DType dtype);
BinaryRun binary_float(Binary op, DType dtype);
UnaryRun unary_integer(Unary op, DType dtype);
BinaryRun binary_integer(Binary op, DType dtype);

// compare.cpp
BinaryRun compare(Compare op, DType dtype);
SelectRun select(DType dtype);
UnaryRun cast(DType from, DType to);

// reduce.cpp
void reduce(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, const void* x, void* y);
double sum_run(DType dtype, i64 n, const void* x);
void add_rows(DType dtype, i64 n, i64 inner, const void* x, double* y);
void argmax_rows(DType dtype, i64 rows, i64 n, const void* x, i64* y);

// moments.cpp
void variance(DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, double divisor, bool root, const void* x,
              void* y);
Moments moments_run(DType dtype, i64 n, const void* x);

// gemm.cpp
void gemm(DType dtype, const Gemm& g);
GemmBlocks gemm_blocks(DType dtype);
void gemm_pack(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, void* packed);
void gemm_multiply(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, const void* packed, i64 i0, i64 i1);

// attention.cpp, attention_backward.cpp
AttentionBlocks attention_blocks();
bool attention(DType dtype, const AttentionHead& head, i64 i0, i64 i1, void* y, i64 y_row, void* top_scale);
bool attention_backward(DType dtype, const AttentionHead& head, const AttentionGradients& gradients, i64 j0, i64 j1);

// short_attention.cpp
i64 short_bias_row(DType dtype, const AttentionHead& head);
void short_bias(DType dtype, const AttentionHead& head, void* bias);
bool short_attention(DType dtype, const AttentionHead& head, const void* bias, i64 i0, i64 i1, void* y, i64 y_row,
                     void* top_scale);
bool short_attention_backward(DType dtype, const AttentionHead& head, const AttentionGradients& gradients);

// softmax.cpp
void softmax(DType dtype, i64 rows, i64 n, const void* x, void* y);
void softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
void masked_softmax(DType dtype, i64 n, const void* x, const bool* mask, i64 mask_step, void* y);
void masked_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
void log_softmax(DType dtype, i64 rows, i64 n, const void* x, void* y);
void log_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
void logsumexp(DType dtype, i64 rows, i64 n, const void* x, void* y);

// layer_norm.cpp
void layer_norm(DType dtype, i64 rows, i64 n, const void* x, const void* gamma, const void* beta, double eps, void* y,
                void* mean, void* rstd);
void layer_norm_backward(DType dtype, i64 rows, i64 n, const void* g, const void* x, const void* gamma,
                         const void* mean, const void* rstd, void* dx, double* dgamma, double* dbeta);

// cross_entropy.cpp
void cross_entropy(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                   const void* weight, void* loss, double* top_sum);
void cross_entropy_backward(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                            double smoothing, const void* weight, const double* top_sum, const void* scale, void* dx);

// random.cpp
void dropout(DType dtype, const DropoutField& field, i64 first, i64 n, const void* x, void* y);
void philox(std::uint64_t seed, std::uint64_t offset, i64 first, i64 n, std::uint32_t* words);

// update.cpp
void adam(DType dtype, i64 n, const AdamStep& s, void* param, const void* grad, void* m, void* v, void* v_max);
void sgd(DType dtype, i64 n, const SgdStep& s, void* param, const void* grad, void* buffer);

// Calls f<T>(arguments...) for the float type of dtype.
#define GRADUS_FLOATS(f, dtype, ...) ((dtype) == DType::Float32 ? f<float>(__VA_ARGS__) : f<double>(__VA_ARGS__))

}  // namespace gradus::kernels::GRADUS_ISA_NS
