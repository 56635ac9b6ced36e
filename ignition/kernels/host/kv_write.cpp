// Writes new keys and values into their pages, keys with lanes over tokens, values in pairs of tokens.
#include <cstring>

#include "arguments.h"
#include "operators.h"
#include "pages.h"
#include "team.h"

void flare_kv_write(void *const *args) {
  Arguments in(args);
  const bf16 *k = in.pointer<const bf16>(), *v = in.pointer<const bf16>();
  const int64_t *token_slots = in.pointer<const int64_t>(), *positions = in.pointer<const int64_t>();
  Pages pages;
  pages.table = in.pointer<const int32_t>();
  pages.base = in.pointer<char>();
  const int64_t T = in.integer(), Hk = in.integer(), D = in.integer();
  pages.table_width = in.integer();
  pages.stride = in.integer();
  pages.key_offset = in.integer();
  pages.value_offset = in.integer();
#pragma omp parallel for schedule(static) num_threads(team_size(2 * T * Hk * D))
  for (int64_t t = 0; t < T; t++) {
    if (token_slots[t] < 0) continue;
    char *page = pages.page(token_slots[t], positions[t] / kPageTokens);
    if (page == nullptr) continue;
    const int64_t place = positions[t] % kPageTokens;
    for (int64_t h = 0; h < Hk; h++) {
      const bf16 *key = k + (t * Hk + h) * D;
      bf16 *to = pages.keys(page) + h * D * kPageTokens + 2 * place;
      for (int64_t pair = 0; pair < D / 2; pair++) std::memcpy(to + pair * kKeyStep, key + 2 * pair, 2 * sizeof(bf16));
      const bf16 *value = v + (t * Hk + h) * D;
      bf16 *lanes = pages.values(page) + (h * kPageTokens + place / 2 * 2) * D + place % 2;
      for (int64_t d = 0; d < D; d++) lanes[2 * d] = value[d];
    }
  }
}
