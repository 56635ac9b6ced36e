// Reads an entry's arguments in the order that operators.h gives them.
#pragma once
#include <bit>
#include <cstdint>

class Arguments {
 public:
  explicit Arguments(void *const *args) : next_(args) {}

  template <typename T>
  T *pointer() {
    return static_cast<T *>(*next_++);
  }
  int64_t integer() { return static_cast<int64_t>(reinterpret_cast<intptr_t>(*next_++)); }
  float real() { return std::bit_cast<float>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*next_++))); }

 private:
  void *const *next_;
};
