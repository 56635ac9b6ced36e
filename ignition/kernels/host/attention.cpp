// Causal attention over pages: prefill by chunks of rows, decode with keys split over threads.
#include "attention_block.h"

#include "arguments.h"
#include "operators.h"
#include "pages.h"

namespace {

constexpr int64_t kChunkRows = 48;      // Query rows (row x head) that pass over a block of keys together.
constexpr int64_t kChunkTokens = 16;
constexpr int64_t kSplitRowsMax = 16;   // More rows than this keep the team busy without splitting keys.

int64_t partial_floats(int64_t D) { return D + 16; }

struct Attention {
  const bf16 *q;
  const int64_t *token_slots, *positions;
  bf16 *y;
  float *scratch;
  int64_t T, Hq, Hk, D, window, scratch_bytes;
  float scale;
  Pages pages;

  int64_t heads() const { return Hq / Hk; }
  int64_t first_key(int64_t t) const { return window > 0 ? std::max<int64_t>(0, positions[t] - window + 1) : 0; }
  int64_t first_block(int64_t t) const { return first_key(t) / kPageTokens; }
  int64_t last_block(int64_t t) const { return positions[t] / kPageTokens; }
  // What row t sees of a block; empty where the block lies outside of its range.
  Keys seen(int64_t t, int64_t block) const {
    const int64_t origin = block * kPageTokens;
    return {std::max<int64_t>(0, first_key(t) - origin), std::min(kPageTokens, positions[t] + 1 - origin)};
  }
  void zero_row(int64_t t, int64_t first, int64_t count) const {
    std::memset(y + (t * Hq + first) * D, 0, static_cast<size_t>(count * D) * sizeof(bf16));
  }

  void run_chunks() const;
  void run_chunk(int64_t t, int64_t tokens, int64_t group) const;
  bool splits() const;
  void run_split() const;
  void run_split_block(int64_t t, int64_t group, int64_t block, int64_t blocks_max) const;
  int64_t blocks_max() const;
};

// Query rows of a few consecutive tokens and one group of heads, and their results so far.
struct Chunk {
  alignas(64) Staged staged[kChunkRows * (kHeadWidthMax + 32)];
  alignas(64) float values[kChunkRows * kHeadWidthMax];
  alignas(64) float block_values[kQueryRows * kHeadWidthMax];
  Partial results[kChunkRows];
};

void Attention::run_chunks() const {
  const int64_t wanted = T * Hk / (8 * omp_get_max_threads());
  const int64_t chunk = std::clamp<int64_t>(wanted, 1, kChunkTokens);
  const int64_t chunks = ceil_div(T, chunk);
#pragma omp parallel for schedule(dynamic) num_threads(team_size(T * Hq * D * 64))
  for (int64_t i = 0; i < chunks * Hk; i++) {
    const int64_t t = i / Hk * chunk, end = std::min(t + chunk, T);
    for (int64_t begin = t, next; begin < end; begin = next) {
      for (next = begin + 1; next < end && token_slots[next] == token_slots[begin];) next++;
      if (token_slots[begin] < 0) {
        for (int64_t row = begin; row < next; row++) zero_row(row, i % Hk * heads(), heads());
      } else {
        run_chunk(begin, next - begin, i % Hk);
      }
    }
  }
}

// Rows [t, t + tokens) of one slot for the query heads that share key head `group`.
void Attention::run_chunk(int64_t t, int64_t tokens, int64_t group) const {
  const int64_t all = tokens * heads(), stride = staged_stride(D);
  Chunk chunk;
  for (int64_t begin = 0; begin < all; begin += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, all - begin);
    int64_t first = INT64_MAX, last = 0, token[kChunkRows];
    for (int64_t i = 0; i < rows; i++) {
      token[i] = t + (begin + i) / heads();
      first = std::min(first, first_block(token[i]));
      last = std::max(last, last_block(token[i]));
      stage_row(chunk.staged + i * stride, q + (token[i] * Hq + group * heads() + (begin + i) % heads()) * D, D);
      chunk.results[i].values = chunk.values + i * D;
      clear(chunk.results[i], D);
    }
    for (int64_t block = first; block <= last; block++) {
      char *page = pages.page(token_slots[t], block);
      if (page == nullptr) continue;
      const bf16 *keys = pages.keys(page) + group * D * kPageTokens, *v = pages.values(page) + group * D * kPageTokens;
      for (int64_t i = 0, next; i < rows; i = next) {
        Keys ranges[kQueryRows];
        Partial partials[kQueryRows];
        for (next = i; next < std::min(rows, i + kQueryRows); next++) {
          ranges[next - i] = seen(token[next], block);
          if (ranges[next - i].begin >= ranges[next - i].end) break;
          partials[next - i].values = chunk.block_values + (next - i) * D;
        }
        if (next == i) {
          next++;
          continue;
        }
        block_partials_of(next - i, partials, {chunk.staged + i * stride, stride}, keys, v, D, scale, ranges);
        for (int64_t row = i; row < next; row++) combine(chunk.results[row], partials[row - i], D);
      }
    }
    for (int64_t i = 0; i < rows; i++)
      finish(y + (token[i] * Hq + group * heads() + (begin + i) % heads()) * D, chunk.results[i], D);
  }
}

int64_t Attention::blocks_max() const {
  int64_t blocks = 0;
  for (int64_t t = 0; t < T; t++)
    if (token_slots[t] >= 0) blocks = std::max(blocks, last_block(t) + 1 - first_block(t));
  return blocks;
}

// Keys are split where few rows would leave threads idle and the scratch holds every block's partial.
bool Attention::splits() const {
  if (T > kSplitRowsMax || omp_get_max_threads() == 1) return false;
  return T * Hq * blocks_max() * partial_floats(D) * static_cast<int64_t>(sizeof(float)) <= scratch_bytes;
}

// Every (row, key head, block) is one unit; threads take contiguous parts, then results are combined in block order.
void Attention::run_split() const {
  const int64_t most = blocks_max(), units = T * Hk * most;
#pragma omp parallel num_threads(team_size(units * heads() * D * 64))
  {
    // Rows differ in length, so shares are of the units that exist.
    int64_t live = 0, at = 0;
    for (int64_t t = 0; t < T; t++)
      if (token_slots[t] >= 0) live += Hk * (last_block(t) + 1 - first_block(t));
    const Range mine = my_share(live);
    for (int64_t t = 0; t < T; t++) {
      if (token_slots[t] < 0) continue;
      const int64_t blocks = last_block(t) + 1 - first_block(t);
      for (int64_t unit = std::max<int64_t>(0, mine.begin - at); unit < std::min(Hk * blocks, mine.end - at); unit++)
        run_split_block(t, unit / blocks, unit % blocks, most);
      at += Hk * blocks;
    }
#pragma omp barrier
    const Range rows = my_share(T * Hq);
    for (int64_t row = rows.begin; row < rows.end; row++) {
      const int64_t t = row / Hq;
      if (token_slots[t] < 0) {
        zero_row(t, row % Hq, 1);
        continue;
      }
      alignas(64) float values[kHeadWidthMax];
      Partial result;
      result.values = values;
      clear(result, D);
      for (int64_t block = 0; block <= last_block(t) - first_block(t); block++) {
        float *partial = scratch + (row * most + block) * partial_floats(D);
        if (pages.page(token_slots[t], first_block(t) + block) == nullptr) continue;
        combine(result, {partial[D], partial[D + 1], partial}, D);
      }
      finish(y + row * D, result, D);
    }
  }
}

// The partials of one row's group of heads over its block-th block, written to scratch.
void Attention::run_split_block(int64_t t, int64_t group, int64_t block, int64_t blocks_max) const {
  const int64_t index = first_block(t) + block, stride = staged_stride(D);
  char *page = pages.page(token_slots[t], index);
  if (page == nullptr) return;
  const bf16 *keys = pages.keys(page) + group * D * kPageTokens, *v = pages.values(page) + group * D * kPageTokens;
  for (int64_t i = 0; i < heads(); i += kQueryRows) {
    const int64_t rows = std::min<int64_t>(kQueryRows, heads() - i);
    alignas(64) Staged staged[kQueryRows * (kHeadWidthMax + 32)];
    Keys ranges[kQueryRows];
    Partial partials[kQueryRows];
    for (int64_t r = 0; r < rows; r++) {
      const int64_t row = t * Hq + group * heads() + i + r;
      stage_row(staged + r * stride, q + row * D, D);
      ranges[r] = seen(t, index);
      partials[r].values = scratch + (row * blocks_max + block) * partial_floats(D);
    }
    block_partials_of(rows, partials, {staged, stride}, keys, v, D, scale, ranges);
    for (int64_t r = 0; r < rows; r++) {
      partials[r].values[D] = partials[r].maximum;
      partials[r].values[D + 1] = partials[r].sum;
    }
  }
}

}  // namespace

int64_t flare_attention_scratch_bytes(int64_t T, int64_t Hq, int64_t D, int64_t context_tokens) {
  if (T > kSplitRowsMax) return 0;
  return T * Hq * ceil_div(context_tokens, kPageTokens) * partial_floats(D) * static_cast<int64_t>(sizeof(float));
}

void flare_attention(void *const *args) {
  Arguments in(args);
  Attention attention;
  attention.q = in.pointer<const bf16>();
  attention.token_slots = in.pointer<const int64_t>();
  attention.positions = in.pointer<const int64_t>();
  attention.pages.table = in.pointer<const int32_t>();
  attention.pages.base = in.pointer<char>();
  attention.y = in.pointer<bf16>();
  attention.scratch = in.pointer<float>();
  attention.T = in.integer();
  attention.Hq = in.integer();
  attention.Hk = in.integer();
  attention.D = in.integer();
  attention.pages.table_width = in.integer();
  attention.pages.stride = in.integer();
  attention.pages.key_offset = in.integer();
  attention.pages.value_offset = in.integer();
  attention.scale = in.real();
  attention.window = in.integer();
  attention.scratch_bytes = in.integer();
  if (attention.splits()) {
    attention.run_split();
  } else {
    attention.run_chunks();
  }
}
