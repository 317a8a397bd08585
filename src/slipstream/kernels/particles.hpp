// Particles: the velocity of the fluid at them, and a step of these.
//
// Fields are interpolated by cubic splines or by cubic polynomials of Lagrange, from what lies at the 64 points around:
// the coefficients of B-splines, or values (LAGRANGE). The modes of the coefficients are those of the field divided by
// a function of each wavenumber. Arrays are [component][plane][y][x]. Along x, and along axes that are not divided,
// points are periodic; along z and y there may be HALO_Z and HALO_Y more of the neighbours at both ends.
#include "portability.hpp"

#ifdef PREFILTER
// Divide modes by the transform of the B-spline: `factors` are along all x, y and z of a rank.
KERNEL filter_modes(const Complex* source, Complex* target, const Real* RESTRICT factors, Index fields, Index nz,
                    Index ny, Index nx, Index row_size, Index source_field, Index target_field, Index plane,
                    Index first_x, Index all_x, Index first_y, Index all_y) {
  FOR_ROWS(row, fields * nz * ny) {
    const Index field = row / (nz * ny), z = row / ny % nz, y = row % ny, at = z * plane + y * row_size;
    const Real factor = factors[all_x + first_y + y] * factors[all_x + all_y + z];
    const Complex* from = source + field * source_field + at;
    Complex* to = target + field * target_field + at;
    FOR_COLUMNS(c, nx) to[c] = (factor * factors[first_x + c]) * from[c];
  }
}
#else

#ifndef PARTICLES_PER_ROW
#define PARTICLES_PER_ROW 256
#endif

// How many threads share a particle: those of a GPU take its four points along x, which lie side by side.
#ifdef SLIPSTREAM_GPU
#define SHARING 4
#else
#define SHARING 1
#endif
constexpr int own_points = 4 / SHARING;

// The grid of a rank: numbers of points, the first plane and row and how many, and points per length.
struct Grid {
  Index nz, ny, nx, first_z, planes, first_y, rows;
  double per_z, per_y, per_x;
};

// A place along an axis: the point at or before it, and the weights of that one's neighbours from -1 to 2.
struct Place {
  Index point;
  Real weight[4];
};

// Whole numbers modulo n, without a division of integers, which takes a GPU as long as all else. The factor is
// rounded, so that the quotient may be off by one.
INLINE Index modulo(double whole, Index n, double per_n) {
  const double rest = fma(-double(n), floor(whole * per_n), whole);
  const Index i = Index(rest);
  return i < 0 ? i + n : i >= n ? i - n : i;
}

// The same of a neighbour of a point, up to two further.
INLINE Index wrapped(Index i, Index n) { return i < 0 ? i + n : i < n ? i : n > 2 ? i - n : i % n; }

INLINE Place place_along(double position, double per_length, Index n) {
  double s = position * per_length;
  if (!(fabs(s) < 1e15)) s = 0;  // of a flow that has blown up
  const double whole = floor(s);
  const Real t = Real(s - whole), r = 1 - t;
  Place found;
  found.point = modulo(whole, n, 1.0 / double(n));
#if LAGRANGE
  found.weight[0] = -t * r * (1 + r) / 6;
  found.weight[1] = (1 + t) * r * (1 + r) / 2;
  found.weight[2] = (1 + t) * t * (1 + r) / 2;
  found.weight[3] = -(1 + t) * t * r / 6;
#else
  found.weight[0] = r * r * r / 6;
  found.weight[1] = Real(2) / 3 - t * t * (1 - t / 2);
  found.weight[2] = Real(2) / 3 - r * r * (1 - r / 2);
  found.weight[3] = t * t * t / 6;
#endif
  return found;
}

// Where a point is, counted from the first of this rank: of its periodic images the nearest to the rank's `count`.
INLINE Index own_place(Index point, Index first, Index count, Index n) {
  const Index place = point < first ? point - first + n : point - first, after = place - count + 1, before = n - place;
  return place < count || after <= before ? place : place - n;
}

// By how many points a place lies outside of this rank's.
INLINE Index outside(Index place, Index count) { return place < 0 ? -place : place >= count ? place - count + 1 : 0; }

// The four points around a place, counted from the first that is stored.
template <int HALO>
INLINE void points_around(const Place& place, Index first, Index count, Index n, Index* points) {
  if constexpr (HALO > 0) {
    // What is further away is looked for before the next step: see `Particles`.
    Index own = own_place(place.point, first, count, n);
    own = own < 1 - HALO ? 1 - HALO : own > count + HALO - 3 ? count + HALO - 3 : own;
    UNROLL for (int i = 0; i < 4; ++i) points[i] = own + i - 1 + HALO;
  } else {
    UNROLL for (int i = 0; i < 4; ++i) points[i] = wrapped(place.point + i - 1, n);
  }
}

// Whether a particle has gone too far along a divided axis for another step.
template <int HALO>
INLINE bool is_far(double position, double per_length, Index first, Index count, Index n) {
  if constexpr (HALO > 0) {
    const Place place = place_along(position, per_length, n);
    return outside(own_place(place.point, first, count, n), count) > HALO - 2;
  }
  return false;
}

// The values at a place, for all threads that share it; `part` is the number of this one.
INLINE void values_at(const Real* RESTRICT values, Index component, Grid g, double x, double y, double z, int part,
                      Real* found) {
  const Place px = place_along(x, g.per_x, g.nx), py = place_along(y, g.per_y, g.ny),
              pz = place_along(z, g.per_z, g.nz);
  Index line[4], level[4], column[own_points];
  Real weights[own_points], sums[3][own_points];
  points_around<HALO_Y>(py, g.first_y, g.rows, g.ny, line);
  points_around<HALO_Z>(pz, g.first_z, g.planes, g.nz, level);
  UNROLL for (int i = 0; i < 4; ++i) {
    if (SHARING > 1 && i != part) continue;
    column[i % own_points] = wrapped(px.point + i - 1, g.nx);
    weights[i % own_points] = px.weight[i];
  }
  UNROLL for (int c = 0; c < 3; ++c)
    UNROLL for (int i = 0; i < own_points; ++i) sums[c][i] = 0;
  const Index plane = (g.rows + 2 * HALO_Y) * g.nx;
  UNROLL for (int j = 0; j < 4; ++j) line[j] *= g.nx;
  NOT_UNROLLED for (int k = 0; k < 4; ++k) {
    const Real* RESTRICT rows = values + level[k] * plane;
    UNROLL for (int j = 0; j < 4; ++j) {
      const Real weight = pz.weight[k] * py.weight[j];
      const Real* RESTRICT row = rows + line[j];
      UNROLL for (int c = 0; c < 3; ++c)
        UNROLL for (int i = 0; i < own_points; ++i) sums[c][i] += weight * row[c * component + column[i]];
    }
  }
  UNROLL for (int c = 0; c < 3; ++c) {
#ifdef SLIPSTREAM_GPU
    Real sum = weights[0] * sums[c][0];
    sum += of_row_thread(sum, 2);
    found[c] = sum + of_row_thread(sum, 1);
#else
    const Real* w = weights;
    found[c] = (w[0] * sums[c][0] + w[2] * sums[c][2]) + (w[1] * sums[c][1] + w[3] * sums[c][3]);
#endif
  }
}

// The particles of a row, each by the threads that share it. All threads of a warp go along, since those of a particle
// add up: in place of one that does not exist, the first.
#define FOR_PARTICLES(p, part, exists, begin, row, stop)                                         \
  FOR_COLUMNS_IN_TURN(column_, PARTICLES_PER_ROW * SHARING)                                      \
    if (const Index wanted_ = (begin) + (row) * PARTICLES_PER_ROW + column_ / SHARING; true)     \
      if (const bool exists = wanted_ < (stop); SHARING > 1 || exists)                           \
        if (const Index p = exists ? wanted_ : 0; true)                                          \
          if (const int part = int(column_ % SHARING); true)

#define GRID_ARGUMENTS                                                                                               \
  const Real *RESTRICT values, Index component, Index nz, Index ny, Index nx, Index first_z, Index planes,           \
      Index first_y, Index grid_rows, double per_z, double per_y, double per_x

// One step. With the fluid's velocity u at a particle and N = u + drift, N' that of the step before:
//   position += to_position[0] * velocity + to_position[1] * N + to_position[2] * N'
//   velocity  = to_velocity[0] * velocity + to_velocity[1] * N + to_velocity[2] * N'
// `state` has positions, N' and, of inertial particles, velocities, a row for each component, x first. `numbers` are
// to_position, to_velocity and the drift. `counts` has the number of particles, and gets how often one is so far from
// this rank's points that the halo does not suffice for the next step.
KERNEL advance_particles(double* state, Index capacity, Index first, Index rows, Index last,
                         const double* RESTRICT numbers, Index* counts, GRID_ARGUMENTS) {
  const Grid g = {nz, ny, nx, first_z, planes, first_y, grid_rows, per_z, per_y, per_x};
  const Index stop = last < counts[0] ? last : counts[0];
  FOR_ROWS(row, rows) {
    FOR_PARTICLES(p, part, exists, first, row, stop) {
      double* own = state + p;
      Real u[3];
      values_at(values, component, g, own[0], own[capacity], own[2 * capacity], part, u);
      UNROLL for (int i = 0; i < 3; ++i) {
        if (!exists || (SHARING > 1 && i != part)) continue;
        const double now = u[i] + numbers[6 + i], before = own[(3 + i) * capacity];
        double move = numbers[1] * now + numbers[2] * before;
#if INERTIAL
        const double velocity = own[(6 + i) * capacity];
        move += numbers[0] * velocity;
        own[(6 + i) * capacity] = numbers[3] * velocity + numbers[4] * now + numbers[5] * before;
#endif
        const double there = own[i * capacity] + move;
        own[i * capacity] = there;
        own[(3 + i) * capacity] = now;
        if (i == 1 && is_far<HALO_Y>(there, per_y, first_y, grid_rows, ny)) add_atomically(counts + 1, Index(1));
        if (i == 2 && is_far<HALO_Z>(there, per_z, first_z, planes, nz)) add_atomically(counts + 1, Index(1));
      }
    }
  }
}

// Three fields at all particles, in double precision: found[component][capacity].
KERNEL values_at_particles(const double* RESTRICT state, Index capacity, double* RESTRICT found, Index rows,
                           Index count, GRID_ARGUMENTS) {
  const Grid g = {nz, ny, nx, first_z, planes, first_y, grid_rows, per_z, per_y, per_x};
  FOR_ROWS(row, rows) {
    FOR_PARTICLES(p, part, exists, 0, row, count) {
      Real here[3];
      values_at(values, component, g, state[p], state[capacity + p], state[2 * capacity + p], part, here);
      UNROLL for (int i = 0; i < 3; ++i)
        if (exists && (SHARING == 1 || i == part)) found[i * capacity + p] = here[i];
    }
  }
}

#endif
