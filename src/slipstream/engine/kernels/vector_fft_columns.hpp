// FFTs of columns on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft_reals.hpp"

#ifndef SLIPSTREAM_GPU

// Transform the columns of arrays [a][b][n][columns]: of complex numbers; or if `is_real` between real
// ones and half of their modes; or, of cosines and sines, of real ones. Columns are contiguous; other strides
// count numbers of the array's. Where there are tables, of complex numbers, row r of [a][b] lies at
// offset[r] + (first + b) * pitch[r] behind [a]; rows that are not kept are zero, or are not stored.
// Both arrays may be the same, if rows stay in their places.
//
// Constants: PLAIN, if all numbers are complex and the length is a product of radices; COSINES; HALVES, if real
// numbers are half as many complex ones, and there are `turns`; SCALED, if results are multiplied by `scale`;
// see vector_fft.hpp.
struct Columns {
  double scale;
  Index is_real;
  const Complex* turns;
  Index a, b, columns, source_a, source_b, source_row, target_a, target_b, target_row;
  const Index *source_offset, *source_pitch;
  Index source_first;
  const Index *target_offset, *target_pitch;
  Index target_first;
  TileTransform transform;
  TilePasses passes;
};
static void transform_columns(const Real* source, Real* target, const Columns* columns, const Plan* plan) {
  Columns all = *columns;
  const Cosines& by = plan->cosines;
  const bool is_real = !PLAIN && !COSINES && all.is_real;
  const Index n = plan->of.n, points = HALVES ? 2 * n : n, modes = HALVES ? n + 1 : is_real ? n / 2 + 1 : n;
  const Real scale = Real(all.scale);
  const auto scaled = [=](Values v) {
    if constexpr (SCALED) v = scale * v;
    return v;
  };
  const bool from_reals = COSINES || (is_real && SIGN < 0), to_reals = COSINES || (is_real && SIGN > 0);
  const RowPlaces rows_in{all.source_offset, all.source_pitch, all.source_first, all.source_b,
                          all.source_row};
  const RowPlaces rows_out{all.target_offset, all.target_pitch, all.target_first, all.target_b,
                           all.target_row};
  if (rows_in.joins_planes(all.columns, n) && rows_out.joins_planes(all.columns, n)) {
    all.columns *= all.b;
    all.b = 1;
  }
  const Tiles tiles(all.a, all.b, all.columns);
  // Where the last pass of all has the results, the second tile is free for them.
#ifdef N
  constexpr bool writes_other = PLAIN || (COSINES && !HALVES) || (HALVES && SIGN > 0);
#else
  constexpr bool writes_other = PLAIN;
#endif
  Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
  FOR_BLOCKS_OF_THREAD(block, tiles.count()) {
    const Pieces pieces(tiles, block);
    const Real* from = source + (from_reals ? 1 : 2) * (pieces.field * all.source_a);
    Real* to = target + (to_reals ? 1 : 2) * (pieces.field * all.target_a);
    const Complex* modes_in = (const Complex*)from;
    Complex* modes_out = (Complex*)to;
    // Columns of several planes go side by side first, and last.
    const RowPlaces side_by_side{nullptr, nullptr, 0, 0, lane_count};
    const RowPlaces& in = pieces.is_whole ? rows_in : side_by_side;
    const RowPlaces& out = pieces.is_whole ? rows_out : side_by_side;
    const Index plane = pieces.of[0].plane, column = pieces.is_whole ? pieces.of[0].distance : 0;
    Values *first_beside = other, *last_beside = writes_other ? other : tile;
    // Only complex numbers have tables of rows.
    const Complex** read = (const Complex**)(tile + 2 * tile_size(*plan));
    Complex** written = (Complex**)(read + tile_size(*plan));
    alignas(64) static const Complex zeros[2 * lane_count] = {};
    Index distance = sizeof(Real) * out.between_rows;
    if (!from_reals)
      in.addresses(pieces.is_whole ? modes_in : (const Complex*)first_beside, plane, column, modes, zeros, read);
    if (!to_reals) {
      out.addresses(pieces.is_whole ? modes_out : (Complex*)last_beside, plane, column, modes, (Complex*)nullptr,
                    written);
      distance = modes > 1 && written[0] && written[1] ? (char*)written[1] - (char*)written[0] : 0;
    }
    StorePace pace(distance);
    if (!pieces.is_whole) {
      if (from_reals) pieces.gather(rows_in, from, COSINES ? by.points : points, (Real*)first_beside);
      else pieces.gather(rows_in, modes_in, modes, (Complex*)first_beside);
    }
#if PLAIN
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
          pace.store_next(2);
          prefetch_after(row);
          store_columns(row, scaled(v));
        },
        all.passes);
#else
    const Real* first_point = (pieces.is_whole ? from + plane * in.between_planes : (const Real*)first_beside) + column;
    Real* first_result = (pieces.is_whole ? to + plane * out.between_planes : (Real*)last_beside) + column;
    const auto point = [&](Index row) {
      const Real* at = first_point + row * in.between_rows;
      prefetch_after(at);
      return load(at, Vector{});
    };
    const auto result = [&](Index row, Vector v) {
      Real* at = first_result + row * out.between_rows;
      pace.store_next(1);
      prefetch_after(at);
      store(at, SCALED ? v * all_lanes(scale, v) : v);
    };
    const auto element = [&](Index i) -> Values {
      if (COSINES) return form_element(by, i, point);
      if (from_reals) return HALVES ? Values{point(2 * i), point(2 * i + 1)} : Values{point(i), Vector{}};
      prefetch_after(read[i]);
      return load_in_order(read[i]);
    };
    const auto take_mode = [&](Index k, Values mode) {
      if (COSINES) return form_results(by, k, mode, result);
      if (to_reals) {
        result(HALVES ? 2 * k : k, mode.re);
        if (HALVES) result(2 * k + 1, mode.im);
      } else if (written[k]) {
        pace.store_next(2);
        prefetch_after(written[k]);
        store_in_order(written[k], scaled(mode));
      }
    };
    if constexpr (HALVES && SIGN < 0) {
      transform_from<SIGN>(element, all.transform, *plan, tile, other);
      modes_of_halves(other, n, all.turns, take_mode);
    } else if constexpr (HALVES) {
      halves_of_modes(tile, n, all.turns, element);
      transform_to<SIGN>(take_mode, all.transform, *plan, tile, other);
    } else if constexpr (COSINES) {
      for (Index i = 0; i < n; ++i) tile[i] = element(i);
      transform_to<SIGN>(take_mode, all.transform, *plan, tile, other);
    } else {
      const Index given = from_reals ? n : modes, taken = to_reals ? n : modes;
      for (Index i = 0; i < given; ++i) tile[i] = element(i);
      if (given < n) complete_modes(tile, n);
      transform_any<SIGN>(all.transform, *plan, tile, other);
      for (Index k = 0; k < taken; ++k) take_mode(k, other[k]);
    }
#endif
    if (!pieces.is_whole) {
      if (to_reals) pieces.scatter(rows_out, to, COSINES ? by.points : points, (const Real*)last_beside);
      else pieces.scatter(rows_out, modes_out, modes, (const Complex*)last_beside);
    }
  }
}
KERNEL fft_columns(const Real* source, Real* target, const Columns* columns, const Plan* plan) {
  in_threads([&] { transform_columns(source, target, columns, plan); });
}

#endif
