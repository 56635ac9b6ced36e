// Embedding rows gathered from the packed table that the vocabulary projection shares.
#include <cstring>

#include "arguments.h"
#include "bf16.h"
#include "operators.h"
#include "team.h"

namespace {

void gather_row(bf16 *y, const bf16 *w, int64_t token, int64_t K) {
  const bf16 *from = w + token / kBlockOutputs * ceil_div(K, 2) * kPairStep + token % kBlockOutputs * 2;
  for (int64_t pair = 0; pair < K / 2; pair++) std::memcpy(y + 2 * pair, from + pair * kPairStep, 2 * sizeof(bf16));
  if (K % 2 != 0) y[K - 1] = from[K / 2 * kPairStep];
}

}  // namespace

void flare_embedding(void *const *args) {
  Arguments in(args);
  const int64_t *tokens = in.pointer<const int64_t>(), *token_slots = in.pointer<const int64_t>();
  const bf16 *w = in.pointer<const bf16>();
  bf16 *y = in.pointer<bf16>();
  const int64_t T = in.integer(), V = in.integer(), K = in.integer();
#pragma omp parallel for schedule(static) num_threads(team_size(T *K))
  for (int64_t t = 0; t < T; t++) {
    if (token_slots[t] < 0 || tokens[t] < 0 || tokens[t] >= V) {
      std::memset(y + t * K, 0, static_cast<size_t>(K) * sizeof(bf16));
    } else {
      gather_row(y + t * K, w, tokens[t], K);
    }
  }
}
