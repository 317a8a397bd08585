// The two-relaxation-time (TRT) collision. Constants: INERTIA.
#pragma once
#include "moments.hpp"

// Relaxation rates of the even and odd parts, the force on a site, in units of the populations, and that unit.
struct Collision {
  Real even, odd, x, y, z, unit;
};

// The two-relaxation-time collision of Ginzburg, Verhaeghe and d'Humieres (2008), with a force that
// acts half before and half after it. The equilibrium is linear, as for Stokes flow, unless INERTIA.
template <class V>
INLINE void collide(V* f, Collision by) {
  const Moments<V> m = moments(f);
  const Real half = Real(0.5), kept = 1 - half * by.even;
  // What the even equilibrium, relaxed, has in all directions of a weight, per weight.
  V common = by.even * m.density;
#if INERTIA
  const V ux = m.x + half * by.x, uy = m.y + half * by.y, uz = m.z + half * by.z;
  const V square = ux * ux + uy * uy + uz * uz, power = ux * by.x + uy * by.y + uz * by.z;
  common = common - Real(1.5) * by.even * by.unit * square - 3 * kept * by.unit * power;
#endif
  f[0] = fused(all_lanes(1 - by.even, V{}), f[0], Real(weight(0)) * common);
  UNROLL for (int q = 1; q < DIRECTIONS; q += 2) {
    const Real w = Real(weight(q));
    const Real push = 3 * w * along<Real>(q, by.x, by.y, by.z);
    V balance = w * common;
#if INERTIA
    const V speed = along(q, ux, uy, uz);
    balance = balance + Real(4.5) * w * by.even * by.unit * speed * speed +
              3 * kept * push * by.unit * speed;
#endif
    const V current = fused(all_lanes(3 * w * by.odd, V{}), along(q, m.x, m.y, m.z),
                            all_lanes(push, V{}));
    const V sum = f[q] + f[q + 1], difference = f[q] - f[q + 1];
    const V symmetric = fused(all_lanes(-half * by.even, V{}), sum, balance);
    const V antisymmetric = fused(all_lanes(-half * by.odd, V{}), difference, current);
    f[q] = f[q] + symmetric + antisymmetric;
    f[q + 1] = f[q + 1] + symmetric - antisymmetric;
  }
}
