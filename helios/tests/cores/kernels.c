// The kernels of the tests' core: each does one thing that a test can see.
#include <stdint.h>
#include <time.h>

// out[i] = x[i] + y[i]: x i64[n], y i64[n], out i64[n], n.
void test_add(void *const *args) {
  const int64_t *x = args[0], *y = args[1];
  int64_t *out = args[2];
  for (int64_t i = 0; i < (int64_t)args[3]; ++i) out[i] = x[i] + y[i];
}

// Appends value[0] to a log whose first element counts its entries: value i64[1], log i64[1 + entries].
void test_append(void *const *args) {
  int64_t *log = args[1];
  log[++log[0]] = *(const int64_t *)args[0];
}

// out[0] = sum of x[0..n] by the whole team: x i64[n], out i64[1], n.
void test_sum(void *const *args) {
  const int64_t *x = args[0];
  int64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < (int64_t)args[2]; ++i) sum += x[i];
  *(int64_t *)args[1] = sum;
}

// Sleeps for ms[0] milliseconds: ms i64[1].
void test_sleep(void *const *args) {
  const int64_t ms = *(const int64_t *)args[0];
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, 0);
}
