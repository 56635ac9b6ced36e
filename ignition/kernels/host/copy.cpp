// A plain copy, for what has to lie in memory once.
#include <cstring>

#include "arguments.h"
#include "operators.h"

void flare_copy(void *const *args) {
  Arguments in(args);
  const char *x = in.pointer<const char>();
  char *y = in.pointer<char>();
  std::memcpy(y, x, static_cast<size_t>(in.integer()));
}
