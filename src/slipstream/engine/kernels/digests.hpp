// Digests of numbers: sums, modulo 2^64, of a hash of the bits and the place of each number. Such a sum
// depends neither on the order nor on which rank holds which numbers.
#pragma once
#include "portability.hpp"

using Bits = unsigned long long;

INLINE Bits bits_of(double value) {
#ifdef SLIPSTREAM_GPU
  return static_cast<Bits>(__double_as_longlong(value));
#else
  Bits bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}
INLINE Bits bits_of(float value) {
#ifdef SLIPSTREAM_GPU
  return static_cast<Bits>(__float_as_uint(value));
#else
  unsigned bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

// The bits of a number; of zero, whose sign may depend on the order of additions, always the same.
template <class Number>
INLINE Bits digested(Number value) {
  return value == 0 ? 0 : bits_of(value);
}

// Of two that differ in the bits or in the place alone, the results differ.
INLINE Bits mixed(Bits bits, Index place) {
  Bits x = bits + static_cast<Bits>(place) * 0x9e3779b97f4a7c15ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 29);
}

// How many sums there are, which only spread the additions.
constexpr Index DIGEST_SUMS = 64;

// Add a row's part of a digest. On a GPU, ROW_THREADS threads have a part of it each.
INLINE void add_to_digest(Index* sums, Index row, Bits part) {
  Index total = static_cast<Index>(part);
#ifdef SLIPSTREAM_GPU
  for (int step = ROW_THREADS / 2; step > 0; step /= 2) total += of_row_thread(total, step);
#endif
  if (FIRST_COLUMN) add_atomically(sums + row % DIGEST_SUMS, total);
}
