// The only file that tells GPU from CPU.
//
// A kernel is one function body over a loop nest. The loop macros below turn the nest into
// OpenMP threads and SIMD lanes on a CPU, and into blocks and threads on a GPU. The two-level
// shapes exist because both machines have two levels: values constant along the inner loop are
// computed once per outer iteration, and the inner loop is contiguous in memory.
//
//   FOR_ROWS(r, rows) FOR_COLUMNS(c, columns) { ... }        independent rows of contiguous data
//   FOR_BLOCKS(b, blocks) { SHARED(...); FOR_TILE(...) ... BLOCK_BARRIER }   cooperating tiles
//
// FOR_BLOCK_GRID is FOR_BLOCKS with three numbers of a block instead of one, which need no division.
// FOR_TILE_LINES is FOR_TILE in another order: a thread keeps its lane from line to line, and computes
// once what depends on the lane alone. PER_ITEM(Type, name, count) is what threads keep of their items
// from one FOR_TILE to the next, if there are at most as many as threads; OF_ITEM(name, item) is that
// of one.
//
// FOR_TILE_VECTORS is FOR_TILE for bodies that treat `width` lanes together on a CPU, one on a GPU.
//
// A sum or maximum over a row is gathered per thread with FOR_COLUMNS_SUM / FOR_COLUMNS_MAXIMUM and
// completed by row_sum / row_maximum; ROW_THREADS threads then have a row to themselves (launch with
// `reduces`), which keeps the order of additions, and so the result, the same in every run. Where a CPU cannot treat
// columns together, FOR_COLUMNS_IN_TURN gathers whatever the body likes.
//
// A kernel that gathers several numbers of a row in one pass keeps them by lane: OF_LANES(Type, name, count) are
// `count` numbers of each of the ROW_LANES lanes that work on a row, OF_LANE(name, i, lane) is one of them, and
// sum_of_lanes / maximum_of_lanes complete number i. FOR_LANES(lane, start, stop) goes over the columns
// start + lane below `stop`, which has to be a multiple of 16.
//
// `Real` is the field precision of the compiled kernel (-DREAL=float or double).
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SLIPSTREAM_GPU 1
#endif

#ifndef SLIPSTREAM_GPU
#include <ctime>
#endif

#ifndef REAL
#define REAL double
#endif

using Index = long long;
using Real = REAL;

#ifdef SLIPSTREAM_GPU

#define INLINE __device__ __forceinline__
// The threads that share a row are a warp.
#define ROW_THREADS 32

// The value of the thread of this row whose number differs by the bits of `step`.
template <class T>
INLINE T of_row_thread(T value, int step) {
  return __shfl_xor_sync(0xffffffffu, value, step);
}

// The values of the adjacent threads in the row; at an end of the row, the thread's own.
template <class T>
INLINE T of_thread_before(T value) {
  return __shfl_up_sync(0xffffffffu, value, 1);
}
template <class T>
INLINE T of_thread_behind(T value) {
  return __shfl_down_sync(0xffffffffu, value, 1);
}

// Bit i says whether thread i of this row has the flag.
INLINE unsigned row_flags(bool flag) { return __ballot_sync(0xffffffffu, flag); }

// Among all threads of a GPU.
INLINE void atomic_maximum(Index* target, Index value) { atomicMax(target, value); }

// Fetch a line of memory into the cache that all multiprocessors share.
INLINE void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Ordered for all processors that reach the memory.
INLINE void system_store_release(Index* target, Index value) {
  asm volatile("st.release.sys.global.s64 [%0], %1;" ::"l"(target), "l"(value) : "memory");
}
INLINE Index system_load_acquire(const Index* source) {
  Index value;
  asm volatile("ld.acquire.sys.global.s64 %0, [%1];" : "=l"(value) : "l"(source) : "memory");
  return value;
}

// Read again each time, so that places in memory that one phase of a kernel derives from it take no
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


// A kernel written for one block size says so by -DTHREADS and -DBLOCKS_PER_SM: the compiler then
// fits its registers to that many resident blocks.
#ifdef THREADS
#define BLOCK_THREADS THREADS
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
#else
#define BLOCK_THREADS blockDim.x
#define KERNEL extern "C" __global__ void
#endif
// Of a kernel that nobody calls, as its header is included for something else, nothing is compiled.
#define INCLUDED_KERNEL template <class Nothing> __global__ void
#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define NOT_UNROLLED

#define FOR_ROWS(row, rows)                                                        \
  for (Index row = Index(blockIdx.x) * blockDim.y + threadIdx.y; row < (rows);     \
       row += Index(gridDim.x) * blockDim.y)
#define FOR_COLUMNS(column, columns)                                               \
  for (Index column = threadIdx.x; column < (columns); column += blockDim.x)

#define FOR_COLUMNS_SUM(column, columns, ...) FOR_COLUMNS(column, columns)
#define FOR_COLUMNS_MAXIMUM(column, columns, variable) FOR_COLUMNS(column, columns)
#define FOR_COLUMNS_IN_TURN(column, columns) FOR_COLUMNS(column, columns)
#define FIRST_COLUMN (threadIdx.x == 0)
#define ROW_LANES ROW_THREADS
#define FOR_LANES(lane, start, stop) if (const Index lane = threadIdx.x; (start) + lane < (stop))
#define OF_LANES(Type, name, count) Type name[count]
#define OF_LANE(name, i, lane) name[i]

#define FOR_BLOCKS(block, blocks) \
  for (Index block = blockIdx.x; block < (blocks); block += gridDim.x)
#define FOR_BLOCK_GRID(i, columns, j, rows, k, layers)                  \
  for (unsigned k = blockIdx.z; k < unsigned(layers); k += gridDim.z)   \
    for (unsigned j = blockIdx.y; j < unsigned(rows); j += gridDim.y)   \
      for (unsigned i = blockIdx.x; i < unsigned(columns); i += gridDim.x)
#define FOR_TILE(i, count, lane, lanes)                                  \
  for (int tile_item_ = thread_number(); tile_item_ < (count) * (lanes); \
       tile_item_ += BLOCK_THREADS)                                      \
    if (const int lane = tile_item_ % (lanes), i = tile_item_ / (lanes); true)
#define LANES_AT_ONCE(lanes) ((lanes) < THREADS ? (lanes) : THREADS)
#define FOR_TILE_LINES(line, lines, lane, lanes)                                              \
  for (int tile_thread_ = thread_number(), lane = tile_thread_ % LANES_AT_ONCE(lanes);        \
       lane < (lanes); lane += LANES_AT_ONCE(lanes))                                          \
    for (int line = tile_thread_ < THREADS / LANES_AT_ONCE(lanes) * LANES_AT_ONCE(lanes)      \
                        ? tile_thread_ / LANES_AT_ONCE(lanes) : (lines);                      \
         line < (lines); line += THREADS / LANES_AT_ONCE(lanes))
#define PER_ITEM(Type, name, count) Type name
#define OF_ITEM(name, i) name
#define FOR_TILE_VECTORS(i, count, lane, lanes, width) FOR_TILE(i, count, lane, lanes)
#define ROUNDED(product) (product)
#define SHARED(Type, name, count) Type* name = reinterpret_cast<Type*>(shared_memory_)
#define BLOCK_BARRIER __syncthreads();
extern __shared__ double2 shared_memory_[];

#else

#define KERNEL extern "C" void
#define INCLUDED_KERNEL template <class Nothing> void
#define INLINE inline __attribute__((always_inline))
template <class T>
INLINE T opaque(T value) {
  return value;
}
#define RESTRICT __restrict__
// A product that is rounded before it is added. From version 12 on, GCC fuses the products of complex
// numbers in vectorised code, whatever -ffp-contract says.
#if defined(__has_builtin) && !defined(__clang__)
#if __has_builtin(__builtin_assoc_barrier)
#define ROUNDED(product) __builtin_assoc_barrier(product)
#endif
#endif
#ifndef ROUNDED
#define ROUNDED(product) (product)
#endif
#define UNROLL _Pragma("GCC unroll 32")
// Of a loop over lanes that stands in many copies: without it, code outgrows the instruction cache.
#define NOT_UNROLLED _Pragma("GCC unroll 1")

#define FOR_ROWS(row, rows) \
  _Pragma("omp parallel for schedule(static)") for (Index row = 0; row < (rows); ++row)
#define FOR_COLUMNS(column, columns) \
  _Pragma("omp simd") for (Index column = 0; column < (columns); ++column)

#define SLIPSTREAM_PRAGMA(text) _Pragma(#text)
#define FOR_COLUMNS_SUM(column, columns, ...)            \
  SLIPSTREAM_PRAGMA(omp simd reduction(+ : __VA_ARGS__)) \
  for (Index column = 0; column < (columns); ++column)
#define FOR_COLUMNS_MAXIMUM(column, columns, variable)     \
  SLIPSTREAM_PRAGMA(omp simd reduction(max : variable))    \
  for (Index column = 0; column < (columns); ++column)
#define FOR_COLUMNS_IN_TURN(column, columns) for (Index column = 0; column < (columns); ++column)
#define FIRST_COLUMN true
#define ROW_LANES 16
#define FOR_LANES(lane, start, stop) FOR_COLUMNS(lane, ROW_LANES)
#define OF_LANES(Type, name, count) alignas(64) Type name[(count) * ROW_LANES]
#define OF_LANE(name, i, lane) name[(i) * ROW_LANES + (lane)]

#define FOR_BLOCKS(block, blocks) \
  _Pragma("omp parallel for schedule(static)") for (Index block = 0; block < (blocks); ++block)
#define FOR_BLOCK_GRID(i, columns, j, rows, k, layers)     \
  _Pragma("omp parallel for collapse(3) schedule(static)") \
  for (unsigned k = 0; k < unsigned(layers); ++k)          \
    for (unsigned j = 0; j < unsigned(rows); ++j)          \
      for (unsigned i = 0; i < unsigned(columns); ++i)
#define FOR_TILE(i, count, lane, lanes)      \
  for (int i = 0; i < (count); ++i)          \
    for (int lane = 0; lane < (lanes); ++lane)
#define FOR_TILE_LINES(line, lines, lane, lanes) FOR_TILE(line, lines, lane, lanes)
#define PER_ITEM(Type, name, count) Type name[count]
#define OF_ITEM(name, i) name[i]
#define FOR_TILE_VECTORS(i, count, lane, lanes, width) \
  for (int i = 0; i < (count); ++i)                    \
    for (int lane = 0; lane < (lanes); lane += (width))
#define SHARED(Type, name, count) alignas(64) Type name[count]
#define BLOCK_BARRIER

INLINE void prefetch_line(const void* at) { __builtin_prefetch(at); }

// What CUDA has too. The standard header takes longer to compile than most kernels.
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fabs(double value) { return __builtin_fabs(value); }
INLINE double sqrt(double value) { return __builtin_sqrt(value); }
INLINE double rint(double value) { return __builtin_rint(value); }
INLINE double floor(double value) { return __builtin_floor(value); }
INLINE double ceil(double value) { return __builtin_ceil(value); }
INLINE double exp(double value) { return __builtin_exp(value); }
INLINE double expm1(double value) { return __builtin_expm1(value); }
INLINE double log(double value) { return __builtin_log(value); }
INLINE double sin(double value) { return __builtin_sin(value); }
INLINE double cos(double value) { return __builtin_cos(value); }
INLINE double tanh(double value) { return __builtin_tanh(value); }
INLINE double pow(double base, double exponent) { return __builtin_pow(base, exponent); }

// 0 to Stop - 1 as arguments of a template, without the standard header, which takes long to read.
template <int... I>
struct Integers {};
template <int Stop, int... I>
struct IntegersBelow : IntegersBelow<Stop - 1, Stop - 1, I...> {};
template <int... I>
struct IntegersBelow<0, I...> {
  using Type = Integers<I...>;
};

#endif

struct alignas(2 * sizeof(Real)) Complex {  // aligned, so that a GPU moves it in one access
  Real re, im;
};

INLINE Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
INLINE Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
INLINE Complex operator*(Complex a, Complex b) {
  return {ROUNDED(a.re * b.re) - ROUNDED(a.im * b.im), ROUNDED(a.re * b.im) + ROUNDED(a.im * b.re)};
}
INLINE Complex operator*(Real s, Complex a) { return {s * a.re, s * a.im}; }
INLINE Complex conjugate(Complex a) { return {a.re, -a.im}; }
INLINE Complex times_i(Complex a) { return {-a.im, a.re}; }

// The bits of a non-negative number, which have the same order as integers as the numbers; not-a-number
// comes above infinity, so a maximum of bits does not lose it.
INLINE Index ordered_bits(double value) {
#ifdef SLIPSTREAM_GPU
  // By integers: the magnitude of not-a-number may have a sign, by which it would come below all.
  return __double_as_longlong(value) & 0x7fffffffffffffffll;
#else
  Index bits;
  const double magnitude = fabs(value);
  __builtin_memcpy(&bits, &magnitude, sizeof bits);
  return bits;
#endif
}

INLINE double number_of_bits(Index bits) {
#ifdef SLIPSTREAM_GPU
  return __longlong_as_double(bits);
#else
  double value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

INLINE double row_sum(double value) {
#ifdef SLIPSTREAM_GPU
  for (int step = ROW_THREADS / 2; step > 0; step /= 2) value += of_row_thread(value, step);
#endif
  return value;
}

INLINE Index row_maximum(Index value) {
#ifdef SLIPSTREAM_GPU
  for (int step = ROW_THREADS / 2; step > 0; step /= 2) {
    const Index other = of_row_thread(value, step);
    value = other > value ? other : value;
  }
#endif
  return value;
}

INLINE double sum_of_lanes(const double* kept, int i) {
#ifdef SLIPSTREAM_GPU
  return row_sum(kept[i]);
#else
  double sum = 0;
  for (Index lane = 0; lane < ROW_LANES; ++lane) sum += OF_LANE(kept, i, lane);
  return sum;
#endif
}

INLINE double maximum_of_lanes(const double* kept, int i) {
#ifdef SLIPSTREAM_GPU
  return number_of_bits(row_maximum(ordered_bits(kept[i])));
#else
  double most = 0;
  for (Index lane = 0; lane < ROW_LANES; ++lane) {
    const double one = OF_LANE(kept, i, lane);
    most = one > most ? one : most;
  }
  return most;
#endif
}

// Call each(column, before) for all columns of a row, `before` being how many columns before have the
// flag; return how many have it. Of a GPU, ROW_THREADS threads have the row.
template <class Flag, class Each>
INLINE Index count_columns(Index columns, Flag flag, Each each) {
  Index count = 0;
#ifdef SLIPSTREAM_GPU
  for (Index start = 0; start < columns; start += ROW_THREADS) {
    const Index column = start + threadIdx.x;
    const bool has_flag = column < columns && flag(column);
    const unsigned all = row_flags(has_flag);
    if (column < columns) each(column, count + __popc(all & ((1u << threadIdx.x) - 1)));
    count += __popc(all);
  }
#else
  for (Index column = 0; column < columns; ++column) {
    each(column, count);
    count += flag(column);
  }
#endif
  return count;
}

// Raise *target to `value`. All threads of a block call it together, outside of any loop macro.
INLINE void block_maximum(Index* target, Index value) {
  value = row_maximum(value);
#ifdef SLIPSTREAM_GPU
  if (threadIdx.x % ROW_THREADS == 0) atomic_maximum(target, value);
#else
  if (value > *target) *target = value;
#endif
}

// Add a whole number to what other threads add to as well: the sum does not depend on their order.
INLINE void add_atomically(Index* target, Index value) {
#ifdef SLIPSTREAM_GPU
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
#else
  __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
#endif
}
INLINE void add_atomically(unsigned* target, unsigned value) {
#ifdef SLIPSTREAM_GPU
  atomicAdd(target, value);
#else
  __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
#endif
}

// Memory that several processors write: a released store comes after all that its thread wrote
// before, also for who reads it by an acquiring load on another processor.
INLINE void store_release(Index* target, Index value) {
#ifdef SLIPSTREAM_GPU
  system_store_release(target, value);
#else
  __atomic_store_n(target, value, __ATOMIC_RELEASE);
#endif
}

INLINE Index load_acquire(const Index* source) {
#ifdef SLIPSTREAM_GPU
  return system_load_acquire(source);
#else
  return __atomic_load_n(source, __ATOMIC_ACQUIRE);
#endif
}

// A clock; only differences mean anything.
INLINE Index nanoseconds() {
#ifdef SLIPSTREAM_GPU
  return gpu_nanoseconds();
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1000000000ll * now.tv_sec + now.tv_nsec;
#endif
}
