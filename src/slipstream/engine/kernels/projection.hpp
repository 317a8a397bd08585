// The projection of a vector on solenoidal ones.
#pragma once
#include "portability.hpp"

// Take away the part of a vector that is a gradient: what the pressure balances.
INLINE void remove_gradient(Complex* vector, Real kx, Real ky, Real kz) {
  const Real k2 = kx * kx + ky * ky + kz * kz;
  const Real over_k2 = k2 > 0 ? 1 / k2 : 0;
  const Complex along = over_k2 * (kx * vector[0] + ky * vector[1] + kz * vector[2]);
  vector[0] = vector[0] - kx * along;
  vector[1] = vector[1] - ky * along;
  vector[2] = vector[2] - kz * along;
}

// Add to the rate of a vector what keeps it solenoidal while `shear` turns its wavevector, whose y component
// changes at the rate -shear kx: k . dv/dt = shear kx v_y.
INLINE void turn_with_shear(Complex* rate, Complex along_y, Real shear, Real kx, Real ky, Real kz) {
  const Real k2 = kx * kx + ky * ky + kz * kz;
  const Real over_k2 = k2 > 0 ? 1 / k2 : 0;
  const Complex along = (shear * kx * over_k2) * along_y;
  rate[0] = rate[0] + kx * along;
  rate[1] = rate[1] + ky * along;
  rate[2] = rate[2] + kz * along;
}

// The same for a field.
KERNEL make_solenoidal(Complex* RESTRICT u, const Real* RESTRICT wavenumbers, Index nz, Index ny,
                       Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    const Real tilt = wavenumbers[nx + ny + nz];
    Complex* RESTRICT p = u + row * row_size;
    FOR_COLUMNS(c, nx) {
      Complex vector[3] = {p[c], p[c + field], p[c + 2 * field]};
      remove_gradient(vector, wavenumbers[c], ky - tilt * wavenumbers[c], kz);
      UNROLL for (int i = 0; i < 3; ++i) p[c + i * field] = vector[i];
    }
  }
}
