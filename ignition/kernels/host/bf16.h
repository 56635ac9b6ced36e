// The stored number format and the geometry of packed weights and pages.
#pragma once
#include <bit>
#include <cstdint>

using bf16 = uint16_t;

constexpr int64_t kBlockOutputs = 16;                 // Outputs of a packed block: the lanes of a vector.
constexpr int64_t kPairStep = 2 * kBlockOutputs;      // Elements of a block for one pair of k.
constexpr int64_t kPageTokens = 64;                   // Tokens of a page, and of an attention block.
constexpr int64_t kKeyStep = 2 * kPageTokens;         // Elements of a key segment for one pair of d.

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline float widen(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
