// Products of fields at the points of rows, on a CPU: from modes of x, and back to modes.
//
// As many rows as a vector has lanes go together. Their points exist in the order of the transforms only,
// a vector for each point, and never leave the cache; modes that are not kept are neither read nor stored.
//
// Constants: INPUTS, OUTPUTS, PRODUCT_HEADER as in fused_product.hpp; N and RADICES, if given, are those
// of half a row (`vector_fft.hpp`). If points are wanted besides: see stored_points.hpp.
#pragma once
#include "vector_fft_reals.hpp"
#ifdef PRODUCT_HEADER
#include PRODUCT_HEADER
#endif
#include "stored_points.hpp"

#if defined(PRODUCT_HEADER) && !defined(SLIPSTREAM_GPU)

// Where the modes of all rows from `place` on lie: `count` of each row and field. Strides count complex numbers.
struct Share {
  Index place, count, offset, row, field;
};
// Rows of n points, which are 2 n of the plan's if `is_half`.
struct ProductRows {
  Index n, is_half, kept, rows, sources;
  const Share* source;
  Index targets;
  const Share* target;
  const Complex* turns;
  TileTransform backward, forward;
};

// target[field][row][k] = rfft(pointwise(irfft(source)))[k] for k < kept; others are zero, and the inverse
// does not divide by n. Both may be the same memory, if rows stay in their places.
// maxima[row] receives the ordered bits of a rate: the largest of some rows.
KERNEL product_of_rows(const Real* source, Real* target, Index* maxima, const double* RESTRICT parameters,
                       const ProductRows* sizes, const Plan* plan STORED_POINTS) {
  const ProductRows all = *sizes;
  const bool is_half = all.is_half, is_direct = is_half && !plan->with.by.n;
  const Index length = plan->of.n, half = all.n / 2 + 1, lanes = all.n * lane_count;
  constexpr int fields = INPUTS > OUTPUTS ? INPUTS : OUTPUTS;
  FOR_BLOCKS(block, (all.rows + lane_count - 1) / lane_count) {
    const Index first = block * lane_count, working = 2 * tile_size(*plan);
    // Room for two tiles, and for the points: a complex number takes two vectors.
    Values *tile = tiles_of_thread((working + fields * half + 1) / 2), *other = tile + working / 2;
    Vector* points = (Vector*)(tile + working);
    for (int f = 0; f < INPUTS; ++f) {
      Vector* mine = points + f * all.n;
      for (const Share* of = all.source; of < all.source + all.sources; ++of) {
        const Rows<const Real> from(source + 2 * (of->offset + f * of->field), first, all.rows, 2 * of->row);
        from.load_complex(tile + of->place, of->count);
      }
      for (Index k = all.kept; k < half; ++k) tile[k] = Values{};
      if (is_half) halves_of_modes(tile, length, all.turns, [=](Index k) { return tile[k]; });
      else complete_modes(tile, length);
      transform_any<1>(all.backward, *plan, tile, is_direct ? (Values*)mine : other);
      if (is_direct) continue;
      if (is_half) __builtin_memcpy(mine, other, all.n * sizeof(Vector));
      else for (Index i = 0; i < all.n; ++i) mine[i] = other[i].re;
    }
    Real* RESTRICT p = (Real*)points;
#if STORES
    for (int i = 0; i < STORES; ++i)
      for (Index lane = 0; lane < lane_count && first + lane < all.rows; ++lane) {
        Real* to = stored + i * stored_field + (first + lane) * row_of_points(int(all.n));
        const Real* from = p + stored_inputs[i] * lanes + lane;
        for (int x = 0; x < all.n; ++x) to[place_in_row(x)] = from[Index(x) * lane_count];
      }
#endif
    Index largest = 0;
    FOR_COLUMNS_MAXIMUM(c, lanes, largest) {
      Real in[INPUTS], out[OUTPUTS];
      UNROLL for (int i = 0; i < INPUTS; ++i) in[i] = p[c + i * lanes];
      const Index bits = ordered_bits(pointwise(in, out, parameters));
      largest = bits > largest ? bits : largest;
      UNROLL for (int i = 0; i < OUTPUTS; ++i) p[c + i * lanes] = out[i];
    }
    for (Index row = first; row < first + lane_count && row < all.rows; ++row) maxima[row] = largest;
    for (int f = 0; f < OUTPUTS; ++f) {
      const Vector* mine = points + f * all.n;
      if (!is_direct) {
        if (is_half) __builtin_memcpy(tile, mine, all.n * sizeof(Vector));
        else for (Index i = 0; i < all.n; ++i) tile[i] = {mine[i], Vector{}};
      }
      transform_any<-1>(all.forward, *plan, is_direct ? (Values*)mine : tile, other);
      if (is_half) modes_of_halves(other, length, all.turns, [=](Index k, Values mode) { other[k] = mode; });
      for (const Share* of = all.target; of < all.target + all.targets; ++of) {
        const Rows<Real> to(target + 2 * (of->offset + f * of->field), first, all.rows, 2 * of->row);
        to.store_complex(other + of->place, of->count, 1);
      }
    }
  }
}

#endif
