// The integrating factor exp(-rate duration) of modes; each mode decays at its own rate.
//
// The factor less one is stored, multiplied and applied. Most factors are so near to one that single
// precision would round them to a few digits of the rate, the same way in every step.
//
// MODEL_HEADER defines, for the model,
//   STATE                                            number of components
//   DECAYS, DECAY_OF[STATE], SEPARABLE               different decays; which is whose
//   decay_rates(kx, ky, kz, parameters, rate)        of the state, diagonal
//
// There are factors along x, y and z, to be multiplied, if SEPARABLE, else one per mode.
#pragma once
#include "portability.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

// Return (1 + a) (1 + b) - 1.
INLINE Real product_less_one(Real a, Real b) { return fma(a, b, a + b); }

// Return (1 + a)^EXPONENT - 1.
template <int EXPONENT>
INLINE Real power_less_one(Real a) {
  Real result = 0;
  UNROLL for (int i = 0; i < EXPONENT; ++i) result = i ? product_less_one(result, a) : a;
  return result;
}

// Return exp(x) - 1, to an error of about a rounding. A CPU computes it in all SIMD lanes of a loop; a library's
// function would keep the whole loop from being one of vectors.
INLINE double exp_less_one(double x) {
#ifdef SLIPSTREAM_GPU
  return expm1(x);
#else
  constexpr double terms[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                              1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2};
  x = x < -700 ? -700 : x > 700 ? 700 : x;
  // x = whole ln 2 + rest; the last bits of `rounded` are the whole number.
  constexpr double to_integers = 6755399441055744.0;  // 1.5 * 2^52
  const double rounded = fma(x, 1.4426950408889634, to_integers), whole = rounded - to_integers;
  const double rest = fma(whole, -2.3190468138462996e-17, fma(whole, -0.6931471805599453, x));
  double sum = terms[0];
  UNROLL for (int i = 1; i < 12; ++i) sum = fma(sum, rest, terms[i]);
  sum = fma(sum * rest, rest, rest);
  Index bits;
  __builtin_memcpy(&bits, &rounded, sizeof bits);
  bits = (bits + 1023) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return fma(power, sum, power - 1);
#endif
}

struct Modes {
  Index nz, nx, first_x, all_x, first_y, all_y, decay_field, decay_plane;
};

INLINE Real factor_less_one(const Real* RESTRICT decay, int which, Index z, Index y, Index c,
                            const Modes& modes) {
  if (SEPARABLE) {
    const Index all_z = modes.all_x + modes.all_y;
    const Real* RESTRICT own = decay + which * (all_z + modes.nz);
    return product_less_one(product_less_one(own[all_z + z], own[modes.all_x + modes.first_y + y]),
                            own[modes.first_x + c]);
  }
  return decay[which * modes.decay_field + z * modes.decay_plane + y * modes.nx + c];
}

// Factors that are not separable, of every mode.
KERNEL fill_integrating_factor(Real* RESTRICT decay, const Real* RESTRICT wavenumbers,
                               const double* RESTRICT parameters, Index nz, Index ny, Index nx,
                               double duration) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    FOR_COLUMNS_IN_TURN(c, nx) {
      Real rate[STATE];
      decay_rates(wavenumbers[c], ky, kz, parameters, rate);
      UNROLL for (int i = 0; i < STATE; ++i)
        decay[(DECAY_OF[i] * nz * ny + row) * nx + c] = Real(expm1(-double(rate[i]) * duration));
    }
  }
}

#endif
