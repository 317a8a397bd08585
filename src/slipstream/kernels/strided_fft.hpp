// Complex FFTs of columns, along an axis that is not contiguous in memory.
//
// A block transforms LANES neighbouring columns in its shared memory, so that every access of
// global memory is a run of LANES elements, and each element crosses global memory once in and once
// out (Govindaraju et al. 2008, "High performance discrete Fourier transforms on graphics
// processors"). The passes are decimation in frequency (Gentleman and Sande 1966). They run in
// place, with one tile and one barrier a pass where Stockham's autosort takes two tiles or two
// barriers. The modes come out in digit-reversed order, at no cost: the last pass stores whole
// rows, and may store them in any order.
//
// Constants: N, RADICES (comma separated, product N), SIGN (-1 forward, +1 backward), LANES.
// Without LANES only the parts that other transforms share are compiled.
#pragma once
#include "butterflies.hpp"
#include "row_tables.hpp"

constexpr int radices[] = {RADICES};
constexpr int passes = sizeof(radices) / sizeof(int);

INLINE constexpr int length_at(int pass) {
  int length = N;
  for (int p = 0; p < pass; ++p) length /= radices[p];
  return length;
}
static_assert(length_at(passes) == 1, "the product of RADICES must be N");

// v[r] *= root^r. The powers are multiplied up, not looked up: a gather from the table would take
// more cycles than the arithmetic. The products are log2(R) deep, so rounding stays small.
template <int R, class Value>
INLINE void twiddle(Value* v, Complex root) {
  Complex power[R + 1];
  power[1] = root;
  UNROLL for (int r = 2; r < R; ++r) power[r] = turn(power[r / 2], power[r - r / 2]);
  UNROLL for (int r = 1; r < R; ++r) v[r] = turn(v[r], power[r]);
}

// Pass P cuts the N elements into transforms of `length`; its butterfly b works on the elements
// origin(b) + r * stride, r < radix, and turns output r by root(b)^r (decimation in frequency).
// Run from the last pass to the first, each turning its inputs instead, the passes undo the order.
template <int P>
struct Pass {
  static constexpr int radix = radices[P], length = length_at(P), stride = length / radix;
  static constexpr int butterflies = N / radix;
  static INLINE int origin(int b) { return b / stride * length + b % stride; }
  template <int Sign>
  static INLINE Complex root(const Complex* RESTRICT roots, int b) {
    return ::root<Sign>(roots, b % stride * (N / length));
  }
};

// The mode that all passes from P on leave at this position.
template <int P = 0>
INLINE int mode_at(int position) {
  if constexpr (P == passes) {
    return 0;
  } else {
    constexpr int stride = Pass<P>::stride;
    return position / stride + Pass<P>::radix * mode_at<P + 1>(position % stride);
  }
}

#ifdef LANES
#ifndef POINT_TABLES
#define POINT_TABLES 0
#endif

#if WIDTH == 2
#include "two_columns.hpp"
using Value = TwoColumns;
INLINE Complex first_of(Value two) { return two.a; }
INLINE Value only(Complex one) { return {one, {0, 0}}; }
#else
using Value = Complex;
INLINE Complex first_of(Value one) { return one; }
INLINE Value only(Complex one) { return one; }
#endif
INLINE Value load(const Complex* from) { return *reinterpret_cast<const Value*>(from); }
INLINE void store(Complex* to, Value value) { *reinterpret_cast<Value*>(to) = value; }

// Tables of the side that a transform stores to are read between its stores; a promise that no store
// changes them lets the compiler do so. Of the other side it would read all in advance, for the next
// columns too, and run out of registers.
#if SIGN < 0
#define MODES_RESTRICT RESTRICT
#define POINTS_RESTRICT
#else
#define MODES_RESTRICT
#define POINTS_RESTRICT RESTRICT
#endif

// Where a row lies behind its side's base, and whether it is stored at all.
struct Row {
  Index place;
  bool is_stored;
  INLINE Row(RowEntry entry, unsigned plane)  // an unsigned plane takes half the instructions
      : place(entry.offset + plane * entry.pitch), is_stored(entry.offset != not_kept) {}
  INLINE explicit Row(Index place) : place(place), is_stored(true) {}
};

// The two sides of a transform, as rows of which LANES columns belong to the tile. Points have all
// rows, if there is no table; else only those are stored that the table knows, and others are zero.
struct Points {
  Complex* base;
  Index row_stride;
  const RowEntry* rows;
  unsigned plane;
  INLINE Row row(int row) const {
    if constexpr (POINT_TABLES) return Row(rows[row], plane);
    else return Row(row * row_stride);
  }
};
struct Modes {
  Complex* base;
  const RowEntry* rows;
  unsigned plane;
  INLINE Row row(int row) const { return Row(rows[row], plane); }
};

// One pass over the first `lanes` columns of a tile, and those after it. A thread that has two columns
// has only the first of them where their number is odd.
template <int P, class Source, class Target>
INLINE void passes_from(const Source& source, const Target& target, Complex* tile,
                        const Complex* RESTRICT roots, Real scale, int lanes) {
  using Here = Pass<P>;
  constexpr int R = Here::radix;
  constexpr bool last = P + 1 == passes;
  FOR_TILE(b, Here::butterflies, thread, LANES / WIDTH) {
    const int origin = Here::origin(b), lane = thread * WIDTH;
    const bool is_whole = WIDTH == 1 || lane + WIDTH <= lanes;
    Value v[R];
    if constexpr (P > 0) {
      UNROLL for (int r = 0; r < R; ++r) v[r] = load(tile + (origin + r * Here::stride) * LANES + lane);
    } else {
      // All places first, so that no load waits for the tables between it and the one before.
      Index place[R];
      bool is_stored[R];
      UNROLL for (int r = 0; r < R; ++r) {
        const Row row = source.row(origin + r * Here::stride);
        place[r] = row.place;
        is_stored[r] = row.is_stored && lane < lanes;
      }
      if (is_whole) {
        UNROLL for (int r = 0; r < R; ++r)
          v[r] = is_stored[r] ? load(source.base + place[r] + lane) : Value{};
      } else {
        UNROLL for (int r = 0; r < R; ++r)
          v[r] = is_stored[r] ? only(source.base[place[r] + lane]) : Value{};
      }
    }
    Butterfly<R, SIGN>::apply(v, roots, N / R);
    if constexpr (!last) {
      twiddle<R>(v, Here::template root<SIGN>(roots, b));
      UNROLL for (int r = 0; r < R; ++r)
        store(tile + (origin + r * Here::stride) * LANES + lane, v[r]);
    } else {
      const int first_mode = mode_at(origin);
      UNROLL for (int r = 0; r < R; ++r) {
        const Row row = target.row(first_mode + r * (N / R));
        Complex* to = target.base + row.place + lane;
        const Value value = scale * v[r];
        if (row.is_stored && lane < lanes) {
          if (is_whole) store(to, value);
          else *to = first_of(value);
        }
      }
    }
  }
  BLOCK_BARRIER  // after the last pass too: the next block of columns writes the tile
  if constexpr (!last) passes_from<P + 1>(source, target, tile, roots, scale, lanes);
}

// Transform the columns of [field][o][row][column] arrays. The points' side (source of a forward,
// target of a backward transform) has strides; on the modes' side, row r of plane o lies where the
// table of rows says, for plane first + o, see row_tables.hpp: truncation, padding with zeros and the
// order of an exchange cost no pass of their own. With POINT_TABLES the points' side has a table, too,
// in place of the strides of rows and planes. Strides count Complex elements, columns are contiguous.
// Both sides may be the same memory if the tables leave rows in place. With two columns a thread
// (WIDTH), all rows begin at a multiple of 16 bytes. There are fewer than 2^32 tiles of columns.
KERNEL strided_fft(const Complex* source, Complex* target, const Complex* RESTRICT roots,
                   Real scale, const RowEntry* MODES_RESTRICT rows, Index first, Index fields,
                   Index outer, Index columns, Index modes_field, Index points_field,
                   Index points_outer, Index points_row,
                   const RowEntry* POINTS_RESTRICT point_rows, Index point_first) {
  const unsigned tiles = (unsigned(columns) + LANES - 1) / LANES, planes = unsigned(outer);
  Complex* mode_base = SIGN < 0 ? target : const_cast<Complex*>(source);
  Complex* point_base = SIGN < 0 ? const_cast<Complex*>(source) : target;
  FOR_BLOCKS(block, fields * outer * tiles) {
    SHARED(Complex, tile, N * LANES);
    const unsigned line = unsigned(block) / tiles, column = (unsigned(block) - line * tiles) * LANES;
    const unsigned field = line / planes, o = line - field * planes;
    const int lanes = int(columns) - int(column);
    const Modes modes{mode_base + field * modes_field + column, rows, unsigned(first) + o};
    const Index outer_part = POINT_TABLES ? 0 : o * points_outer;
    const Points points{point_base + field * points_field + outer_part + column, points_row,
                        point_rows, unsigned(point_first) + o};
    if constexpr (SIGN < 0) passes_from<0>(points, modes, tile, roots, scale, lanes);
    else passes_from<0>(modes, points, tile, roots, scale, lanes);
  }
}

#endif
