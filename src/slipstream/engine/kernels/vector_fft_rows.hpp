// FFTs of rows on a CPU; see vector_fft.hpp.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// Transform rows [a][b][c][]: of n complex numbers; or if `is_real` between n real ones and half of
// their modes; or, with factors, of real ones; or, with HALVES, between 2 n real ones and their n + 1
// modes. All are multiplied by `scale`. Rows are contiguous; strides count real numbers. Both arrays may
// be the same. Results that nobody reads soon, since the caches cannot hold them, are stored past the caches
// if it `streams`.
//
// Constants: PLAIN, if all numbers are complex; HALVES; SCALED, if results are multiplied by `scale`; see
// vector_fft.hpp.
struct RowsOf {
  double scale;
  Index is_real;
  const Complex* turns;
  Index a, b, c, source_a, source_b, source_c, target_a, target_b, target_c, streams;
  TileTransform transform;
};

// Whether passes ask for the next rows, and not the loads before them. Lengths with programs are even, so real
// rows are HALVES, and those with factors, which have a fraction of the length, are the only others.
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
  const Index points = HALVES || PLAIN ? 0 : plan->points;
  const bool is_real = !(HALVES || PLAIN) && all.is_real;
#ifdef N
  const Index n = HALVES || PLAIN ? N : points;
#else
  const Index n = points ? points : plan->of.n;
#endif
  const Index half = is_real ? n / 2 + 1 : n;
  const Index modes_in = HALVES && SIGN > 0 ? n + 1 : half, modes_out = HALVES && SIGN < 0 ? n + 1 : half;
  const Real scale = SCALED ? Real(all.scale) : 1;
  const bool from_reals = points || is_real && SIGN < 0, to_reals = points || is_real && SIGN > 0;
  const Index rows = all.a * all.b * all.c, blocks = (rows + lane_count - 1) / lane_count;
  Values *tile = tiles_of_thread(tile_size(*plan)), *other = tile + tile_size(*plan);
  FOR_BLOCKS_OF_THREAD(block, blocks) {
    const Index first = block * lane_count;
    const Rows<const Real> from(source, first, rows, all.b, all.c, all.source_a, all.source_b,
                                all.source_c);
    const Rows<Real> to(target, first, rows, all.b, all.c, all.target_a, all.target_b, all.target_c);
    if (from_reals) {
      from.load_real<!asks_in_passes>(tile, n);
      if (points) multiply_points(*plan, tile);
    } else {
      from.load_complex<!asks_in_passes>(tile, modes_in);
      if (to_reals) complete_modes(tile, n);
      if (HALVES && SIGN > 0) halves_of_modes(tile, n, all.turns);
    }
    transform_any<SIGN>(all.transform, *plan, tile, other, NextRows{from});
    if (to_reals) {
      if (points) multiply_modes(*plan, other);
      to.store_real(other, n, scale);
      continue;
    }
    if (HALVES && SIGN < 0) modes_of_halves(other, n, all.turns);
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
