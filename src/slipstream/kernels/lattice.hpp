// The D3Q19 lattice: its velocities, where populations lie in memory, moments and the collision.
//
// Populations are stored as deviations from those of a fluid at rest with density one, which keeps
// the digits of slow flows. Constants: LAYOUT (one of the five below), REAL for arithmetic, STORED
// for storage.
#pragma once
#include "simd_vectors.hpp"

#ifndef STORED
#define STORED REAL
#endif
using Stored = STORED;
using Link = unsigned int;

constexpr int DIRECTIONS = 19;

// Direction 0 rests; 2k - 1 and 2k are opposite.
constexpr int CX[] = {0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0};
constexpr int CY[] = {0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1};
constexpr int CZ[] = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1};

INLINE constexpr int opposite(int q) { return q ? ((q - 1) ^ 1) + 1 : 0; }
INLINE constexpr double weight(int q) { return q == 0 ? 1.0 / 3 : q < 7 ? 1.0 / 18 : 1.0 / 36; }

// All layouts are bundles of directions: a bundle holds, site by site or vector by vector of sites,
// its directions one after the other.
enum { STREAM, COLLISION, BUNDLE, VECTOR_COLLISION, VECTOR_BUNDLE };
constexpr int SEGMENT = 16;  // sites that are stored, and advanced, together
constexpr int GROUP = LAYOUT >= VECTOR_COLLISION ? SEGMENT : 1;
constexpr bool BY_BUNDLE = LAYOUT == BUNDLE || LAYOUT == VECTOR_BUNDLE;
// Populations that move to the same row of the lattice share a bundle; four move alone.
constexpr int BUNDLE_START[] = {0, 0, 0, 3, 6, 9, 12, 3, 6, 6, 3, 9, 12, 12, 9, 15, 16, 17, 18};
constexpr int BUNDLE_PLACE[] = {0, 1, 2, 0, 0, 0, 0, 1, 1, 2, 2, 1, 1, 2, 2, 0, 0, 0, 0};

INLINE constexpr int bundle_start(int q) { return LAYOUT == STREAM ? q : BY_BUNDLE ? BUNDLE_START[q] : 0; }
INLINE constexpr int bundle_place(int q) { return LAYOUT == STREAM ? 0 : BY_BUNDLE ? BUNDLE_PLACE[q] : q; }
INLINE constexpr int bundle_size(int q) {
  return LAYOUT == STREAM ? 1 : BY_BUNDLE ? (q < 15 ? 3 : 1) : DIRECTIONS;
}

// Where population q of a site lies; `sites` is their number, a multiple of SEGMENT.
INLINE Index address(int q, Index site, Index sites) {
  return bundle_start(q) * sites + site / GROUP * (bundle_size(q) * GROUP) + bundle_place(q) * GROUP +
         site % GROUP;
}

// Whether a vector of neighbouring sites, of one segment, is a vector in memory.
constexpr bool CONTIGUOUS = LAYOUT == STREAM || GROUP > 1;

#ifdef SLIPSTREAM_GPU

INLINE Real load_population(const Stored* at) { return Real(*at); }
INLINE void store_population(Stored* at, Real value) { *at = Stored(value); }

#else

typedef Stored StoredVector __attribute__((vector_size(sizeof(Stored) * lanes_of<Vector>)));
typedef Stored StoredAnywhere
    __attribute__((vector_size(sizeof(Stored) * lanes_of<Vector>), aligned(sizeof(Stored))));

INLINE Vector load_population(const Stored* at) {
  return __builtin_convertvector(*(const StoredAnywhere*)at, Vector);
}
INLINE void store_population(Stored* at, Vector value) {
  *(StoredAnywhere*)at = __builtin_convertvector(value, StoredVector);
}

#endif

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

template <class V>
INLINE V along(int q, V x, V y, V z) {
  V sum = {};
  if (CX[q]) sum = CX[q] > 0 ? sum + x : sum - x;
  if (CY[q]) sum = CY[q] > 0 ? sum + y : sum - y;
  if (CZ[q]) sum = CZ[q] > 0 ? sum + z : sum - z;
  return sum;
}

// Relaxation rates of the even and odd parts, and the force on a site.
struct Collision {
  Real even, odd, x, y, z;
};

// The two-relaxation-time collision of Ginzburg, Verhaeghe and d'Humieres (2008), with a force that
// acts half before and half after it. The equilibrium is linear, that of Stokes flow, unless INERTIA.
template <class V>
INLINE void collide(V* f, Collision by) {
  const Moments<V> m = moments(f);
  const Real half = Real(0.5), kept = 1 - half * by.even;
  // What the even equilibrium, relaxed, has in all directions of a weight, per weight.
  V common = by.even * m.density;
#if INERTIA
  const V ux = m.x + half * by.x, uy = m.y + half * by.y, uz = m.z + half * by.z;
  const V square = ux * ux + uy * uy + uz * uz, power = ux * by.x + uy * by.y + uz * by.z;
  common = common - Real(1.5) * by.even * square - 3 * kept * power;
#endif
  f[0] = fused(all_lanes(1 - by.even, V{}), f[0], Real(weight(0)) * common);
  UNROLL for (int q = 1; q < DIRECTIONS; q += 2) {
    const Real w = Real(weight(q));
    const Real push = 3 * w * along<Real>(q, by.x, by.y, by.z);
    V balance = w * common;
#if INERTIA
    const V speed = along(q, ux, uy, uz);
    balance = balance + Real(4.5) * w * by.even * speed * speed + 3 * kept * push * speed;
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
