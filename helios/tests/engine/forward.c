// A model that is a hash: it writes tokens into pages as attention writes keys, and reads the history back from them.
#include <stdint.h>
#include <string.h>

enum { PAGE_TOKENS = 64, LANE_LIVE = 1, HIDDEN_BYTES = 64 };

static void single_out(float *logits, int64_t V, int64_t hash) {
  for (int64_t v = 0; v < V; v++) logits[v] = v == hash % V ? 1000.0f : 0.0f;
}

// Row t writes tokens[t] at positions[t] of its slot; rows of slot -1 write nothing. Then each live lane's logits single out
// the token that its history hashes to, and the hash is its hidden vector. Lane b ends at row b of a decode step, and at the
// last live row of a chunk.
// tokens i64[T], positions i64[T], token_slots i64[T], lanes i64[B, 4], hidden, page_table i32[C, table_width], pages,
// logits f32[B, V], T, B, V, table_width, page_stride, is_decode.
void test_forward(void *const *args) {
  const int64_t *tokens = args[0], *positions = args[1], *token_slots = args[2], *lanes = args[3];
  char *hidden = args[4];
  const int32_t *page_table = args[5];
  char *pages = args[6];
  float *logits = args[7];
  const int64_t T = (int64_t)args[8], B = (int64_t)args[9], V = (int64_t)args[10];
  const int64_t table_width = (int64_t)args[11], page_stride = (int64_t)args[12], is_decode = (int64_t)args[13];
  int64_t last = 0;
  for (int64_t t = 0; t < T; t++) {
    if (token_slots[t] < 0) continue;
    last = t;
    const int32_t page = page_table[token_slots[t] * table_width + positions[t] / PAGE_TOKENS];
    ((int64_t *)(pages + page * page_stride))[positions[t] % PAGE_TOKENS] = tokens[t];
  }
  for (int64_t b = 0; b < B; b++) {
    const int64_t row = is_decode ? b : last;
    if (token_slots[row] < 0) continue;
    int64_t hash = 0;
    for (int64_t position = 0; position <= positions[row]; position++) {
      const int32_t page = page_table[token_slots[row] * table_width + position / PAGE_TOKENS];
      hash = (hash * 31 + ((const int64_t *)(pages + page * page_stride))[position % PAGE_TOKENS] + 7) % 1000003;
    }
    memcpy(hidden + row * HIDDEN_BYTES, &hash, sizeof hash);
    if (lanes[b * 4 + 1] == LANE_LIVE) single_out(logits + b * V, V, hash);
  }
}

// Logits of the hidden vectors that were saved: hidden, lanes i64[B, 4], logits f32[B, V], B, V.
void test_resume(void *const *args) {
  const char *hidden = args[0];
  const int64_t *lanes = args[1];
  float *logits = args[2];
  const int64_t B = (int64_t)args[3], V = (int64_t)args[4];
  for (int64_t b = 0; b < B; b++) {
    int64_t hash = 0;
    memcpy(&hash, hidden + b * HIDDEN_BYTES, sizeof hash);
    if (lanes[b * 4 + 1] == LANE_LIVE) single_out(logits + b * V, V, hash);
  }
}
