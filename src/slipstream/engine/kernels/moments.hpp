// Moments of populations: density and momentum.
#pragma once
#include "velocity_set.hpp"

template <class V>
struct Moments {
  V density, x, y, z;  // deviation of the density from one, and momentum
};

template <class V>
INLINE Moments<V> moments(const V* f) {
  Moments<V> m = {f[0], V{}, V{}, V{}};
  UNROLL for (int q = 1; q < DIRECTIONS; q += 2) {
    const V sum = f[q] + f[q + 1], difference = f[q] - f[q + 1];
    m.density = m.density + sum;
    if (CX[q]) m.x = m.x + difference;  // the first of a pair never moves backwards along x
    if (CY[q]) m.y = CY[q] > 0 ? m.y + difference : m.y - difference;
    if (CZ[q]) m.z = CZ[q] > 0 ? m.z + difference : m.z - difference;
  }
  return m;
}
