// FFTs on a CPU: a vector has one column, or row, in each lane.
//
// They come to a tile in the nearest cache, real and imaginary parts apart, so that an element of all
// lanes is two vectors. Passes are decimation in frequency, in place: the first one reads columns from
// memory, and the last one stores whole rows, in the order that the passes leave (as on GPUs,
// `strided_fft.hpp`). Each lane does the same arithmetic whatever the others hold, so results do not
// depend on how the work is divided. Lengths and radices are arguments: one program serves all. What takes
// long to compile is compiled once for all kernels (`vector_fft_tile.hpp`, `vector_fft_passes.hpp`), which
// call it by its address.
//
// Constants: SIGN of kernels (-1 forward, +1 backward). A length with its own program has N and
// RADICES as well, and LENGTH_HEADER, which is strided_fft.hpp.
#pragma once
#include "butterflies.hpp"
#include "row_tables.hpp"
#include "simd_vectors.hpp"
#include LENGTH_HEADER

#ifndef SLIPSTREAM_GPU
#include <omp.h>
#include <stdlib.h>

// Numbers of all lanes.
struct Values {
  Vector re, im;
};
constexpr int lane_count = lanes_of<Vector>;

INLINE Values operator+(Values a, Values b) { return {a.re + b.re, a.im + b.im}; }
INLINE Values operator-(Values a, Values b) { return {a.re - b.re, a.im - b.im}; }
INLINE Values operator*(Real s, Values a) { return {s * a.re, s * a.im}; }
INLINE Values times_i(Values a) { return {-a.im, a.re}; }
INLINE Values conjugate(Values a) { return {a.re, -a.im}; }
INLINE Values fused(Real s, Values a, Values b) {
  const Vector all = all_lanes(s, Vector{});
  return {fused(a.re, all, b.re), fused(a.im, all, b.im)};
}
INLINE Values turn(Values a, Complex w) {
  const Vector re = all_lanes(w.re, Vector{}), im = all_lanes(w.im, Vector{});
  return {fused(a.re, re, -(a.im * im)), fused(a.re, im, a.im * re)};
}

// A length, its radices (largest prime at most MOST), roots[k] = exp(-2 pi i k / n), and the mode that
// the last pass leaves first among those of each butterfly.
struct Length {
  Index n, passes;
  const Index *radices, *modes;
  const Complex* roots;
};
constexpr int MOST = 64;

// Any odd radix, by pairs q and radix - q.
template <int Sign>
INLINE void odd_butterfly(Values* v, const Complex* RESTRICT roots, int radix, int spacing) {
  const int half = radix / 2;
  Values sum[MOST / 2], difference[MOST / 2];
  const Values first = v[0];
  for (int q = 1; q <= half; ++q) {
    sum[q] = v[q] + v[radix - q];
    difference[q] = v[q] - v[radix - q];
    v[0] = v[0] + sum[q];
  }
  for (int k = 1; k <= half; ++k) {
    Values even = first, odd = {};
    for (int q = 1, angle = k; q <= half; ++q) {
      const Complex w = root<Sign>(roots, angle * spacing);
      even = fused(w.re, sum[q], even);
      odd = fused(w.im, difference[q], odd);
      angle += k;
      if (angle >= radix) angle -= radix;
    }
    v[k] = even + times_i(odd);
    v[radix - k] = even - times_i(odd);
  }
}

// One pass, of a radix that is R, or any odd one if R is 0: `blocks` of `length` elements, each with
// as many butterflies as its stride. `in(i)` returns element i; `out(block, j, r, value)` takes output
// r of butterfly j.
template <int R, int Sign, class In, class Out>
INLINE void butterflies(const Length& of, int length, int radix, const In& in, const Out& out) {
  const int number = R ? R : radix, stride = length / number, blocks = int(of.n) / length;
  const int spacing = int(of.n) / number;
  for (int block = 0; block < blocks; ++block)
    for (int j = 0; j < stride; ++j) {
      const int origin = block * length + j;
      Values v[R ? R : MOST];
      UNROLL for (int r = 0; r < number; ++r) v[r] = in(origin + r * stride);
      if constexpr (R > 0) Butterfly<R, Sign>::apply(v, of.roots, spacing);
      else odd_butterfly<Sign>(v, of.roots, radix, spacing);
      UNROLL for (int r = 0; r < number; ++r) out(block, j, r, v[r]);
    }
}

template <int Sign, class In, class Out>
INLINE void any_butterflies(const Length& of, int length, int radix, const In& in,
                            const Out& out) {
  if (radix == 8) butterflies<8, Sign>(of, length, radix, in, out);
  else if (radix == 4) butterflies<4, Sign>(of, length, radix, in, out);
  else if (radix == 3) butterflies<3, Sign>(of, length, radix, in, out);
  else if (radix == 5) butterflies<5, Sign>(of, length, radix, in, out);
  else if (radix == 2) butterflies<2, Sign>(of, length, radix, in, out);
  else if (radix == 7) butterflies<7, Sign>(of, length, radix, in, out);
  else butterflies<0, Sign>(of, length, radix, in, out);
}

// Pass number `pass`, to a tile; if it is not the first, in place.
template <int Sign, class In>
INLINE void inner_pass(const Length& of, int pass, int length, Values* tile, const In& in) {
  const int radix = int(of.radices[pass]), stride = length / radix, spacing = int(of.n) / length;
  any_butterflies<Sign>(of, length, radix, in, [&](int block, int j, int r, Values value) {
    const Complex factor = root<Sign>(of.roots, j * r * spacing);
    tile[block * length + j + r * stride] = r ? turn(value, factor) : value;
  });
}

struct Nothing {
  INLINE void operator()(int) const {}
};

#ifdef N
// The butterflies in the passes before pass P.
template <int P>
INLINE constexpr int butterflies_before() {
  int count = 0;
  for (int p = 0; p < P; ++p) count += N / radices[p];
  return count;
}
// The same passes of a length that is known to the compiler, from pass P on. `also(b)` is called with each
// butterfly, by its number among those of all passes.
template <int P, int Sign, class First, class Last, class Also>
INLINE void fixed_passes(const Complex* RESTRICT roots, Values* RESTRICT tile, const First& first,
                         const Last& last, const Also& also) {
  using Here = Pass<P>;
  constexpr int R = Here::radix, stride = Here::stride, length = Here::length;
  for (int start = 0; start < N; start += length)
    for (int j = 0; j < stride; ++j) {
      const int origin = start + j;
      also(butterflies_before<P>() + start / R + j);
      Values v[R];
      UNROLL for (int r = 0; r < R; ++r)
        v[r] = P == 0 ? first(origin + r * stride) : tile[origin + r * stride];
      Butterfly<R, Sign>::apply(v, roots, N / R);
      if constexpr (P + 1 == passes) {
        const int mode = mode_at(origin);
        UNROLL for (int r = 0; r < R; ++r) last(mode + r * (N / R), v[r]);
      } else {
        tile[origin] = v[0];
        UNROLL for (int r = 1; r < R; ++r)
          tile[origin + r * stride] = turn(v[r], root<Sign>(roots, j * r * (N / length)));
      }
    }
  if constexpr (P + 1 < passes) fixed_passes<P + 1, Sign>(roots, tile, first, last, also);
}
template <int Sign, class First, class Last, class InPlace>
INLINE void transform(const Length& of, Values* RESTRICT tile, const First& first,
                      const Last& last, const InPlace&) {
  fixed_passes<0, Sign>(of.roots, tile, first, last, Nothing{});
}
#else
// The passes from number `pass` to the last but one, in place.
template <int Sign>
void passes_in_place(const Length& of, Values* tile, int pass) {
  const auto from_tile = [&](int i) { return tile[i]; };
  int length = int(of.n);
  for (int before = 0; before < pass; ++before) length /= int(of.radices[before]);
  for (; pass + 1 < of.passes; ++pass) {
    inner_pass<Sign>(of, pass, length, tile, from_tile);
    length /= int(of.radices[pass]);
  }
}
// The last pass: `last(k, value)` takes mode k.
template <int Sign, class Last>
INLINE void last_pass(const Length& of, const Values* tile, const Last& last) {
  const int radix = int(of.radices[of.passes - 1]), step = int(of.n) / radix;
  any_butterflies<Sign>(
      of, radix, radix, [&](int i) { return tile[i]; },
      [&](int block, int, int r, Values value) { last(int(of.modes[block]) + r * step, value); });
}
// All passes. `first(i)` returns element i; `in_place` is `passes_in_place`.
template <int Sign, class First, class Last, class InPlace>
INLINE void transform(const Length& of, Values* RESTRICT tile, const First& first,
                      const Last& last, const InPlace& in_place) {
  if (of.passes == 1)
    for (int i = 0; i < int(of.n); ++i) tile[i] = first(i);
  else
    inner_pass<Sign>(of, 0, int(of.n), tile, first);
  if (of.passes > 2) in_place(&of, tile, 1);
  last_pass<Sign>(of, tile, last);
}

#endif

// From one tile to another, in order; the first is overwritten. A length known to the compiler does something
// else `also`, with each butterfly.
template <int Sign, class Also = Nothing>
void transform_tile(const Length& of, Values* tile, Values* target, const Also& also = Also{}) {
  const auto last = [&](int k, Values v) { target[k] = v; };
#ifdef N
  fixed_passes<0, Sign>(of.roots, tile, [&](int i) { return tile[i]; }, last, also);
#else
  passes_in_place<Sign>(of, tile, 0);
  last_pass<Sign>(of, tile, last);
#endif
}

// A length with a prime above MOST is a convolution (Bluestein 1970), by transforms of a length that
// is at least 2 n - 1: chirp[k] = exp(-pi i k^2 / n), and `spectrum` is the transform of its conjugate,
// normalised. `by.n` is 0 for other lengths.
struct Chirp {
  Length by;
  const Complex *chirp, *spectrum;
};
// A cosine or sine transform of `points` real numbers. Each of its elements is the sum of a pair of points times
// constants, and the real parts of each mode times constants are up to two results (`cosine_transforms.py`); -1
// stands for none.
struct Pair {
  Index first, second;
  Complex by_first, by_second;
};
struct Cosines {
  Index points;
  const Pair *points_of, *results_of;
};
// What Python prepares once for a length; `cosines.points` is 0 for Fourier transforms.
struct Plan {
  Length of;
  Chirp with;
  Cosines cosines;
};
INLINE Index tile_size(const Plan& plan) {
  return (plan.of.n > plan.with.by.n ? plan.of.n : plan.with.by.n) + lane_count;
}
// The functions of `vector_fft_tile.hpp` and `vector_fft_passes.hpp`. `any` is null where the length is known to the compiler.
using TileTransform = void (*)(const Plan* plan, Values* tile, Values* target);
using TilePasses = void (*)(const Length* of, Values* tile, Index pass);
template <int Sign, class Also = Nothing>
INLINE void transform_any(TileTransform any, const Plan& plan, Values* tile, Values* target,
                          const Also& also = Also{}) {
#ifdef N
  transform_tile<Sign>(plan.of, tile, target, also);
#else
  any(&plan, tile, target);
#endif
}
// The same from `first(i)`, which returns element i, or to `last(k, value)`, which takes mode k and must not write
// to the first tile.
template <int Sign, class First>
INLINE void transform_from(const First& first, TileTransform any, const Plan& plan, Values* tile, Values* target) {
#ifdef N
  fixed_passes<0, Sign>(plan.of.roots, tile, first, [&](int k, Values v) { target[k] = v; }, Nothing{});
#else
  for (int i = 0; i < int(plan.of.n); ++i) tile[i] = first(i);
  any(&plan, tile, target);
#endif
}
template <int Sign, class Last>
INLINE void transform_to(const Last& last, TileTransform any, const Plan& plan, Values* tile, Values* other) {
#ifdef N
  fixed_passes<0, Sign>(plan.of.roots, tile, [&](int i) { return tile[i]; }, last, Nothing{});
#else
  any(&plan, tile, other);
  for (int k = 0; k < int(plan.of.n); ++k) last(k, other[k]);
#endif
}

// Call a function in each thread, which takes its share of blocks. GNU's OpenMP takes 0.7 us to begin with one
// thread, longer than a small transform.
template <class Function>
INLINE void in_threads(const Function& of_thread) {
  if (omp_get_max_threads() == 1) {
    of_thread();
    return;
  }
  _Pragma("omp parallel") of_thread();
}
#define FOR_BLOCKS_OF_THREAD(block, blocks) \
  _Pragma("omp for schedule(static) nowait") for (Index block = 0; block < (blocks); ++block)

// Memory of a thread, which ends with it: plans have their own threads, which come and go.
struct ThreadMemory {
  Values* values = nullptr;
  Index size = 0;
  ~ThreadMemory() { free(values); }
};

// Two tiles of this thread with `count` values each, and the addresses of as many rows on both sides.
INLINE Values* tiles_of_thread(Index count) {
  static thread_local ThreadMemory memory;
  if (memory.size < count) {
    free(memory.values);
    memory.values = (Values*)aligned_alloc(64, 2 * count * (sizeof(Values) + sizeof(Complex*)));
    memory.size = count;
  }
  return memory.values;
}

template <int FIRST, int... I>
INLINE Vector every_other(Vector a, Vector b, Integers<I...>) {
  return __builtin_shufflevector(a, b, (FIRST + 2 * I)...);
}
template <int FIRST, int... I>
INLINE Vector alternating(Vector a, Vector b, Integers<I...>) {
  return __builtin_shufflevector(a, b, ((I % 2 ? lane_count : 0) + FIRST + I / 2)...);
}

// Cheap instructions exchange numbers within groups of 16 bytes, or whole groups. `zipped` has blocks of SIZE
// numbers from one half of each group, of both vectors in turn; `unzipped` the numbers at even or odd places in
// each group, of the first vector and then of the second; `unzipped_groups` does so with groups.
constexpr int group = 16 / sizeof(Real), groups = lane_count / group;
template <int SIZE, int HALF, int... I>
INLINE Vector zipped(Vector a, Vector b, Integers<I...>) {
  return __builtin_shufflevector(
      a, b, (I / group * group + HALF * (group / 2) + I % group / (2 * SIZE) * SIZE + I % SIZE +
             (I / SIZE % 2 ? lane_count : 0))...);
}
template <int ODD, int... I>
INLINE Vector unzipped(Vector a, Vector b, Integers<I...>) {
  return __builtin_shufflevector(
      a, b, (I / group * group + 2 * I % group + ODD + (I % group < group / 2 ? 0 : lane_count))...);
}
template <int ODD, int... I>
INLINE Vector unzipped_groups(Vector a, Vector b, Integers<I...>) {
  return __builtin_shufflevector(
      a, b, ((2 * (I / group) % groups + ODD) * group + I % group + (I < lane_count / 2 ? 0 : lane_count))...);
}

// Neighbouring complex numbers of a row to the lanes, in another order, and back.
INLINE Values load_columns(const Complex* row) {
  const Real* at = (const Real*)row;
  const Vector a = load(at, Vector{}), b = load(at + lane_count, Vector{});
  return {unzipped<0>(a, b, AllLanes{}), unzipped<1>(a, b, AllLanes{})};
}
INLINE void store_columns(Complex* row, Values v) {
  Real* at = (Real*)row;
  store(at, zipped<1, 0>(v.re, v.im, AllLanes{}));
  store(at + lane_count, zipped<1, 1>(v.re, v.im, AllLanes{}));
}

// The same in the order of real numbers.
INLINE Values load_in_order(const Complex* row) {
  const Real* at = (const Real*)row;
  const Vector a = load(at, Vector{}), b = load(at + lane_count, Vector{});
  return {every_other<0>(a, b, AllLanes{}), every_other<1>(a, b, AllLanes{})};
}
INLINE void store_in_order(Complex* row, Values v) {
  Real* at = (Real*)row;
  store(at, alternating<0>(v.re, v.im, AllLanes{}));
  store(at + lane_count, alternating<lane_count / 2>(v.re, v.im, AllLanes{}));
}

// Rows of a column are far apart, beyond any hardware prefetcher: ask for the next tile's part of a
// row. It goes to the second cache; the first has no room for it.
template <class Number>
INLINE void prefetch_after(const Number* row) {
  constexpr int size = lane_count * sizeof(Number), line = size < 64 ? size : 64;
  const char* next = (const char*)(row + lane_count);
  UNROLL for (int end = line; end <= size; end += line)
    __builtin_prefetch(next + end - 1, 0, 1);
}

// Rows whose distance is a multiple of half a page share two places of the nearest cache. There stores in quick
// succession take away the lines that others wait for: with a break after every eighth vector, columns of 64
// points at a distance of a page take half the time (AMD EPYC of the fifth generation).
struct StorePace {
  bool is_slow;
  int stored = 0;
  INLINE StorePace(Index bytes_between_rows) : is_slow(bytes_between_rows && bytes_between_rows % 2048 == 0) {}
  INLINE void store_next(int vectors) {
    if (is_slow && (stored += vectors) % 8 == 0) finish_computing();
  }
};

// Where the rows of one side of a transform lie, in numbers of its type: in a table, where some are not
// kept (`row_tables.hpp`), or at equal distances.
struct RowPlaces {
  const Index *offset, *pitch;
  Index first, between_planes, between_rows;
  INLINE bool kept(int row) const { return !offset || offset[row] != not_kept; }
  INLINE Index place(Index plane, int row) const {
    return offset ? offset[row] + (first + plane) * pitch[row]
                  : plane * between_planes + row * between_rows;
  }
  // The addresses of all rows of a tile; `absent` stands for rows that are not kept.
  template <class Number>
  INLINE void addresses(Number* field, Index plane, Index distance, int n, Number* absent,
                        Number** RESTRICT rows) const {
    if (offset)
      for (int row = 0; row < n; ++row)
        rows[row] = kept(row) ? field + (offset[row] + (first + plane) * pitch[row] + distance) : absent;
    else
      for (int row = 0; row < n; ++row)
        rows[row] = field + (plane * between_planes + distance + row * between_rows);
  }
  // Whether the columns of neighbouring planes are neighbours too, in all `rows` rows.
  INLINE bool joins_planes(Index columns, Index rows) const {
    if (!offset) return between_planes == columns;
    for (Index row = 0; row < rows; ++row)
      if (kept(int(row)) && pitch[row] != columns) return false;
    return true;
  }
};

// Neighbouring columns of one plane in a tile. `distance` leads from the place of a row in this plane to
// the column of lane 0. `lanes` are those of real numbers; complex numbers take two vectors, with
// the lanes `low` and `high`.
struct Piece {
  Index plane, distance;
  int lane, size;
  Lanes lanes, low, high;
};
INLINE Lanes bits(int first, int count) { return Lanes(((1ull << count) - 1) << first); }
// A row of a piece to, or from, a row of all lanes.
INLINE void load_piece(const Piece& of, const Complex* row, bool kept, Complex* columns) {
  const Real* from = (const Real*)row;
  Real* to = (Real*)columns;
  const Lanes keep = kept ? ~0u : 0;
  store(to, load_lanes(Vector{}, from, of.low & keep));
  store(to + lane_count, load_lanes(Vector{}, from + lane_count, of.high & keep));
}
INLINE void load_piece(const Piece& of, const Real* row, bool kept, Real* columns) {
  store(columns, load_lanes(Vector{}, row, kept ? of.lanes : 0));
}
INLINE void store_piece(const Piece& of, const Complex* columns, Complex* row) {
  const Real* from = (const Real*)columns;
  Real* to = (Real*)row;
  store_lanes(to, load(from, Vector{}), of.low);
  store_lanes(to + lane_count, load(from + lane_count, Vector{}), of.high);
}
INLINE void store_piece(const Piece& of, const Real* columns, Real* row) {
  store_lanes(row, load(columns, Vector{}), of.lanes);
}

// The tiles of columns of some fields and planes. The last columns of a plane, if they are few, share tiles
// with those of other planes. Such planes follow each other, field by field, while their rows are in cache.
constexpr int few_columns = lane_count / 2;
struct Tiles {
  Index fields, planes, columns, whole, rest, together = 1, of_group;
  INLINE Tiles(Index fields, Index planes, Index columns)
      : fields(fields), planes(planes), columns(columns), whole(columns / lane_count), rest(columns % lane_count) {
    if (rest && rest <= few_columns) together = lane_count / (rest & -rest);
    of_group = of_planes(together);
  }
  INLINE Index of_planes(Index number) const {
    return number * whole + (together > 1 ? (number * rest + lane_count - 1) / lane_count : rest ? number : 0);
  }
  INLINE Index count() const {
    return fields * (planes / together * of_group + of_planes(planes % together));
  }
};
struct Pieces {
  Piece of[lane_count];
  int count = 0;
  bool is_whole;
  Index field;
  INLINE Pieces(const Tiles& all, Index tile) {
    const Index group = tile / (all.fields * all.of_group), before = group * all.together;
    const Index left = all.planes - before, planes = left < all.together ? left : all.together;
    const Index tiles = all.of_planes(planes), rest = all.rest;
    tile -= group * all.fields * all.of_group;
    field = tile / tiles;
    tile %= tiles;
    is_whole = tile < planes * all.whole;
    if (is_whole) {
      add(before + tile / all.whole, tile % all.whole * lane_count, 0, lane_count);
      return;
    }
    if (all.together == 1) {
      add(before, all.columns - rest, 0, int(rest));
      return;
    }
    const Index first = (tile - planes * all.whole) * lane_count;
    const Index lanes = planes * rest - first < lane_count ? planes * rest - first : lane_count;
    for (Index lane = 0; lane < lanes;) {
      const Index column = (first + lane) % rest, left = lanes - lane;
      const Index size = rest - column < left ? rest - column : left;
      add(before + (first + lane) / rest, all.columns - rest + column, int(lane), int(size));
      lane += size;
    }
  }
  INLINE void add(Index plane, Index column, int lane, int size) {
    const unsigned long long numbers = ((1ull << 2 * size) - 1) << 2 * lane;
    of[count++] = {plane, column - lane, lane, size, bits(lane, size),
                   Lanes(numbers) & bits(0, lane_count), Lanes(numbers >> lane_count)};
  }
  // All rows of a field of complex or real numbers, to columns that lie side by side, and back.
  template <class Number>
  INLINE void gather(const RowPlaces& rows, const Number* field, Index n, Number* columns) const {
    if (count == 1) {
      for (int row = 0; row < n; ++row)
        load_piece(of[0], field + rows.place(of[0].plane, row) + of[0].distance, rows.kept(row),
                   columns + row * lane_count);
      return;
    }
    // Column by column: of a loop over neighbours compilers make calls of memmove.
    for (int i = 0; i < count; ++i)
      for (int lane = of[i].lane; lane < of[i].lane + of[i].size; ++lane)
        for (int row = 0; row < n; ++row)
          columns[row * lane_count + lane] =
              rows.kept(row) ? field[rows.place(of[i].plane, row) + of[i].distance + lane]
                             : Number{};
  }
  template <class Number>
  INLINE void scatter(const RowPlaces& rows, Number* field, Index n, const Number* columns) const {
    if (count == 1) {
      for (int row = 0; row < n; ++row)
        if (rows.kept(row))
          store_piece(of[0], columns + row * lane_count,
                      field + rows.place(of[0].plane, row) + of[0].distance);
      return;
    }
    for (int i = 0; i < count; ++i)
      for (int lane = of[i].lane; lane < of[i].lane + of[i].size; ++lane)
        for (int row = 0; row < n; ++row)
          if (rows.kept(row))
            field[rows.place(of[i].plane, row) + of[i].distance + lane] =
                columns[row * lane_count + lane];
  }
};

// Exchange the lanes of as many vectors with their numbers: first within groups of 16 bytes, then groups.
INLINE void transpose(Vector* v) {
  Vector of_number[group][groups];
  UNROLL for (int i = 0; i < groups; ++i) {
    const Vector* from = v + i * group;
    const Vector a = zipped<1, 0>(from[0], from[1], AllLanes{});
    const Vector b = zipped<1, 1>(from[0], from[1], AllLanes{});
    if constexpr (group == 2) {
      of_number[0][i] = a;
      of_number[1][i] = b;
    } else {
      const Vector c = zipped<1, 0>(from[2], from[3], AllLanes{});
      const Vector d = zipped<1, 1>(from[2], from[3], AllLanes{});
      of_number[0][i] = zipped<2, 0>(a, c, AllLanes{});
      of_number[1][i] = zipped<2, 1>(a, c, AllLanes{});
      of_number[2][i] = zipped<2, 0>(b, d, AllLanes{});
      of_number[3][i] = zipped<2, 1>(b, d, AllLanes{});
    }
  }
  UNROLL for (int n = 0; n < group; ++n) {
    const Vector* from = of_number[n];
    if constexpr (groups == 1) {
      v[n] = from[0];
    } else {
      const Vector even = unzipped_groups<0>(from[0], from[1], AllLanes{});
      const Vector odd = unzipped_groups<1>(from[0], from[1], AllLanes{});
      if constexpr (groups == 2) {
        v[n] = even;
        v[group + n] = odd;
      } else {
        const Vector next_even = unzipped_groups<0>(from[2], from[3], AllLanes{});
        const Vector next_odd = unzipped_groups<1>(from[2], from[3], AllLanes{});
        v[n] = unzipped_groups<0>(even, next_even, AllLanes{});
        v[group + n] = unzipped_groups<0>(odd, next_odd, AllLanes{});
        v[2 * group + n] = unzipped_groups<1>(even, next_even, AllLanes{});
        v[3 * group + n] = unzipped_groups<1>(odd, next_odd, AllLanes{});
      }
    }
  }
}

// Copy past the caches.
INLINE void stream_numbers(const Real* from, Real* to, Index count) {
  Index i = 0;
  const Index before = Index(-(unsigned long long)to / sizeof(Real) % lane_count);
  for (; i < before && i < count; ++i) to[i] = from[i];
  for (; i + lane_count <= count; i += lane_count) stream(to + i, load(from + i, Vector{}));
  for (; i < count; ++i) to[i] = from[i];
}

// A row for each lane: of fewer rows, the last is read again, and not stored.
template <class Number>
struct Rows {
  Number* row[lane_count];
  int count;
  Index ahead;  // from these rows to the next ones
  // Of rows [][b][c], from `first` on. Only the first place is divided for: divisions take longer than the
  // transform of a short row.
  INLINE Rows(Number* base, Index first, Index rows, Index b, Index c, Index stride_a,
              Index stride_b, Index stride_c) {
    count = int(rows - first < lane_count ? rows - first : lane_count);
    const Index plane = first / c;
    Index k = first - plane * c, j = plane % b, place = plane / b * stride_a + j * stride_b + k * stride_c;
    const Index begin = place, next_b = stride_b - c * stride_c, next_a = stride_a - b * stride_b;
    for (int i = 0; i < lane_count; ++i) {
      row[i] = base + place;
      if (i + 1 >= count && count < lane_count) continue;
      place += stride_c;
      if (++k == c) place += next_b, k = 0, ++j;
      if (j == b) place += next_a, j = 0;
    }
    ahead = place - begin;
  }
  INLINE Rows(Number* base, Index first, Index rows, Index stride) : ahead(lane_count * stride) {
    count = int(rows - first < lane_count ? rows - first : lane_count);
    for (int i = 0; i < lane_count; ++i) row[i] = base + (first + (i < count ? i : count - 1)) * stride;
  }
  INLINE void prefetch_after(Index n) const {
    UNROLL for (int i = 0; i < lane_count; ++i) __builtin_prefetch(row[i] + n + ahead, 0, 3);
  }
  // One of PARTS parts of the next rows, of SIZE numbers each; of short rows, those after next. They are asked
  // for row by row, while the CPU computes, and so arrive by then.
  static constexpr int far = 1 << 13;
  template <int SIZE, int PARTS>
  INLINE void prefetch_part(int part) const {
    constexpr int line = 64 / sizeof(Number), of_row = (SIZE + line - 1) / line;
    constexpr int bytes = lane_count * SIZE * sizeof(Number), blocks = bytes < far ? far / bytes : 1;
    constexpr int count = lane_count * of_row, each = (count + PARTS - 1) / PARTS;
    UNROLL for (int i = part * each; i < (part + 1) * each; ++i)
      if (count % PARTS == 0 || i < count)
        __builtin_prefetch(row[i / of_row] + blocks * ahead + i % of_row * line, 0, 3);
  }
  // Numbers `n` onwards of all rows of `size` numbers, a vector for each number, and back.
  template <bool ASKS>
  INLINE void load_some(Vector* v, Index n, Index size) const {
    if constexpr (ASKS) prefetch_after(n);
    if (n + lane_count <= size) {
      UNROLL for (int i = 0; i < lane_count; ++i) v[i] = load(row[i] + n, Vector{});
    } else {
      const Lanes some = bits(0, int(size - n));
      UNROLL for (int i = 0; i < lane_count; ++i) v[i] = load_lanes(Vector{}, row[i] + n, some);
    }
    transpose(v);
  }
  INLINE void store_some(Vector* v, Index n, Index size) const {
    transpose(v);
    if (n + lane_count <= size && count == lane_count) {
      UNROLL for (int i = 0; i < lane_count; ++i) store(row[i] + n, v[i]);
      return;
    }
    const Lanes some = bits(0, int(size - n < lane_count ? size - n : lane_count));
    for (int i = 0; i < count; ++i) store_lanes(row[i] + n, v[i], some);
  }
  // As `size` complex, or real, numbers.
  template <bool ASKS = true>
  INLINE void load_complex(Values* RESTRICT tile, Index size) const {
    for (Index n = 0; n < size; n += lane_count / 2) {
      Vector v[lane_count];
      load_some<ASKS>(v, 2 * n, 2 * size);
      UNROLL for (int k = 0; k < lane_count / 2; ++k) tile[n + k] = {v[2 * k], v[2 * k + 1]};
    }
  }
  INLINE void store_complex(const Values* RESTRICT tile, Index size, Real scale) const {
    for (Index n = 0; n < size; n += lane_count / 2) {
      Vector v[lane_count];
      UNROLL for (int k = 0; k < lane_count / 2; ++k) {
        v[2 * k] = tile[n + k].re * all_lanes(scale, Vector{});
        v[2 * k + 1] = tile[n + k].im * all_lanes(scale, Vector{});
      }
      store_some(v, 2 * n, 2 * size);
    }
  }
  // `put(i, v)` takes, and `get(i)` returns, real number i of all rows; also some behind the last.
  template <class Put>
  INLINE void load_real(Index size, const Put& put) const {
    for (Index n = 0; n < size; n += lane_count) {
      Vector v[lane_count];
      load_some<true>(v, n, size);
      UNROLL for (int k = 0; k < lane_count; ++k) put(n + k, v[k]);
    }
  }
  template <class Get>
  INLINE void store_real(Index size, Real scale, const Get& get) const {
    for (Index n = 0; n < size; n += lane_count) {
      Vector v[lane_count];
      UNROLL for (int k = 0; k < lane_count; ++k) v[k] = get(n + k) * all_lanes(scale, Vector{});
      store_some(v, n, size);
    }
  }
  // Store rows of `size` numbers that lie side by side elsewhere, past the caches: in one piece, if there are no
  // gaps between these, so that no line of memory is stored in two parts.
  INLINE void stream_packed(const Number* packed, Index size) const {
    bool are_joined = count == lane_count;
    for (int i = 1; i < count; ++i) are_joined &= row[i] == row[0] + i * size;
    if (are_joined) stream_numbers(packed, row[0], count * size);
    else for (int i = 0; i < count; ++i) stream_numbers(packed + i * size, row[i], size);
  }
};

#endif
