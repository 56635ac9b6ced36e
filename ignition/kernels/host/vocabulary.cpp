// The vocabulary projection: logits of the lanes that sample.
#include "arguments.h"
#include "fields.h"
#include "operators.h"
#include "product.h"

namespace {

// Sampling lanes that pass over a part of the weight together.
constexpr int64_t kLanesMax = 64;

void project(const Product &product, float *logits, const int64_t *lanes, int64_t count) {
  const int64_t V = product.N;
#pragma omp parallel num_threads(team_size(V * product.K))
  product.run_rows(lanes, count, my_share(product.blocks()), [&](int64_t lane, int64_t block, Vec sum) {
    const int64_t v = block * kBlockOutputs;
    float *to = logits + lane * V + v;
    if (v + kBlockOutputs <= V) {
      store(to, sum);
    } else {
      store_first(to, sum, V - v);
    }
  });
}

}  // namespace

void flare_vocabulary(void *const *args) {
  Arguments in(args);
  Product product;
  product.x = in.pointer<const bf16>();
  product.w = in.pointer<const bf16>();
  float *logits = in.pointer<float>();
  const int64_t *records = in.pointer<const int64_t>();
  product.staged = nullptr;  // Groups of few rows need no scratch.
  product.T = in.integer();
  product.N = in.integer();
  product.K = in.integer();
  int64_t lanes[kLanesMax], count = 0;
  for (int64_t b = 0; b < product.T; b++) {
    const int64_t *record = records + b * LANE_FIELDS;
    if (record[LANE_STATUS] == COMPLETION_STATUS_LIVE && record[LANE_SAMPLE] != 0) lanes[count++] = b;
    if (count == kLanesMax || (b + 1 == product.T && count > 0)) {
      project(product, logits, lanes, count);
      count = 0;
    }
  }
}
