// Propagators: functions of the matrix of a mode's linear terms, which integrate these exactly, or implicitly.
//
// MODEL_HEADER defines, for the model,
//   STATE                                            number of components
//   COUPLED, ROW_OF[COUPLED], COLUMN_OF[COUPLED]     the entries of propagators that are not 0
//   linear_matrix(kx, ky, kz, parameters, matrix)    of rows of STATE, decay included
//
// With A = matrix * duration, phi_0 = exp(A), and phi_k = (phi_(k-1) - 1 / (k-1)!) / A. Where A is small,
// that would lose all digits, so they are summed as Taylor series of A / 2^n, and doubled n times:
//   2^k phi_k(2 A) = phi_0(A) phi_k(A) + sum over j from 1 to k of phi_j(A) / (k - j)!
#pragma once
#include "portability.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

struct DoubleComplex {
  double re, im;
};

struct Propagator {
  DoubleComplex entry[STATE][STATE];
};

INLINE void add_multiple(Propagator& sum, double factor, const Propagator& other) {
  for (int i = 0; i < STATE; ++i)
    for (int j = 0; j < STATE; ++j) {
      sum.entry[i][j].re += factor * other.entry[i][j].re;
      sum.entry[i][j].im += factor * other.entry[i][j].im;
    }
}

INLINE void set_identity(Propagator& matrix, double factor) {
  for (int i = 0; i < STATE; ++i)
    for (int j = 0; j < STATE; ++j) matrix.entry[i][j] = {i == j ? factor : 0.0, 0.0};
}

INLINE DoubleComplex times(DoubleComplex a, DoubleComplex b) {
  return {ROUNDED(a.re * b.re) - ROUNDED(a.im * b.im), ROUNDED(a.re * b.im) + ROUNDED(a.im * b.re)};
}

INLINE void multiply(const Propagator& a, const Propagator& b, Propagator& product) {
  for (int i = 0; i < STATE; ++i)
    for (int j = 0; j < STATE; ++j) {
      double re = 0, im = 0;
      for (int m = 0; m < STATE; ++m) {
        const DoubleComplex term = times(a.entry[i][m], b.entry[m][j]);
        re += term.re;
        im += term.im;
      }
      product.entry[i][j] = {re, im};
    }
}

constexpr int PHIS = 4;

// Set the inverse of a matrix, which is overwritten, by Gauss' and Jordan's elimination.
INLINE void invert(Propagator& a, Propagator& inverse) {
  set_identity(inverse, 1);
  for (int column = 0; column < STATE; ++column) {
    int pivot = column;
    double most = -1;
    for (int i = column; i < STATE; ++i) {
      const DoubleComplex own = a.entry[i][column];
      const double size = own.re * own.re + own.im * own.im;
      if (size > most) most = size, pivot = i;
    }
    const DoubleComplex large = a.entry[pivot][column], over = {large.re / most, -large.im / most};
    for (int j = 0; j < STATE; ++j) {
      const DoubleComplex left = a.entry[pivot][j], right = inverse.entry[pivot][j];
      a.entry[pivot][j] = a.entry[column][j];
      inverse.entry[pivot][j] = inverse.entry[column][j];
      a.entry[column][j] = times(over, left);
      inverse.entry[column][j] = times(over, right);
    }
    for (int i = 0; i < STATE; ++i) {
      if (i == column) continue;
      const DoubleComplex factor = a.entry[i][column];
      for (int j = 0; j < STATE; ++j) {
        const DoubleComplex left = times(factor, a.entry[column][j]);
        const DoubleComplex right = times(factor, inverse.entry[column][j]);
        a.entry[i][j] = {a.entry[i][j].re - left.re, a.entry[i][j].im - left.im};
        inverse.entry[i][j] = {inverse.entry[i][j].re - right.re, inverse.entry[i][j].im - right.im};
      }
    }
  }
}

// Set the powers 0 to 3 of 1 / (1 - a).
INLINE void resolvent_powers(const Propagator& a, Propagator (&powers)[PHIS]) {
  Propagator difference;
  set_identity(difference, 1);
  add_multiple(difference, -1, a);
  set_identity(powers[0], 1);
  invert(difference, powers[1]);
  multiply(powers[1], powers[1], powers[2]);
  multiply(powers[2], powers[1], powers[3]);
}

// Set phi[0 ... 3] of a matrix.
INLINE void phi_functions(Propagator a, Propagator (&phi)[PHIS]) {
  double norm = 0;
  for (int i = 0; i < STATE; ++i) {
    double row = 0;
    for (int j = 0; j < STATE; ++j) row += fabs(a.entry[i][j].re) + fabs(a.entry[i][j].im);
    norm = row > norm ? row : norm;
  }
  int doublings = 0;
  double scale = 1;
  while (norm * scale > 0.5 && doublings < 60) {
    scale *= 0.5;
    ++doublings;
  }
  Propagator scaled, next;
  set_identity(scaled, 0);
  add_multiple(scaled, scale, a);
  // phi_3 = sum of A^n / (n + 3)!, by Horner's rule; 0.5^16 / 16! is below the round-off.
  constexpr double inverse_factorial[] = {1.0, 1.0, 0.5};
  set_identity(phi[3], 1);
  for (int n = 16; n > 0; --n) {
    multiply(scaled, phi[3], next);
    set_identity(phi[3], 1);
    add_multiple(phi[3], 1.0 / (n + 3), next);
  }
  Propagator sum;
  set_identity(sum, 0);
  add_multiple(sum, 1.0 / 6, phi[3]);
  phi[3] = sum;
  for (int k = 2; k >= 0; --k) {
    multiply(scaled, phi[k + 1], phi[k]);
    set_identity(sum, inverse_factorial[k]);
    add_multiple(phi[k], 1, sum);
  }
  for (int step = 0; step < doublings; ++step)
    for (int k = PHIS - 1; k >= 0; --k) {
      multiply(phi[0], phi[k], next);
      for (int j = 1; j <= k; ++j) add_multiple(next, k - j > 1 ? 0.5 : 1.0, phi[j]);
      set_identity(phi[k], 0);
      add_multiple(phi[k], 1.0 / (1 << k), next);
    }
}

// Set, or with ADDS add to, the entries of one propagator: weights times phi_0 ... phi_3 of a duration, or,
// if linear terms are IMPLICIT, times the powers 0 to 3 of the resolvent.
KERNEL fill_propagator(Complex* RESTRICT entries, const Real* RESTRICT wavenumbers,
                       const double* RESTRICT parameters, Index nz, Index ny, Index nx,
                       Index row_size, Index field, double duration, double weight_0,
                       double weight_1, double weight_2, double weight_3) {
  FOR_ROWS(row, nz * ny) {
    const Real kz = wavenumbers[nx + ny + row / ny], ky = wavenumbers[nx + row % ny];
    FOR_COLUMNS_IN_TURN(c, nx) {
      Complex matrix[STATE * STATE];
      linear_matrix(wavenumbers[c], ky, kz, parameters, matrix);
      Propagator a, phi[PHIS], sum;
      for (int i = 0; i < STATE; ++i)
        for (int j = 0; j < STATE; ++j) {
          const Complex own = matrix[i * STATE + j];
          a.entry[i][j] = {duration * double(own.re), duration * double(own.im)};
        }
      if (IMPLICIT) {
        resolvent_powers(a, phi);
      } else {
        phi_functions(a, phi);
      }
      set_identity(sum, 0);
      add_multiple(sum, weight_0, phi[0]);
      add_multiple(sum, weight_1, phi[1]);
      add_multiple(sum, weight_2, phi[2]);
      add_multiple(sum, weight_3, phi[3]);
      for (int e = 0; e < COUPLED; ++e) {
        const DoubleComplex own = sum.entry[ROW_OF[e]][COLUMN_OF[e]];
        Complex& target = entries[row * row_size + c + e * field];
        const Complex before = ADDS ? target : Complex{0, 0};
        target = {before.re + Real(own.re), before.im + Real(own.im)};
      }
    }
  }
}

#endif
