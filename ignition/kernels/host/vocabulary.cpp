// The vocabulary projection: logits of the lanes that sample.
#include "arguments.h"
#include "fields.h"
#include "linear.h"
#include "operators.h"

namespace {

// Sampling lanes that pass over a part of the weight together.
constexpr int64_t kLanesMax = 64;
// Blocks that stay in a cache while further groups of lanes pass over them.
constexpr int64_t kBlocksAtOnce = 8;

struct Vocabulary {
  const bf16 *h, *w;
  float *logits;
  int64_t V, K;

  void run(const int64_t *lanes, int64_t count) const {
    const bf16 *rows[kLanesMax];
    for (int64_t i = 0; i < count; i++) rows[i] = h + lanes[i] * K;
#pragma omp parallel num_threads(team_size(V * K))
    {
      const Range share = my_share(ceil_div(V, kBlockOutputs));
      const int64_t step = count <= kFewRows ? share.end - share.begin : kBlocksAtOnce;
      for (int64_t block = share.begin; block < share.end; block += step) {
        const Range range = {block, std::min(block + step, share.end)};
        for (int64_t i = 0; i < count; i += kFewRows)
          few_rows(rows + i, std::min<int64_t>(kFewRows, count - i), w, range, K,
                   [&](int r, int64_t b, Vec sum) { finish(lanes[i + r], b, sum); });
      }
    }
  }

  void finish(int64_t lane, int64_t block, Vec sum) const {
    const int64_t v = block * kBlockOutputs;
    float *to = logits + lane * V + v;
    if (v + kBlockOutputs <= V) {
      store(to, sum);
    } else {
      store_first(to, sum, V - v);
    }
  }
};

}  // namespace

void flare_vocabulary(void *const *args) {
  Arguments in(args);
  Vocabulary vocabulary;
  vocabulary.h = in.pointer<const bf16>();
  vocabulary.w = in.pointer<const bf16>();
  vocabulary.logits = in.pointer<float>();
  const int64_t *records = in.pointer<const int64_t>();
  const int64_t B = in.integer();
  vocabulary.V = in.integer();
  vocabulary.K = in.integer();
  int64_t lanes[kLanesMax], count = 0;
  for (int64_t b = 0; b < B; b++) {
    const int64_t *record = records + b * LANE_FIELDS;
    if (record[LANE_STATUS] == COMPLETION_STATUS_LIVE && record[LANE_SAMPLE] != 0) lanes[count++] = b;
    if (count == kLanesMax || (b + 1 == B && count > 0)) {
      vocabulary.run(lanes, count);
      count = 0;
    }
  }
}
