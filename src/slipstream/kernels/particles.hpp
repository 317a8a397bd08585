// Particles: the coefficients of cubic splines, their values at particles, and a step of these.
//
// A spline through the points of a grid is a sum of cubic B-splines, one for each point. Its coefficients have the
// modes of the field divided by a function of each wavenumber. Coefficients are [component][plane][y][x]. On one
// rank (WRAPS) planes are periodic; else there are HALO planes more of the neighbours below and above.
#include "portability.hpp"

#ifdef PREFILTER
// Divide modes by the transform of the B-spline: `factors` are along x, all y and z.
KERNEL filter_modes(const Complex* source, Complex* target, const Real* RESTRICT factors, Index fields, Index nz,
                    Index ny, Index nx, Index row_size, Index source_field, Index target_field, Index plane,
                    Index first_y, Index all_y) {
  FOR_ROWS(row, fields * nz * ny) {
    const Index field = row / (nz * ny), z = row / ny % nz, y = row % ny, at = z * plane + y * row_size;
    const Real factor = factors[nx + first_y + y] * factors[nx + all_y + z];
    const Complex* from = source + field * source_field + at;
    Complex* to = target + field * target_field + at;
    FOR_COLUMNS(c, nx) to[c] = (factor * factors[c]) * from[c];
  }
}
#else

#ifndef PARTICLES_PER_ROW
#define PARTICLES_PER_ROW 256
#endif

// The grid of a rank: numbers of points, the first plane and how many, and points per length.
struct Grid {
  Index nz, ny, nx, first, planes;
  double per_z, per_y, per_x;
};

// A place along an axis: the point at or before it, and the weights of that one's neighbours from -1 to 2.
struct Place {
  Index point;
  Real weight[4];
};

INLINE Index modulo(Index i, Index n) {
  const Index rest = i % n;
  return rest < 0 ? rest + n : rest;
}

// The same of a neighbour of a point, up to two further.
INLINE Index wrapped(Index i, Index n) { return i < 0 ? i + n : i < n ? i : n > 2 ? i - n : i % n; }

INLINE Place place_along(double position, double per_length, Index n) {
  double s = position * per_length;
  if (!(fabs(s) < 1e15)) s = 0;  // of a flow that has blown up
  const double whole = floor(s);
  const Real t = Real(s - whole), r = 1 - t;
  Place found;
  found.point = modulo(Index(whole), n);
  found.weight[0] = r * r * r / 6;
  found.weight[1] = Real(2) / 3 - t * t * (1 - t / 2);
  found.weight[2] = Real(2) / 3 - r * r * (1 - r / 2);
  found.weight[3] = t * t * t / 6;
  return found;
}

// Where a plane is, counted from the first of this rank: of its periodic images the nearest to the rank's planes.
INLINE Index own_plane(Index point, Grid g) {
  const Index plane = point < g.first ? point - g.first + g.nz : point - g.first, after = plane - g.planes + 1, before = g.nz - plane;
  return plane < g.planes || after <= before ? plane : plane - g.nz;
}

// By how many planes a plane lies outside of this rank's.
INLINE Index outside(Index plane, Grid g) {
  return plane < 0 ? -plane : plane >= g.planes ? plane - g.planes + 1 : 0;
}

template <int COMPONENTS>
INLINE void values_at(const Real* RESTRICT coefficients, Index component, Grid g, double x, double y, double z,
                      Real* values) {
  const Place px = place_along(x, g.per_x, g.nx), py = place_along(y, g.per_y, g.ny),
              pz = place_along(z, g.per_z, g.nz);
  Index column[4], line[4], level[4];
  Index own = own_plane(pz.point, g);
#if !WRAPS
  // What is further away is looked for before the next step: see `Particles`.
  own = own < 1 - HALO ? 1 - HALO : own > g.planes + HALO - 3 ? g.planes + HALO - 3 : own;
#endif
  UNROLL for (int i = 0; i < 4; ++i) {
    column[i] = wrapped(px.point + i - 1, g.nx);
    line[i] = wrapped(py.point + i - 1, g.ny) * g.nx;
    level[i] = (WRAPS ? wrapped(own + i - 1, g.nz) : own + i - 1 + HALO) * g.ny * g.nx;
  }
  UNROLL for (int c = 0; c < COMPONENTS; ++c) values[c] = 0;
  NOT_UNROLLED for (int k = 0; k < 4; ++k) {
    UNROLL for (int j = 0; j < 4; ++j) {
      const Real weight = pz.weight[k] * py.weight[j];
      const Real* RESTRICT row = coefficients + level[k] + line[j];
      UNROLL for (int c = 0; c < COMPONENTS; ++c) {
        const Real* RESTRICT own_row = row + c * component;
        Real sum = 0;
        UNROLL for (int i = 0; i < 4; ++i) sum += px.weight[i] * own_row[column[i]];
        values[c] += weight * sum;
      }
    }
  }
}

// One step. With the fluid's velocity u at a particle and N = u + drift, N' that of the step before:
//   position += to_position[0] * velocity + to_position[1] * N + to_position[2] * N'
//   velocity  = to_velocity[0] * velocity + to_velocity[1] * N + to_velocity[2] * N'
// `state` has positions, N' and, of inertial particles, velocities, a row for each component, x first. `numbers` are
// to_position, to_velocity and the drift. `counts` has the number of particles, and gets how many are so far from
// this rank's planes that the halo does not suffice for the next step.
KERNEL advance_particles(double* state, Index capacity, Index first, Index rows, Index last,
                         const double* RESTRICT numbers, Index* counts, const Real* RESTRICT coefficients,
                         Index component, Index nz, Index ny, Index nx, Index first_plane, Index planes, double per_z,
                         double per_y, double per_x) {
  const Grid g = {nz, ny, nx, first_plane, planes, per_z, per_y, per_x};
  FOR_ROWS(row, rows) {
    FOR_COLUMNS_IN_TURN(c, PARTICLES_PER_ROW) {
      const Index p = first + row * PARTICLES_PER_ROW + c;
      if (p < last && p < counts[0]) {
        double* own = state + p;
        Real u[3];
        values_at<3>(coefficients, component, g, own[0], own[capacity], own[2 * capacity], u);
        UNROLL for (int i = 0; i < 3; ++i) {
          const double now = u[i] + numbers[6 + i], before = own[(3 + i) * capacity];
          double move = numbers[1] * now + numbers[2] * before;
#if INERTIAL
          const double velocity = own[(6 + i) * capacity];
          move += numbers[0] * velocity;
          own[(6 + i) * capacity] = numbers[3] * velocity + numbers[4] * now + numbers[5] * before;
#endif
          own[i * capacity] += move;
          own[(3 + i) * capacity] = now;
        }
#if !WRAPS
        const Place after = place_along(own[2 * capacity], per_z, nz);
        if (outside(own_plane(after.point, g), g) > HALO - 2) add_atomically(counts + 1, Index(1));
#endif
      }
    }
  }
}

// The values of three splines at all particles, in double precision: values[component][capacity].
KERNEL values_at_particles(const double* RESTRICT state, Index capacity, double* RESTRICT values, Index rows,
                           Index count, const Real* RESTRICT coefficients, Index component, Index nz, Index ny,
                           Index nx, Index first_plane, Index planes, double per_z, double per_y, double per_x) {
  const Grid g = {nz, ny, nx, first_plane, planes, per_z, per_y, per_x};
  FOR_ROWS(row, rows) {
    FOR_COLUMNS_IN_TURN(c, PARTICLES_PER_ROW) {
      const Index p = row * PARTICLES_PER_ROW + c;
      if (p < count) {
        Real found[3];
        values_at<3>(coefficients, component, g, state[p], state[capacity + p], state[2 * capacity + p], found);
        UNROLL for (int i = 0; i < 3; ++i) values[i * capacity + p] = found[i];
      }
    }
  }
}

#endif
