// The velocity set of the lattice: what its table, written by `lattice/velocity_set.py`, has of it.
//
// The table has DIRECTIONS, the velocities CX, CY and CZ, weight(q), and what follows from which velocities
// share a row of the lattice: ROW_START, ROW_PLACE, row_size(q), ROW_OF and ROW_MIDDLE. Direction 0 rests; 2k - 1
// and 2k are opposite, and the first of such a pair never moves backwards along x.
// Constants: VELOCITY_SET, the table's name.
#pragma once
#include "simd_vectors.hpp"
#include VELOCITY_SET

INLINE constexpr int opposite(int q) { return q ? ((q - 1) ^ 1) + 1 : 0; }

// The component of a vector along the velocity of a direction.
template <class V>
INLINE V along(int q, V x, V y, V z) {
  V sum = {};
  if (CX[q]) sum = CX[q] > 0 ? sum + x : sum - x;
  if (CY[q]) sum = CY[q] > 0 ? sum + y : sum - y;
  if (CZ[q]) sum = CZ[q] > 0 ? sum + z : sum - z;
  return sum;
}
