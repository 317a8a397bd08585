// Functions of the wavenumber that are no polynomials.
#pragma once
#include "portability.hpp"

// Return the value of such a function, 0 where it is not finite, or what it is at k = 0.
INLINE Real filtered(Real kx, Real ky, Real kz, Real value, Real at_zero) {
  const bool is_finite = value - value == 0;
  return kx == 0 && ky == 0 && kz == 0 ? at_zero : is_finite ? value : Real(0);
}
