// Two neighbouring columns in single precision, which a thread transforms alike and moves by one access.
#pragma once
#include "butterflies.hpp"

struct alignas(2 * sizeof(Complex)) TwoColumns {
  Complex a, b;
};

INLINE TwoColumns operator+(TwoColumns v, TwoColumns w) { return {v.a + w.a, v.b + w.b}; }
INLINE TwoColumns operator-(TwoColumns v, TwoColumns w) { return {v.a - w.a, v.b - w.b}; }
INLINE TwoColumns operator*(Real s, TwoColumns v) { return {s * v.a, s * v.b}; }
INLINE TwoColumns times_i(TwoColumns v) { return {times_i(v.a), times_i(v.b)}; }
INLINE TwoColumns turn(TwoColumns v, Complex w) { return {turn(v.a, w), turn(v.b, w)}; }
INLINE TwoColumns fused(Real s, TwoColumns v, TwoColumns w) {
  return {fused(s, v.a, w.a), fused(s, v.b, w.b)};
}
INLINE TwoColumns plus_turned(TwoColumns a, TwoColumns b, Complex w) {
  return {plus_turned(a.a, b.a, w), plus_turned(a.b, b.b, w)};
}
INLINE TwoColumns twice_less(TwoColumns a, TwoColumns b) {
  return {twice_less(a.a, b.a), twice_less(a.b, b.b)};
}
template <int Sign>
INLINE TwoColumns quarter_turn(TwoColumns v) {
  return {quarter_turn<Sign>(v.a), quarter_turn<Sign>(v.b)};
}
