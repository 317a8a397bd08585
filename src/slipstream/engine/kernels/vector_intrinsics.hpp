// The functions of <immintrin.h> that kernels use, on CPUs that have them. GCC takes a second to read that
// header, longer than most kernels take, and all of these are builtins of it.
#pragma once
#include "portability.hpp"

#if defined(SLIPSTREAM_GPU) || !defined(__x86_64__)
#elif defined(__clang__)
#include <immintrin.h>
#else

typedef long long __m128i __attribute__((__vector_size__(16), __may_alias__));
typedef long long __m256i __attribute__((__vector_size__(32), __may_alias__));
typedef float __m256 __attribute__((__vector_size__(32), __may_alias__));

using Shorts8 = short __attribute__((vector_size(16)));
using Shorts16 = short __attribute__((vector_size(32)));
using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));

#ifdef __F16C__
// Rounding is an argument of instructions: only 0, to nearest, is used.
INLINE __m256 _mm256_cvtph_ps(__m128i half) { return (__m256)__builtin_ia32_vcvtph2ps256((Shorts8)half); }
INLINE __m128i _mm256_cvtps_ph(__m256 value, int) { return (__m128i)__builtin_ia32_vcvtps2ph256((Floats8)value, 0); }
INLINE float _cvtsh_ss(unsigned short half) { return __builtin_ia32_vcvtph2ps(Shorts8{short(half)})[0]; }
INLINE unsigned short _cvtss_sh(float value, int) { return __builtin_ia32_vcvtps2ph(Floats4{value}, 0)[0]; }
#endif

#ifdef __AVX512F__
typedef unsigned char __mmask8;
typedef unsigned short __mmask16;
typedef long long __m512i __attribute__((__vector_size__(64), __may_alias__));
typedef float __m512 __attribute__((__vector_size__(64), __may_alias__));
typedef double __m512d __attribute__((__vector_size__(64), __may_alias__));

using Ints16 = int __attribute__((vector_size(64)));
using Floats16 = float __attribute__((vector_size(64)));
using Doubles8 = double __attribute__((vector_size(64)));

INLINE __m512 _mm512_cvtph_ps(__m256i half) {
  return (__m512)__builtin_ia32_vcvtph2ps512_mask((Shorts16)half, Floats16{}, (__mmask16)-1, 4);
}
INLINE __m256i _mm512_cvtps_ph(__m512 value, int) {
  return (__m256i)__builtin_ia32_vcvtps2ph512_mask((Floats16)value, 0, Shorts16{}, (__mmask16)-1);
}
INLINE __m512d _mm512_maskz_loadu_pd(__mmask8 lanes, const void* from) {
  return (__m512d)__builtin_ia32_loadupd512_mask((const double*)from, Doubles8{}, lanes);
}
INLINE __m512d _mm512_mask_expandloadu_pd(__m512d others, __mmask8 lanes, const void* from) {
  return (__m512d)__builtin_ia32_expandloaddf512_mask((const Doubles8*)from, (Doubles8)others, lanes);
}
INLINE void _mm512_mask_storeu_pd(void* to, __mmask8 lanes, __m512d value) {
  __builtin_ia32_storeupd512_mask((double*)to, (Doubles8)value, lanes);
}
INLINE __m512d _mm512_maskz_compress_pd(__mmask8 lanes, __m512d value) {
  return (__m512d)__builtin_ia32_compressdf512_mask((Doubles8)value, Doubles8{}, lanes);
}
INLINE __m512 _mm512_maskz_loadu_ps(__mmask16 lanes, const void* from) {
  return (__m512)__builtin_ia32_loadups512_mask((const float*)from, Floats16{}, lanes);
}
INLINE __m512 _mm512_mask_expandloadu_ps(__m512 others, __mmask16 lanes, const void* from) {
  return (__m512)__builtin_ia32_expandloadsf512_mask((const Floats16*)from, (Floats16)others, lanes);
}
INLINE void _mm512_mask_storeu_ps(void* to, __mmask16 lanes, __m512 value) {
  __builtin_ia32_storeups512_mask((float*)to, (Floats16)value, lanes);
}
INLINE __m512 _mm512_maskz_compress_ps(__mmask16 lanes, __m512 value) {
  return (__m512)__builtin_ia32_compresssf512_mask((Floats16)value, Floats16{}, lanes);
}
INLINE __m512i _mm512_cvtepu16_epi32(__m256i value) {
  return (__m512i)__builtin_ia32_pmovzxwd512_mask((Shorts16)value, Ints16{}, (__mmask16)-1);
}
INLINE __m256i _mm512_cvtepi32_epi16(__m512i value) {
  return (__m256i)__builtin_ia32_pmovdw512_mask((Ints16)value, Shorts16{}, (__mmask16)-1);
}
INLINE __m512i _mm512_maskz_expand_epi32(__mmask16 lanes, __m512i value) {
  return (__m512i)__builtin_ia32_expandsi512_maskz((Ints16)value, Ints16{}, lanes);
}
INLINE __m512i _mm512_maskz_compress_epi32(__mmask16 lanes, __m512i value) {
  return (__m512i)__builtin_ia32_compresssi512_mask((Ints16)value, Ints16{}, lanes);
}

#ifdef __AVX512VL__
INLINE __m256 _mm256_maskz_loadu_ps(__mmask8 lanes, const void* from) {
  return (__m256)__builtin_ia32_loadups256_mask((const float*)from, Floats8{}, lanes);
}
INLINE __m256 _mm256_mask_expandloadu_ps(__m256 others, __mmask8 lanes, const void* from) {
  return (__m256)__builtin_ia32_expandloadsf256_mask((Floats8*)from, (Floats8)others, lanes);
}
INLINE void _mm256_mask_storeu_ps(void* to, __mmask8 lanes, __m256 value) {
  __builtin_ia32_storeups256_mask((float*)to, (Floats8)value, lanes);
}
INLINE __m256 _mm256_maskz_compress_ps(__mmask8 lanes, __m256 value) {
  return (__m256)__builtin_ia32_compresssf256_mask((Floats8)value, Floats8{}, lanes);
}
#ifdef __AVX512BW__
INLINE __m256i _mm256_maskz_loadu_epi16(__mmask16 lanes, const void* from) {
  return (__m256i)__builtin_ia32_loaddquhi256_mask((const short*)from, Shorts16{}, lanes);
}
INLINE void _mm256_mask_storeu_epi16(void* to, __mmask16 lanes, __m256i value) {
  __builtin_ia32_storedquhi256_mask((short*)to, (Shorts16)value, lanes);
}
INLINE __m256i _mm256_mask_mov_epi16(__m256i others, __mmask16 lanes, __m256i value) {
  return (__m256i)__builtin_ia32_movdquhi256_mask((Shorts16)value, (Shorts16)others, lanes);
}
#endif
#ifdef __AVX512VBMI2__
INLINE __m256i _mm256_mask_expandloadu_epi16(__m256i others, __mmask16 lanes, const void* from) {
  return (__m256i)__builtin_ia32_expandloadhi256_mask((const Shorts16*)from, (Shorts16)others, lanes);
}
INLINE __m256i _mm256_maskz_compress_epi16(__mmask16 lanes, __m256i value) {
  return (__m256i)__builtin_ia32_compresshi256_mask((Shorts16)value, Shorts16{}, lanes);
}
#endif
#endif
#endif

#endif
