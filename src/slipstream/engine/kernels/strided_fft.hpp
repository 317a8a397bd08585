// Complex FFTs of columns, along an axis that is not contiguous in memory.
//
// A block transforms LANES neighbouring columns in its shared memory, so that every access of
// global memory is a run of LANES elements, and each element crosses global memory once in and once
// out (Govindaraju et al. 2008, "High performance discrete Fourier transforms on graphics
// processors"). The passes divide the elements as in decimation in frequency (Gentleman and Sande
// 1966), but turn them before they add. They run in place, with one tile and one barrier a pass where
// Stockham's autosort takes two tiles or two barriers. The modes come out in digit-reversed order, at no cost: the last pass stores whole
// rows, and may store them in any order.
//
// Constants: N, RADICES (comma separated, product N), SIGN (-1 forward, +1 backward), LANES.
// STORED_PARTS, if it is known what parts of the modes' rows are stored; see `stored_parts`. SCALED, if
// results are multiplied by `scale`.
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

// What the modes of one of the transforms that pass P begins with have in common: their remainder by
// the number of these transforms.
template <int P, int Q = 0>
INLINE int mode_of_block(int block) {
  if constexpr (Q == P) {
    return 0;
  } else {
    constexpr int transforms = length_at(Q + 1) / length_at(P);
    return block / transforms + radices[Q] * mode_of_block<P, Q + 1>(block % transforms);
  }
}

// Pass P cuts the N elements into transforms of `length`; its butterfly b works on the elements
// origin(b) + r * stride, r < radix, each turned by root(b)^r before. Run from the last pass to the
// first, with mirrored_root(b) as roots, the passes undo the order.
template <int P>
struct Pass {
  static constexpr int radix = radices[P], length = length_at(P), stride = length / radix;
  static constexpr int butterflies = N / radix;
  static constexpr bool is_first = P == 0, is_last = P + 1 == passes;
  static INLINE int origin(int b) { return b / stride * length + b % stride; }
  template <int Sign>
  static INLINE Complex root(const Complex* RESTRICT roots, int b) {
    return ::root<Sign>(roots, mode_of_block<P>(b / stride) * stride);
  }
  template <int Sign>
  static INLINE Complex mirrored_root(const Complex* RESTRICT roots, int b) {
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
#ifndef STORED_PARTS
#define STORED_PARTS 1
#endif
#ifndef SCALED
#define SCALED 0
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

// Of the modes' rows in as many equal parts as the first radix (backward) or the last one (forward) is:
// whether none (0), some (1) or all (2) of a part are stored.
constexpr int stored_parts[] = {STORED_PARTS};
INLINE constexpr int stored_of_part(int part) {
  return part < int(sizeof(stored_parts) / sizeof(int)) ? stored_parts[part] : 1;
}

// Where a row of a thread's columns begins, and whether it is stored at all.
struct Place {
  Complex* at;
  bool is_stored;
};

// The two sides of a transform, as rows; LANES columns of each belong to the tile. Points have all
// rows, if there is no table; else only those are stored that the table knows, and others are zero.
// `from(lane, origin, distance)` goes over rows origin + part * distance, for part 0, 1, ... in turn.
struct TabledRows {
  Complex* base;
  const RowEntry* rows;
  unsigned plane;
  int distance;
  INLINE Place next(int part, int stored) {
    if (stored == 0) return {base, false};
    const RowEntry entry = rows[part * distance];
    const Index rest = opaque(entry.pitch_and_stored);  // else it would be loaded in parts
    return {base + (entry.offset + Index(plane) * unsigned(rest)), stored == 2 || rest >> 32};
  }
};
struct StridedRows {
  Complex* row;
  Index step;
  INLINE Place next(int, int) {
    const Place place = {row, true};
    row = opaque(row + step);
    return place;
  }
};
struct Modes {
  Complex* base;
  const RowEntry* rows;
  unsigned plane;
  static INLINE int stored(int part) { return stored_of_part(part); }
  INLINE TabledRows from(int lane, int origin, int distance) const {
    return {opaque(base + lane), rows + origin, plane, distance};
  }
};
struct Points {
  Complex* base;
  Index row_stride;
  const RowEntry* rows;
  unsigned plane;
  static INLINE int stored(int) { return 1; }
  INLINE auto from(int lane, int origin, int distance) const {
    if constexpr (POINT_TABLES) return TabledRows{opaque(base + lane), rows + origin, plane, distance};
    else return StridedRows{base + (lane + origin * row_stride), distance * row_stride};
  }
};

// One pass over the first `lanes` columns of a tile, and those after it. A thread that has two columns
// has only the first of them where their number is odd.
template <int P, class Source, class Target>
INLINE void passes_from(const Source& source, const Target& target, Complex* tile,
                        const Complex* RESTRICT roots, int lanes, Real scale) {
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
      // All places first, so that no load waits for a table.
      auto rows = source.from(lane, origin, Here::stride);
      Place from[R];
      UNROLL for (int r = 0; r < R; ++r) {
        from[r] = rows.next(r, source.stored(r));
        from[r].is_stored = from[r].is_stored && lane < lanes;
      }
      if (is_whole) {
        UNROLL for (int r = 0; r < R; ++r) v[r] = from[r].is_stored ? load(from[r].at) : Value{};
      } else {
        UNROLL for (int r = 0; r < R; ++r) v[r] = from[r].is_stored ? only(*from[r].at) : Value{};
      }
    }
    if constexpr (P == 0) Butterfly<R, SIGN>::apply(v, roots, N / R);
    else TurnedButterfly<R, SIGN>::apply(v, Here::template root<SIGN>(roots, b), roots, N / R);
    if constexpr (!last) {
      UNROLL for (int r = 0; r < R; ++r)
        store(tile + (origin + r * Here::stride) * LANES + lane, v[r]);
    } else {
      auto rows = target.from(lane, mode_at(origin), N / R);
      if (lane < lanes) {
        UNROLL for (int r = 0; r < R; ++r) {
          const Place to = rows.next(r, target.stored(r));
          if constexpr (SCALED) v[r] = scale * v[r];
          if (to.is_stored) {
            if (is_whole) store(to.at, v[r]);
            else *to.at = first_of(v[r]);
          }
        }
      }
    }
  }
  BLOCK_BARRIER  // after the last pass too: the next block of columns writes the tile
  if constexpr (!last) passes_from<P + 1>(source, target, tile, roots, lanes, scale);
}

// Transform the columns of [field][o][row][column] arrays. The points' side (source of a forward,
// target of a backward transform) has strides; on the modes' side, row r of plane o lies where the
// table of rows says, for plane first + o, see row_tables.hpp: truncation, padding with zeros and the
// order of an exchange cost no extra pass. With POINT_TABLES the points' side has a table, too,
// instead of the strides of rows and planes. Strides count Complex elements, columns are contiguous.
// Both sides may be the same memory if the tables leave rows in place. With two columns a thread
// (WIDTH), all rows begin at a multiple of 16 bytes.
KERNEL strided_fft(const Complex* source, Complex* target, const Complex* RESTRICT roots,
                   const RowEntry* MODES_RESTRICT rows, Index first, Index fields,
                   Index outer, Index columns, Index modes_field, Index points_field,
                   Index points_outer, Index points_row,
                   const RowEntry* POINTS_RESTRICT point_rows, Index point_first, Real scale) {
  Complex* mode_base = SIGN < 0 ? target : const_cast<Complex*>(source);
  Complex* point_base = SIGN < 0 ? const_cast<Complex*>(source) : target;
  FOR_BLOCK_GRID(tile_number, (columns + LANES - 1) / LANES, o, outer, field, fields) {
    SHARED(Complex, tile, N * LANES);
    const Index column = Index(tile_number) * LANES;
    const int lanes = int(columns) - int(column);
    const Modes modes{mode_base + field * modes_field + column, rows, unsigned(first) + o};
    const Index outer_part = POINT_TABLES ? 0 : o * points_outer;
    const Points points{point_base + field * points_field + outer_part + column, points_row,
                        point_rows, unsigned(point_first) + o};
    if constexpr (SIGN < 0) passes_from<0>(points, modes, tile, roots, lanes, scale);
    else passes_from<0>(modes, points, tile, roots, lanes, scale);
  }
}

#endif
