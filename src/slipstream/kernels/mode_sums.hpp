// Sums over modes, and the curl: what diagnostics are made of.
//
// MODEL_HEADER as for spectral_substage.hpp.
#include "spectral_modes.hpp"
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

#ifdef ADDS  // the constants of product_rates are defined

// What products alone add to the rates of modes: no linear terms, decay or forcing, and nothing that is
// the same at all points. ADDS adds it to what is in `result`. SPHERE, and what is SHIFTED, as in
// spectral_substage.hpp; so are the products' and the other arrays' layouts.
KERNEL product_rates(const Complex* RESTRICT products, Complex* RESTRICT result,
                     const Real* RESTRICT wavenumbers, const Complex* RESTRICT phases,
                     const double* RESTRICT parameters, Index nz, Index ny, Index nx,
                     Index row_size, Index low, Index gap, Index product_field, Index field,
                     Index plane, Index first_y, Index all_y, double scale) {
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny, at = z * plane + y * row_size;
    const Real kz = wavenumbers[nx + all_y + z], ky = wavenumbers[nx + first_y + y];
    const Complex* RESTRICT t = products + (z < low ? z : z + gap) * plane + y * row_size;
    FOR_COLUMNS(c, nx) {
      const Real kx = wavenumbers[c];
      Complex product[PRODUCTS], rest[PRODUCTS], now[STATE], rate[STATE], steady[STATE];
      Complex phase = {1, 0};
      if (SHIFTED) phase = phases[nx + all_y + z] * phases[nx + first_y + y] * phases[c];
      UNROLL for (int i = 0; i < PRODUCTS; ++i) {
        product[i] = Real(scale) * (conjugate(phase) * t[c + i * product_field]);
        rest[i] = {0, 0};
      }
      UNROLL for (int i = 0; i < STATE; ++i) now[i] = {0, 0};
      rates(product, now, kx, ky, kz, parameters, rate);
      rates(rest, now, kx, ky, kz, parameters, steady);
      bool outside = false;
      if (SPHERE >= 0) {
        const double* RESTRICT over = parameters + (SPHERE >= 0 ? SPHERE : 0);
        outside = kx * kx * over[0] + ky * ky * over[1] + kz * kz * over[2] >= 1;
      }
      UNROLL for (int i = 0; i < STATE; ++i) {
        const Index here = at + c + i * field;
        const Complex own = Real(!outside) * (rate[i] - steady[i]);
        result[here] = ADDS ? result[here] + own : own;
      }
    }
  }
}

#endif

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

// Take away the gradient part of a vector.
KERNEL make_solenoidal(Complex* RESTRICT u, const Real* RESTRICT wavenumbers, Index nz, Index ny,
                       Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    Complex* RESTRICT p = u + row * row_size;
    FOR_COLUMNS(c, nx) {
      Complex vector[3] = {p[c], p[c + field], p[c + 2 * field]};
      remove_gradient(vector, wavenumbers[c], ky, kz);
      UNROLL for (int i = 0; i < 3; ++i) p[c + i * field] = vector[i];
    }
  }
}
