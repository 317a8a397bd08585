// Real rows along the contiguous axis, to the modes that are kept and back.
//
// Rows travel in pairs, see paired_real_fft.hpp; pairs are made within a plane, so that they do not depend
// on how planes are divided into batches. Modes that are not kept are neither stored nor loaded.
//
// Constants: those of paired_real_fft.hpp; SIGN (-1 forward, +1 backward);
// MODE_TABLES (forward only), whether tables say where modes are stored; CHUNK (backward only), see point_chunks.hpp.
#pragma once
#include "paired_real_fft.hpp"
#include "point_chunks.hpp"
#include "row_tables.hpp"
#ifndef MODE_TABLES
#define MODE_TABLES 0
#endif

// The tables of modes: mode k of a row of plane o lies at offset[k] + o * plane[k] + row * pitch[k].
struct ModeTables {
  const Index *offset, *plane, *pitch;
};

// A pair of rows whose modes lie where tables say, in the memory of several ranks perhaps.
struct TabledRow {
  Complex* field;
  ModeTables tables;
  Index o, row;
  int first = 0;
  INLINE Complex& operator[](int mode) const {
    const int k = first + mode;
    return field[tables.offset[k] + o * tables.plane[k] + row * tables.pitch[k]];
  }
};
struct TabledPair {
  TabledRow a, b;
  int kept_a, kept_b;
  INLINE TabledPair(Complex* field, const ModeTables& tables, Index o, Index pair, Index rows,
                    Index kept)
      : a{field, tables, o, 2 * pair}, b{field, tables, o, 2 * pair + 1},
        kept_a(2 * pair < rows ? int(kept) : 0),
        kept_b(2 * pair + 1 < rows ? int(kept) : 0) {}
  INLINE TabledPair from(int mode) const {
    TabledPair rest = *this;
    rest.a.first += mode, rest.b.first += mode;
    return rest;
  }
  INLINE bool has_a(int mode, bool) const { return has(a.first + mode, kept_a); }
  INLINE bool has_b(int mode, bool) const { return has(a.first + mode, kept_b); }
  INLINE bool has(int k, int kept) const { return k < kept && a.tables.offset[k] != not_kept; }
};

// The position, in the order of the last pass, of a point: the inverse of `mode_at`.
template <int P = 0>
INLINE int position_of(int point) {
  if constexpr (P == passes) {
    return 0;
  } else {
    constexpr int radix = Pass<P>::radix;
    return point % radix * Pass<P>::stride + position_of<P + 1>(point / radix);
  }
}

// Two real rows of points; one that does not exist is read as zeros and not written.
struct PointPair {
  Real *a, *b;
  bool has_b;
};

// Neighbouring threads take neighbouring points, so that global memory is accessed in runs; it is
// the tile that is accessed in digit-reversed order.
INLINE void load_points(const PointPair& points, Complex* row, int i,
                        const Complex* RESTRICT roots) {
  using Here = Pass<middle>;
  constexpr int R = Here::radix;
  Complex v[R];
  UNROLL for (int r = 0; r < R; ++r) {
    const int k = i + r * (N / R);
    v[r] = {points.a[k], points.has_b ? points.b[k] : Real(0)};
  }
  const int origin = position_of(i);
  forward_butterfly<Here>(v, origin / R, roots);
  store<Here>(v, row, origin);
}
INLINE void store_points(const PointPair& points, const Complex* row, int i,
                         const Complex* RESTRICT roots, Real scale) {
  using Here = Pass<middle>;
  constexpr int R = Here::radix;
  Complex v[R];
  const int origin = position_of(i);
  load<Here>(v, row, origin);
  backward_butterfly<Here>(v, origin / R, roots);
  UNROLL for (int r = 0; r < R; ++r) {
    const int k = place_in_row(i + r * (N / R));
    points.a[k] = scale * v[r].re;
    if (points.has_b) points.b[k] = scale * v[r].im;
  }
}

// Which pair of rows an item is.
struct PlaceOfPair {
  Index pair, o, field;
};
INLINE PlaceOfPair place_of(Index item, Index pairs, Index outer, Index fields) {
  // Fields that share chunks are written together, so that memory gets whole lines.
  if (CHUNK > 0) return {item / fields % pairs, item / fields / pairs, item % fields};
  return {item % pairs, item / pairs % outer, item / pairs / outer};
}

// Forward: modes[field][o][row][k] = scale * rfft(points[field][o][row])[k] for k < kept.
// Backward: points = scale * irfft(modes), which does not divide by N; modes from `kept` on are zero.
// Strides count Real elements of the points and Complex elements of the modes. With MODE_TABLES modes
// have tables instead of the strides of planes and rows. Both sides may be the same memory if rows
// begin at the same places.
KERNEL real_rows(Real* points, Complex* modes, const Complex* RESTRICT roots, Real scale,
                 Index fields, Index outer, Index rows, Index kept, Index points_field,
                 Index points_outer, Index points_row, Index modes_field, Index modes_outer,
                 Index modes_row, const Index* RESTRICT mode_offset,
                 const Index* RESTRICT mode_plane, const Index* RESTRICT mode_pitch) {
  const Index pairs = (rows + 1) / 2, all = fields * outer * pairs;
  FOR_BLOCKS(block, (all + PAIRS - 1) / PAIRS) {
    SHARED(Complex, tile, PAIRS * row_size);
    const Index first = block * PAIRS;
    const auto points_of = [&](Index item) {
      const auto [pair, o, field] = place_of(item, pairs, outer, fields);
      Real* a = points + field * points_field + o * points_outer + 2 * pair * points_row;
      return PointPair{a, a + points_row, 2 * pair + 1 < rows};
    };
    const auto modes_of = [&](Index item) {
      const auto [pair, o, field] = place_of(item, pairs, outer, fields);
      if constexpr (MODE_TABLES) {
        const ModeTables tables{mode_offset, mode_plane, mode_pitch};
        return TabledPair(modes + field * modes_field, tables, o, pair, rows, kept);
      } else {
        return RowPair(modes + field * modes_field + o * modes_outer, modes_row, pair, rows, kept);
      }
    };
    if constexpr (SIGN < 0) {
      FOR_TILE(line, PAIRS, i, N / Pass<middle>::radix) {
        if (first + line < all) load_points(points_of(first + line), tile + line * row_size, i, roots);
      }
      BLOCK_BARRIER
      forward_passes<middle - 1, 1, 1>(tile, roots);
      FOR_TILE(line, PAIRS, q, mirrored_pairs) {
        if (first + line < all)
          store_modes(modes_of(first + line), tile + line * row_size, q, roots, scale);
      }
    } else {
      FOR_TILE(line, PAIRS, q, mirrored_pairs) {
        if (first + line < all) load_modes(modes_of(first + line), tile + line * row_size, q, roots);
      }
      BLOCK_BARRIER
      backward_passes<1, 1, 1>(tile, roots);
      FOR_TILE(line, PAIRS, i, N / Pass<middle>::radix) {
        if (first + line < all)
          store_points(points_of(first + line), tile + line * row_size, i, roots, scale);
      }
    }
    BLOCK_BARRIER  // the next rows write the tile
  }
}
