// Sums over modes for the energy budget.
//
// MODEL_HEADER as for runge_kutta_substage.hpp.
#include "portability.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

// Sums over each row of modes, both signs of kx counted, of all components: their mean squares, and
// the rates at which these decay. sums[row][2][STATE].
KERNEL component_sums(const Complex* RESTRICT u, const Real* RESTRICT wavenumbers,
                      const double* RESTRICT parameters, double* RESTRICT sums, Index nz, Index ny,
                      Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real ky = wavenumbers[nx + row % ny], kz = wavenumbers[nx + ny + row / ny];
    for (int i = 0; i < STATE; ++i) {
      const Complex* RESTRICT p = u + row * row_size + i * field;
      double square = 0, lost = 0;
      FOR_COLUMNS_SUM(c, nx, square, lost) {
        Real rate[STATE];
        decay_rates(wavenumbers[c], ky, kz, parameters, rate);
        const double re = p[c].re, im = p[c].im, own = (c == 0 ? 1 : 2) * (re * re + im * im);
        square += own;
        lost += 2 * double(rate[i]) * own;
      }
      square = row_sum(square);
      lost = row_sum(lost);
      if (FIRST_COLUMN) {
        sums[2 * STATE * row + i] = square;
        sums[2 * STATE * row + STATE + i] = lost;
      }
    }
  }
}

#endif

// Sums over each row of modes, both signs of kx counted: kinetic energy, enstrophy, helicity and
// squared divergence. sums[row][4].
KERNEL vector_sums(const Complex* RESTRICT u, const Real* RESTRICT wavenumbers,
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
