// The nonlinear term: the fields that it needs in physical space, and what products add to rates.
//
// MODEL_HEADER as for runge_kutta_substage.hpp.
#include "dealiasing.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

#ifdef GRID  // the constant of take_inputs is defined

// Write the fields that go to physical space at the start of a step, there to the points of GRID: see
// GRID_NEXT of runge_kutta_substage.hpp.
KERNEL take_inputs(const Complex* RESTRICT state, Complex* RESTRICT inputs,
                   const Real* RESTRICT wavenumbers, const Complex* RESTRICT phases,
                   const double* RESTRICT parameters, Index nz, Index ny, Index nx, Index row_size,
                   Index field, Index plane, Index first_x, Index all_x, Index first_y,
                   Index all_y) {
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny, at = z * plane + y * row_size;
    const Real kz = wavenumbers[all_x + all_y + z], ky = wavenumbers[all_x + first_y + y];
    const Real tilt = wavenumbers[all_x + all_y + nz];
    FOR_COLUMNS(c, nx) {
      const Real kx = wavenumbers[first_x + c];
      Complex now[STATE], input[INPUTS];
      UNROLL for (int i = 0; i < STATE; ++i) now[i] = state[at + c + i * field];
      inputs_of(now, kx, ky - tilt * kx, kz, parameters, input);
      if (GRID >= 0) {
        const Complex phase =
            shift_phase(phases, GRID, first_x + c, first_y + y, z, all_x, all_y, nz);
        UNROLL for (int i = 0; i < INPUTS; ++i) input[i] = phase * input[i];
      }
      UNROLL for (int i = 0; i < INPUTS; ++i) inputs[at + c + i * field] = input[i];
    }
  }
}

#endif

#ifdef ADDS  // the constants of nonlinear_term are defined

// The rates of modes from products alone: no linear terms, decay or forcing, and no mean value. ADDS
// adds them to `result`. SHIFTED products belong to the first of the grids that `phases` shift. SPHERE and
// the layouts of the products and of the other arrays are as in runge_kutta_substage.hpp.
KERNEL nonlinear_term(const Complex* RESTRICT products, Complex* RESTRICT result,
                      const Real* RESTRICT wavenumbers, const Complex* RESTRICT phases,
                      const double* RESTRICT parameters, Index nz, Index ny, Index nx,
                      Index row_size, Index low, Index gap, Index product_field,
                      Index product_plane, Index product_row, Index field, Index plane,
                      Index first_x, Index all_x, Index first_y, Index all_y, double scale) {
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny, at = z * plane + y * row_size;
    const Real kz = wavenumbers[all_x + all_y + z], ky = wavenumbers[all_x + first_y + y];
    const Real tilt = wavenumbers[all_x + all_y + nz];
    const Complex* RESTRICT t =
        products + (z < low ? z : z + gap) * product_plane + y * product_row;
    FOR_COLUMNS(c, nx) {
      const Real kx = wavenumbers[first_x + c];
      Complex product[PRODUCTS], rest[PRODUCTS], now[STATE], rate[STATE], steady[STATE];
      Complex phase = {1, 0};
      if (SHIFTED) phase = shift_phase(phases, 0, first_x + c, first_y + y, z, all_x, all_y, nz);
      UNROLL for (int i = 0; i < PRODUCTS; ++i) {
        product[i] = Real(scale) * (conjugate(phase) * t[c + i * product_field]);
        rest[i] = {0, 0};
      }
      UNROLL for (int i = 0; i < STATE; ++i) now[i] = {0, 0};
      rates(product, now, kx, ky - tilt * kx, kz, parameters, rate);
      rates(rest, now, kx, ky - tilt * kx, kz, parameters, steady);
      bool outside = false;
      if (SPHERE >= 0) {
        const double* RESTRICT over = parameters + (SPHERE >= 0 ? SPHERE : 0);
        outside = is_outside_sphere(kx, ky, kz, over);
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
