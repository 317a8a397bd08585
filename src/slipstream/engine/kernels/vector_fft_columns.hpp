// FFTs of columns on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// Transform the columns of arrays [a][b][n][columns]: of complex numbers; or if `is_real` between real
// ones and half of their modes; or, with factors, of real ones. Columns are contiguous; other strides
// count numbers of the array's. Where there are tables, of complex numbers, row r of [a][b] lies at
// offset[r] + (first + b) * pitch[r] behind [a]; rows that are not kept are zero, or are not stored.
// Both arrays may be the same, if rows stay in their places.
//
// Constants: PLAIN, if all numbers are complex and the length is a product of radices; SCALED, if results
// are multiplied by `scale`; see vector_fft.hpp.
struct Columns {
  double scale;
  Index is_real, a, b, columns, source_a, source_b, source_row, target_a, target_b, target_row;
  const Index *source_offset, *source_pitch;
  Index source_first;
  const Index *target_offset, *target_pitch;
  Index target_first;
  TileTransform transform;
  TilePasses passes;
};
static void transform_columns(const Real* source, Real* target, const Columns* columns, const Plan* plan) {
  Columns all = *columns;
  const Index points = PLAIN ? 0 : plan->points;
  const Index n = points ? points : plan->of.n;
  const bool is_real = !PLAIN && all.is_real;
  const Real scale = Real(all.scale);
  const auto scaled = [=](Values v) {
    if constexpr (SCALED) v = scale * v;
    return v;
  };
  const Index source_reals = points || is_real && SIGN < 0 ? 1 : 2;
  const Index target_reals = points || is_real && SIGN > 0 ? 1 : 2;
  const RowPlaces rows_in{all.source_offset, all.source_pitch, all.source_first, all.source_b,
                          all.source_row};
  const RowPlaces rows_out{all.target_offset, all.target_pitch, all.target_first, all.target_b,
                           all.target_row};
  if (rows_in.joins_planes(all.columns, n) && rows_out.joins_planes(all.columns, n)) {
    all.columns *= all.b;
    all.b = 1;
  }
  const Tiles tiles(all.a, all.b, all.columns);
  Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
  FOR_BLOCKS_OF_THREAD(block, tiles.count()) {
    const Pieces pieces(tiles, block);
    const Real* from = source + source_reals * (pieces.field * all.source_a);
    Real* to = target + target_reals * (pieces.field * all.target_a);
    const Complex* modes_in = (const Complex*)from;
    Complex* modes_out = (Complex*)to;
#if PLAIN
    // Columns of several planes go side by side first.
    const RowPlaces side_by_side{nullptr, nullptr, 0, 0, lane_count};
    const RowPlaces& in = pieces.is_whole ? rows_in : side_by_side;
    const RowPlaces& out = pieces.is_whole ? rows_out : side_by_side;
    const Index plane = pieces.of[0].plane, column = pieces.is_whole ? pieces.of[0].distance : 0;
    const Complex** read = (const Complex**)(tile + 2 * tile_size(*plan));
    Complex** written = (Complex**)(read + tile_size(*plan));
    alignas(64) static const Complex zeros[2 * lane_count] = {};
    in.addresses(pieces.is_whole ? modes_in : (const Complex*)other, plane, column, n, zeros, read);
    out.addresses(pieces.is_whole ? modes_out : (Complex*)other, plane, column, n, (Complex*)nullptr, written);
    if (!pieces.is_whole) pieces.gather(rows_in, modes_in, n, (Complex*)other);
    transform<SIGN>(
        plan->of, tile,
        [&](int i) {
          const Complex* row = read[i];
          prefetch_after(row);
          return load_columns(row);
        },
        [&](int k, Values v) {
          Complex* row = written[k];
          if (!row) return;
          prefetch_after(row);
          store_columns(row, scaled(v));
        },
        all.passes);
    if (!pieces.is_whole) pieces.scatter(rows_out, modes_out, n, (Complex*)other);
#else
    const Index half = n / 2 + 1;
    if (source_reals == 1) {
      for (int i = 0; i < n; ++i) tile[i] = pieces.load(rows_in, from, i);
      if (points) multiply_points(*plan, tile);
    } else {
      for (int i = 0; i < (is_real ? half : n); ++i) tile[i] = pieces.load(rows_in, modes_in, i);
      if (is_real) complete_modes(tile, n);
    }
    transform_any<SIGN>(all.transform, *plan, tile, other);
    if (target_reals == 1) {
      if (points) multiply_modes(*plan, other);
      for (int k = 0; k < n; ++k) pieces.store(rows_out, to, k, scaled(other[k]));
    } else {
      for (int k = 0; k < (is_real ? half : n); ++k) pieces.store(rows_out, modes_out, k, scaled(other[k]));
    }
#endif
  }
}
KERNEL fft_columns(const Real* source, Real* target, const Columns* columns, const Plan* plan) {
  in_threads([&] { transform_columns(source, target, columns, plan); });
}

#endif
