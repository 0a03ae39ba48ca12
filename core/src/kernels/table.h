#pragma once
// The functions that are compiled once per instruction set (folder isa/), each of which does one piece of work on the
// calling thread: raw pointers, sizes and strides, no Tensor. Strides are in elements. "Rows" are contiguous.
//
// Every source of every set includes this; so nothing of the standard library is in it but <cstdint>.
#include <gradus/dtype.h>

#include <cstdint>

namespace gradus::kernels {

using i64 = std::int64_t;

// One input; p and q are the op's numbers.
enum class Unary : std::uint8_t {
  Copy,
  Neg,
  Abs,
  Sign,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Square,
  Reciprocal,
  Sin,
  Cos,
  Tanh,
  Sigmoid,
  Relu,
  Gelu,        // x·Φ(x)
  GeluTanh,    // the tanh approximation
  Silu,        // x·sigmoid(x)
  Softplus,    // ln(1 + eˣ)
  AddScalar,   // x + p
  MulScalar,   // x · p
  DivScalar,   // x / p
  RSubScalar,  // p - x
  RDivScalar,  // p / x
  PowScalar,   // x ^ p
  Clamp,       // min(max(x, p), q), NaN stays
};

// Two inputs. The *Backward ones take the upstream gradient g first.
enum class Binary : std::uint8_t {
  Add,
  Sub,
  Mul,
  Div,
  Pow,
  Maximum,
  Minimum,
  TanhBackward,      // (g, y): g·(1 - y²)
  SigmoidBackward,   // (g, y): g·y·(1 - y)
  ReluBackward,      // (g, y): y > 0 ? g : 0
  GeluBackward,      // (g, x): g·(Φ(x) + x·φ(x))
  GeluTanhBackward,  // (g, x)
  SiluBackward,      // (g, x): g·s·(1 + x·(1 - s)), s = sigmoid(x)
};

enum class Compare : std::uint8_t { Eq, Ne, Lt, Le, Gt, Ge };

enum class Reduce : std::uint8_t { Sum, Max, Min };  // Max and Min: NaN wins

// Of some numbers: their mean and Σ(x - mean)².
struct Moments {
  double mean, squares;
};

// One run along the innermost dimension, each operand with its own stride (0 repeats one element). y may be an input,
// element for element. The value of an element never depends on its place in the run or on the strides.
using UnaryRun = void (*)(i64 n, const void* x, i64 sx, void* y, i64 sy, double p, double q);
using BinaryRun = void (*)(i64 n, const void* a, i64 sa, const void* b, i64 sb, void* y, i64 sy);
using SelectRun = void (*)(i64 n, const bool* c, i64 sc, const void* a, i64 sa, const void* b, i64 sb, void* y, i64 sy);

// One matrix product C = A·B (+ C where accumulate): A is m×k, B is k×n, C is m×n, each with a row and a column stride.
struct Gemm {
  i64 m, n, k;
  const void* a;
  i64 a_row, a_col;
  const void* b;
  i64 b_row, b_col;
  void* c;
  i64 c_row;  // c's columns are neighbours
  bool accumulate;
  const void* bias;  // n numbers added to each row, or null
};

// How a product is cut: C into tiles, B into blocks of k × cols that are packed panel by panel (of tile_cols columns).
struct GemmBlocks {
  i64 tile_rows, tile_cols, k, cols;
  i64 near_rows;  // B is read in place where its rows are no more elements apart
};

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  double correction1, correction2;  // 1 - beta^t
  bool decoupled;                   // AdamW
  bool maximize;
};

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first;  // first: the momentum buffer is born from this gradient
};

// A Bernoulli field: element i is dropped iff word i of the Philox stream (key, counter offset) < threshold.
struct DropoutField {
  std::uint64_t seed = 0, offset = 0;  // key; the stream's first block of four words
  double p = 0;
};

// Of a tile of scores: all that its queries may see lies in columns [0, end), and columns [0, shown) are seen by each.
struct SeenTile {
  std::int32_t end, shown;
};

// How attention is cut: the scores of `queries` × `keys` make one tile.
struct AttentionBlocks {
  i64 queries, keys;
};

// From one row of kept weights to the next: whole vectors of every set.
constexpr i64 kept_row(i64 keys) { return (keys + 15) / 16 * 16; }

// One head: y = dropout(softmax(scale·Q·Kᵀ + mask))·V, with Q of queries × depth, K of keys × depth, V of keys × width.
// Columns are neighbours, rows have a stride.
struct AttentionHead {
  i64 queries, keys, depth, width;
  const void* q;
  i64 q_row;
  const void* k;
  i64 k_row;
  const void* v;
  i64 v_row;
  double scale;

  // What query i sees of key j. Each of these may hide it: not seen, -inf added, and j > i + last where `causal`.
  const bool* seen;   // or null
  const void* added;  // to the scores, or null
  i64 mask_row, mask_col;
  bool causal;
  i64 last;
  const SeenTile* tiles;  // row by row, for the blocks above

  DropoutField dropout;  // none where p = 0
  i64 first_weight;      // the place in its field of this head's weight [0, 0]; they lie row by row

  // What forward keeps for backward where all keys are one tile, or null: e^(score - largest), with a minus (also
  // before 0) where the weight is dropped; row by row, kept_row(keys) apart, 0 where nothing is seen and where there is
  // no key (by whole vectors at least).
  void* kept;
};

// Whether the powers that may be kept take no more memory than the rows of K and V.
constexpr bool keeps_powers(const AttentionHead& h) { return kept_row(h.keys) <= h.depth + h.width; }

// Where the gradients of a head lie.
struct AttentionGradients {
  const void* g;
  i64 g_row;
  const void* y;  // the head's result
  i64 y_row;
  const void* top_scale;
  void* dq;
  i64 dq_row;
  void* dk;
  i64 dk_row;
  void* dv;
  i64 dv_row;
};

struct Table {
  const char* name;

  UnaryRun (*unary)(Unary op, DType dtype);       // null where the pair has no meaning
  BinaryRun (*binary)(Binary op, DType dtype);    // y has the dtype of the inputs
  BinaryRun (*compare)(Compare op, DType dtype);  // y is bool
  SelectRun (*select)(DType dtype);               // y = c ? a : b
  UnaryRun (*cast)(DType from, DType to);         // float to int truncates (NaN and what does not fit gives 0)

  // y[o, i] = op over r of x[o, r, i] for i in [i0, i1); x is [outer, n, inner] contiguous, y is [outer, inner].
  void (*reduce)(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, const void* x, void* y);
  // Σ x over n neighbours in double.
  double (*sum_run)(DType dtype, i64 n, const void* x);
  // y[i] += Σ x[r, i] over n rows of `inner` neighbours. (Float32 and Float64)
  void (*add_rows)(DType dtype, i64 n, i64 inner, const void* x, double* y);
  // y[o, i] = Σ(x[o, r, i] - mean)²/divisor over r (its root where asked), laid out as for reduce; n > 0.
  void (*variance)(DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, double divisor, bool root, const void* x,
                   void* y);
  Moments (*moments_run)(DType dtype, i64 n, const void* x);                 // of n > 0 neighbours
  void (*argmax_rows)(DType dtype, i64 rows, i64 n, const void* x, i64* y);  // first of ties, NaN wins

  void (*gemm)(DType dtype, const Gemm& g);
  // The same in parts, for several threads: one block of B is packed (panels of columns [j0, j1), where j0 is a
  // multiple of tile_cols; each takes k·tile_cols elements), and rows [i0, i1) of C get the share of [p0, p0 + k) in
  // their sums. Where `packed` is null, B is read in place: its columns are neighbours, and whole panels.
  GemmBlocks (*gemm_blocks)(DType dtype);
  void (*gemm_pack)(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, void* packed);
  void (*gemm_multiply)(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, const void* packed, i64 i0, i64 i1);

  AttentionBlocks (*attention_blocks)();
  // Rows [i0, i1) of y, i0 being the first of a block. Two numbers a query are written into top_scale: its largest
  // score and 1/Σ e^(score - largest). False where something is NaN or infinite: then nothing that was written counts.
  bool (*attention)(DType dtype, const AttentionHead& head, i64 i0, i64 i1, void* y, i64 y_row, void* top_scale);
  // dK and dV of the keys [j0, j1), j0 being the first of a tile, and their share of dQ. False as above.
  bool (*attention_backward)(DType dtype, const AttentionHead& head, const AttentionGradients& gradients, i64 j0,
                             i64 j1);
  // Short heads, which have few keys: the elements in a row of their bias, 0 for all other heads; and that bias, what
  // is added to scores, -inf where a query does not see a key. Where short_attention gives false, attention is to be
  // asked. Backward takes heads whose powers were kept, all of it at once, and looks at no tiles.
  i64 (*short_bias_row)(DType dtype, const AttentionHead& head);
  void (*short_bias)(DType dtype, const AttentionHead& head, void* bias);
  bool (*short_attention)(DType dtype, const AttentionHead& head, const void* bias, i64 i0, i64 i1, void* y, i64 y_row,
                          void* top_scale);
  bool (*short_attention_backward)(DType dtype, const AttentionHead& head, const AttentionGradients& gradients);

  // Rows of n neighbours. (Float32 and Float64)
  void (*softmax)(DType dtype, i64 rows, i64 n, const void* x, void* y);
  void (*softmax_backward)(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);  // y∘(g - Σ g∘y)
  // One row: softmax where mask[i·step] is true, 0 elsewhere; all 0 where it is true nowhere.
  void (*masked_softmax)(DType dtype, i64 n, const void* x, const bool* mask, i64 mask_step, void* y);
  // The same as softmax_backward, but exactly 0 where y is 0, whatever g is there.
  void (*masked_softmax_backward)(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);
  void (*log_softmax)(DType dtype, i64 rows, i64 n, const void* x, void* y);
  void (*log_softmax_backward)(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx);  // g - eʸ Σ g
  void (*logsumexp)(DType dtype, i64 rows, i64 n, const void* x, void* y);  // y[r] = ln Σ eˣ
  // y = (x - mean)·rstd·gamma + beta; gamma and beta may be null. Written too: two numbers a row whose sum is its mean,
  // and its rstd.
  void (*layer_norm)(DType dtype, i64 rows, i64 n, const void* x, const void* gamma, const void* beta, double eps,
                     void* y, void* mean, void* rstd);
  // dx = rstd·(g∘γ - mean(g∘γ) - x̂·mean(g∘γ∘x̂)), and added to n sums each: dgamma[i] += Σ g·x̂, dbeta[i] += Σ g over
  // the rows. gamma may be null, and so may both sums.
  void (*layer_norm_backward)(DType dtype, i64 rows, i64 n, const void* g, const void* x, const void* gamma,
                              const void* mean, const void* rstd, void* dx, double* dgamma, double* dbeta);
  // Per row r with target t = target[r]: loss[r] = w_t·(1-ε)·(lse - x_t) + ε/n·Σ_j w_j·(lse - x_j), lse = ln Σ eˣ; 0
  // where t is `ignore`. Two numbers a row are written into top_sum: max x and Σ e^(x - max x). weight (n numbers) may
  // be null for 1.
  void (*cross_entropy)(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                        const void* weight, void* loss, double* top_sum);
  // dx[r, j] = scale[r]·d loss[r]/d x[r, j], exactly 0 for ignored rows.
  void (*cross_entropy_backward)(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                                 double smoothing, const void* weight, const double* top_sum, const void* scale,
                                 void* dx);
  // y[i] = dropped(first + i) ? 0 : x[i]/(1-p), for n neighbours; first is a multiple of 4.
  void (*dropout)(DType dtype, const DropoutField& field, i64 first, i64 n, const void* x, void* y);
  // n words of the Philox stream (key seed, counter offset + ...), from word `first` (a multiple of 4).
  void (*philox)(std::uint64_t seed, std::uint64_t offset, i64 first, i64 n, std::uint32_t* words);

  void (*adam)(DType dtype, i64 n, const AdamStep& s, void* param, const void* grad, void* m, void* v, void* v_max);
  void (*sgd)(DType dtype, i64 n, const SgdStep& s, void* param, const void* grad, void* buffer);
};

}  // namespace gradus::kernels
