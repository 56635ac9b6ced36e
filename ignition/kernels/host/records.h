// Request fields and completion records, as operators address them.
#pragma once
#include <algorithm>

#include "fields.h"

// The slot's fields when it exists and holds the epoch, else null. Epoch 0 is no epoch.
inline int64_t *slot_of_epoch(int64_t *request_fields, int64_t C, int64_t slot, int64_t epoch) {
  if (slot < 0 || slot >= C || epoch == 0) return nullptr;
  int64_t *fields = request_fields + slot * REQUEST_FIELDS;
  return fields[REQUEST_FIELD_EPOCH] == epoch ? fields : nullptr;
}

// The first live row of a slot; row 0 is null.
inline char *live_row(char *rows, int64_t row_stride, int64_t rows_per_slot, int64_t slot) {
  return rows + (1 + slot * rows_per_slot) * row_stride;
}

// Whether tokens are ids of the vocabulary.
inline bool all_below(const int64_t *tokens, int64_t count, int64_t V) {
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= V) return false;
  return true;
}

// A frame's completion records.
struct Completions {
  int64_t *base;
  int64_t frame, frame_lanes, token_capacity;

  // Fills a lane's record from the slot's fields after the launch (null: an empty or unknown slot); no tokens yet.
  int64_t *write(int64_t lane, int64_t slot, int64_t status, int64_t family, const int64_t *fields) const {
    const int64_t length = COMPLETION_FIELDS + token_capacity;
    int64_t *record = base + (frame * frame_lanes + lane) * length;
    std::fill(record, record + length, 0);
    record[COMPLETION_FIELD_SLOT] = slot;
    record[COMPLETION_FIELD_STATUS] = status;
    record[COMPLETION_FIELD_FAMILY] = family;
    record[COMPLETION_FIELD_PENDING] = -1;
    record[COMPLETION_FIELD_LOGPROB_COUNT] = -1;
    if (fields == nullptr) return record;
    record[COMPLETION_FIELD_EPOCH] = fields[REQUEST_FIELD_EPOCH];
    record[COMPLETION_FIELD_CONSUMED] = fields[REQUEST_FIELD_CONSUMED];
    record[COMPLETION_FIELD_GENERATED] = fields[REQUEST_FIELD_GENERATED];
    record[COMPLETION_FIELD_FINISHED] = fields[REQUEST_FIELD_FINISHED];
    record[COMPLETION_FIELD_PENDING] = fields[REQUEST_FIELD_PENDING];
    record[COMPLETION_FIELD_COUNTER] = fields[REQUEST_FIELD_COUNTER];
    return record;
  }
};
