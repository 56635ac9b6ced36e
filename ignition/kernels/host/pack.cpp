// Packs a weight so that vector lanes run over outputs.
#include "arguments.h"
#include "bf16.h"
#include "operators.h"
#include "team.h"

void flare_pack(void *const *args) {
  Arguments in(args);
  const bf16 *src = in.pointer<const bf16>();
  bf16 *dst = in.pointer<bf16>();
  const int64_t N = in.integer(), K = in.integer(), first = in.integer(), count = in.integer();
  const int64_t pairs = ceil_div(K, 2), last = first + count;
#pragma omp parallel for schedule(static) num_threads(team_size(count *K))
  for (int64_t block = first / kBlockOutputs; block < ceil_div(last, kBlockOutputs); block++) {
    bf16 *to = dst + block * pairs * kPairStep;
    for (int64_t lane = 0; lane < kBlockOutputs; lane++) {
      const int64_t n = block * kBlockOutputs + lane;
      if (n >= last && n < N) continue;  // A later call's row.
      const bf16 *row = src + (n - first) * K;
      for (int64_t k = 0; k < 2 * pairs; k++)
        to[k / 2 * kPairStep + 2 * lane + k % 2] = n < last && k < K ? row[k] : static_cast<bf16>(0);
    }
  }
}
