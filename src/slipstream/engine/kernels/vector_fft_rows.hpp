// FFTs of rows on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft_reals.hpp"

#ifndef SLIPSTREAM_GPU

// Transform rows [a][b][c][]: of n complex numbers; or if `is_real` between n real ones and half of their
// modes, by n / 2 complex ones if there are `turns`; or, of cosines and sines, of real ones. All are
// multiplied by `scale`. Rows are contiguous; strides count real numbers. Both arrays may be the same.
// Results that nobody reads soon, since the caches cannot hold them, are stored past the caches if it `streams`.
//
// Constants: PLAIN, if all numbers are complex; HALVES, if there are `turns` and no cosines; SCALED, if results are
// multiplied by `scale`; see vector_fft.hpp.
struct RowsOf {
  double scale;
  Index is_real;
  const Complex* turns;
  Index a, b, c, source_a, source_b, source_c, target_a, target_b, target_c, streams;
  TileTransform transform;
};

// Whether passes ask for the next rows, and not the loads before them. Lengths with programs are even, so real
// rows are HALVES, and cosines and sines are the only others.
#ifdef N
constexpr bool asks_in_passes = HALVES || PLAIN;
#else
constexpr bool asks_in_passes = false;
#endif
// No lambda, whose call GCC leaves out, as one without effect.
struct NextRows {
  const Rows<const Real>& from;
  INLINE void operator()(int butterfly) const {
#ifdef N
    constexpr int numbers = 2 * (HALVES && SIGN > 0 ? N + 1 : N);
    if constexpr (asks_in_passes) from.prefetch_part<numbers, butterflies_before<passes>()>(butterfly);
#endif
  }
};

static void transform_rows(const Real* source, Real* target, const RowsOf& all, const Plan* plan) {
  const Cosines& by = plan->cosines;
  const bool is_half = HALVES || all.turns, is_real = !(HALVES || PLAIN) && all.is_real;
#ifdef N
  const Index n = N;
#else
  const Index n = plan->of.n;
#endif
  const Index points = HALVES || PLAIN ? 0 : by.points, half = is_real ? n / 2 + 1 : n;
  const Index modes_in = HALVES && SIGN > 0 ? n + 1 : half, modes_out = HALVES && SIGN < 0 ? n + 1 : half;
  const Real scale = SCALED ? Real(all.scale) : 1;
  const Index rows = all.a * all.b * all.c, blocks = (rows + lane_count - 1) / lane_count;
  Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
  FOR_BLOCKS_OF_THREAD(block, blocks) {
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
      from.load_complex<!asks_in_passes>(tile, modes_in);
      if (is_real) complete_modes(tile, n);
      if (HALVES && SIGN > 0) halves_of_modes(tile, n, all.turns, [=](Index k) { return tile[k]; });
    }
    transform_any<SIGN>(all.transform, *plan, tile, other, NextRows{from});
    if (points) {
      Vector* numbers = (Vector*)tile;
      const auto results = [&](Index k, Values mode) {
        form_results(by, k, mode, [&](Index row, Vector v) { numbers[row] = v; });
      };
      if (is_half && SIGN < 0) modes_of_halves(other, n, all.turns, results);
      else for (Index k = 0; k < n; ++k) results(k, other[k]);
      to.store_real(points, scale, [&](Index i) { return numbers[i]; });
      continue;
    }
    if (is_real && SIGN > 0) {
      to.store_real(n, scale, [&](Index i) { return other[i].re; });
      continue;
    }
    if (HALVES && SIGN < 0) modes_of_halves(other, n, all.turns, [=](Index k, Values mode) { other[k] = mode; });
    if (all.streams) {
      Real* packed = (Real*)tile;
      Rows<Real>(packed, 0, lane_count, 2 * modes_out).store_complex(other, modes_out, scale);
      to.stream_packed(packed, 2 * modes_out);
    } else {
      to.store_complex(other, modes_out, scale);
    }
  }
  if (all.streams) wait_for_streamed_stores();
}
KERNEL fft_rows(const Real* source, Real* target, const RowsOf* sizes, const Plan* plan) {
  in_threads([&] { transform_rows(source, target, *sizes, plan); });
}

#endif
