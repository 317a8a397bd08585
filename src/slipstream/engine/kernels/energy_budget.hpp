// Sums over modes for the energy budget.
//
// MODEL_HEADER as for runge_kutta_substage.hpp.
#include "portability.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

// Sums over each row of modes, both signs of kx counted, of all components: their mean squares, and the
// rates at which linear terms damp and drive these. sums[row][3][STATE].
KERNEL component_sums(const Complex* RESTRICT u, const Real* RESTRICT wavenumbers,
                      const double* RESTRICT parameters, double* RESTRICT sums, Index nz, Index ny,
                      Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real ky = wavenumbers[nx + row % ny], kz = wavenumbers[nx + ny + row / ny];
    const Real tilt = wavenumbers[nx + ny + nz];
    for (int i = 0; i < STATE; ++i) {
      const Complex* RESTRICT p = u + row * row_size + i * field;
      double square = 0, lost = 0, gained = 0;
      FOR_COLUMNS_SUM(c, nx, square, lost, gained) {
        Real damping[STATE], driving[STATE];
        const Real kx = wavenumbers[c];
        damping_and_driving(kx, ky - tilt * kx, kz, parameters, damping, driving);
        const double re = p[c].re, im = p[c].im, own = (wavenumbers[c] == 0 ? 1 : 2) * (re * re + im * im);
        square += own;
        lost += 2 * double(damping[i]) * own;
        gained += 2 * double(driving[i]) * own;
      }
      square = row_sum(square);
      lost = row_sum(lost);
      gained = row_sum(gained);
      if (FIRST_COLUMN) {
        sums[3 * STATE * row + i] = square;
        sums[3 * STATE * row + STATE + i] = lost;
        sums[3 * STATE * row + 2 * STATE + i] = gained;
      }
    }
  }
}

#endif

// Sums over each row of modes, both signs of kx counted, of a vector without its component `across` (3: of
// all): energy, enstrophy, helicity (of the vector and its curl), the helicity of its potential (of a vector
// whose curl it is, and the vector), squared divergence, palinstrophy, and of all but the mean the energy and
// the energy over the wavenumber. sums[row][8].
KERNEL vector_sums(const Complex* RESTRICT u, const Real* RESTRICT wavenumbers,
                   double* RESTRICT sums, Index nz, Index ny, Index nx, Index row_size,
                   Index field, Index across) {
  const double x_part = across != 0, y_part = across != 1, z_part = across != 2;
  FOR_ROWS(row, nz * ny) {
    const double kz = wavenumbers[nx + ny + row / ny], upright = wavenumbers[nx + row % ny];
    const double tilt = wavenumbers[nx + ny + nz];
    const Complex* RESTRICT p = u + row * row_size;
    double energy = 0, enstrophy = 0, helicity = 0, of_potential = 0, divergence = 0;
    double palinstrophy = 0, moving = 0, over_wavenumber = 0;
    FOR_COLUMNS_SUM(c, nx, energy, enstrophy, helicity, of_potential, divergence, palinstrophy, moving,
                    over_wavenumber) {
      const double kx = wavenumbers[c], ky = upright - tilt * kx, k2 = kx * kx + ky * ky + kz * kz;
      const double weight = kx == 0 ? 1 : 2;
      const double xr = x_part * p[c].re, xi = x_part * p[c].im;
      const double yr = y_part * p[c + field].re, yi = y_part * p[c + field].im;
      const double zr = z_part * p[c + 2 * field].re, zi = z_part * p[c + 2 * field].im;
      const double square = xr * xr + xi * xi + yr * yr + yi * yi + zr * zr + zi * zi;
      const double dr = kx * xr + ky * yr + kz * zr, di = kx * xi + ky * yi + kz * zi;
      // u* . (i k x u) = 2 k . (Re u x Im u), up to the sign that i brings
      const double twist = kx * (yr * zi - yi * zr) + ky * (zr * xi - zi * xr) +
                           kz * (xr * yi - xi * yr);
      const double own = k2 > 0 ? weight * 0.5 * square : 0;
      energy += weight * 0.5 * square;
      enstrophy += weight * 0.5 * (k2 * square - (dr * dr + di * di));
      helicity += weight * 2 * twist;
      of_potential += weight * 2 * twist / (k2 > 0 ? k2 : 1);
      divergence += weight * (dr * dr + di * di);
      palinstrophy += weight * 0.5 * k2 * (k2 * square - (dr * dr + di * di));
      moving += own;
      over_wavenumber += own / sqrt(k2 > 0 ? k2 : 1);
    }
    energy = row_sum(energy);
    enstrophy = row_sum(enstrophy);
    helicity = row_sum(helicity);
    of_potential = row_sum(of_potential);
    divergence = row_sum(divergence);
    palinstrophy = row_sum(palinstrophy);
    moving = row_sum(moving);
    over_wavenumber = row_sum(over_wavenumber);
    if (FIRST_COLUMN) {
      sums[8 * row] = energy;
      sums[8 * row + 1] = enstrophy;
      sums[8 * row + 2] = helicity;
      sums[8 * row + 3] = of_potential;
      sums[8 * row + 4] = divergence;
      sums[8 * row + 5] = palinstrophy;
      sums[8 * row + 6] = moving;
      sums[8 * row + 7] = over_wavenumber;
    }
  }
}
