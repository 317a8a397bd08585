// Complex numbers of double precision, narrowed for their way between ranks and widened again.
//
// Constant: NARROW, one of the two types below. Either holds one complex number in one element, so
// that counts and offsets are the same in wide and narrow arrays.
#include "portability.hpp"

// A union, as both compilers take it for what it says; they know no common name for a cast of bits.
union Float {
  float value;
  unsigned bits;
};

// The upper half of a float's bits, rounded to nearest, ties to even. Rounding could carry the bits
// of not-a-number over into those of infinity or zero, so it becomes a quiet one instead.
INLINE unsigned upper_half(float value) {
  Float number;
  number.value = value;
  const unsigned bits = number.bits, upper = bits >> 16;
  const bool is_number = (bits & 0x7fffffffu) <= 0x7f800000u;
  return is_number ? (bits + 0x7fffu + (upper & 1u)) >> 16 : upper | 0x40u;
}

INLINE float from_upper_half(unsigned upper) {
  Float number;
  number.bits = upper << 16;
  return number.value;
}

struct alignas(8) Float32 {
  float re, im;
  INLINE void narrow(Complex z) { re = float(z.re), im = float(z.im); }
  INLINE Complex wide() const { return {Real(re), Real(im)}; }
};

struct Bfloat16 {
  unsigned halves;  // the real part below the imaginary one
  INLINE void narrow(Complex z) {
    halves = upper_half(float(z.re)) | upper_half(float(z.im)) << 16;
  }
  INLINE Complex wide() const {
    return {Real(from_upper_half(halves)), Real(from_upper_half(halves >> 16))};
  }
};

// places[row] has the first element of a row and their number. sums[row] receives the squares of
// what narrowing takes from the row, and of the row itself, and its absolute values, which are still
// there where all squares are too small for a number.
KERNEL narrow_rows(const Complex* RESTRICT wide, NARROW* RESTRICT narrow, double* RESTRICT sums,
                   const long long* RESTRICT places, Index rows) {
  FOR_ROWS(row, rows) {
    const Index first = places[2 * row], length = places[2 * row + 1];
    const Complex* RESTRICT from = wide + first;
    NARROW* RESTRICT to = narrow + first;
    double error = 0, size = 0, absolute = 0;
    FOR_COLUMNS_SUM(c, length, error, size, absolute) {
      NARROW kept;
      kept.narrow(from[c]);
      to[c] = kept;
      const Complex lost = from[c] - kept.wide();
      error += lost.re * lost.re + lost.im * lost.im;
      size += from[c].re * from[c].re + from[c].im * from[c].im;
      absolute += fabs(from[c].re) + fabs(from[c].im);
    }
    error = row_sum(error);
    size = row_sum(size);
    absolute = row_sum(absolute);
    if (FIRST_COLUMN) {
      sums[3 * row] = error;
      sums[3 * row + 1] = size;
      sums[3 * row + 2] = absolute;
    }
  }
}

KERNEL widen_rows(const NARROW* RESTRICT narrow, Complex* RESTRICT wide,
                  const long long* RESTRICT places, Index rows) {
  FOR_ROWS(row, rows) {
    const Index first = places[2 * row], length = places[2 * row + 1];
    const NARROW* RESTRICT from = narrow + first;
    Complex* RESTRICT to = wide + first;
    FOR_COLUMNS(c, length) to[c] = from[c].wide();
  }
}
