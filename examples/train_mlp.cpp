#include <gradus/gradus.h>

#include <iostream>
using namespace gradus;

int main() {
  manual_seed(0);
  Tensor x = randn({100, 2}), y = randn({100, 1});
  auto net = nn::Sequential(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 1));
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 200; ++step) {
    opt.zero_grad();
    Tensor loss = mse_loss(net(x), y);
    loss.backward();
    opt.step();
    if (step % 50 == 49) std::cout << "step " << step + 1 << "  loss " << loss.item() << '\n';
  }
}
