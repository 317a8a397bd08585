// Dealiasing: the sphere of modes that are kept, and grids that are shifted by parts of a spacing.
#pragma once
#include "portability.hpp"

// `over` are one over the squares of the sphere's largest wavenumbers along x, y and z.
INLINE bool is_outside_sphere(Real kx, Real ky, Real kz, const double* RESTRICT over) {
  return kx * kx * over[0] + ky * ky * over[1] + kz * kz * over[2] >= 1;
}

// The factor of a mode on a shifted grid, of those along all x, y and z that number `grid` has.
INLINE Complex shift_phase(const Complex* RESTRICT phases, Index grid, Index x, Index y, Index z,
                           Index all_x, Index all_y, Index all_z) {
  phases += grid * (all_x + all_y + all_z);
  return phases[all_x + all_y + z] * phases[all_x + y] * phases[x];
}
