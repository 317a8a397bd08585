// Some lanes of a vector to and from memory, whose elements may be stored in another type.
//
// `lanes` has a bit for each lane. "Packed" elements are neighbours in memory, one for each lane that
// is taken (`first` has that many lanes); otherwise each lane has its place. Constants: those of
// stored_numbers.hpp, and REAL_BYTES.
#pragma once
#include "stored_numbers.hpp"

#ifndef SLIPSTREAM_GPU

typedef StoredBits Elements __attribute__((vector_size(sizeof(Stored) * lanes_of<Vector>)));

#if defined(__AVX512BW__) && defined(__AVX512VL__)

#if STORED_BYTES == 2

INLINE Elements load_some(const Stored* from, __mmask16 lanes) {
  return (Elements)_mm256_maskz_loadu_epi16(lanes, from);
}
INLINE void store_some(Stored* to, __mmask16 lanes, Elements value) {
  _mm256_mask_storeu_epi16(to, lanes, (__m256i)value);
}
INLINE Elements load_packed(Elements others, const Stored* from, __mmask16 lanes) {
#ifdef __AVX512VBMI2__
  return (Elements)_mm256_mask_expandloadu_epi16((__m256i)others, lanes, from);
#else
  const unsigned first = (1u << __builtin_popcount(lanes)) - 1;
  const __m512i packed = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, from));
  const __m256i placed = _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(lanes, packed));
  return (Elements)_mm256_mask_mov_epi16((__m256i)others, lanes, placed);
#endif
}
INLINE void store_packed(Stored* to, __mmask16 lanes, __mmask16 first, Elements value) {
#ifdef __AVX512VBMI2__
  const __m256i packed = _mm256_maskz_compress_epi16(lanes, (__m256i)value);
#else
  const __m512i wide = _mm512_cvtepu16_epi32((__m256i)value);
  const __m256i packed = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(lanes, wide));
#endif
  _mm256_mask_storeu_epi16(to, first, packed);
}

#else

#define SOME_LANES(Type, width, suffix, Mask)                                                        \
  INLINE auto load_some(const Type* from, Mask lanes) { return _mm##width##_maskz_loadu_##suffix(lanes, from); } \
  template <class V> INLINE V load_packed(V others, const Type* from, Mask lanes) {                  \
    return (V)_mm##width##_mask_expandloadu_##suffix(others, lanes, from);                           \
  }                                                                                                  \
  template <class V> INLINE void store_some(Type* to, Mask lanes, V value) {                         \
    _mm##width##_mask_storeu_##suffix(to, lanes, value);                                             \
  }                                                                                                  \
  template <class V> INLINE void store_packed(Type* to, Mask lanes, Mask first, V value) {           \
    /* Compressing into memory is slow on some processors; into a register it is not. */             \
    _mm##width##_mask_storeu_##suffix(to, first, _mm##width##_maskz_compress_##suffix(lanes, value)); \
  }

SOME_LANES(double, 512, pd, __mmask8)
#if STORED_BYTES == 4 && REAL_BYTES == 8
SOME_LANES(float, 256, ps, __mmask8)
#else
SOME_LANES(float, 512, ps, __mmask16)
#endif

#endif

#else

INLINE Elements load_some(const Stored* at, Lanes lanes) {
  const StoredBits* from = (const StoredBits*)at;
  Elements result = {};
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) result[i] = from[i];
  return result;
}
INLINE Elements load_packed(Elements result, const Stored* at, Lanes lanes) {
  const StoredBits* from = (const StoredBits*)at;
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) result[i] = *from++;
  return result;
}
INLINE void store_some(Stored* at, Lanes lanes, Elements value) {
  StoredBits* to = (StoredBits*)at;
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) to[i] = value[i];
}
INLINE void store_packed(Stored* at, Lanes lanes, Lanes, Elements value) {
  StoredBits* to = (StoredBits*)at;
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) *to++ = value[i];
}

#endif
#endif
