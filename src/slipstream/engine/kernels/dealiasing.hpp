// Dealiasing: the sphere of modes that are kept, and grids that are shifted by half a spacing.
#pragma once
#include "portability.hpp"

// `over` are one over the squares of the sphere's largest wavenumbers along x, y and z.
INLINE bool is_outside_sphere(Real kx, Real ky, Real kz, const double* RESTRICT over) {
  return kx * kx * over[0] + ky * ky * over[1] + kz * kz * over[2] >= 1;
}

// The factor of a mode on the shifted grid, of those along x, all y and z.
INLINE Complex shift_phase(const Complex* RESTRICT phases, Index x, Index y, Index z, Index all_x,
                           Index all_y) {
  return phases[all_x + all_y + z] * phases[all_x + y] * phases[x];
}
