// State maintenance of one slot: admission, restoring from and freezing into a snapshot row, reset.
//
// Invariant: a command is checked whole before the first byte changes; a rejected one leaves its completion record alone
// behind. Copies are exact.
#include <cstring>

#include "arguments.h"
#include "bf16.h"
#include "operators.h"
#include "records.h"

namespace {

// The arguments that restore and snapshot share, and the places their command names.
struct Transfer {
  const int64_t *command;
  int64_t *request_fields;
  char *rows, *pages;
  Completions completions;
  int64_t C, H, row_stride, rows_per_slot, consumed_offset, hidden_offset, partial_offset, page_stride, page_tokens;

  explicit Transfer(void *const *args) {
    Arguments in(args);
    command = in.pointer<const int64_t>();
    request_fields = in.pointer<int64_t>();
    rows = in.pointer<char>();
    pages = in.pointer<char>();
    completions.frame = *in.pointer<const int64_t>();
    completions.base = in.pointer<int64_t>();
    C = in.integer();
    H = in.integer();
    row_stride = in.integer();
    rows_per_slot = in.integer();
    consumed_offset = in.integer();
    hidden_offset = in.integer();
    partial_offset = in.integer();
    page_stride = in.integer();
    page_tokens = in.integer();
    completions.frame_lanes = in.integer();
    completions.token_capacity = in.integer();
  }

  // The slot's fields when the command names a snapshot row and a page exactly when its endpoint has a partial one.
  int64_t *fields() const {
    const int64_t consumed = command[STATE_FIELD_CONSUMED];
    const bool snapshot_row = command[STATE_FIELD_ROW] > C * rows_per_slot;
    const bool partial = consumed % page_tokens != 0;
    if (!snapshot_row || consumed <= 0 || partial != (command[STATE_FIELD_PAGE] >= 0)) return nullptr;
    return slot_of_epoch(request_fields, C, command[STATE_FIELD_SLOT], command[STATE_FIELD_EPOCH]);
  }
  char *snapshot() const { return rows + command[STATE_FIELD_ROW] * row_stride; }
  char *live() const { return live_row(rows, row_stride, rows_per_slot, command[STATE_FIELD_SLOT]); }
  char *page() const { return command[STATE_FIELD_PAGE] < 0 ? nullptr : pages + command[STATE_FIELD_PAGE] * page_stride; }
  size_t hidden_bytes() const { return static_cast<size_t>(H) * sizeof(bf16); }

  void complete(bool done, int64_t family, const int64_t *fields) const {
    const int64_t status = done ? COMPLETION_STATUS_LIVE : COMPLETION_STATUS_REJECTED;
    int64_t *record = completions.write(0, command[STATE_FIELD_SLOT], status, family, fields);
    record[COMPLETION_FIELD_ROW] = command[STATE_FIELD_ROW];
  }
};

}  // namespace

void flare_initialize(void *const *args) {
  Arguments in(args);
  const int64_t *command = in.pointer<const int64_t>(), *fields = in.pointer<const int64_t>();
  const float *parameters = in.pointer<const float>();
  const int64_t *prompt = in.pointer<const int64_t>(), *bias_tokens = in.pointer<const int64_t>();
  const float *bias_values = in.pointer<const float>();
  int64_t *request_fields = in.pointer<int64_t>();
  float *request_parameters = in.pointer<float>();
  int32_t *histogram = in.pointer<int32_t>();
  int64_t *request_bias_tokens = in.pointer<int64_t>();
  float *request_bias_values = in.pointer<float>();
  Completions completions;
  completions.frame = *in.pointer<const int64_t>();
  completions.base = in.pointer<int64_t>();
  const int64_t C = in.integer(), V = in.integer(), bias_max = in.integer(), context = in.integer();
  completions.frame_lanes = in.integer();
  completions.token_capacity = in.integer();

  const int64_t slot = command[0], prompt_count = command[1], bias_count = fields[REQUEST_FIELD_BIAS_COUNT];
  const bool valid = slot >= 0 && slot < C && fields[REQUEST_FIELD_EPOCH] != 0 && prompt_count >= 0 &&
                     prompt_count <= context && bias_count >= 0 && bias_count <= bias_max &&
                     all_below(prompt, prompt_count, V) && all_below(bias_tokens, bias_count, V);
  if (!valid) {
    completions.write(0, slot, COMPLETION_STATUS_REJECTED, OPERATION_FAMILY_INITIALIZE, nullptr);
    return;
  }
  std::copy(fields, fields + REQUEST_FIELDS, request_fields + slot * REQUEST_FIELDS);
  std::copy(parameters, parameters + REQUEST_PARAMETERS, request_parameters + slot * REQUEST_PARAMETERS);
  int32_t *counts = histogram + slot * V;
  std::fill(counts, counts + V, 0);
  for (int64_t i = 0; i < prompt_count; i++) counts[prompt[i]]++;
  std::copy(bias_tokens, bias_tokens + bias_count, request_bias_tokens + slot * bias_max);
  std::copy(bias_values, bias_values + bias_count, request_bias_values + slot * bias_max);
  completions.write(0, slot, COMPLETION_STATUS_LIVE, OPERATION_FAMILY_INITIALIZE, fields);
}

void flare_restore(void *const *args) {
  const Transfer transfer(args);
  int64_t *fields = transfer.fields();
  int64_t consumed = 0;
  if (fields != nullptr) std::memcpy(&consumed, transfer.snapshot() + transfer.consumed_offset, sizeof(consumed));
  const bool done = fields != nullptr && consumed == transfer.command[STATE_FIELD_CONSUMED] &&
                    fields[REQUEST_FIELD_CONSUMED] == 0 && fields[REQUEST_FIELD_PENDING] < 0;
  if (done) {
    fields[REQUEST_FIELD_CONSUMED] = consumed;
    std::memcpy(transfer.live() + transfer.hidden_offset, transfer.snapshot() + transfer.hidden_offset,
                transfer.hidden_bytes());
    if (transfer.page() != nullptr)
      std::memcpy(transfer.page(), transfer.snapshot() + transfer.partial_offset, static_cast<size_t>(transfer.page_stride));
  }
  transfer.complete(done, OPERATION_FAMILY_RESTORE, fields);
}

void flare_snapshot(void *const *args) {
  const Transfer transfer(args);
  const int64_t *fields = transfer.fields();
  const bool done = fields != nullptr && fields[REQUEST_FIELD_CONSUMED] == transfer.command[STATE_FIELD_CONSUMED];
  if (done) {
    std::memcpy(transfer.snapshot() + transfer.consumed_offset, fields + REQUEST_FIELD_CONSUMED, sizeof(int64_t));
    std::memcpy(transfer.snapshot() + transfer.hidden_offset, transfer.live() + transfer.hidden_offset,
                transfer.hidden_bytes());
    if (transfer.page() != nullptr)
      std::memcpy(transfer.snapshot() + transfer.partial_offset, transfer.page(), static_cast<size_t>(transfer.page_stride));
  }
  transfer.complete(done, OPERATION_FAMILY_SNAPSHOT, fields);
}

void flare_reset(void *const *args) {
  Arguments in(args);
  const int64_t *command = in.pointer<const int64_t>();
  int64_t *request_fields = in.pointer<int64_t>();
  Completions completions;
  completions.frame = *in.pointer<const int64_t>();
  completions.base = in.pointer<int64_t>();
  const int64_t C = in.integer();
  completions.frame_lanes = in.integer();
  completions.token_capacity = in.integer();
  const int64_t slot = command[STATE_FIELD_SLOT];
  int64_t *fields = slot_of_epoch(request_fields, C, slot, command[STATE_FIELD_EPOCH]);
  const int64_t status = fields != nullptr ? COMPLETION_STATUS_LIVE : COMPLETION_STATUS_REJECTED;
  if (fields != nullptr) {
    std::fill(fields, fields + REQUEST_FIELDS, 0);
    fields[REQUEST_FIELD_PENDING] = -1;
  }
  int64_t *record = completions.write(0, slot, status, OPERATION_FAMILY_RESET, fields);
  record[COMPLETION_FIELD_EPOCH] = command[STATE_FIELD_EPOCH];
}
