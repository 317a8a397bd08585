// From modes to points, a product at every point, and back to modes: one trip through memory.
//
// Along the contiguous axis a pseudospectral step transforms INPUTS fields to physical space,
// multiplies them and transforms OUTPUTS products back. Here rows stay in shared memory meanwhile,
// and the real fields never reach global memory.
//
// The order of the points does not matter to the product: backward passes leave them
// digit-reversed, and forward passes take them so. The last backward pass, the product and the
// first forward pass share their points, and run in registers without a barrier.
//
// Constants: those of paired_real_fft.hpp; PRODUCT_HEADER names the header that defines the product,
//   INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS],
//                           const double* RESTRICT parameters),
// whose result is a rate (such as that of the CFL condition) of which the maximum is wanted.
#pragma once
#include "paired_real_fft.hpp"
#ifdef PRODUCT_HEADER
#include PRODUCT_HEADER
#endif

// Last backward pass, product, first forward pass: `radix` points of every field in registers.
// Returns the ordered bits of the largest rate.
INLINE Index multiply_points(Complex* rows, int b, const Complex* RESTRICT roots,
                             const double* RESTRICT parameters) {
  Index largest = 0;
  using Here = Pass<middle>;
  constexpr int R = Here::radix;
  Complex in[INPUTS][R], out[OUTPUTS][R];
  UNROLL for (int field = 0; field < INPUTS; ++field) {
    load<Here>(in[field], rows + field * row_size, Here::origin(b));
    backward_butterfly<Here>(in[field], b, roots);
  }
  UNROLL for (int r = 0; r < R; ++r) {
    Real in_a[INPUTS], in_b[INPUTS], out_a[OUTPUTS], out_b[OUTPUTS];
    UNROLL for (int field = 0; field < INPUTS; ++field) {
      in_a[field] = in[field][r].re;
      in_b[field] = in[field][r].im;
    }
    const Index bits_a = ordered_bits(pointwise(in_a, out_a, parameters));
    const Index bits_b = ordered_bits(pointwise(in_b, out_b, parameters));
    largest = bits_a > largest ? bits_a : largest;
    largest = bits_b > largest ? bits_b : largest;
    UNROLL for (int field = 0; field < OUTPUTS; ++field) {
      out[field][r] = {out_a[field], out_b[field]};
    }
  }
  UNROLL for (int field = 0; field < OUTPUTS; ++field) {
    forward_butterfly<Here>(out[field], b, roots);
    store<Here>(out[field], rows + field * row_size, Here::origin(b));
  }
  return largest;
}

// target[field][row][k] = scale * rfft(pointwise(irfft(source)))[k], k < kept <= N / 2 + 1, where
// source[field][row][k] has its modes k >= kept zero and irfft does not divide by N. Strides count
// Complex elements. Source and target may be the same array. maxima[i], zero before, receives the
// ordered bits of the largest rate in the i-th 2 * PAIRS rows.
KERNEL fused_product(const Complex* source, Complex* target, const Complex* RESTRICT roots,
                     Real scale, Index* maxima, const double* RESTRICT parameters, Index rows,
                     Index kept, Index source_field, Index source_row, Index target_field,
                     Index target_row) {
  constexpr int mirrored_pairs = Pass<0>::stride / 2 + 1;
  const Index pairs = (rows + 1) / 2;
  FOR_BLOCKS(block, (pairs + PAIRS - 1) / PAIRS) {
    SHARED(Complex, tile, PAIRS * row_count * row_size);
    FOR_TILE(line, PAIRS * INPUTS, q, mirrored_pairs) {
      const int pair = line / INPUTS, field = line % INPUTS;
      const Index first = block * PAIRS;
      const RowPair modes(source + field * source_field, source_row, first + pair, rows, kept);
      load_modes(modes, tile + (pair * row_count + field) * row_size, q, roots);
    }
    BLOCK_BARRIER
    backward_passes<1>(tile, roots);
    Index largest = 0;
    FOR_TILE(pair, PAIRS, b, Pass<middle>::butterflies) {
      const Index bits =
          multiply_points(tile + pair * row_count * row_size, b, roots, parameters);
      largest = bits > largest ? bits : largest;
    }
    block_maximum(maxima + block, largest);
    BLOCK_BARRIER
    forward_passes<middle - 1>(tile, roots);
    FOR_TILE(line, PAIRS * OUTPUTS, q, mirrored_pairs) {
      const int pair = line / OUTPUTS, field = line % OUTPUTS;
      const Index first = block * PAIRS;
      const RowPair modes(target + field * target_field, target_row, first + pair, rows, kept);
      store_modes(modes, tile + (pair * row_count + field) * row_size, q, roots, scale);
    }
    BLOCK_BARRIER  // the next rows write the tile
  }
}
