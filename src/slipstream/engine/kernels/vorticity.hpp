// The curl of a vector, mode by mode.
#include "portability.hpp"

// Vorticity i k x u.
KERNEL curl(const Complex* RESTRICT u, Complex* RESTRICT omega, const Real* RESTRICT wavenumbers,
            Index nz, Index ny, Index nx, Index row_size, Index field) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], upright = wavenumbers[nx + row % ny];
    const Real tilt = wavenumbers[nx + ny + nz];
    const Complex* RESTRICT p = u + row * row_size;
    Complex* RESTRICT q = omega + row * row_size;
    FOR_COLUMNS(c, nx) {
      const Real kx = wavenumbers[c], ky = upright - tilt * kx;
      const Complex x = p[c], y = p[c + field], z = p[c + 2 * field];
      q[c] = times_i(ky * z - kz * y);
      q[c + field] = times_i(kz * x - kx * z);
      q[c + 2 * field] = times_i(kx * y - ky * x);
    }
  }
}
