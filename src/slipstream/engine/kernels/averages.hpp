// Means over the box of products of two quantities, from their modes.
//
// MODEL_HEADER as for runge_kutta_substage.hpp; its `rates` are here the quantities.
#include "dealiasing.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

#ifdef ROWS  // the constants of sums_of_products are defined

// Sums over each row of modes, both signs of kx counted, of Re(conj(a) b): sums[row][AVERAGES]. There are ROWS
// quantities. Product number p, of the quantities FIRST[p] and SECOND[p], counts TIMES[p] times in average OF[p].
// SPHERE and the layouts as in runge_kutta_substage.hpp.
KERNEL sums_of_products(const Complex* RESTRICT products, const Complex* RESTRICT state,
                        const Real* RESTRICT wavenumbers, const double* RESTRICT parameters, double* RESTRICT sums,
                        Index nz, Index ny, Index nx, Index row_size, Index low, Index gap, Index product_field,
                        Index product_plane, Index product_row, Index field, Index plane, Index first_x, Index all_x,
                        Index first_y, Index all_y, double scale) {
  constexpr int first[] = FIRST, second[] = SECOND, times[] = TIMES, of[] = OF;
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny, at = z * plane + y * row_size;
    const Real kz = wavenumbers[all_x + all_y + z], ky = wavenumbers[all_x + first_y + y];
    const Complex* RESTRICT t = products + (z < low ? z : z + gap) * product_plane + y * product_row;
    for (int average = 0; average < AVERAGES; ++average) {
      double sum = 0;
      FOR_COLUMNS_SUM(c, nx, sum) {
        const Real kx = wavenumbers[first_x + c];
        Complex product[PRODUCTS], now[STATE], own[ROWS];
        UNROLL for (int i = 0; i < PRODUCTS; ++i)
          product[i] = HAS_PRODUCTS ? Real(scale) * t[c + i * product_field] : Complex{0, 0};
        UNROLL for (int i = 0; i < STATE; ++i) now[i] = state[at + c + i * field];
        rates(product, now, kx, ky, kz, parameters, own);
        bool outside = false;
        if (SPHERE >= 0) outside = is_outside_sphere(kx, ky, kz, parameters + (SPHERE >= 0 ? SPHERE : 0));
        double here = 0;
        UNROLL for (int p = 0; p < PAIRS; ++p) {
          const Complex a = own[first[p]], b = own[second[p]];
          here += (of[p] == average ? times[p] : 0) * (double(a.re) * b.re + double(a.im) * b.im);
        }
        sum += outside ? 0.0 : (kx == 0 ? 1 : 2) * here;
      }
      sum = row_sum(sum);
      if (FIRST_COLUMN) sums[(z * all_y + first_y + y) * AVERAGES + average] = sum;
    }
  }
}

#endif

#endif
