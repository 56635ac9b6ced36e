// Causal attention over pages: prefill by chunks of rows, decode with keys split over threads.
#if defined(__AMX_BF16__)
#include "attention_block_amx.h"
#else
#include "attention_block_vector.h"
#endif

#include "arguments.h"
#include "operators.h"
#include "pages.h"

namespace {

constexpr int64_t kChunkRows = 96;     // Query rows (row x head) that pass over a block of keys together.
constexpr int64_t kTilesToShare = 4;   // As many tiles a thread keep the team busy without splitting keys.
constexpr int64_t kSplitRowsMax = 16;  // More tokens than this are never split.

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
  // What a token sees.
  Keys range(int64_t t) const { return {first_key(t), positions[t] + 1}; }
  Block block(char *page, const char *next, int64_t group) const {
    const int64_t head = group * D * kPageTokens;
    return {pages.keys(page) + head, pages.values(page) + head, D, next == nullptr ? 0 : next - page, scale};
  }

  // Calls f(begin, rows) for tiles of at most `most` query rows of one slot: of the rows that the heads of one group make
  // of all tokens, row i is head i % heads() of token i / heads().
  template <typename F>
  void each_tile(int64_t most, const F &f) const {
    for (int64_t t = 0, next; t < T; t = next) {
      for (next = t + 1; next < T && token_slots[next] == token_slots[t];) next++;
      for (int64_t begin = t * heads(); begin < next * heads(); begin += most)
        f(begin, std::min(most, next * heads() - begin));
    }
  }
  int64_t token(int64_t row) const { return row / heads(); }
  // Where a group's row lies in q and in y.
  int64_t place(int64_t row, int64_t group) const {
    return (token(row) * Hq + group * heads() + row % heads()) * D;
  }

  void zero_row(int64_t row, int64_t group) const {
    std::memset(y + place(row, group), 0, static_cast<size_t>(D) * sizeof(bf16));
  }

  void run_chunks() const;
  void run_rows(int64_t begin, int64_t rows, int64_t group) const;
  void add_block(Partials &results, const Block &block, const StagedRows &q, int64_t rows, const Keys *ranges,
                 float *values) const;
  bool splits() const;
  void run_split() const;
  void run_split_block(int64_t begin, int64_t rows, int64_t group, int64_t index, int64_t most) const;
  void combine_split(int64_t row, int64_t group, int64_t most) const;
  // A row's partial of the index-th block from the first that it sees.
  float *partial(int64_t row, int64_t group, int64_t index, int64_t most) const {
    return scratch + ((group * T * heads() + row) * most + index) * partial_floats(D);
  }
  int64_t blocks_max() const;
};

// What of a range of keys lies in a block, counted from its first; empty where none does.
Keys part_of(Keys range, int64_t block) {
  const int64_t origin = block * kPageTokens;
  return {std::max<int64_t>(0, range.begin - origin), std::min(kPageTokens, range.end - origin)};
}

// Query rows of a few consecutive tokens and one group of heads, tile by tile, and their results so far.
struct Chunk {
  Keys ranges[kChunkRows];
  alignas(64) Staged staged[kChunkRows * (kHeadWidthMax + 32)];
  alignas(64) float values[kChunkRows * kHeadWidthMax];
  alignas(64) float block_values[kQueryRows * kHeadWidthMax];
  Partials tiles[ceil_div(kChunkRows, kQueryRows)];
};

// Threads take chunks of as many rows as leave enough chunks to share out evenly.
void Attention::run_chunks() const {
  const int64_t rows = T * heads(), wanted = rows * Hk / (8 * omp_get_max_threads());
  const int64_t most = std::clamp<int64_t>(wanted / kQueryRows, 1, kChunkRows / kQueryRows) * kQueryRows;
#pragma omp parallel num_threads(team_size(T * Hq * D * 64))
  {
    [[maybe_unused]] BlockRegisters registers;
    const int64_t chunks = ceil_div(rows, most);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < chunks * Hk; i++) {
      const int64_t begin = i / Hk * most, end = std::min(begin + most, rows);
      // Rows of a chunk may be of several slots.
      for (int64_t row = begin, next; row < end; row = next) {
        for (next = row + 1; next < end && token_slots[token(next)] == token_slots[token(row)];) next++;
        run_rows(row, next - row, i % Hk);
      }
    }
  }
}

// Rows [begin, begin + rows) of a group, all of one slot: every block of keys passes over all of their tiles.
void Attention::run_rows(int64_t begin, int64_t rows, int64_t group) const {
  const int64_t slot = token_slots[token(begin)], stride = staged_stride(D);
  if (slot < 0) {
    for (int64_t i = 0; i < rows; i++) zero_row(begin + i, group);
    return;
  }
  Chunk chunk;
  int64_t first = INT64_MAX, last = 0;
  for (int64_t i = 0; i < rows; i++) {
    first = std::min(first, first_block(token(begin + i)));
    last = std::max(last, last_block(token(begin + i)));
    chunk.ranges[i] = range(token(begin + i));
    stage_row(chunk.staged + i * stride, q + place(begin + i, group), D);
  }
  for (int64_t i = 0; i < rows; i += kQueryRows)
    chunk.tiles[i / kQueryRows].clear(std::min<int64_t>(kQueryRows, rows - i), chunk.values + i * D, D);
  for (int64_t index = first; index <= last; index++) {
    char *page = pages.page(slot, index);
    if (page == nullptr) continue;
    const char *next = index < last ? pages.page(slot, index + 1) : nullptr;
    for (int64_t i = 0; i < rows; i += kQueryRows) {
      Keys ranges[kQueryRows];
      const int64_t count = std::min<int64_t>(kQueryRows, rows - i);
      for (int64_t r = 0; r < count; r++) ranges[r] = part_of(chunk.ranges[i + r], index);
      add_block(chunk.tiles[i / kQueryRows], block(page, i == 0 ? next : nullptr, group),
                {chunk.staged + i * stride, stride}, count, ranges, chunk.block_values);
    }
  }
  for (int64_t i = 0; i < rows; i++)
    finish(y + place(begin + i, group), chunk.values + i * D, chunk.tiles[i / kQueryRows].sum[i % kQueryRows], D);
}

// Rows that see nothing of a block are the first or the last ones, since positions ascend; this gives the others.
Range rows_that_see(int64_t rows, const Keys *ranges) {
  int64_t first = 0;
  while (first < rows && ranges[first].begin >= ranges[first].end) first++;
  while (rows > first && ranges[rows - 1].begin >= ranges[rows - 1].end) rows--;
  return {first, rows};
}

// Adds a block to a tile's results. Rows that see none of it stay as they are.
void Attention::add_block(Partials &results, const Block &block, const StagedRows &q, int64_t rows, const Keys *ranges,
                          float *values) const {
  const Range seeing = rows_that_see(rows, ranges);
  if (seeing.begin == seeing.end) return;
  Partials fresh;
  fresh.values = values;
  block.partials_of(seeing.end - seeing.begin, fresh, seeing.begin, q, ranges);
  results.add(fresh, seeing.begin, seeing.end, D);
}

int64_t Attention::blocks_max() const {
  int64_t blocks = 0;
  for (int64_t t = 0; t < T; t++)
    if (token_slots[t] >= 0) blocks = std::max(blocks, last_block(t) + 1 - first_block(t));
  return blocks;
}

// Keys are split where the scratch holds every block's partial, and either tiles hold one token's rows, whose partials are
// little beside the keys and whose lengths differ, or there are too few tiles for the team.
bool Attention::splits() const {
  if (T > kSplitRowsMax || omp_get_max_threads() == 1) return false;
  int64_t tiles = 0;
  bool several = false;
  each_tile(kQueryRows, [&](int64_t begin, int64_t rows) {
    if (token_slots[token(begin)] < 0) return;
    tiles += Hk;
    several |= rows > heads();
  });
  if (several && tiles >= kTilesToShare * omp_get_max_threads()) return false;
  return T * Hq * blocks_max() * partial_floats(D) * static_cast<int64_t>(sizeof(float)) <= scratch_bytes;
}

// Every (tile of rows, key head, block) is one unit; threads take contiguous parts, then results are combined in block order.
void Attention::run_split() const {
  const int64_t most = blocks_max();
#pragma omp parallel num_threads(team_size(T * Hq * most * D * 64))
  {
    BlockRegisters registers;
    // Rows differ in length, so shares are of the units that exist.
    const auto each_unit = [&](const auto &f) {
      each_tile(kQueryRows, [&](int64_t begin, int64_t rows) {
        const int64_t t = token(begin), end = token(begin + rows - 1);
        if (token_slots[t] >= 0) f(begin, rows, first_block(t), last_block(end) + 1 - first_block(t));
      });
    };
    int64_t live = 0, at = 0;
    each_unit([&](int64_t, int64_t, int64_t, int64_t blocks) { live += Hk * blocks; });
    const Range mine = my_share(live);
    each_unit([&](int64_t begin, int64_t rows, int64_t first, int64_t blocks) {
      registers.hold(rows);
      for (int64_t unit = std::max<int64_t>(0, mine.begin - at); unit < std::min(Hk * blocks, mine.end - at); unit++)
        run_split_block(begin, rows, unit / blocks, first + unit % blocks, most);
      at += Hk * blocks;
    });
#pragma omp barrier
    const Range rows = my_share(T * Hq);
    for (int64_t row = rows.begin; row < rows.end; row++) combine_split(row % (T * heads()), row / (T * heads()), most);
  }
}

// The partials of a tile's rows over one block, written to scratch.
void Attention::run_split_block(int64_t begin, int64_t rows, int64_t group, int64_t index, int64_t most) const {
  const int64_t slot = token_slots[token(begin)], stride = staged_stride(D);
  char *page = pages.page(slot, index);
  if (page == nullptr) return;
  const char *next = index < last_block(token(begin)) ? pages.page(slot, index + 1) : nullptr;
  alignas(64) Staged staged[kQueryRows * (kHeadWidthMax + 32)];
  alignas(64) float values[kQueryRows * kHeadWidthMax];
  Keys ranges[kQueryRows];
  for (int64_t r = 0; r < rows; r++) {
    stage_row(staged + r * stride, q + place(begin + r, group), D);
    ranges[r] = part_of(range(token(begin + r)), index);
  }
  const Range seeing = rows_that_see(rows, ranges);
  if (seeing.begin == seeing.end) return;
  Partials partials;
  partials.values = values;
  block(page, next, group).partials_of(seeing.end - seeing.begin, partials, seeing.begin, {staged, stride}, ranges);
  for (int64_t r = seeing.begin; r < seeing.end; r++) {
    float *to = partial(begin + r, group, index - first_block(token(begin + r)), most);
    std::memcpy(to, values + r * D, static_cast<size_t>(D) * sizeof(float));
    to[D] = partials.maximum[r];
    to[D + 1] = partials.sum[r];
  }
}

// Combines a row's partials from scratch in block order.
void Attention::combine_split(int64_t row, int64_t group, int64_t most) const {
  const int64_t t = token(row);
  if (token_slots[t] < 0) return zero_row(row, group);
  alignas(64) float values[kHeadWidthMax];
  Partials result, block;
  result.clear(1, values, D);
  for (int64_t i = 0; i <= last_block(t) - first_block(t); i++) {
    if (pages.page(token_slots[t], first_block(t) + i) == nullptr) continue;
    block.values = partial(row, group, i, most);
    block.maximum[0] = block.values[D];
    block.sum[0] = block.values[D + 1];
    result.add(block, 0, 1, D);
  }
  finish(y + place(row, group), values, result.sum[0], D);
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
