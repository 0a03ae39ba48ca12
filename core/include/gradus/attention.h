#pragma once
// Attention on tensors. Its two products skip what is hidden instead of multiplying it by 0, which NaN and inf survive.
#include <gradus/random.h>
#include <gradus/tensor.h>

#include <optional>

namespace gradus {

/// S = A·Bᵀ: a [..., m, d], b [..., n, d] → [..., m, n], leading dims broadcast.
/// dA = weighted_sum(G, B), dB = weighted_sum(Gᵀ, A): where G is 0, NaN and inf of the other operand do not matter.
GRADUS_API Tensor attention_scores(const Tensor& a, const Tensor& b);
/// Y = P·V with 0·x = 0 for every x, NaN and inf too: p [..., m, n], v [..., n, d] → [..., m, d], leading dims
/// broadcast. Otherwise like matmul, bit for bit. dP = attention_scores(G, V), dV = weighted_sum(Pᵀ, G).
GRADUS_API Tensor weighted_sum(const Tensor& p, const Tensor& v);

struct AttentionOptions {
  /// Bool: true where a query may attend to a key. Float: added to the scores; -inf hides. Broadcasts with
  /// [..., Lq, Lk].
  Tensor mask{};
  /// Query i may attend to the keys 0 … i + causal_offset only, besides what the mask says. Offset 0 aligns top-left;
  /// Lk - Lq aligns bottom-right, as decoding against a cache of keys needs it.
  bool is_causal = false;
  std::int64_t causal_offset = 0;
  double dropout_p = 0;            ///< of the weights, always applied (as in PyTorch: 0 it yourself in evaluation)
  std::optional<double> scale{};   ///< of the scores; default 1/√d
  Generator* generator = nullptr;  ///< for dropout; default: the library's
};

/// softmax(scale·Q·Kᵀ + mask) over what each query may see: query [..., Lq, d], key [..., Lk, d] → [..., Lq, Lk].
/// What is hidden weighs exactly 0 and sends exactly 0 back, whatever it holds; a query that may see nothing has the
/// weights 0. Masks of all kinds combine: a key is seen where none of them hides it. (The finite -1e9 hides nothing:
/// where all keys carry it, it weighs them as if there were no mask.) dropout_p is not looked at.
/// dS = P∘(G - rowsum(P∘G)), dQ = scale·dS·K, dK = scale·dSᵀ·Q, dmask = dS summed to its shape.
/// Error where sizes, dtypes or the mask do not fit.
GRADUS_API Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});
/// attention_weights(Q, K)·V: value [..., Lk, dv] → [..., Lq, dv]. A query that may see nothing gives exactly 0 and
/// sends exactly 0 back. dV = Pᵀ·G, dP = G·Vᵀ, then as above. (Vaswani et al. 2017;
/// torch.nn.functional.scaled_dot_product_attention, whose fully hidden rows are NaN in some versions)
///
/// One op that holds the [..., Lq, Lk] weights for no more than a few keys (where Lk ≤ 96 and, rounded up to 16,
/// Lk ≤ d + dv; backward is faster so): it takes memory in proportion to Lq + Lk, skips tiles of weights in which
/// nothing is seen, and draws dropout again in backward. Gradients of gradients (create_graph), a mask that requires a
/// gradient or has leading dims of its own, and NaN or inf anywhere take the composed form, which holds all weights;
/// both agree to rounding. A weight so small that it is subnormal beside the largest of its row (e^-87.3 of it in
/// Float32) is 0.
GRADUS_API Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                               const AttentionOptions& options = {});

}  // namespace gradus
