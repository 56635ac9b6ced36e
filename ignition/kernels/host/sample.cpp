// Sampling: one token a live lane, and the completion record of every lane.
//
// A lane is worked on by one thread from start to end. Its draw is a function of its logits, its request's state and its
// own Philox counter alone.
#include "arguments.h"
#include "logprobs.h"
#include "operators.h"
#include "philox.h"
#include "records.h"
#include "team.h"

namespace {

// A lane's working memory; every array holds padded(V), `peaks` one for each block.
struct Workspace {
  uint64_t *keys;
  float *scores, *set_scores, *weights, *peaks;
  int32_t *set_tokens;

  static int64_t bytes(int64_t V) { return padded(V) * 24 + ceil_div(padded(V) / kScoreBlock, 16) * 64; }

  Workspace(char *base, int64_t V) {
    keys = reinterpret_cast<uint64_t *>(base);
    scores = reinterpret_cast<float *>(keys + padded(V));
    set_scores = scores + padded(V);
    weights = set_scores + padded(V);
    set_tokens = reinterpret_cast<int32_t *>(weights + padded(V));
    peaks = reinterpret_cast<float *>(set_tokens + padded(V));
  }
};

// The tokens that may be drawn, in order of id; `tokens` is null when they are all of the vocabulary.
struct Candidates {
  const float *scores;
  const float *weights;
  const int32_t *tokens;
  int64_t count;  // A multiple of 64; the padding's weights are 0.
  float score_min, weight_min;

  int64_t token(int64_t i) const { return tokens == nullptr ? i : tokens[i]; }

  Vec kept(int64_t i) const {
    const Vec weight = load(weights + i);
    const Mask stays = both(greater_equal(load(scores + i), broadcast(score_min)), greater_equal(weight, broadcast(weight_min)));
    return select(stays, weight, zero());
  }
  float kept_block(int64_t i) const {
    return reduce_add(add(add(kept(i), kept(i + 16)), add(kept(i + 32), kept(i + 48))));
  }

  // The inverse of the cumulative distribution at u in (0, 1], or -1 where nothing can be drawn.
  int64_t draw(double u) const {
    double total = 0, below = 0;
    for (int64_t i = 0; i < count; i += kScoreBlock) total += static_cast<double>(kept_block(i));
    if (!(total > 0)) return -1;
    int64_t block = -1;
    const double target = u * total;
    for (int64_t i = 0; i < count; i += kScoreBlock) {
      const double weight = static_cast<double>(kept_block(i));
      if (weight == 0) continue;
      block = i;
      if (below + weight >= target) break;
      below += weight;
    }
    return token(draw_in_block(block, target - below));
  }

  // The block's sum is rounded otherwise than the walk's, so a walk that falls short ends at the last candidate.
  int64_t draw_in_block(int64_t block, double target) const {
    alignas(64) float kept_weights[kScoreBlock];
    for (int64_t j = 0; j < kScoreBlock; j += 16) store(kept_weights + j, kept(block + j));
    int64_t last = 0;
    double sum = 0;
    for (int64_t j = 0; j < kScoreBlock && (sum < target || sum == 0); j++) {
      if (kept_weights[j] == 0) continue;
      sum += static_cast<double>(kept_weights[j]);
      last = j;
    }
    return block + last;
  }
};

// A lane's token from its logits, or -1 where nothing can be drawn.
int64_t draw_token(const float *logits, int64_t V, const Processing &processing, const int64_t *fields, const Workspace &work) {
  processing.run(work.scores, logits, V);
  const float maximum = find_peaks(work.peaks, work.scores, padded(V));
  if (maximum == -INFINITY) return -1;
  Candidates set = {work.scores, work.weights, nullptr, padded(V), -INFINITY, 0};
  const int64_t top_k = fields[REQUEST_FIELD_TOP_K];
  if (top_k > 0 && top_k < V) {
    const float threshold =
        kth_largest(work.scores, work.peaks, maximum, padded(V), top_k, reinterpret_cast<float *>(work.keys));
    int64_t count = 0;
    for_each_reaching(work.scores, padded(V), threshold, [&](int64_t v) {
      if (v >= V) return;
      work.set_scores[count] = work.scores[v];
      work.set_tokens[count++] = static_cast<int32_t>(v);
    });
    std::fill(work.set_scores + count, work.set_scores + padded(count), -INFINITY);
    set.scores = work.set_scores;
    set.tokens = work.set_tokens;
    set.count = padded(count);
  }
  const double total = weigh(work.weights, set.scores, set.count, maximum);
  const float top_p = processing.parameters[REQUEST_PARAMETER_TOP_P];
  if (top_p < 1) set.score_min = nucleus_threshold(set.scores, work.weights, maximum, set.count, total, top_p, work.keys);
  set.weight_min = processing.parameters[REQUEST_PARAMETER_MIN_P];
  return set.draw(philox_uniform(fields[REQUEST_FIELD_SEED], fields[REQUEST_FIELD_COUNTER]));
}

struct Sample {
  const float *logits;
  const int64_t *lanes;
  int64_t *request_fields;
  const float *request_parameters;
  int32_t *histogram;
  const int64_t *bias_tokens;
  const float *bias_values;
  const uint32_t *masks;
  const int64_t *eos_tokens;
  Completions completions;
  int64_t *logprob_tokens;
  float *logprob_values;
  char *scratch;
  int64_t B, V, C, bias_max, eos_count, logprobs_max, family;

  void run_lane(int64_t b) const {
    const int64_t *lane = lanes + b * LANE_FIELDS;
    const int64_t slot = lane[LANE_SLOT], status = lane[LANE_STATUS];
    int64_t *fields = slot >= 0 && slot < C ? request_fields + slot * REQUEST_FIELDS : nullptr;
    int64_t token = -1, reported = -1;
    if (status == COMPLETION_STATUS_LIVE && lane[LANE_SAMPLE] != 0) {
      const Workspace work(scratch + b * Workspace::bytes(V), V);
      token = draw(b, lane, fields, work);
      if (fields[REQUEST_FIELD_LOGPROBS] >= 0) reported = report(b, token, fields[REQUEST_FIELD_LOGPROBS], work);
      advance(fields, slot, token);
    }
    int64_t *record = completions.write(b, slot, status, family, fields);
    record[COMPLETION_FIELD_LOGPROB_COUNT] = reported;
    if (token < 0) return;
    record[COMPLETION_FIELD_TOKEN_COUNT] = 1;
    record[COMPLETION_FIELDS] = token;
  }

  // A lane with nothing to draw (a mask that allows no token, or logits that are no numbers) ends with an end token.
  int64_t draw(int64_t b, const int64_t *lane, const int64_t *fields, const Workspace &work) const {
    Processing processing;
    processing.parameters = request_parameters + lane[LANE_SLOT] * REQUEST_PARAMETERS;
    processing.histogram = histogram + lane[LANE_SLOT] * V;
    processing.bias_tokens = bias_tokens + lane[LANE_SLOT] * bias_max;
    processing.bias_values = bias_values + lane[LANE_SLOT] * bias_max;
    processing.bias_count = fields[REQUEST_FIELD_BIAS_COUNT];
    processing.mask = lane[LANE_MASKED] != 0 ? masks + b * ceil_div(V, 32) : nullptr;
    const int64_t token = draw_token(logits + b * V, V, processing, fields, work);
    if (token >= 0) return token;
    return eos_count > 0 ? eos_tokens[0] : 0;
  }

  int64_t report(int64_t b, int64_t token, int64_t wanted, const Workspace &work) const {
    const int64_t row = completions.frame * completions.frame_lanes + b;
    float *values = logprob_values + row * (1 + logprobs_max);
    const Logprobs logprobs(logits + b * V, V, work.scores, work.weights, work.peaks);
    values[0] = logprobs.of(token);
    return logprobs.best(std::min(wanted, logprobs_max), work.scores, work.peaks, work.keys,
                         logprob_tokens + row * logprobs_max, values + 1);
  }

  void advance(int64_t *fields, int64_t slot, int64_t token) const {
    histogram[slot * V + token]++;
    fields[REQUEST_FIELD_PENDING] = token;
    fields[REQUEST_FIELD_COUNTER]++;
    fields[REQUEST_FIELD_GENERATED]++;
    const bool ended = std::find(eos_tokens, eos_tokens + eos_count, token) != eos_tokens + eos_count;
    if (ended && fields[REQUEST_FIELD_IGNORE_EOS] == 0) {
      fields[REQUEST_FIELD_FINISHED] = FINISH_EOS;
    } else if (fields[REQUEST_FIELD_GENERATED] >= fields[REQUEST_FIELD_OUTPUT_LIMIT]) {
      fields[REQUEST_FIELD_FINISHED] = FINISH_LENGTH;
    }
  }
};

}  // namespace

int64_t flare_sample_scratch_bytes(int64_t B, int64_t V) { return B * Workspace::bytes(V); }

void flare_sample(void *const *args) {
  Arguments in(args);
  Sample sample;
  sample.logits = in.pointer<const float>();
  sample.lanes = in.pointer<const int64_t>();
  sample.request_fields = in.pointer<int64_t>();
  sample.request_parameters = in.pointer<const float>();
  sample.histogram = in.pointer<int32_t>();
  sample.bias_tokens = in.pointer<const int64_t>();
  sample.bias_values = in.pointer<const float>();
  sample.masks = in.pointer<const uint32_t>();
  sample.eos_tokens = in.pointer<const int64_t>();
  sample.completions.frame = *in.pointer<const int64_t>();
  sample.completions.base = in.pointer<int64_t>();
  sample.logprob_tokens = in.pointer<int64_t>();
  sample.logprob_values = in.pointer<float>();
  sample.scratch = in.pointer<char>();
  sample.B = in.integer();
  sample.V = in.integer();
  sample.C = in.integer();
  sample.bias_max = in.integer();
  sample.eos_count = in.integer();
  sample.completions.frame_lanes = in.integer();
  sample.completions.token_capacity = in.integer();
  sample.logprobs_max = in.integer();
  sample.family = in.integer();
#pragma omp parallel for schedule(static) num_threads(team_size((sample.B - 1) * sample.V))
  for (int64_t b = 0; b < sample.B; b++) sample.run_lane(b);
}
