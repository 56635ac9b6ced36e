// Philox4x32-10, the counter-based generator: a draw is a pure function of its key and counter.
#pragma once
#include <array>
#include <cstdint>

inline std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// The uniform in (0, 1] of a request's sample: block `counter` of subsequence 0 under key `seed`, first word.
inline double philox_uniform(int64_t seed, int64_t counter) {
  const uint64_t s = static_cast<uint64_t>(seed), c = static_cast<uint64_t>(counter);
  const auto words = philox4x32_10({static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0},
                                   {static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32)});
  return words[0] * 0x1p-32 + 0x1p-33;
}
