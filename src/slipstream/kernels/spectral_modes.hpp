// What the equations of any model do to a mode.
#pragma once
#include "portability.hpp"

template <int EXPONENT>
INLINE Real power(Real base) {
  Real result = 1;
  UNROLL for (int i = 0; i < EXPONENT; ++i) result *= base;
  return result;
}

// Take away the part of a vector that is a gradient: what the pressure balances.
INLINE void remove_gradient(Complex* vector, Real kx, Real ky, Real kz) {
  const Real k2 = kx * kx + ky * ky + kz * kz;
  const Real over_k2 = k2 > 0 ? 1 / k2 : 0;
  const Complex along = over_k2 * (kx * vector[0] + ky * vector[1] + kz * vector[2]);
  vector[0] = vector[0] - kx * along;
  vector[1] = vector[1] - ky * along;
  vector[2] = vector[2] - kz * along;
}
