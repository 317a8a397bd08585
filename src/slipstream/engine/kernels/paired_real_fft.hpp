// Pairs of real rows as complex rows in shared memory: what `fused_product.hpp` and `real_fft.hpp`
// share.
//
// Two real rows a, b travel as one complex row a + i b (Cooley, Lewis and Welch 1970). Backward
// passes are decimation in frequency, in place, and leave the points digit-reversed; forward passes
// mirror them (decimation in time) and end in natural order. Modes k and N - k, which the packing
// mixes, are elements of butterflies q and M - q of the pass with stride M: one thread takes both,
// so every mode is loaded and stored once. Butterflies 0 and M / 2 are their own mirrors, and go
// together where M and the first radix are even: then M / 2 threads have as much to do each.
//
// Constants: N, RADICES (two at least, the last may be 1), PAIRS (of rows in a block); KEPT, if no mode
// from there on is kept in any row.
#pragma once
#include "strided_fft.hpp"

static_assert(passes > 1, "a single radix needs a second pass of radix 1");

// After `gap` elements of a row one is left empty, so that strides of 4, 8 and 64 meet all banks.
constexpr int gap = (N & (N - 1)) == 0 && radices[passes - 1] <= 4 ? 16 : 8;
constexpr int row_size = N + N / gap + 1;
constexpr int middle = passes - 1;

#ifndef KEPT
#define KEPT N
#endif

// In the pass with the largest stride, butterflies q < mirrored_pairs go together with their mirrors.
constexpr bool ends_together = Pass<0>::stride % 2 == 0 && Pass<0>::radix % 2 == 0;
constexpr int mirrored_pairs = ends_together ? Pass<0>::stride / 2 : Pass<0>::stride / 2 + 1;

// Butterflies q and `mirror`. Mode mode(r) is element r of q and, conjugated, element R - 1 - r of the
// mirror, or the other way round in the upper half. If the two are the ends, the conjugates stay in
// the butterfly of their mode.
struct MirroredPair {
  static constexpr int R = Pass<0>::radix, M = Pass<0>::stride;
  int q, mirror;
  bool has_ends;  // butterflies 0 and M / 2

  INLINE explicit MirroredPair(int q)
      : q(q), mirror(q > 0 ? M - q : ends_together ? M / 2 : 0), has_ends(ends_together && q == 0) {}
  static INLINE constexpr bool is_upper(int r) { return 2 * r >= R; }
  // Mode mode(r) is origin(r) + distance(r); the distance and its bounds are known at compile time.
  static INLINE constexpr int distance(int r) { return is_upper(r) ? N - r * M : r * M; }
  static INLINE constexpr int least_mode(int r) { return is_upper(r) ? N - M / 2 - r * M : r * M; }
  static INLINE constexpr int greatest_mode(int r) {
    return is_upper(r) ? N - int(ends_together) - r * M : r * M + mirrored_pairs - 1;
  }
  INLINE int upper_origin() const { return has_ends ? -(M / 2) : -q; }
};

INLINE int padded(int position) { return position + position / gap; }

// Butterflies in the order in which neighbouring threads take them: of transforms that lie so far apart
// that they meet different banks.
template <class Here>
INLINE int spread(int b) {
  constexpr int transforms = N / Here::length, wanted = gap / Here::radix;
  constexpr int step = wanted < transforms ? wanted : transforms;
  if constexpr (gap == 16 && Here::stride < gap && step > 1) {
    constexpr int steps = transforms / step;
    const int number = b / Here::stride;
    return (number % steps * step + number / steps) * Here::stride + b % Here::stride;
  }
  return b;
}

// Where element r of a butterfly lies; the first two forms have compile-time distances.
template <class Here>
INLINE int place(int origin, int r) {
  constexpr int stride = Here::stride;
  constexpr bool are_in_gaps = gap % stride == 0 && Here::length % gap == 0;
  if constexpr (stride % gap == 0 || are_in_gaps) return padded(origin) + (r * stride + r * stride / gap);
  else if constexpr (gap % Here::length == 0) return padded(origin) + r * stride;
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
  constexpr int R = Here::radix;
  if constexpr (Here::is_first) Butterfly<R, 1>::apply(v, roots, N / R);
  else TurnedButterfly<R, 1>::apply(v, Here::template root<1>(roots, b), roots, N / R);
}
template <class Here>
INLINE void forward_butterfly(Complex* v, int b, const Complex* RESTRICT roots) {
  constexpr int R = Here::radix;
  if constexpr (Here::is_last) Butterfly<R, -1>::apply(v, roots, N / R);
  else TurnedButterfly<R, -1>::apply(v, Here::template mirrored_root<-1>(roots, b), roots, N / R);
}

// The rows of one field that a pair holds; a row that does not exist keeps no modes. `from` is the pair
// whose mode 0 is a certain mode of this one.
struct RowPair {
  Complex *a, *b;
  int kept_a, kept_b;
  INLINE RowPair(const Complex* field, Index stride, Index pair, Index rows, Index kept)
      : a(const_cast<Complex*>(field) + 2 * pair * stride), b(a + stride),
        kept_a(2 * pair < rows ? int(kept) : 0),
        kept_b(2 * pair + 1 < rows ? int(kept) : 0) {}
  INLINE RowPair from(int mode) const {
    RowPair rest = *this;
    rest.a += mode, rest.b += mode, rest.kept_a -= mode, rest.kept_b -= mode;
    return rest;
  }
  INLINE bool has_a(int k, bool) const { return k < kept_a; }
  INLINE bool has_b(int k, bool) const { return k < kept_b; }
};

// One mode of two rows as one of the complex row, and the conjugate part of mode N - k.
struct PackedMode {
  Complex z, mirrored;
  template <class Rows>
  INLINE PackedMode(const Rows& modes, int k, bool is_real, int least, int greatest) {
    const bool may_exist = least < KEPT, is_kept = greatest < KEPT;
    Complex a = may_exist && modes.has_a(k, is_kept) ? modes.a[k] : Complex{0, 0};
    Complex b = may_exist && modes.has_b(k, is_kept) ? modes.b[k] : Complex{0, 0};
    if (is_real) a.im = b.im = 0;
    z = a + times_i(b);
    mirrored = conjugate(a) + times_i(conjugate(b));
  }
};

// First backward pass, from global memory: two butterflies make their inputs from the modes of two
// rows. Position p holds mode p, or the conjugate of mode N - p in the upper half.
template <class Rows>
INLINE void load_modes(const Rows& modes, Complex* row, int q, const Complex* RESTRICT roots) {
  using Here = Pass<0>;
  constexpr int R = Here::radix;
  const MirroredPair pair(q);
  const auto lower = modes.from(q), upper = modes.from(pair.upper_origin());
  Complex v[R], w[R], mirrored[R];
  UNROLL for (int r = 0; r < R; ++r) {
    const int distance = pair.distance(r), k = distance + (pair.is_upper(r) ? pair.upper_origin() : q);
    // Modes 0 and N / 2 of a real row are real. With an even radix no other r can have them.
    const bool is_real = (R % 2 || r % (R / 2) == 0) && (k == 0 || 2 * k == N);
    const PackedMode mode(pair.is_upper(r) ? upper : lower, distance, is_real, pair.least_mode(r),
                          pair.greatest_mode(r));
    mirrored[r] = mode.mirrored;
    (pair.is_upper(r) ? w[R - 1 - r] : v[r]) = mode.z;
  }
  UNROLL for (int r = 0; r < R; ++r) {
    (pair.is_upper(r) ? v[r] : w[R - 1 - r]) = mirrored[r];
  }
  if (ends_together) {
    Complex half = {0, 0};
    if (pair.has_ends) half = PackedMode(modes, N / 2, true, N / 2, N / 2).z;
    UNROLL for (int r = R / 2; r < R; ++r) {
      const Complex own = r == R / 2 ? half : mirrored[(R - r) % R];
      v[r] = pair.has_ends ? own : v[r];
      w[r] = pair.has_ends ? mirrored[r] : w[r];
    }
  }
  backward_butterfly<Here>(v, q, roots);
  store<Here>(v, row, q);
  if (ends_together || q > 0) {  // else butterfly 0 is its own mirror
    backward_butterfly<Here>(w, pair.mirror, roots);
    store<Here>(w, row, pair.mirror);
  }
}

// Last forward pass, to global memory, separating the rows again.
template <class Rows>
INLINE void store_modes(const Rows& modes, const Complex* row, int q,
                        const Complex* RESTRICT roots, Real scale) {
  using Here = Pass<0>;
  constexpr int R = Here::radix;
  const MirroredPair pair(q);
  Complex v[R], w[R];
  load<Here>(v, row, q);
  load<Here>(w, row, pair.mirror);
  forward_butterfly<Here>(v, q, roots);
  forward_butterfly<Here>(w, pair.mirror, roots);
  const auto lower = modes.from(q), upper = modes.from(pair.upper_origin());
  const auto store_in = [&](const auto& rows, int k, int least, int greatest, Complex z, Complex mirrored) {
    if (least >= KEPT) return;
    const bool is_kept = greatest < KEPT;
    const Complex c = conjugate(mirrored), twice_b = z - c;
    if (rows.has_a(k, is_kept)) rows.a[k] = (scale / 2) * (z + c);
    if (rows.has_b(k, is_kept)) rows.b[k] = (scale / 2) * Complex{twice_b.im, -twice_b.re};
  };
  const auto store_mode = [&](int r, Complex z, Complex mirrored) {
    store_in(pair.is_upper(r) ? upper : lower, pair.distance(r), pair.least_mode(r), pair.greatest_mode(r),
             z, mirrored);
  };
  UNROLL for (int r = 0; r < R; ++r) {
    const Complex own = v[(R - r) % R], other = w[R - 1 - r];
    if (ends_together) {
      if (pair.is_upper(r)) store_mode(r, other, pair.has_ends ? w[r] : v[r]);
      else store_mode(r, v[r], pair.has_ends ? own : other);
    } else {
      const Complex mirrored = q > 0 ? other : w[(R - r) % R];
      if (pair.is_upper(r)) store_mode(r, mirrored, v[r]);
      else store_mode(r, v[r], mirrored);
    }
  }
  if (pair.has_ends) store_in(modes, N / 2, N / 2, N / 2, v[R / 2], v[R / 2]);
}

// One pass between the first and the middle one, of the first `fields` of `row_count` rows a pair.
// Threads keep the roots of a butterfly from row to row where these take few registers.
template <class Here, int fields, int row_count, class Butterflies>
INLINE void pass_in_place(Complex* tile, Butterflies butterfly) {
  const auto transform = [&](int line, int thread) {
    const int b = spread<Here>(thread);
    Complex* row = tile + (line / fields * row_count + line % fields) * row_size;
    Complex v[Here::radix];
    load<Here>(v, row, Here::origin(b));
    butterfly(v, b);
    store<Here>(v, row, Here::origin(b));
  };
  if constexpr (Here::radix * sizeof(Complex) <= 128) {
    FOR_TILE_LINES(line, PAIRS * fields, b, Here::butterflies) transform(line, b);
  } else {
    FOR_TILE(line, PAIRS * fields, b, Here::butterflies) transform(line, b);
  }
  BLOCK_BARRIER
}
template <int P, int fields, int row_count>
INLINE void backward_passes(Complex* tile, const Complex* RESTRICT roots) {
  if constexpr (P < middle) {
    using Here = Pass<P>;
    pass_in_place<Here, fields, row_count>(
        tile, [&](Complex* v, int b) { backward_butterfly<Here>(v, b, roots); });
    backward_passes<P + 1, fields, row_count>(tile, roots);
  }
}
template <int P, int fields, int row_count>
INLINE void forward_passes(Complex* tile, const Complex* RESTRICT roots) {
  if constexpr (P > 0) {
    using Here = Pass<P>;
    pass_in_place<Here, fields, row_count>(
        tile, [&](Complex* v, int b) { forward_butterfly<Here>(v, b, roots); });
    forward_passes<P - 1, fields, row_count>(tile, roots);
  }
}
