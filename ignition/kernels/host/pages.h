// Where a slot's keys and values lie: pages reached through the page table.
#pragma once
#include "bf16.h"

struct Pages {
  const int32_t *table;
  char *base;
  int64_t table_width, stride, key_offset, value_offset;

  // The page that holds a slot's tokens [64 * block, 64 * block + 64), or null where none is mapped.
  char *page(int64_t slot, int64_t block) const {
    const int64_t page = block < table_width ? table[slot * table_width + block] : -1;
    return page < 0 ? nullptr : base + page * stride;
  }
  bf16 *keys(char *page) const { return reinterpret_cast<bf16 *>(page + key_offset); }
  bf16 *values(char *page) const { return reinterpret_cast<bf16 *>(page + value_offset); }
};
