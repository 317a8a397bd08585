// The only file that tells one vendor's GPUs from another's: CUDA (NVRTC) from HIP (hiprtc, or clang).
//
// The 32 threads that share a row are a warp of NVIDIA's and half a wavefront of AMD's. Either half
// may have a row of its own, or none: threads exchange data within the 32 only. So launches, and the
// order of additions, are the same on both.
#pragma once

#define ROW_THREADS 32

#ifdef __HIP__

// HIP's second bound would be wavefronts of a SIMD unit. BLOCKS_PER_SM is how many blocks the shared
// memory and the registers of an NVIDIA multiprocessor hold, and says nothing of AMD's.
#define LAUNCH_BOUNDS(threads, blocks_per_multiprocessor) __launch_bounds__(threads)

// The value of the thread of this row whose number differs by the bits of `step`.
template <class T>
INLINE T of_row_thread(T value, int step) {
  return __shfl_xor(value, step, ROW_THREADS);
}

// The values of the adjacent threads in the row; at an end of the row, the thread's own.
template <class T>
INLINE T of_thread_before(T value) {
  return __shfl_up(value, 1, ROW_THREADS);
}
template <class T>
INLINE T of_thread_behind(T value) {
  return __shfl_down(value, 1, ROW_THREADS);
}

// Bit i says whether thread i of this row has the flag.
INLINE unsigned row_flags(bool flag) {
  return unsigned(__ballot(flag) >> (__lane_id() / ROW_THREADS * ROW_THREADS));
}

// Among all threads of a GPU.
INLINE void atomic_maximum(Index* target, Index value) {
  __hip_atomic_fetch_max(target, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Ordered for all processors that reach the memory: of another GPU, only if it is fine-grained.
INLINE void system_store_release(Index* target, Index value) {
  __hip_atomic_store(target, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
INLINE Index system_load_acquire(const Index* source) {
  return __hip_atomic_load(source, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

INLINE int thread_number() { return threadIdx.x; }

template <class T>
INLINE T opaque(T value) {
  return value;
}

// Numbers of half precision, by their bits.
union HalfBits {
  unsigned short bits;
  _Float16 value;
};
INLINE float half_to_float(unsigned short bits) {
  HalfBits half;
  half.bits = bits;
  return half.value;
}
INLINE unsigned short float_to_half(float value) {
  HalfBits half;
  half.value = _Float16(value);
  return half.bits;
}

// There is no instruction for it.
INLINE void prefetch_line(const void*) {}

// A counter of 100 MHz on gfx90a and gfx942.
INLINE Index gpu_nanoseconds() { return 10 * Index(__builtin_amdgcn_s_memrealtime()); }

#else

#define LAUNCH_BOUNDS(threads, blocks_per_multiprocessor) \
  __launch_bounds__(threads, blocks_per_multiprocessor)

template <class T>
INLINE T of_row_thread(T value, int step) {
  return __shfl_xor_sync(0xffffffffu, value, step);
}

template <class T>
INLINE T of_thread_before(T value) {
  return __shfl_up_sync(0xffffffffu, value, 1);
}
template <class T>
INLINE T of_thread_behind(T value) {
  return __shfl_down_sync(0xffffffffu, value, 1);
}

INLINE unsigned row_flags(bool flag) { return __ballot_sync(0xffffffffu, flag); }

INLINE void atomic_maximum(Index* target, Index value) { atomicMax(target, value); }

// Fetch a line of memory into the cache that all multiprocessors share.
INLINE void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

INLINE void system_store_release(Index* target, Index value) {
  asm volatile("st.release.sys.global.s64 [%0], %1;" ::"l"(target), "l"(value) : "memory");
}
INLINE Index system_load_acquire(const Index* source) {
  Index value;
  asm volatile("ld.acquire.sys.global.s64 %0, [%1];" : "=l"(value) : "l"(source) : "memory");
  return value;
}

// Read anew each time, so that places in memory that one phase of a kernel derives from it take no
// registers in the others.
INLINE int thread_number() {
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
#ifdef THREADS
  __builtin_assume(0 <= number && number < THREADS);
#endif
  return number;
}

// The same number, or pointer to global memory, whose origin is hidden from the compiler. So an offset
// is added to the pointer as it stands, not to one of its terms.
INLINE Index opaque(Index value) {
  asm("" : "+l"(value));
  return value;
}
template <class T>
INLINE T* opaque(T* pointer) {
  size_t address = __cvta_generic_to_global(pointer);
  asm("" : "+l"(address));
  return static_cast<T*>(const_cast<void*>(__cvta_global_to_generic(address)));
}

// Numbers of half precision, by their bits.
INLINE float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
INLINE unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

INLINE Index gpu_nanoseconds() {
  Index now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

#endif
