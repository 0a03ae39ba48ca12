// The table of this instruction set.
#include "families.h"

#define GRADUS_JOIN(a, b) a##b
#define GRADUS_TABLE(isa) GRADUS_JOIN(table_, isa)
#define GRADUS_TEXT_OF(x) #x
#define GRADUS_TEXT(x) GRADUS_TEXT_OF(x)

namespace gradus::kernels {

namespace {

UnaryRun unary_of(Unary op, DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 ? GRADUS_ISA_NS::unary_float(op, dtype)
                                                            : GRADUS_ISA_NS::unary_integer(op, dtype);
}

BinaryRun binary_of(Binary op, DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 ? GRADUS_ISA_NS::binary_float(op, dtype)
                                                            : GRADUS_ISA_NS::binary_integer(op, dtype);
}

}  // namespace

extern const Table GRADUS_TABLE(GRADUS_ISA_NS);
const Table GRADUS_TABLE(GRADUS_ISA_NS) = {
    .name = GRADUS_TEXT(GRADUS_ISA_NS),
    .unary = unary_of,
    .binary = binary_of,
    .compare = GRADUS_ISA_NS::compare,
    .select = GRADUS_ISA_NS::select,
    .cast = GRADUS_ISA_NS::cast,
    .reduce = GRADUS_ISA_NS::reduce,
    .sum_run = GRADUS_ISA_NS::sum_run,
    .add_rows = GRADUS_ISA_NS::add_rows,
    .variance = GRADUS_ISA_NS::variance,
    .moments_run = GRADUS_ISA_NS::moments_run,
    .argmax_rows = GRADUS_ISA_NS::argmax_rows,
    .gemm = GRADUS_ISA_NS::gemm,
    .gemm_blocks = GRADUS_ISA_NS::gemm_blocks,
    .gemm_pack = GRADUS_ISA_NS::gemm_pack,
    .gemm_multiply = GRADUS_ISA_NS::gemm_multiply,
    .attention_blocks = GRADUS_ISA_NS::attention_blocks,
    .attention = GRADUS_ISA_NS::attention,
    .attention_backward = GRADUS_ISA_NS::attention_backward,
    .short_bias_row = GRADUS_ISA_NS::short_bias_row,
    .short_bias = GRADUS_ISA_NS::short_bias,
    .short_attention = GRADUS_ISA_NS::short_attention,
    .short_attention_backward = GRADUS_ISA_NS::short_attention_backward,
    .softmax = GRADUS_ISA_NS::softmax,
    .softmax_backward = GRADUS_ISA_NS::softmax_backward,
    .masked_softmax = GRADUS_ISA_NS::masked_softmax,
    .masked_softmax_backward = GRADUS_ISA_NS::masked_softmax_backward,
    .log_softmax = GRADUS_ISA_NS::log_softmax,
    .log_softmax_backward = GRADUS_ISA_NS::log_softmax_backward,
    .logsumexp = GRADUS_ISA_NS::logsumexp,
    .layer_norm = GRADUS_ISA_NS::layer_norm,
    .layer_norm_backward = GRADUS_ISA_NS::layer_norm_backward,
    .cross_entropy = GRADUS_ISA_NS::cross_entropy,
    .cross_entropy_backward = GRADUS_ISA_NS::cross_entropy_backward,
    .dropout = GRADUS_ISA_NS::dropout,
    .philox = GRADUS_ISA_NS::philox,
    .adam = GRADUS_ISA_NS::adam,
    .sgd = GRADUS_ISA_NS::sgd,
};

}  // namespace gradus::kernels
