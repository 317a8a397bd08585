// The 27-point advection scheme of White and Dongarra (2011): a second-order step by one stage.
//
// Its 27 coefficients are products of three for each axis, so a point is the blend of three blends
// of three blends: 9 fused multiply-adds instead of 27. All kernels blend along z, then y, then x,
// and each blend in the same order, so they all give the same bits.
#pragma once
#include "simd_vectors.hpp"

// Weights of the neighbours before, at and behind a point along one axis.
template <class V>
struct Weights {
  V before, at, behind;
};

template <class V>
INLINE Weights<V> weights(Real before, Real at, Real behind) {
  return {all_lanes(before, V{}), all_lanes(at, V{}), all_lanes(behind, V{})};
}

template <class V>
INLINE V blend(Weights<V> w, V before, V at, V behind) {
  return fused(w.behind, behind, fused(w.at, at, w.before * before));
}

// Where the points of a box lie: elements between planes and rows, and how many planes, rows and
// columns there are along axes that are periodic in place (else 0).
struct Layout {
  Index plane, row, planes, rows, columns;
};

// An index along an axis of `size` points that is periodic in place; `size` is 0 for one that has a halo.
INLINE Index wrapped(Index i, Index size) {
  return size == 0 || (0 <= i && i < size) ? i : (i % size + size) % size;
}
