// Bodies in the box: penalisation at the points, and its way back to the modes.
#include "dealiasing.hpp"

#ifndef TAKES_MODES
// What `numbers` begin with: the time step, then by x, y and z the periods of the box, the spacings, and the place
// of the first points along z.
constexpr int STEP = 0, LENGTHS = 1, SPACINGS = 4, FIRST_Z = 7, HEADER = 8;
// The numbers of each body, in this order. BODY_SIZE is their count.
constexpr int KIND = 0, CENTER = 1, VELOCITY = 4, ROTATION = 7, AXES = 10, RADIUS = 19, HALF = 20, SMOOTHING = 23,
              MASK = 24, REACH = 25, PARTS = 28;  // the target of each field, and how fast it is reached

enum Kind { SPHERE_KIND = 0, CYLINDER_KIND = 1, BOX_KIND = 2, MASK_KIND = 3 };

INLINE double larger(double a, double b) { return a > b ? a : b; }

// The signed distance from the surface, negative inside, of a place in the body's own axes.
INLINE double distance_from(const double* RESTRICT body, double x, double y, double z) {
  const int kind = int(body[KIND]);
  if (kind == SPHERE_KIND) return sqrt(x * x + y * y + z * z) - body[RADIUS];
  const double dz = fabs(z) - body[HALF + 2];
  if (kind == CYLINDER_KIND) {
    const double dr = sqrt(x * x + y * y) - body[RADIUS], r = larger(dr, 0), h = larger(dz, 0);
    return sqrt(r * r + h * h) + (larger(dr, dz) < 0 ? larger(dr, dz) : 0);
  }
  const double dx = fabs(x) - body[HALF], dy = fabs(y) - body[HALF + 1], most = larger(dx, larger(dy, dz));
  const double a = larger(dx, 0), b = larger(dy, 0), c = larger(dz, 0);
  return sqrt(a * a + b * b + c * c) + (most < 0 ? most : 0);
}

// Take FIELDS fields at rows of points as far to what they are in the bodies as a time step does, exactly, one body
// after the other: f becomes F + (f - F) exp(-mask step / eta). The vector begins at field VECTOR. Rows count from
// (first_z, first_y), `rows_y` of them in a plane; `masks` are those of bodies that have no formula here.
// sums[row][body][FIELDS + 3] are what the fields lose to each body, and the torque of what the vector loses.
KERNEL penalise(Real* RESTRICT points, const double* RESTRICT numbers, const Real* RESTRICT masks,
                double* RESTRICT sums, Index rows, Index first_row, Index rows_y, Index nx, Index field,
                Index first_z, Index first_y, Index bodies) {
  FOR_ROWS(row, rows) {
    const double* RESTRICT lengths = numbers + LENGTHS;
    const double hx = numbers[SPACINGS], step = numbers[STEP];
    const double y = (first_y + (first_row + row) % rows_y) * numbers[SPACINGS + 1];
    const double z = (first_z + (first_row + row) / rows_y) * numbers[SPACINGS + 2] + numbers[FIRST_Z];
    for (Index number = 0; number < bodies; ++number) {
      const double* RESTRICT body = numbers + HEADER + number * BODY_SIZE;
      double* RESTRICT lost = sums + (row * bodies + number) * (FIELDS + 3);
      double gone[FIELDS], torque[3] = {0, 0, 0};
      for (int i = 0; i < FIELDS; ++i) gone[i] = 0;
      // Of periodic images the nearest; along an axis of one point there is no distance.
      double ry = y - body[CENTER + 1], rz = z - body[CENTER + 2];
      ry = lengths[1] > 0 ? ry - lengths[1] * rint(ry / lengths[1]) : 0;
      rz = lengths[2] > 0 ? rz - lengths[2] * rint(rz / lengths[2]) : 0;
      if (fabs(ry) < body[REACH + 1] && fabs(rz) < body[REACH + 2]) {
        const double width = body[SMOOTHING];
        FOR_COLUMNS_IN_TURN(c, nx) {
          double rx = c * hx - body[CENTER];
          rx = lengths[0] > 0 ? rx - lengths[0] * rint(rx / lengths[0]) : 0;
          if (!(fabs(rx) < body[REACH])) continue;
          double mask;
          Real* RESTRICT at = points + row * nx + c;
          if (int(body[KIND]) == MASK_KIND) {
            mask = masks[Index(body[MASK]) * field + row * nx + c];
          } else {
            const double* RESTRICT a = body + AXES;
            const double d = distance_from(body, a[0] * rx + a[1] * ry + a[2] * rz, a[3] * rx + a[4] * ry + a[5] * rz,
                                           a[6] * rx + a[7] * ry + a[8] * rz);
            if (!(d < REACHES * width)) continue;
            mask = 0.5 * (1 - tanh(2 * d / width));
          }
          if (!(mask > 0)) continue;
          const double* RESTRICT w = body + ROTATION;
          const double own[3] = {body[VELOCITY] + w[1] * rz - w[2] * ry, body[VELOCITY + 1] + w[2] * rx - w[0] * rz,
                                 body[VELOCITY + 2] + w[0] * ry - w[1] * rx};
          double less[FIELDS];
          UNROLL for (int i = 0; i < FIELDS; ++i) {
            const double target = i >= VECTOR && i < VECTOR + 3 ? own[i >= VECTOR && i < VECTOR + 3 ? i - VECTOR : 0]
                                                                : body[PARTS + 2 * i];
            const Real before = at[i * field];
            // Losses are computed from stored numbers, so the balance of momentum holds for these.
            const Real after = Real(before + (before - target) * expm1(-mask * step * body[PARTS + 2 * i + 1]));
            less[i] = double(before) - double(after);
            at[i * field] = after;
            gone[i] += less[i];
          }
          const double *p = less + VECTOR;
          torque[0] += ry * p[2] - rz * p[1];
          torque[1] += rz * p[0] - rx * p[2];
          torque[2] += rx * p[1] - ry * p[0];
        }
      }
      for (int i = 0; i < FIELDS + 3; ++i) {
        const double sum = row_sum(i < FIELDS ? gone[i < FIELDS ? i : 0] : torque[i < FIELDS ? 0 : i - FIELDS]);
        if (FIRST_COLUMN) lost[i] = sum;
      }
    }
  }
}

// Make masks of signed distances, or keep values between 0 and 1 as they are.
KERNEL masks_of_distances(Real* RESTRICT mask, Index rows, Index nx, double width) {
  FOR_ROWS(row, rows) {
    FOR_COLUMNS_IN_TURN(c, nx) {
      Real* RESTRICT m = mask + row * nx + c;
      *m = Real(0.5 * (1 - tanh(2 * double(*m) / width)));
    }
  }
}

#else

// Set the modes of FIELDS fields to the transforms of the points, less the gradient of the vector at VECTOR. Fields
// that are not TAKEN stay. Outside of the sphere of kept modes nothing is set. With HOLDS the mean of the vector
// becomes `means`, and the mean that it would have had goes to `held`. gains[z][y] is the gain of a row in energy,
// to which ACTIVE fields contribute. Between WALLS a row stands for the row at -kz too.
KERNEL take_penalised(const Complex* RESTRICT products, Complex* RESTRICT state, const Real* RESTRICT wavenumbers,
                      const double* RESTRICT parameters, const double* RESTRICT means, double* RESTRICT held,
                      double* RESTRICT gains, Index nz, Index ny, Index nx, Index row_size, Index low, Index gap,
                      Index product_field, Index product_plane, Index product_row, Index state_field, Index plane,
                      Index first_x, Index all_x, Index first_y, Index all_y, double scale) {
  constexpr bool taken[] = TAKEN, active[] = ACTIVE;
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny, at = z * plane + y * row_size;
    const Real kz = wavenumbers[all_x + all_y + z], ky = wavenumbers[all_x + first_y + y];
    const Complex* RESTRICT t = products + (z < low ? z : z + gap) * product_plane + y * product_row;
    double gain = 0;
    FOR_COLUMNS_SUM(c, nx, gain) {
      const Real kx = wavenumbers[first_x + c];
      Complex own[FIELDS];
      UNROLL for (int i = 0; i < FIELDS; ++i) own[i] = Real(scale) * t[c + i * product_field];
      const Real k2 = kx * kx + ky * ky + kz * kz, over_k2 = k2 > 0 ? 1 / k2 : 0;
      const Complex along = over_k2 * (kx * own[VECTOR] + ky * own[VECTOR + 1] + kz * own[VECTOR + 2]);
      own[VECTOR] = own[VECTOR] - kx * along;
      own[VECTOR + 1] = own[VECTOR + 1] - ky * along;
      own[VECTOR + 2] = own[VECTOR + 2] - kz * along;
      if (HOLDS && k2 == 0) {
        UNROLL for (int i = 0; i < 3; ++i) {
          held[i] = own[VECTOR + i].re;
          own[VECTOR + i] = {Real(means[i]), 0};
        }
      }
      bool outside = false;
      if (SPHERE >= 0) outside = is_outside_sphere(kx, ky, kz, parameters + (SPHERE >= 0 ? SPHERE : 0));
      const double weight = kx == 0 ? 0.5 : 1.0;
      UNROLL for (int i = 0; i < FIELDS; ++i) {
        if (!taken[i] || outside) continue;
        Complex* RESTRICT s = state + at + c + i * state_field;
        const double re = own[i].re, im = own[i].im, a = s->re, b = s->im;
        gain += (active[i] ? weight : 0) * ((re - a) * (re + a) + (im - b) * (im + b));
        *s = own[i];
      }
    }
    gain = row_sum(gain);
    if (FIRST_COLUMN) gains[z * all_y + first_y + y] = WALLS && kz > 0 ? 2 * gain : gain;
  }
}
#endif
