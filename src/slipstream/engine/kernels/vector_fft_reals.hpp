// Real numbers in FFTs on a CPU; see vector_fft.hpp.
//
// An even number of them is half as many complex ones, each a pair of neighbours in its line: never of two
// lines, so that no line depends on another.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// The modes of an odd number of reals that are not stored, conjugates of others. The imaginary part of mode 0,
// which no real numbers have, is left out.
INLINE void complete_modes(Values* modes, Index n) {
  modes[0].im = Vector{};
  for (Index k = n / 2 + 1; k < n; ++k) modes[k] = conjugate(modes[n - k]);
}

// The n modes of 2 n real numbers taken as complex ones <-> the n + 1 modes of the real ones, which `out(k, mode)`
// takes, and `in(k)` returns; both may be those in the tile. turns[k] = exp(-pi i k / n).
template <class Out>
INLINE void modes_of_halves(const Values* halves, Index n, const Complex* RESTRICT turns, const Out& out) {
  const Values first = halves[0];
  out(0, Values{first.re + first.im, Vector{}});
  out(n, Values{first.re - first.im, Vector{}});
  for (Index k = 1; 2 * k <= n; ++k) {
    const Values a = halves[k], b = conjugate(halves[n - k]);
    const Values even = Real(0.5) * (a + b), odd = turn(Real(0.5) * (a - b), turns[k]);
    out(k, even - times_i(odd));
    out(n - k, conjugate(even + times_i(odd)));
  }
}
template <class In>
INLINE void halves_of_modes(Values* halves, Index n, const Complex* RESTRICT turns, const In& in) {
  const Vector first = in(0).re, last = in(n).re;
  halves[0] = {first + last, first - last};
  for (Index k = 1; 2 * k <= n; ++k) {
    const Values a = in(k), b = conjugate(in(n - k));
    const Values even = a + b, odd = turn(a - b, conjugate(turns[k]));
    halves[k] = even + times_i(odd);
    halves[n - k] = conjugate(even - times_i(odd));
  }
}

// Element i of a cosine or sine transform, where `point(row)` returns a point, and the results of mode k, which
// `result(row, v)` takes.
template <class Point>
INLINE Values form_element(const Cosines& by, Index i, const Point& point) {
  const Pair& of = by.points_of[i];
  const Vector a = point(of.first), b = point(of.second);
  return {fused(b, all_lanes(of.by_second.re, b), a * all_lanes(of.by_first.re, a)),
          fused(b, all_lanes(of.by_second.im, b), a * all_lanes(of.by_first.im, a))};
}
template <class Result>
INLINE void form_results(const Cosines& by, Index k, Values mode, const Result& result) {
  const Pair& of = by.results_of[k];
  const auto real_part = [=](Complex by) {
    return fused(mode.re, all_lanes(by.re, mode.re), -(mode.im * all_lanes(by.im, mode.im)));
  };
  if (of.first >= 0) result(of.first, real_part(of.by_first));
  if (of.second >= 0) result(of.second, real_part(of.by_second));
}

#endif
