// Where populations lie in memory.
//
// Populations are stored as deviations from those of a fluid at rest with density one, which keeps
// the digits of slow flows, and in a unit of the flow's (`PoreFlow.unit`). Constants: LAYOUT (one of the
// five below), REAL for arithmetic, STORED and STORED_BYTES for storage, and PLACE, a type of whole numbers
// that has an index of each population. Of kernels that advance sites: UNIT, the sites that are advanced
// together, and AT_ONCE, the number of vectors of LANES sites that a thread holds.
#pragma once
#include "velocity_set.hpp"
#include "stored_numbers.hpp"

// All layouts are bundles of directions: a bundle holds, site by site or vector by vector of sites,
// its directions one after the other.
enum Layout { STREAM, COLLISION, BUNDLE, VECTOR_COLLISION, VECTOR_BUNDLE };
constexpr int SEGMENT = 16;  // sites of a row of threads; their number is a multiple of it
constexpr int GROUP = GROUP_SITES;
constexpr bool BY_ROW = LAYOUT == BUNDLE || LAYOUT == VECTOR_BUNDLE;
// Populations that move to the same row of the lattice share a bundle.
INLINE constexpr int bundle_start(int q) { return LAYOUT == STREAM ? q : BY_ROW ? ROW_START[q] : 0; }
INLINE constexpr int bundle_place(int q) { return LAYOUT == STREAM ? 0 : BY_ROW ? ROW_PLACE[q] : q; }
INLINE constexpr int bundle_size(int q) {
  return LAYOUT == STREAM ? 1 : BY_ROW ? row_size(q) : DIRECTIONS;
}

// Where population q of a site lies; `sites` is their number, a multiple of SEGMENT.
INLINE Index address(int q, Index site, Index sites) {
  return bundle_start(q) * sites + site / GROUP * (bundle_size(q) * GROUP) + bundle_place(q) * GROUP +
         site % GROUP;
}

#ifndef PLACE
#define PLACE Index
#endif
using Place = PLACE;

// Whether a vector of neighbouring sites, of one segment, is a vector in memory.
constexpr bool CONTIGUOUS = LAYOUT == STREAM || GROUP > 1;

#ifdef SLIPSTREAM_GPU

constexpr int LANES = 1;
using Population = Real;
INLINE Real load_population(const Stored* at) { return Real(*at); }
INLINE void store_population(Stored* at, Real value) { *at = Stored(value); }

#else

constexpr int LANES = lanes_of<Vector>;
using Population = Vector;

typedef StoredBits StoredAnywhere
    __attribute__((vector_size(sizeof(Stored) * lanes_of<Vector>), aligned(sizeof(Stored))));

INLINE Vector load_population(const Stored* at) { return widened(*(const StoredAnywhere*)at); }
INLINE void store_population(Stored* at, Vector value) { *(StoredAnywhere*)at = narrowed(value); }

#endif

#ifndef AT_ONCE
#define AT_ONCE 1
#define UNIT SEGMENT
#endif
// Vectors that a thread holds lie as far apart as possible in a unit: the threads of a warp then read
// consecutive sites.
constexpr int ITEMS = AT_ONCE * LANES, APART = UNIT / AT_ONCE;
// The site of item i, from the first one on.
INLINE constexpr int item_site(int i) { return AT_ONCE == 1 ? i : i / LANES * APART + i % LANES; }
