// Transforms of a few elements in registers, the parts of longer ones.
//
// Values are of type Complex; on a CPU, also as many as a vector has lanes (`vector_fft.hpp`).
#pragma once
#include "portability.hpp"

// a exp(Sign i pi / 2), and sqrt(2) a exp(Sign i pi / 4).
template <int Sign, class Value>
INLINE Value quarter_turn(Value a) {
  return Sign > 0 ? Value{-a.im, a.re} : Value{a.im, -a.re};
}
template <int Sign, class Value>
INLINE Value eighth_turn(Value a) {
  return a + quarter_turn<Sign>(a);
}
constexpr Real half_root = Real(0.70710678118654752440);  // 1 / sqrt(2)

// Twiddling is half of the arithmetic, so it asks for the fused operations that builds leave off.
INLINE Complex fused(Real s, Complex a, Complex b) {
  return {fma(s, a.re, b.re), fma(s, a.im, b.im)};
}
INLINE Complex turn(Complex a, Complex w) {
  return {fma(a.re, w.re, -(a.im * w.im)), fma(a.re, w.im, a.im * w.re)};
}

// roots[k] = exp(-2 pi i k / N) serves both directions.
template <int Sign>
INLINE Complex root(const Complex* RESTRICT roots, int k) {
  return Sign > 0 ? conjugate(roots[k]) : roots[k];
}

// Butterfly<R, Sign>::apply transforms R elements in registers. Any odd R, by pairs q and R - q, with
// roots[q * spacing] = exp(-2 pi i q / R).
template <int R, int Sign>
struct Butterfly {
  static_assert(R % 2 == 1, "even radices are 2, 4, 8 and 16");
  template <class Value>
  static INLINE void apply(Value* v, const Complex* RESTRICT roots, int spacing) {
    constexpr int half = R / 2;
    Complex unit[half + 1];
    Value sum[half + 1], difference[half + 1];
    const Value first = v[0];
    UNROLL for (int q = 1; q <= half; ++q) {
      unit[q] = root<Sign>(roots, q * spacing);
      sum[q] = v[q] + v[R - q];
      difference[q] = v[q] - v[R - q];
      v[0] = v[0] + sum[q];
    }
    UNROLL for (int k = 1; k <= half; ++k) {
      Value even = first, odd = {};
      UNROLL for (int q = 1; q <= half; ++q) {
        const int angle = k * q % R;
        const Complex w = angle <= half ? unit[angle] : conjugate(unit[R - angle]);
        even = fused(w.re, sum[q], even);
        odd = fused(w.im, difference[q], odd);
      }
      v[k] = even + times_i(odd);
      v[R - k] = even - times_i(odd);
    }
  }
};

template <int Sign>
struct Butterfly<1, Sign> {
  template <class Value>
  static INLINE void apply(Value*, const Complex*, int) {}
};

template <int Sign>
struct Butterfly<2, Sign> {
  template <class Value>
  static INLINE void apply(Value* v, const Complex*, int) {
    const Value a = v[0], b = v[1];
    v[0] = a + b;
    v[1] = a - b;
  }
};

template <int Sign>
struct Butterfly<4, Sign> {
  template <class Value>
  static INLINE void apply(Value* v, const Complex*, int) {
    const Value a = v[0] + v[2], b = v[0] - v[2];
    const Value c = v[1] + v[3], d = quarter_turn<Sign>(v[1] - v[3]);
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
  }
};

template <int Sign>
struct Butterfly<8, Sign> {
  template <class Value>
  static INLINE void apply(Value* v, const Complex* roots, int spacing) {
    Value even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
    Butterfly<4, Sign>::apply(even, roots, spacing);
    Butterfly<4, Sign>::apply(odd, roots, spacing);
    odd[1] = eighth_turn<Sign>(odd[1]);
    odd[2] = quarter_turn<Sign>(odd[2]);
    odd[3] = quarter_turn<Sign>(eighth_turn<Sign>(odd[3]));
    UNROLL for (int k = 0; k < 4; ++k) {
      const Real length = k % 2 ? half_root : Real(1);
      v[k] = fused(length, odd[k], even[k]);
      v[k + 4] = fused(-length, odd[k], even[k]);
    }
  }
};

template <int Sign>
struct Butterfly<16, Sign> {
  template <class Value>
  static INLINE void apply(Value* v, const Complex* roots, int spacing) {
    constexpr Real c = Real(0.92387953251128675613), s = Real(0.38268343236508977173);
    constexpr Complex once = {c, Sign * s}, thrice = {s, Sign * c};  // exp(Sign i pi / 8), cubed
    Value part[4][4];
    UNROLL for (int b = 0; b < 4; ++b) {
      UNROLL for (int a = 0; a < 4; ++a) part[b][a] = v[4 * a + b];
      Butterfly<4, Sign>::apply(part[b], roots, spacing);
    }
    part[1][1] = turn(part[1][1], once);
    part[1][2] = half_root * eighth_turn<Sign>(part[1][2]);
    part[1][3] = turn(part[1][3], thrice);
    part[2][1] = half_root * eighth_turn<Sign>(part[2][1]);
    part[2][2] = quarter_turn<Sign>(part[2][2]);
    part[2][3] = half_root * quarter_turn<Sign>(eighth_turn<Sign>(part[2][3]));
    part[3][1] = turn(part[3][1], thrice);
    part[3][2] = half_root * quarter_turn<Sign>(eighth_turn<Sign>(part[3][2]));
    part[3][3] = turn(part[3][3], Complex{-once.re, -once.im});
    UNROLL for (int a = 0; a < 4; ++a) {
      Value w[4] = {part[0][a], part[1][a], part[2][a], part[3][a]};
      Butterfly<4, Sign>::apply(w, roots, spacing);
      UNROLL for (int d = 0; d < 4; ++d) v[a + 4 * d] = w[d];
    }
  }
};

// a + w b takes four fused operations, and a - w b, as twice a less that, two. By a product and two sums
// they would take eight.
INLINE Complex plus_turned(Complex a, Complex b, Complex w) {
  return {fma(-w.im, b.im, fma(w.re, b.re, a.re)), fma(w.im, b.re, fma(w.re, b.im, a.im))};
}
INLINE Complex twice_less(Complex a, Complex b) {
  return {fma(Real(2), a.re, -b.re), fma(Real(2), a.im, -b.im)};
}

// Transforms R elements that are turned before: v[r] times first^r. If R is a power of two, each of its
// steps (decimation in time) turns as it adds. `turns` are first, its square, the square of that ...
template <int R, int Sign>
struct TurnedButterfly {
  template <class Value>
  static INLINE void steps(Value* v, const Complex* turns) {
    if constexpr (R > 1) {
      Value even[R / 2], odd[R / 2];
      UNROLL for (int k = 0; k < R / 2; ++k) even[k] = v[2 * k], odd[k] = v[2 * k + 1];
      TurnedButterfly<R / 2, Sign>::steps(even, turns + 1);
      TurnedButterfly<R / 2, Sign>::steps(odd, turns + 1);
      UNROLL for (int k = 0; k < R / 2; ++k) {
        // w = turns[0] exp(Sign 2 pi i k / R); `part` counts sixteenths of a circle.
        constexpr Real c = Real(0.92387953251128675613), s = Real(0.38268343236508977173);
        const int part = R < 4 ? 0 : k % (R / 4) * (16 / R);
        Complex w = turns[0];
        if (part == 1) w = turn(w, Complex{c, Sign * s});
        if (part == 2) w = half_root * eighth_turn<Sign>(w);
        if (part == 3) w = turn(w, Complex{s, Sign * c});
        if (R >= 4 && k >= R / 4) w = quarter_turn<Sign>(w);
        v[k] = plus_turned(even[k], odd[k], w);
        v[k + R / 2] = twice_less(even[k], v[k]);
      }
    }
  }
  template <class Value>
  static INLINE void apply(Value* v, Complex first, const Complex* RESTRICT roots, int spacing) {
    if constexpr ((R & (R - 1)) == 0) {
      Complex turns[] = {first, first, first, first};
      UNROLL for (int i = 1; i < 4; ++i) turns[i] = turn(turns[i - 1], turns[i - 1]);
      steps(v, turns);
    } else {
      // The powers are multiplied up, not looked up: a gather from the table would take more cycles
      // than the arithmetic. The products are log2(R) deep, so rounding stays small.
      Complex power[R + 1];
      power[1] = first;
      UNROLL for (int r = 2; r < R; ++r) power[r] = turn(power[r / 2], power[r - r / 2]);
      UNROLL for (int r = 1; r < R; ++r) v[r] = turn(v[r], power[r]);
      Butterfly<R, Sign>::apply(v, roots, spacing);
    }
  }
};
