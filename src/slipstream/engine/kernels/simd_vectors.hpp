// Vectors of neighbours in a row, which a CPU loads, multiplies and stores by one instruction.
//
// Kernels are templates of the type that they compute with: `Vector`, or `Real` for rests shorter
// than a vector. On a GPU, whose threads are the lanes of its vectors, both are the same.
#pragma once
#include "portability.hpp"

template <class V>
constexpr int lanes_of = sizeof(V) / sizeof(Real);

INLINE Real load(const Real* address, Real) { return *address; }
INLINE void store(Real* address, Real value) { *address = value; }
INLINE Real all_lanes(Real value, Real) { return value; }
INLINE Real fused(Real a, Real b, Real c) { return fma(a, b, c); }

// The left and the right neighbours of a vector's elements, given the adjacent vectors.
INLINE Real left_neighbours(Real before, Real) { return before; }
INLINE Real right_neighbours(Real, Real after) { return after; }

// Store what nobody reads soon, to an address aligned to the vector's size: past the caches, so
// that memory is not read first. Others see it after `wait_for_streamed_stores`.
INLINE void stream(Real* address, Real value) { *address = value; }

#ifdef SLIPSTREAM_GPU

using Vector = Real;
INLINE void prefetch(const Real*) {}
INLINE void wait_for_streamed_stores() {}

#else

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define STREAM_DOUBLES __builtin_ia32_movntpd512
#define STREAM_FLOATS __builtin_ia32_movntps512
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define STREAM_DOUBLES __builtin_ia32_movntpd256
#define STREAM_FLOATS __builtin_ia32_movntps256
#else
#define VECTOR_BYTES 16
#ifdef __SSE2__
#define STREAM_DOUBLES __builtin_ia32_movntpd
#define STREAM_FLOATS __builtin_ia32_movntps
#endif
#endif

typedef Real Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef Real Anywhere __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real))));

INLINE Vector load(const Real* address, Vector) { return *(const Anywhere*)address; }
INLINE void store(Real* address, Vector value) { *(Anywhere*)address = value; }
// Less zero, not and zero, which would change -0: compilers then use one broadcast.
INLINE Vector all_lanes(Real value, Vector) { return value - Vector{}; }

// Load or store the lanes whose bits are set, and touch no other memory. `others` has the lanes that
// are not loaded, and zeros where they are.
using Lanes = unsigned int;
typedef double DoubleLanes __attribute__((vector_size(VECTOR_BYTES)));
typedef float FloatLanes __attribute__((vector_size(VECTOR_BYTES)));
#ifdef __AVX512F__
INLINE DoubleLanes load_lanes(DoubleLanes others, const double* from, Lanes lanes) {
  return __builtin_ia32_loadupd512_mask(from, others, lanes);
}
INLINE FloatLanes load_lanes(FloatLanes others, const float* from, Lanes lanes) {
  return __builtin_ia32_loadups512_mask(from, others, lanes);
}
INLINE void store_lanes(double* to, DoubleLanes value, Lanes lanes) {
  __builtin_ia32_storeupd512_mask(to, value, lanes);
}
INLINE void store_lanes(float* to, FloatLanes value, Lanes lanes) {
  __builtin_ia32_storeups512_mask(to, value, lanes);
}
#elif defined(__AVX__)
typedef long long LongLanes __attribute__((vector_size(VECTOR_BYTES)));
typedef int IntLanes __attribute__((vector_size(VECTOR_BYTES)));
INLINE LongLanes whole_doubles(Lanes lanes) {
  const LongLanes each = {1, 2, 4, 8};
  return ((LongLanes{} + lanes) & each) == each;
}
INLINE IntLanes whole_floats(Lanes lanes) {
  const IntLanes each = {1, 2, 4, 8, 16, 32, 64, 128};
  return ((IntLanes{} + int(lanes)) & each) == each;
}
INLINE DoubleLanes load_lanes(DoubleLanes others, const double* from, Lanes lanes) {
  const auto loaded = __builtin_ia32_maskloadpd256((const DoubleLanes*)from, whole_doubles(lanes));
  return (DoubleLanes)((LongLanes)others | (LongLanes)loaded);
}
INLINE FloatLanes load_lanes(FloatLanes others, const float* from, Lanes lanes) {
  const auto loaded = __builtin_ia32_maskloadps256((const FloatLanes*)from, whole_floats(lanes));
  return (FloatLanes)((IntLanes)others | (IntLanes)loaded);
}
INLINE void store_lanes(double* to, DoubleLanes value, Lanes lanes) {
  __builtin_ia32_maskstorepd256((DoubleLanes*)to, whole_doubles(lanes), value);
}
INLINE void store_lanes(float* to, FloatLanes value, Lanes lanes) {
  __builtin_ia32_maskstoreps256((FloatLanes*)to, whole_floats(lanes), value);
}
#else
template <class V, class Number>
INLINE V load_lanes(V others, const Number* from, Lanes lanes) {
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) others[i] = from[i];
  return others;
}
template <class V, class Number>
INLINE void store_lanes(Number* to, V value, Lanes lanes) {
  for (int i = 0; i < lanes_of<Vector>; ++i)
    if (lanes >> i & 1) to[i] = value[i];
}
#endif

// GCC makes halves, or single numbers, of a loop over the elements of a vector.
#if defined(__GNUC__) && !defined(__clang__) && defined(__FMA__)
typedef double FusedDoubles __attribute__((vector_size(VECTOR_BYTES)));
typedef float FusedFloats __attribute__((vector_size(VECTOR_BYTES)));
#ifdef __AVX512F__
INLINE FusedDoubles fused_any(FusedDoubles a, FusedDoubles b, FusedDoubles c) {
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);  // all lanes, rounded as all else
}
INLINE FusedFloats fused_any(FusedFloats a, FusedFloats b, FusedFloats c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
}
#else
INLINE FusedDoubles fused_any(FusedDoubles a, FusedDoubles b, FusedDoubles c) {
  return __builtin_ia32_vfmaddpd256(a, b, c);
}
INLINE FusedFloats fused_any(FusedFloats a, FusedFloats b, FusedFloats c) {
  return __builtin_ia32_vfmaddps256(a, b, c);
}
#endif
INLINE Vector fused(Vector a, Vector b, Vector c) { return fused_any(a, b, c); }
#else
INLINE Vector fused(Vector a, Vector b, Vector c) {
  Vector result;
  _Pragma("omp simd") for (int i = 0; i < lanes_of<Vector>; ++i) result[i] = fma(a[i], b[i], c[i]);
  return result;
}
#endif

template <int FIRST, int... LANES>
INLINE Vector window(Vector a, Vector b, Integers<LANES...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (FIRST + LANES)...);
#else
  return Vector{(FIRST + LANES < lanes_of<Vector> ? a[FIRST + LANES]
                                                  : b[FIRST + LANES - lanes_of<Vector>])...};
#endif
}
using AllLanes = IntegersBelow<lanes_of<Vector>>::Type;
INLINE Vector left_neighbours(Vector before, Vector now) {
  return window<lanes_of<Vector> - 1>(before, now, AllLanes{});
}
INLINE Vector right_neighbours(Vector now, Vector after) {
  return window<1>(now, after, AllLanes{});
}

#if defined(__clang__)
INLINE void stream(Real* address, Vector value) {
  __builtin_nontemporal_store(value, (Vector*)address);
}
#elif defined(STREAM_DOUBLES)
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));
typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
INLINE void stream_any(double* address, Doubles value) { STREAM_DOUBLES(address, value); }
INLINE void stream_any(float* address, Floats value) { STREAM_FLOATS(address, value); }
INLINE void stream(Real* address, Vector value) { stream_any(address, value); }
#else
INLINE void stream(Real* address, Vector value) { store(address, value); }
#endif

INLINE void prefetch(const Real* address) { __builtin_prefetch(address, 0, 2); }
INLINE void wait_for_streamed_stores() {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#endif
}
// Begin nothing until all before has been computed; its stores may be under way.
INLINE void finish_computing() {
#ifdef __SSE2__
  __builtin_ia32_lfence();
#endif
}

#endif
