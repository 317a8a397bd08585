// Incompressible Navier-Stokes equations, pseudospectral, in conservation form.
//
// The products T = (uu-ww, uv, uw, vv-ww, vw) come from physical space. One pass over the modes takes
// their divergence, removes the gradient part, and advances a Runge-Kutta substage.
#include "core.hpp"

template <int EXPONENT>
INLINE Real power(Real base) {
  Real result = 1;
  for (int i = 0; i < EXPONENT; ++i) result *= base;
  return result;
}

#ifdef NODE_END  // the constants of a substage are defined

// One Runge-Kutta substage. With d = exp(-viscosity k^2 step / divisions) from the tables,
//
//   N      = -P(i k . T) scale                   P: projection onto solenoidal fields
//   stage  = d^NODE_NEXT start + step a d^(NODE_NEXT - NODE) N
//   result = (total or d^NODE_END start) + step b d^(NODE_END - NODE) N
//
// T is laid out with all nz modes (a gap after `low`), everything else with the kept ones. Of
// `stage` and `result` those that WRITES_STAGE and WRITES_RESULT name are stored. Without an
// integrating factor d is 1, and N contains -viscosity k^2 `current`.
KERNEL advance_substage(const Complex* RESTRICT products, const Complex* start,
                        const Complex* current, const Complex* total, Complex* stage,
                        Complex* result, const Real* RESTRICT parameters,
                        const Real* RESTRICT wavenumbers, Index nz, Index ny, Index nx, Index row_size,
                        Index low, Index gap, Index product_field, Index state_field, Index plane,
                        Index first_y, Index all_y, double a, double b, double scale,
                        double viscosity) {
  const Real* RESTRICT kx_table = wavenumbers;
  const Real* RESTRICT ky_table = wavenumbers + nx + first_y;
  const Real* RESTRICT kz_table = wavenumbers + nx + all_y;
  const Real* RESTRICT decay_x = parameters + 1;
  const Real* RESTRICT decay_y = decay_x + nx + first_y;
  const Real* RESTRICT decay_z = decay_x + nx + all_y;
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny;
    const Real step_a = parameters[0] * Real(a), step_b = parameters[0] * Real(b);
    const Real kz = kz_table[z], ky = ky_table[y], decay_row = decay_z[z] * decay_y[y];
    const Complex* RESTRICT t = products + (z < low ? z : z + gap) * plane + y * row_size;
    const Index at = z * plane + y * row_size;
    FOR_COLUMNS(c, nx) {
      const Real kx = kx_table[c];
      const Complex txx = t[c], txy = t[c + product_field], txz = t[c + 2 * product_field];
      const Complex tyy = t[c + 3 * product_field], tyz = t[c + 4 * product_field];
      const Complex fx = kx * txx + ky * txy + kz * txz;
      const Complex fy = kx * txy + ky * tyy + kz * tyz;
      const Complex fz = kx * txz + ky * tyz;
      const Real k2 = kx * kx + ky * ky + kz * kz;
      const Real over_k2 = k2 > 0 ? 1 / k2 : 0;
      const Complex pressure = over_k2 * (kx * fx + ky * fy + kz * fz);
      const Complex force[3] = {fx - kx * pressure, fy - ky * pressure, fz - kz * pressure};
      const Real decay = decay_row * decay_x[c];
      UNROLL for (int i = 0; i < 3; ++i) {
        const Index here = at + c + i * state_field;
        // -i (re + i im) = im - i re
        Complex n = Real(scale) * Complex{force[i].im, -force[i].re};
        if (!INTEGRATING_FACTOR) n = n - Real(viscosity) * k2 * current[here];
        const Complex origin = start[here];
        if (WRITES_STAGE)
          stage[here] = power<NODE_NEXT>(decay) * origin +
                        step_a * power<NODE_NEXT - NODE>(decay) * n;
        if (WRITES_RESULT)
          result[here] = (READS_TOTAL ? total[here] : power<NODE_END>(decay) * origin) +
                         step_b * power<NODE_END - NODE>(decay) * n;
      }
    }
  }
}

#endif

// Sums over each row of modes, both signs of kx counted: kinetic energy, enstrophy, helicity and
// squared divergence. sums[row][4].
KERNEL flow_sums(const Complex* RESTRICT u, const Real* RESTRICT wavenumbers,
                 double* RESTRICT sums, Index nz, Index ny, Index nx, Index row_size,
                 Index field) {
  FOR_ROWS(row, nz * ny) {
    const double kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    const Complex* RESTRICT p = u + row * row_size;
    double energy = 0, enstrophy = 0, helicity = 0, divergence = 0;
    FOR_COLUMNS_SUM(c, nx, energy, enstrophy, helicity, divergence) {
      const double kx = wavenumbers[c], k2 = kx * kx + ky * ky + kz * kz;
      const double weight = c == 0 ? 1 : 2;
      const double xr = p[c].re, xi = p[c].im, yr = p[c + field].re, yi = p[c + field].im;
      const double zr = p[c + 2 * field].re, zi = p[c + 2 * field].im;
      const double square = xr * xr + xi * xi + yr * yr + yi * yi + zr * zr + zi * zi;
      const double dr = kx * xr + ky * yr + kz * zr, di = kx * xi + ky * yi + kz * zi;
      // u* . (i k x u) = 2 k . (Re u x Im u), up to the sign that i brings
      const double twist = kx * (yr * zi - yi * zr) + ky * (zr * xi - zi * xr) +
                           kz * (xr * yi - xi * yr);
      energy += weight * 0.5 * square;
      enstrophy += weight * 0.5 * (k2 * square - (dr * dr + di * di));
      helicity += weight * 2 * twist;
      divergence += weight * (dr * dr + di * di);
    }
    energy = row_sum(energy);
    enstrophy = row_sum(enstrophy);
    helicity = row_sum(helicity);
    divergence = row_sum(divergence);
    if (FIRST_COLUMN) {
      sums[4 * row] = energy;
      sums[4 * row + 1] = enstrophy;
      sums[4 * row + 2] = helicity;
      sums[4 * row + 3] = divergence;
    }
  }
}

// Vorticity i k x u.
KERNEL curl(const Complex* RESTRICT u, Complex* RESTRICT omega, const Real* RESTRICT wavenumbers,
            Index nz, Index ny, Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    const Complex* RESTRICT p = u + row * row_size;
    Complex* RESTRICT q = omega + row * row_size;
    FOR_COLUMNS(c, nx) {
      const Real kx = wavenumbers[c];
      const Complex x = p[c], y = p[c + field], z = p[c + 2 * field];
      q[c] = times_i(ky * z - kz * y);
      q[c + field] = times_i(kz * x - kx * z);
      q[c + 2 * field] = times_i(kx * y - ky * x);
    }
  }
}
