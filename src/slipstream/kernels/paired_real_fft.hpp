// Pairs of real rows as complex rows in shared memory: what `fused_product.hpp` and `real_fft.hpp`
// share.
//
// Two real rows a, b travel as one complex row a + i b (Cooley, Lewis and Welch 1970). Backward
// passes are decimation in frequency, in place, and leave the points digit-reversed; forward passes
// mirror them (decimation in time) and end in natural order. Modes k and N - k, which the packing
// mixes, are elements of butterflies q and M - q of the pass with stride M: one thread takes both,
// so every mode is loaded and stored once.
//
// Constants: N, RADICES (two at least, the last may be 1), INPUTS, OUTPUTS, PAIRS (of rows in a
// block).
#pragma once
#include "strided_fft.hpp"

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
  INLINE bool has_a(int k) const { return k < kept_a; }
  INLINE bool has_b(int k) const { return k < kept_b; }
};

// First backward pass, from global memory: butterflies q and M - q make their inputs from the modes
// of two rows. Position p holds mode p, or the conjugate of mode N - p in the upper half.
template <class Rows>
INLINE void load_modes(const Rows& modes, Complex* row, int q, const Complex* RESTRICT roots) {
  using Here = Pass<0>;
  constexpr int R = Here::radix, M = Here::stride;
  Complex v[R], w[R];
  UNROLL for (int r = 0; r < R; ++r) {
    const bool upper = 2 * r >= R;
    const int k = upper ? N - q - r * M : q + r * M;
    Complex a = modes.has_a(k) ? modes.a[k] : Complex{0, 0};
    Complex b = modes.has_b(k) ? modes.b[k] : Complex{0, 0};
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
template <class Rows>
INLINE void store_modes(const Rows& modes, const Complex* row, int q,
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
    if (modes.has_a(k)) modes.a[k] = (scale / 2) * (z + c);
    if (modes.has_b(k)) modes.b[k] = (scale / 2) * Complex{twice_b.im, -twice_b.re};
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
