// From modes to points, a product at every point, and back to modes: one trip through memory.
//
// Along the contiguous axis a pseudospectral step transforms INPUTS fields to physical space,
// multiplies them and transforms OUTPUTS products back. Here rows stay in shared memory meanwhile,
// and the real fields never reach global memory. Two real rows a, b travel as one complex row
// a + i b (Cooley, Lewis and Welch 1970).
//
// The order of the points does not matter to the product. So the backward passes are decimation in
// frequency, in place, leaving the points digit-reversed, and the forward passes mirror them
// (decimation in time), ending in natural order: no reordering at all. The last backward pass, the
// product and the first forward pass share their points, and run in registers without a barrier.
// Modes k and N - k, which the packing mixes, are elements of butterflies q and M - q of the pass
// with stride M: one thread takes both, so every mode is loaded and stored once.
//
// Constants: N, RADICES (two at least, the last may be 1), INPUTS, OUTPUTS, PAIRS (of rows in a
// block); PRODUCT_HEADER names the header that defines the product,
//   INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS],
//                           const double* RESTRICT parameters),
// whose result is a rate (such as that of the CFL condition) of which the maximum is wanted.
#pragma once
#include "fft.hpp"
#ifdef PRODUCT_HEADER
#include PRODUCT_HEADER
#endif

static_assert(passes > 1, "a single radix needs a second pass of radix 1");

// One element in nine of a row is left empty, so that strides of 4, 8 and 64 meet all banks.
constexpr int row_size = N + N / 8 + 1;
constexpr int row_count = INPUTS > OUTPUTS ? INPUTS : OUTPUTS;
constexpr int middle = passes - 1;

INLINE int padded(int position) { return position + (position >> 3); }

// Where element r of a butterfly lies; the first two forms have compile-time distances.
template <class Here>
INLINE int place(int origin, int r) {
  constexpr int stride = Here::stride;
  if constexpr (stride % 8 == 0) return padded(origin) + r * (stride + stride / 8);
  else if constexpr (8 % Here::length == 0) return padded(origin) + r * stride;
  else return padded(origin + r * stride);
}

template <class Here>
INLINE void load(Complex* v, const Complex* row, int origin) {
  UNROLL for (int r = 0; r < Here::radix; ++r) v[r] = row[place<Here>(origin, r)];
}
template <class Here>
INLINE void store(const Complex* v, Complex* row, int origin) {
  UNROLL for (int r = 0; r < Here::radix; ++r) row[place<Here>(origin, r)] = v[r];
}

template <class Here>
INLINE void backward_butterfly(Complex* v, int b, const Complex* RESTRICT roots) {
  Butterfly<Here::radix, 1>::apply(v, roots);
  if (Here::stride > 1) twiddle<Here::radix>(v, Here::template root<1>(roots, b));
}
template <class Here>
INLINE void forward_butterfly(Complex* v, int b, const Complex* RESTRICT roots) {
  if (Here::stride > 1) twiddle<Here::radix>(v, Here::template root<-1>(roots, b));
  Butterfly<Here::radix, -1>::apply(v, roots);
}

// The rows of one field that a pair holds; a row that does not exist keeps no modes.
struct RowPair {
  Complex *a, *b;
  int kept_a, kept_b;
  INLINE RowPair(const Complex* field, Index stride, Index pair, Index rows, Index kept)
      : a(const_cast<Complex*>(field) + 2 * pair * stride), b(a + stride),
        kept_a(2 * pair < rows ? int(kept) : 0),
        kept_b(2 * pair + 1 < rows ? int(kept) : 0) {}
};

// First backward pass, from global memory: butterflies q and M - q make their inputs from the modes
// of two rows. Position p holds mode p, or the conjugate of mode N - p in the upper half.
INLINE void load_modes(const RowPair& modes, Complex* row, int q, const Complex* RESTRICT roots) {
  using Here = Pass<0>;
  constexpr int R = Here::radix, M = Here::stride;
  Complex v[R], w[R];
  UNROLL for (int r = 0; r < R; ++r) {
    const bool upper = 2 * r >= R;
    const int k = upper ? N - q - r * M : q + r * M;
    Complex a = k < modes.kept_a ? modes.a[k] : Complex{0, 0};
    Complex b = k < modes.kept_b ? modes.b[k] : Complex{0, 0};
    if (k == 0 || 2 * k == N) a.im = b.im = 0;  // these modes of a real row are real
    const Complex z = a + times_i(b), mirrored = conjugate(a) + times_i(conjugate(b));
    v[r] = upper ? mirrored : z;
    w[R - 1 - r] = upper ? z : mirrored;
  }
  backward_butterfly<Here>(v, q, roots);
  store<Here>(v, row, q);
  if (q > 0) {  // butterfly 0 is its own mirror
    backward_butterfly<Here>(w, M - q, roots);
    store<Here>(w, row, M - q);
  }
}

// Last forward pass, to global memory, separating the rows again.
INLINE void store_modes(const RowPair& modes, const Complex* row, int q,
                        const Complex* RESTRICT roots, Real scale) {
  using Here = Pass<0>;
  constexpr int R = Here::radix, M = Here::stride;
  const int mirror = q > 0 ? M - q : 0;
  Complex v[R], w[R];
  load<Here>(v, row, q);
  load<Here>(w, row, mirror);
  forward_butterfly<Here>(v, q, roots);
  forward_butterfly<Here>(w, mirror, roots);
  UNROLL for (int r = 0; r < R; ++r) {
    const bool upper = 2 * r >= R;
    const int k = upper ? N - q - r * M : q + r * M;
    const Complex mirrored = q > 0 ? w[R - 1 - r] : w[(R - r) % R];
    const Complex z = upper ? mirrored : v[r], c = conjugate(upper ? v[r] : mirrored);
    const Complex twice_b = z - c;
    if (k < modes.kept_a) modes.a[k] = (scale / 2) * (z + c);
    if (k < modes.kept_b) modes.b[k] = (scale / 2) * Complex{twice_b.im, -twice_b.re};
  }
}

// The passes between the first and the middle one, in either direction.
template <int P>
INLINE void backward_passes(Complex* tile, const Complex* RESTRICT roots) {
  if constexpr (P < middle) {
    using Here = Pass<P>;
    FOR_TILE(line, PAIRS * INPUTS, b, Here::butterflies) {
      Complex* row = tile + (line / INPUTS * row_count + line % INPUTS) * row_size;
      Complex v[Here::radix];
      load<Here>(v, row, Here::origin(b));
      backward_butterfly<Here>(v, b, roots);
      store<Here>(v, row, Here::origin(b));
    }
    BLOCK_BARRIER
    backward_passes<P + 1>(tile, roots);
  }
}
template <int P>
INLINE void forward_passes(Complex* tile, const Complex* RESTRICT roots) {
  if constexpr (P > 0) {
    using Here = Pass<P>;
    FOR_TILE(line, PAIRS * OUTPUTS, b, Here::butterflies) {
      Complex* row = tile + (line / OUTPUTS * row_count + line % OUTPUTS) * row_size;
      Complex v[Here::radix];
      load<Here>(v, row, Here::origin(b));
      forward_butterfly<Here>(v, b, roots);
      store<Here>(v, row, Here::origin(b));
    }
    BLOCK_BARRIER
    forward_passes<P - 1>(tile, roots);
  }
}

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
KERNEL physical_pass(const Complex* source, Complex* target, const Complex* RESTRICT roots,
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
