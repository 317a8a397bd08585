// Which bin each mode falls into, and what it adds to it.
//
// BIN is the number of a mode's bin, of its wavenumbers x, y and z and of the numbers a, b and c.
#include "portability.hpp"

// The real part of conj(first) . second of every mode, both signs of kx counted, and its bin: [nz][ny][nx].
// Fields, planes and rows of modes are so many modes apart.
KERNEL binned_products(const Complex* RESTRICT first, const Complex* RESTRICT second,
                       const double* RESTRICT wave_z, const double* RESTRICT wave_y,
                       const double* RESTRICT wave_x, double* RESTRICT products,
                       Index* RESTRICT numbers, Index fields, Index nz, Index ny, Index nx,
                       Index first_field, Index first_plane, Index first_row, Index second_field,
                       Index second_plane, Index second_row, double a, double b, double c) {
  FOR_ROWS(row, nz * ny) {
    const Index plane = row / ny, line = row % ny;
    const double z = wave_z[plane], y = wave_y[line];
    const Complex* RESTRICT p = first + plane * first_plane + line * first_row;
    const Complex* RESTRICT q = second + plane * second_plane + line * second_row;
    FOR_COLUMNS(i, nx) {
      const double x = wave_x[i];
      double sum = 0;
      for (Index f = 0; f < fields; ++f) {
        const Complex one = p[f * first_field + i], other = q[f * second_field + i];
        sum += double(one.re) * other.re;
        sum += double(one.im) * other.im;
      }
      products[row * nx + i] = (x == 0 ? 1 : 2) * sum;
      numbers[row * nx + i] = Index(BIN);
    }
  }
}
