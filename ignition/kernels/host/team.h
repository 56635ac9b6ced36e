// How work is shared over the one OpenMP team.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

struct Range {
  int64_t begin, end;
};

// The calling thread's part of n equal items: contiguous, in order of the thread's number.
inline Range my_share(int64_t n) {
  int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
  return {n * me / threads, n * (me + 1) / threads};
}

// Threads for work of `operations` multiply-adds: a region costs more than tiny work saves.
inline int team_size(int64_t operations) { return operations < 32768 ? 1 : omp_get_max_threads(); }
