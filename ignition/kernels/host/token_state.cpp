// What a launch begins with and commits: which lanes are live, the tokens they consume, their final hidden vectors.
//
// Begin entries only read request state and decide each lane's status once; every later operator of the launch obeys the
// lane records. Commit entries change live lanes alone.
#include <cstring>

#include "arguments.h"
#include "bf16.h"
#include "operators.h"
#include "records.h"

namespace {

void write_lane(int64_t *lane, int64_t slot, int64_t status, int64_t sample, int64_t masked) {
  lane[LANE_SLOT] = slot;
  lane[LANE_STATUS] = status;
  lane[LANE_SAMPLE] = status == COMPLETION_STATUS_LIVE ? sample : 0;
  lane[LANE_MASKED] = masked;
}

// The status of a launch that asks for a slot at an epoch, `ready` being whether its fields allow the launch.
template <typename Ready>
int64_t status_of(int64_t *request_fields, int64_t C, int64_t slot, int64_t epoch, const Ready &ready) {
  if (slot == -1) return COMPLETION_STATUS_INACTIVE;
  const int64_t *fields = slot_of_epoch(request_fields, C, slot, epoch);
  if (fields == nullptr) return COMPLETION_STATUS_REJECTED;
  if (fields[REQUEST_FIELD_FINISHED] != FINISH_NONE) return COMPLETION_STATUS_INACTIVE;
  return ready(fields) ? COMPLETION_STATUS_LIVE : COMPLETION_STATUS_REJECTED;
}

}  // namespace

void flare_begin_decode(void *const *args) {
  Arguments in(args);
  const int64_t *lane_slots = in.pointer<const int64_t>(), *lane_epochs = in.pointer<const int64_t>();
  const int64_t *lane_masked = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  int64_t *tokens = in.pointer<int64_t>(), *positions = in.pointer<int64_t>(), *token_slots = in.pointer<int64_t>();
  int64_t *lanes = in.pointer<int64_t>();
  const int64_t B = in.integer(), C = in.integer(), V = in.integer(), context = in.integer();
  for (int64_t b = 0; b < B; b++) {
    const int64_t slot = lane_slots[b];
    const int64_t status = status_of(request_fields, C, slot, lane_epochs[b], [&](const int64_t *fields) {
      const int64_t pending = fields[REQUEST_FIELD_PENDING];
      return pending >= 0 && pending < V && fields[REQUEST_FIELD_CONSUMED] < context;
    });
    const bool live = status == COMPLETION_STATUS_LIVE;
    const int64_t *fields = live ? request_fields + slot * REQUEST_FIELDS : nullptr;
    tokens[b] = live ? fields[REQUEST_FIELD_PENDING] : 0;
    positions[b] = live ? fields[REQUEST_FIELD_CONSUMED] : 0;
    token_slots[b] = live ? slot : -1;
    write_lane(lanes + b * LANE_FIELDS, slot, status, 1, lane_masked[b]);
  }
}

void flare_begin_prefill(void *const *args) {
  Arguments in(args);
  const int64_t *command = in.pointer<const int64_t>(), *prefill_tokens = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  int64_t *tokens = in.pointer<int64_t>(), *positions = in.pointer<int64_t>(), *token_slots = in.pointer<int64_t>();
  int64_t *lanes = in.pointer<int64_t>();
  const int64_t T = in.integer(), C = in.integer(), V = in.integer(), context = in.integer();
  const int64_t slot = command[PREFILL_FIELD_SLOT], consumed = command[PREFILL_FIELD_CONSUMED];
  const int64_t count = command[PREFILL_FIELD_COUNT];
  const int64_t status = status_of(request_fields, C, slot, command[PREFILL_FIELD_EPOCH], [&](const int64_t *fields) {
    return fields[REQUEST_FIELD_CONSUMED] == consumed && fields[REQUEST_FIELD_PENDING] < 0 && count >= 1 && count <= T &&
           consumed <= context - count && all_below(prefill_tokens, count, V);
  });
  const int64_t live = status == COMPLETION_STATUS_LIVE ? count : 0;
  for (int64_t t = 0; t < T; t++) {
    tokens[t] = t < live ? prefill_tokens[t] : 0;
    positions[t] = t < live ? consumed + t : 0;
    token_slots[t] = t < live ? slot : -1;
  }
  write_lane(lanes, slot, status, command[PREFILL_FIELD_SAMPLE], command[PREFILL_FIELD_MASKED]);
}

void flare_begin_resume(void *const *args) {
  Arguments in(args);
  const int64_t *lane_slots = in.pointer<const int64_t>(), *lane_epochs = in.pointer<const int64_t>();
  const int64_t *lane_masked = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  char *rows = in.pointer<char>();
  bf16 *h = in.pointer<bf16>();
  int64_t *lanes = in.pointer<int64_t>();
  const int64_t B = in.integer(), C = in.integer(), H = in.integer(), row_stride = in.integer();
  const int64_t rows_per_slot = in.integer(), hidden_offset = in.integer();
  const size_t hidden_bytes = static_cast<size_t>(H) * sizeof(bf16);
  for (int64_t b = 0; b < B; b++) {
    const int64_t slot = lane_slots[b];
    const int64_t status = status_of(request_fields, C, slot, lane_epochs[b], [](const int64_t *fields) {
      return fields[REQUEST_FIELD_CONSUMED] > 0 && fields[REQUEST_FIELD_PENDING] < 0;
    });
    if (status == COMPLETION_STATUS_LIVE) {
      std::memcpy(h + b * H, live_row(rows, row_stride, rows_per_slot, slot) + hidden_offset, hidden_bytes);
    } else {
      std::memset(h + b * H, 0, hidden_bytes);
    }
    write_lane(lanes + b * LANE_FIELDS, slot, status, 1, lane_masked[b]);
  }
}

void flare_commit_decode(void *const *args) {
  Arguments in(args);
  const bf16 *hidden = in.pointer<const bf16>();
  const int64_t *lanes = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  char *rows = in.pointer<char>();
  const int64_t B = in.integer(), H = in.integer(), row_stride = in.integer(), rows_per_slot = in.integer();
  const int64_t hidden_offset = in.integer();
  for (int64_t b = 0; b < B; b++) {
    const int64_t *lane = lanes + b * LANE_FIELDS;
    if (lane[LANE_STATUS] != COMPLETION_STATUS_LIVE) continue;
    request_fields[lane[LANE_SLOT] * REQUEST_FIELDS + REQUEST_FIELD_CONSUMED] += 1;
    std::memcpy(live_row(rows, row_stride, rows_per_slot, lane[LANE_SLOT]) + hidden_offset, hidden + b * H,
                static_cast<size_t>(H) * sizeof(bf16));
  }
}

void flare_commit_prefill(void *const *args) {
  Arguments in(args);
  const bf16 *hidden = in.pointer<const bf16>();
  const int64_t *command = in.pointer<const int64_t>(), *lane = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  char *rows = in.pointer<char>();
  bf16 *h = in.pointer<bf16>();
  in.integer();  // T: the count is the command's.
  const int64_t H = in.integer(), row_stride = in.integer(), rows_per_slot = in.integer(), hidden_offset = in.integer();
  const size_t hidden_bytes = static_cast<size_t>(H) * sizeof(bf16);
  if (lane[LANE_STATUS] != COMPLETION_STATUS_LIVE) {
    std::memset(h, 0, hidden_bytes);
    return;
  }
  const int64_t count = command[PREFILL_FIELD_COUNT];
  request_fields[lane[LANE_SLOT] * REQUEST_FIELDS + REQUEST_FIELD_CONSUMED] += count;
  std::memcpy(h, hidden + (count - 1) * H, hidden_bytes);
  std::memcpy(live_row(rows, row_stride, rows_per_slot, lane[LANE_SLOT]) + hidden_offset, h, hidden_bytes);
}
