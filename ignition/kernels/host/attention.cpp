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
  Block block(char *page, const char *next, int64_t group) const {
    const int64_t head = group * D * kPageTokens;
    return {pages.keys(page) + head, pages.values(page) + head, D, next == nullptr ? 0 : next - page, scale};
  }
  void zero_row(int64_t t, int64_t first, int64_t count) const {
    std::memset(y + (t * Hq + first) * D, 0, static_cast<size_t>(count * D) * sizeof(bf16));
  }

  void run_chunks() const;
  void run_chunk(int64_t t, int64_t tokens, int64_t group) const;
  void run_rows(int64_t t, int64_t group, int64_t begin, int64_t rows) const;
  void add_block(Partials &results, const Block &block, const StagedRows &q, int64_t rows, const Keys *ranges,
                 float *values) const;
  bool splits() const;
  void run_split() const;
  void run_split_block(int64_t t, int64_t group, int64_t block_index, int64_t most) const;
  void combine_split(int64_t row, int64_t most) const;
  float *partial(int64_t row, int64_t block, int64_t most) const { return scratch + (row * most + block) * partial_floats(D); }
  int64_t blocks_max() const;
};

// Query rows of a few consecutive tokens and one group of heads, tile by tile, and their results so far.
struct Chunk {
  alignas(64) Staged staged[kChunkRows * (kHeadWidthMax + 32)];
  alignas(64) float values[kChunkRows * kHeadWidthMax];
  alignas(64) float block_values[kQueryRows * kHeadWidthMax];
  Partials tiles[(kChunkRows + kQueryRows - 1) / kQueryRows];
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
  const int64_t all = tokens * heads();
  for (int64_t begin = 0; begin < all; begin += kChunkRows)
    run_rows(t, group, begin, std::min(kChunkRows, all - begin));
}

// Rows [begin, begin + rows) of the chunk's (token, head) pairs: every block of keys passes over all of their tiles.
void Attention::run_rows(int64_t t, int64_t group, int64_t begin, int64_t rows) const {
  const int64_t stride = staged_stride(D);
  const auto token = [&](int64_t i) { return t + (begin + i) / heads(); };
  const auto row = [&](int64_t i) { return (token(i) * Hq + group * heads() + (begin + i) % heads()) * D; };
  Chunk chunk;
  int64_t first = INT64_MAX, last = 0;
  for (int64_t i = 0; i < rows; i++) {
    Partials &tile = chunk.tiles[i / kQueryRows];
    first = std::min(first, first_block(token(i)));
    last = std::max(last, last_block(token(i)));
    stage_row(chunk.staged + i * stride, q + row(i), D);
    tile.clear(i % kQueryRows, chunk.values + i * D, D);
  }
  for (int64_t index = first; index <= last; index++) {
    char *page = pages.page(token_slots[t], index);
    if (page == nullptr) continue;
    const char *next = index < last ? pages.page(token_slots[t], index + 1) : nullptr;
    for (int64_t i = 0; i < rows; i += kQueryRows) {
      Keys ranges[kQueryRows];
      const int64_t count = std::min<int64_t>(kQueryRows, rows - i);
      for (int64_t r = 0; r < count; r++) ranges[r] = seen(token(i + r), index);
      add_block(chunk.tiles[i / kQueryRows], block(page, i == 0 ? next : nullptr, group), {chunk.staged + i * stride, stride}, count, ranges,
                chunk.block_values);
    }
  }
  for (int64_t i = 0; i < rows; i++) {
    const Partials &tile = chunk.tiles[i / kQueryRows];
    finish(y + row(i), tile.values[i % kQueryRows], tile.sum[i % kQueryRows], D);
  }
}

// Adds a block to a tile's results. Rows that see none of it stay as they are: they are the first or the last ones, since
// positions ascend.
void Attention::add_block(Partials &results, const Block &block, const StagedRows &q, int64_t rows, const Keys *ranges,
                          float *values) const {
  int64_t first = 0;
  while (first < rows && ranges[first].begin >= ranges[first].end) first++;
  while (rows > first && ranges[rows - 1].begin >= ranges[rows - 1].end) rows--;
  if (first == rows) return;
  Partials fresh;
  for (int64_t r = first; r < rows; r++) fresh.values[r] = values + r * D;
  block.partials_of(rows - first, fresh, first, q, ranges);
  results.add(fresh, first, rows, D);
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
      combine_split(row, most);
    }
  }
}

// The partials of one row's group of heads over its block-th block, written to scratch.
void Attention::run_split_block(int64_t t, int64_t group, int64_t block_index, int64_t most) const {
  const int64_t index = first_block(t) + block_index, stride = staged_stride(D);
  char *page = pages.page(token_slots[t], index);
  if (page == nullptr) return;
  const char *next = index < last_block(t) ? pages.page(token_slots[t], index + 1) : nullptr;
  for (int64_t i = 0; i < heads(); i += kQueryRows) {
    const int64_t rows = std::min<int64_t>(kQueryRows, heads() - i), row = t * Hq + group * heads() + i;
    alignas(64) Staged staged[kQueryRows * (kHeadWidthMax + 32)];
    Keys ranges[kQueryRows];
    Partials partials;
    for (int64_t r = 0; r < rows; r++) {
      stage_row(staged + r * stride, q + (row + r) * D, D);
      ranges[r] = seen(t, index);
      partials.values[r] = partial(row + r, block_index, most);
    }
    block(page, next, group).partials_of(rows, partials, 0, {staged, stride}, ranges);
    for (int64_t r = 0; r < rows; r++) {
      partials.values[r][D] = partials.maximum[r];
      partials.values[r][D + 1] = partials.sum[r];
    }
  }
}

// Combines a row's partials from scratch in block order.
void Attention::combine_split(int64_t row, int64_t most) const {
  const int64_t t = row / Hq;
  alignas(64) float values[kHeadWidthMax];
  Partials result, block;
  result.clear(0, values, D);
  for (int64_t i = 0; i <= last_block(t) - first_block(t); i++) {
    if (pages.page(token_slots[t], first_block(t) + i) == nullptr) continue;
    block.values[0] = partial(row, i, most);
    block.maximum[0] = block.values[0][D];
    block.sum[0] = block.values[0][D + 1];
    result.add(block, 0, 1, D);
  }
  finish(y + row * D, values, result.sum[0], D);
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
