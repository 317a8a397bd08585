// Sums over bins of modes.
//
// BIN is the number of a mode's bin, of its wavenumbers x, y and z and of the numbers a, b and c.
#include "portability.hpp"

// Sums over the modes of each row, by bin, of the real part of conj(first) . second, both signs of kx
// counted: sums[row][bins], zero before. A row is one thread's, so that the order of additions, and
// the result, is the same in every run. The distances between fields, planes and rows are in modes.
KERNEL binned_rows(const Complex* RESTRICT first, const Complex* RESTRICT second,
                   const double* RESTRICT wave_z, const double* RESTRICT wave_y,
                   const double* RESTRICT wave_x, double* RESTRICT sums, Index bins, Index fields,
                   Index nz, Index ny, Index nx, Index first_field, Index first_plane,
                   Index first_row, Index second_field, Index second_plane, Index second_row,
                   double a, double b, double c, double tilt) {
  FOR_ROWS(plane, nz) {
    FOR_COLUMNS_IN_TURN(line, ny) {
      const double z = wave_z[plane], upright = wave_y[line];
      const Complex* RESTRICT p = first + plane * first_plane + line * first_row;
      const Complex* RESTRICT q = second + plane * second_plane + line * second_row;
      double* RESTRICT own = sums + (plane * ny + line) * bins;
      // The sum of a bin stays in a register while the modes are of the same one.
      Index bin = -1;
      double total = 0;
      for (Index i = 0; i < nx; ++i) {
        const double x = wave_x[i], y = upright - tilt * x;
        double sum = 0;
        for (Index f = 0; f < fields; ++f) {
          const Complex one = p[f * first_field + i], other = q[f * second_field + i];
          sum += double(one.re) * other.re;
          sum += double(one.im) * other.im;
        }
        const Index next = Index(BIN);
        if (next != bin) {
          if (bin >= 0) own[bin] = total;
          total = own[next];
          bin = next;
        }
        total += (x == 0 ? 1 : 2) * sum;
      }
      if (bin >= 0) own[bin] = total;
    }
  }
}
