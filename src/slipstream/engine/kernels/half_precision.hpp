// Numbers of half precision (IEEE binary16), which are only stored: arithmetic widens them first.
//
// Narrowing rounds to nearest, ties to even, and to infinity beyond the largest number. All ways to
// convert give the same bits: instructions of GPUs and of CPUs, and whole numbers where a CPU has none.
#pragma once
#include "simd_vectors.hpp"
#include "vector_intrinsics.hpp"

#ifndef SLIPSTREAM_GPU

static_assert(sizeof(Real) == 4, "half precision is widened to single precision");
typedef unsigned short HalfVector __attribute__((vector_size(sizeof(Vector) / 2)));

#if defined(__AVX512F__) && !defined(NO_CONVERSIONS)

INLINE Vector widened(HalfVector half) { return (Vector)_mm512_cvtph_ps((__m256i)half); }
INLINE HalfVector narrowed(Vector value) { return (HalfVector)_mm512_cvtps_ph((__m512)value, 0); }

#elif defined(__F16C__) && !defined(NO_CONVERSIONS)

INLINE Vector widened(HalfVector half) { return (Vector)_mm256_cvtph_ps((__m128i)half); }
INLINE HalfVector narrowed(Vector value) { return (HalfVector)_mm256_cvtps_ph((__m256)value, 0); }

#else

typedef unsigned Words __attribute__((vector_size(sizeof(Vector))));

INLINE Vector widened(HalfVector half) {
  const Words bits = __builtin_convertvector(half, Words), magnitude = (bits & 0x7fffu) << 13;
  // The exponents differ by 112. A product is exact, also of numbers below the smallest normal one.
  const Words scaled = (Words)((Vector)magnitude * 0x1p112f);
  const Words not_finite = (Words)(magnitude >= 0x0f800000u) & 0x7f800000u;
  return (Vector)(scaled | not_finite | (bits & 0x8000u) << 16);
}

INLINE HalfVector narrowed(Vector value) {
  const Words bits = (Words)value, magnitude = bits & 0x7fffffffu;
  // Beyond half of the last digit that is kept, or at half of it if that digit is odd, one is carried.
  const Words normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // The last digit of 1/2 is the smallest number: an addition rounds to it.
  const Words small = (Words)((Vector)magnitude + 0.5f) - 0x3f000000u;
  const Words is_nan = (Words)(magnitude > 0x7f800000u);
  const Words large = 0x7c00u | (is_nan & (0x200u | (magnitude >> 13 & 0x3ffu)));
  const Words is_small = (Words)(magnitude < 0x38800000u), is_large = (Words)(magnitude >= 0x47800000u);
  const Words half = (small & is_small) | (large & is_large) | (normal & ~is_small & ~is_large);
  return __builtin_convertvector(half | (bits >> 16 & 0x8000u), HalfVector);
}

#endif

INLINE float half_to_float(unsigned short half) {
#if defined(__F16C__) && !defined(NO_CONVERSIONS)
  return _cvtsh_ss(half);
#else
  return widened(HalfVector{half})[0];
#endif
}
INLINE unsigned short float_to_half(float value) {
#if defined(__F16C__) && !defined(NO_CONVERSIONS)
  return _cvtss_sh(value, 0);
#else
  return narrowed(Vector{value})[0];
#endif
}

#endif

struct Half {
  unsigned short bits;
  Half() = default;
  INLINE explicit Half(float value) : bits(float_to_half(value)) {}
  INLINE explicit Half(double value) : Half(float(value)) {}
  INLINE operator float() const { return half_to_float(bits); }
};
