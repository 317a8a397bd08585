// Real rows of an even length as complex ones of half the length: what a CPU does before or after.
//
// Neighbouring points are the two parts of a complex number (Cooley, Lewis and Welch 1970). Modes k and
// N / 2 - k of the one transform make those of the other, in place. Constants: N.
#pragma once
#include "simd_vectors.hpp"

#ifndef SLIPSTREAM_GPU

constexpr int HALF = N / 2, LANES = lanes_of<Vector>, NUMBERS = LANES / 2;

// The elements of a vector in another order: parts of each number swapped, and numbers in reverse.
template <int... I>
INLINE Vector swapped(Vector v, std::integer_sequence<int, I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(v, v, (I ^ 1)...);
#else
  return Vector{v[I ^ 1]...};
#endif
}
template <int... I>
INLINE Vector reversed(Vector v, std::integer_sequence<int, I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(v, v, (LANES - 2 - I + 2 * (I & 1))...);
#else
  return Vector{v[LANES - 2 - I + 2 * (I & 1)]...};
#endif
}

// With w = exp(-2 pi i k / N): the pair of `numbers` of a mode k and of N / 2 - k becomes
//   s + t and conj(s - t),   s = c (a + conj(b)),   t = turn (a - conj(b))
// where c is 1 / 2 and `turn` -i w / 2 on the way to modes, 1 and i / w on the way to points.
// `turns` has the real parts of `turn` twice each, and then -im, im.
INLINE void mix(Real* a_at, Real* b_at, const Real* turns, Real c) {
  const Real a_re = a_at[0], a_im = a_at[1], b_re = b_at[0], b_im = b_at[1];
  const Real sum_re = c * (a_re + b_re), sum_im = c * (a_im - b_im);
  const Real re = a_re - b_re, im = a_im + b_im;
  const Real t_re = fma(turns[0], re, turns[N] * im), t_im = fma(turns[1], im, turns[N + 1] * re);
  a_at[0] = sum_re + t_re;
  a_at[1] = sum_im + t_im;
  b_at[0] = sum_re - t_re;
  b_at[1] = t_im - sum_im;
}
INLINE void mix_vector(Real* a_at, Real* b_at, const Real* turns, Real c, Vector signs) {
  const Vector a = load(a_at, Vector{}), b = signs * reversed(load(b_at, Vector{}), AllLanes{});
  const Vector sum = c * (a + b), difference = a - b;
  const Vector t = fused(load(turns, Vector{}), difference,
                         load(turns + N, Vector{}) * swapped(difference, AllLanes{}));
  store(a_at, sum + t);
  store(b_at, reversed(signs * (sum - t), AllLanes{}));
}

// The modes of rows, HALF + 1 numbers each, from or to those of half the length. Strides count Real.
KERNEL mix_modes(Real* RESTRICT modes, const Real* RESTRICT turns, Index forward, Index rows, Index size_j,
                 Index size_k, Index by_i, Index by_j, Index by_k) {
  const Real c = forward ? Real(0.5) : Real(1);
  Vector signs;
  for (int i = 0; i < LANES; ++i) signs[i] = i % 2 ? -1 : 1;
  FOR_ROWS(row, rows) {
    const Index k = row % size_k, j = row / size_k % size_j, i = row / size_k / size_j;
    Real* RESTRICT at = modes + i * by_i + j * by_j + k * by_k;
    // Mode 0 of the half has in its parts what the modes 0 and HALF of a real row have, which are real.
    if (forward) {
      const Real re = at[0], im = at[1];
      at[0] = re + im;
      at[N] = re - im;
      at[1] = at[N + 1] = 0;
    } else {
      const Real first = at[0], last = at[N];
      at[0] = first + last;
      at[1] = first - last;
    }
    constexpr int pairs = (HALF - 1) / 2;
    int n = 1;
    for (; n + NUMBERS - 1 <= pairs; n += NUMBERS)
      mix_vector(at + 2 * n, at + 2 * (HALF - n - NUMBERS + 1), turns + 2 * n, c, signs);
    for (; n <= pairs; ++n) mix(at + 2 * n, at + 2 * (HALF - n), turns + 2 * n, c);
    if (HALF % 2 == 0) {
      at[HALF] *= 2 * c;
      at[HALF + 1] *= -2 * c;
    }
  }
}

#endif
