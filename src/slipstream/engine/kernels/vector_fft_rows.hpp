// FFTs of rows on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft_reals.hpp"

#ifndef SLIPSTREAM_GPU

// Transform rows [a][b][c][]: of n complex numbers; or if `is_real` between n real ones and half of their
// modes, by n / 2 complex ones if there are `turns`; or, of cosines and sines, of real ones. All are
// multiplied by `scale`. Rows are contiguous; strides count real numbers. Both arrays may be the same.
//
// Constants: HALVES, if there are `turns` and no cosines; see vector_fft.hpp.
struct RowsOf {
  double scale;
  Index is_real;
  const Complex* turns;
  Index a, b, c, source_a, source_b, source_c, target_a, target_b, target_c;
  TileTransform transform;
};
KERNEL fft_rows(const Real* source, Real* target, const RowsOf* sizes, const Plan* plan) {
  const RowsOf all = *sizes;
  const Cosines& by = plan->cosines;
  const bool is_half = HALVES || all.turns, is_real = !HALVES && all.is_real;
  const Real scale = Real(all.scale);
  const Index rows = all.a * all.b * all.c, n = plan->of.n, points = HALVES ? 0 : by.points;
  FOR_BLOCKS(block, (rows + lane_count - 1) / lane_count) {
    Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
    const Index first = block * lane_count;
    const Rows<const Real> from(source, first, rows, all.b, all.c, all.source_a, all.source_b,
                                all.source_c);
    const Rows<Real> to(target, first, rows, all.b, all.c, all.target_a, all.target_b, all.target_c);
    if (points) {
      Vector* numbers = (Vector*)other;
      from.load_real(points, [&](Index i, Vector v) { numbers[i] = v; });
      const auto point = [&](Index row) { return numbers[row]; };
      const auto element = [&](Index i) { return form_element(by, i, point); };
      if (is_half && SIGN > 0) halves_of_modes(tile, n, all.turns, element);
      else for (Index i = 0; i < n; ++i) tile[i] = element(i);
    } else if (is_real && SIGN < 0) {
      from.load_real(n, [&](Index i, Vector v) { tile[i] = {v, Vector{}}; });
    } else {
      from.load_complex(tile, HALVES ? (SIGN > 0 ? n + 1 : n) : is_real ? n / 2 + 1 : n);
      if (is_real) complete_modes(tile, n);
      if (HALVES && SIGN > 0) halves_of_modes(tile, n, all.turns, [=](Index k) { return tile[k]; });
    }
    transform_any<SIGN>(all.transform, *plan, tile, other);
    if (points) {
      Vector* numbers = (Vector*)tile;
      const auto results = [&](Index k, Values mode) {
        form_results(by, k, mode, [&](Index row, Vector v) { numbers[row] = v; });
      };
      if (is_half && SIGN < 0) modes_of_halves(other, n, all.turns, results);
      else for (Index k = 0; k < n; ++k) results(k, other[k]);
      to.store_real(points, scale, [&](Index i) { return numbers[i]; });
    } else if (is_real && SIGN > 0) {
      to.store_real(n, scale, [&](Index i) { return other[i].re; });
    } else {
      if (HALVES && SIGN < 0)
        modes_of_halves(other, n, all.turns, [=](Index k, Values mode) { other[k] = mode; });
      to.store_complex(other, HALVES ? (SIGN < 0 ? n + 1 : n) : is_real ? n / 2 + 1 : n, scale);
    }
  }
}

#endif
