// The linear layer: a product, the bias, and rounding.
#include "arguments.h"
#include "operators.h"
#include "product.h"

namespace {

struct Linear {
  const bf16 *bias;
  bf16 *y;
  int64_t N;

  // Adds the bias and rounds the outputs of a block for one row.
  template <bool Biased>
  void finish(int64_t t, int64_t block, Vec sum) const {
    const int64_t n = block * kBlockOutputs, count = std::min(kBlockOutputs, N - n);
    alignas(32) bf16 tail[kBlockOutputs] = {};
    if constexpr (Biased) {
      const bf16 *from = bias + n;
      if (count < kBlockOutputs) {
        std::memcpy(tail, from, static_cast<size_t>(count) * sizeof(bf16));
        from = tail;
      }
      sum = add(sum, load_bf16(from));
    }
    bf16 *to = y + t * N + n;
    if (count == kBlockOutputs) {
      store_bf16(to, sum);
    } else {
      store_bf16_first(to, sum, count);
    }
  }
};

}  // namespace

int64_t flare_linear_scratch_bytes(int64_t T, int64_t, int64_t K) { return product_scratch_bytes(T, K); }

void flare_linear(void *const *args) {
  Arguments in(args);
  Product product;
  Linear linear;
  product.x = in.pointer<const bf16>();
  product.w = in.pointer<const bf16>();
  linear.bias = in.pointer<const bf16>();
  linear.y = in.pointer<bf16>();
  product.staged = in.pointer<Staged>();
  product.T = in.integer();
  product.N = linear.N = in.integer();
  product.K = in.integer();
  if (linear.bias != nullptr) {
    product.run([=](int64_t t, int64_t block, Vec sum) { linear.finish<true>(t, block, sum); });
  } else {
    product.run([=](int64_t t, int64_t block, Vec sum) { linear.finish<false>(t, block, sum); });
  }
}
