// Some lanes of a vector to and from memory, whose elements may be stored in another type.
//
// `lanes` has a bit for each lane. "Packed" elements are neighbours in memory, one for each lane that
// is taken (`first` has that many lanes); otherwise each lane has its place. Constants: STORED, and STORED_BYTES and REAL_BYTES.
#pragma once
#include "simd_vectors.hpp"

#ifndef SLIPSTREAM_GPU

#ifndef STORED
#define STORED REAL
#endif

typedef STORED Element;
typedef Element Elements __attribute__((vector_size(sizeof(Element) * lanes_of<Vector>)));

#if defined(__AVX512F__) && defined(__AVX512VL__)

#include <immintrin.h>

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

#else

INLINE Elements load_some(const Element* from, Lanes lanes) {
  Elements result = {};
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) result[i] = from[i];
  return result;
}
INLINE Elements load_packed(Elements result, const Element* from, Lanes lanes) {
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) result[i] = *from++;
  return result;
}
INLINE void store_some(Element* to, Lanes lanes, Elements value) {
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) to[i] = value[i];
}
INLINE void store_packed(Element* to, Lanes lanes, Lanes, Elements value) {
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) *to++ = value[i];
}

#endif
#endif
