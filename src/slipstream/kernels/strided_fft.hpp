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
template <int R>
INLINE void twiddle(Complex* v, Complex root) {
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

// The two sides of a transform, as rows of which LANES columns belong to the tile. Points have all
// rows, if there is no table; else only those are stored that the table knows, and others are zero.
struct Points {
  Complex* base;
  Index row_stride;
  const Index *offset, *pitch;
  unsigned plane;  // multiplies a pitch in half the instructions of an Index
  int lanes;
  INLINE bool stored(int row, int lane) const {
    if constexpr (POINT_TABLES) return offset[row] != not_kept && lane < lanes;
    else return lane < lanes;
  }
  INLINE Index place(int row) const {
    if constexpr (POINT_TABLES) return offset[row] + plane * pitch[row];
    else return row * row_stride;
  }
};
struct Modes {
  Complex* base;
  const Index *offset, *pitch;
  unsigned plane;
  int lanes;
  INLINE bool stored(int row, int lane) const { return offset[row] != not_kept && lane < lanes; }
  INLINE Index place(int row) const { return offset[row] + plane * pitch[row]; }
};

template <int P, class Source, class Target>
INLINE void passes_from(const Source& source, const Target& target, Complex* tile,
                        const Complex* RESTRICT roots, Real scale) {
  using Here = Pass<P>;
  constexpr int R = Here::radix;
  constexpr bool last = P + 1 == passes;
  FOR_TILE(b, Here::butterflies, lane, LANES) {
    const int origin = Here::origin(b);
    Complex v[R];
    if constexpr (P > 0) {
      UNROLL for (int r = 0; r < R; ++r) v[r] = tile[(origin + r * Here::stride) * LANES + lane];
    } else {
      // All places first, so that no load waits for the tables between it and the one before.
      Index place[R];
      bool stored[R];
      UNROLL for (int r = 0; r < R; ++r) {
        place[r] = source.place(origin + r * Here::stride);
        stored[r] = source.stored(origin + r * Here::stride, lane);
      }
      UNROLL for (int r = 0; r < R; ++r)
        v[r] = stored[r] ? source.base[place[r] + lane] : Complex{0, 0};
    }
    Butterfly<R, SIGN>::apply(v, roots, N / R);
    if constexpr (last) {
      const int first_mode = mode_at(origin);
      UNROLL for (int r = 0; r < R; ++r) {
        const int row = first_mode + r * (N / R);
        if (target.stored(row, lane)) target.base[target.place(row) + lane] = scale * v[r];
      }
    } else {
      twiddle<R>(v, Here::template root<SIGN>(roots, b));
      UNROLL for (int r = 0; r < R; ++r) tile[(origin + r * Here::stride) * LANES + lane] = v[r];
    }
  }
  BLOCK_BARRIER  // after the last pass too: the next block of columns writes the tile
  if constexpr (!last) passes_from<P + 1>(source, target, tile, roots, scale);
}

// Transform the columns of [field][o][row][column] arrays. The points' side (source of a forward,
// target of a backward transform) has strides; on the modes' side, row r of plane o lies at
// offset[r] + (first + o) * pitch[r] behind its field, see row_tables.hpp: truncation, padding with
// zeros and the order of an exchange cost no pass of their own. With POINT_TABLES the points' side
// has tables, too, in place of the strides of rows and planes. Strides count Complex elements,
// columns are contiguous. Both sides may be the same memory if the tables leave rows in place.
KERNEL strided_fft(const Complex* source, Complex* target, const Complex* RESTRICT roots,
                   Real scale, const Index* RESTRICT offset, const Index* RESTRICT pitch,
                   Index first, Index fields, Index outer, Index columns, Index modes_field,
                   Index points_field, Index points_outer, Index points_row,
                   const Index* RESTRICT point_offset, const Index* RESTRICT point_pitch,
                   Index point_first) {
  const Index tiles = (columns + LANES - 1) / LANES;
  Complex* mode_base = SIGN < 0 ? target : const_cast<Complex*>(source);
  Complex* point_base = SIGN < 0 ? const_cast<Complex*>(source) : target;
  FOR_BLOCKS(block, fields * outer * tiles) {
    SHARED(Complex, tile, N * LANES);
    const Index column = block % tiles * LANES, o = block / tiles % outer;
    const Index field = block / tiles / outer;
    const int lanes = columns - column < LANES ? int(columns - column) : LANES;
    const Modes modes{mode_base + field * modes_field + column, offset, pitch,
                      unsigned(first + o), lanes};
    const Index outer_part = POINT_TABLES ? 0 : o * points_outer;
    const Points points{point_base + field * points_field + outer_part + column, points_row,
                        point_offset, point_pitch, unsigned(point_first + o), lanes};
    if constexpr (SIGN < 0) passes_from<0>(points, modes, tile, roots, scale);
    else passes_from<0>(modes, points, tile, roots, scale);
  }
}

#endif
