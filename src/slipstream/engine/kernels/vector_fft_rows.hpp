// FFTs of rows on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// Transform rows [a][b][c][]: of n complex numbers; or if `is_real` between n real ones and half of
// their modes; or, with factors, of real ones; or, if `is_half`, between 2 n real ones and their n + 1
// modes. All are multiplied by `scale`. Rows are contiguous; strides count real numbers. Both arrays may
// be the same.
//
// Constants: HALVES is `is_half`; see vector_fft.hpp.
struct RowsOf {
  double scale;
  Index is_real;
  const Complex* turns;
  Index a, b, c, source_a, source_b, source_c, target_a, target_b, target_c;
  TileTransform transform;
};
KERNEL fft_rows(const Real* source, Real* target, const RowsOf* sizes, const Plan* plan) {
  const RowsOf all = *sizes;
  constexpr bool is_half = HALVES;
  const bool is_real = !is_half && all.is_real;
  const Real scale = Real(all.scale);
  const Index rows = all.a * all.b * all.c, points = is_half ? 0 : plan->points, n = points ? points : plan->of.n;
  const bool from_reals = points || is_real && SIGN < 0, to_reals = points || is_real && SIGN > 0;
  FOR_BLOCKS(block, (rows + lane_count - 1) / lane_count) {
    Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
    const Index first = block * lane_count;
    const Rows<const Real> from(source, first, rows, all.b, all.c, all.source_a, all.source_b,
                                all.source_c);
    const Rows<Real> to(target, first, rows, all.b, all.c, all.target_a, all.target_b, all.target_c);
    if (from_reals) {
      from.load_real(tile, n);
      if (points) multiply_points(*plan, tile);
    } else {
      from.load_complex(tile, is_half ? (SIGN > 0 ? n + 1 : n) : is_real ? n / 2 + 1 : n);
      if (to_reals) complete_modes(tile, n);
      if (is_half && SIGN > 0) halves_of_modes(tile, n, all.turns);
    }
    transform_any<SIGN>(all.transform, *plan, tile, other);
    if (to_reals) {
      if (points) multiply_modes(*plan, other);
      to.store_real(other, n, scale);
    } else {
      if (is_half && SIGN < 0) modes_of_halves(other, n, all.turns);
      const Index modes = is_half ? (SIGN < 0 ? n + 1 : n) : is_real ? n / 2 + 1 : n;
      to.store_complex(other, modes, scale);
    }
  }
}

#endif
