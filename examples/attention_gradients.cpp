// The gradients of scaled dot-product attention: those of the engine beside the closed formulas, number by number.
#include <gradus/gradus.h>

#include <cmath>
#include <cstdio>

using namespace gradus;

struct Attention {
  Tensor output, weights, scores;
};

// The formula of the papers' tutorials, line by line. The scores are handed out only so that their gradient can be
// seen.
Attention attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {},
                    const nn::Dropout* dropout = nullptr) {
  const double d_k = static_cast<double>(query.size(-1));
  Tensor scores = matmul(query, key.transpose(-2, -1)) / std::sqrt(d_k);
  if (mask.defined()) scores = scores.masked_fill(mask == 0, -1e9);
  Tensor p_attn = softmax(scores, -1);
  if (dropout) p_attn = (*dropout)(p_attn);
  return {matmul(p_attn, value), p_attn, scores};
}

// Prints two matrices side by side and returns the largest difference of their elements.
double compare(const char* formula, const Tensor& engine, const Tensor& closed) {
  std::printf("\n%s\n", formula);
  for (int64_t i = 0; i < engine.size(0); ++i) {
    for (const Tensor& matrix : {engine, closed}) {
      std::printf(matrix.is_same(engine) ? "  " : "    |");
      for (int64_t j = 0; j < matrix.size(1); ++j) std::printf(" %8.4f", matrix.at<double>({i, j}));
    }
    std::printf("\n");
  }
  return (engine - closed).abs().max().item();
}

int main() {
  // A row is a token. Four queries look at four keys (d_k = 4) and mix four values of two numbers.
  const TensorOptions leaf{.dtype = Float64, .requires_grad = true};
  const Tensor Q =
      tensor({{1.0, 0.0, -1.0, 0.5}, {0.5, 1.5, 0.0, -0.5}, {-1.0, 1.0, 0.5, 1.0}, {1.5, -0.5, 1.0, 0.0}}, leaf);
  const Tensor K =
      tensor({{1.0, 0.5, -0.5, 0.0}, {0.0, 1.0, 1.0, -1.0}, {-0.5, 0.0, 1.5, 1.0}, {1.0, -1.0, 0.5, 0.5}}, leaf);
  const Tensor V = tensor({{1.0, 0.0}, {0.0, 1.0}, {-1.0, 0.5}, {0.5, -1.0}}, leaf);
  const Tensor Y = tensor({{1.0, 0.5}, {-0.5, 1.0}, {0.0, 0.0}, {1.0, -1.0}}, {.dtype = Float64});

  // Forward, and the engine's gradients.
  const auto [O, A, S] = attention(Q, K, V);
  A.retain_grad();
  S.retain_grad();
  const Tensor loss = (O - Y).square().sum() / 2;
  loss.backward();

  // The same by the closed formulas, in plain ops without history. G is the gradient that reaches the output.
  const NoGradGuard no_grad;
  const double scale = 1 / std::sqrt(static_cast<double>(Q.size(-1)));
  const Tensor G = O - Y;
  const Tensor dV = matmul(A.transpose(0, 1), G);
  const Tensor dA = matmul(G, V.transpose(0, 1));
  const Tensor dS = A * (dA - (A * dA).sum({-1}, /*keepdim=*/true));
  const Tensor dQ = matmul(dS, K) * scale;
  const Tensor dK = matmul(dS.transpose(0, 1), Q) * scale;

  std::printf("S = QKᵀ/√d   A = softmax S   O = AV   L = ½‖O-Y‖² = %.6f   G = dO = O-Y\n", loss.item());
  std::printf("Left the engine, right the formula.\n");
  double worst = compare("dV = AᵀG", V.grad(), dV);
  worst = std::max(worst, compare("dA = GVᵀ", A.grad(), dA));
  worst = std::max(worst, compare("dS = A∘(dA - rowsum(A∘dA))", S.grad(), dS));
  worst = std::max(worst, compare("dQ = dS·K/√d", Q.grad(), dQ));
  worst = std::max(worst, compare("dK = dSᵀ·Q/√d", K.grad(), dK));
  std::printf("\nlargest difference: %.1e\n", worst);
  return worst < 1e-12 ? 0 : 1;
}
