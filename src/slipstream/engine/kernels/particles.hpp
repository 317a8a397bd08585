// Particles: the velocity of the fluid at them, and a step of these.
//
// Fields are interpolated by cubic splines or by cubic polynomials of Lagrange, from what lies at the 64 points around:
// the coefficients of B-splines, or values (LAGRANGE). The modes of the coefficients are those of the field divided by
// a function of each wavenumber. Arrays are [component][plane][y][x], or in chunks: see point_chunks.hpp. Along x, and
// along axes that are not divided, points are periodic; along z and y there may be HALO_Z and HALO_Y more of the
// neighbours at both ends.
#include "point_chunks.hpp"
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

constexpr int together = 128;  // particles of a block

// How many threads of a GPU share a particle: each takes a component of its four points along x, and the last four
// repeat others. What they read lies side by side, and a cache is asked once for it.
#ifdef SLIPSTREAM_GPU
constexpr int sharing = 16;
#else
constexpr int sharing = 1;
#endif

// The grid of a rank: numbers of points, the first plane and row and how many, and points per length.
struct Grid {
  int nz, ny, nx, first_z, planes, first_y, rows;
  double per_z, per_y, per_x;
};

// Where the particles of a block are along x, y and z: the point at or before each, and the weights of that one's
// neighbours from -1 to 2. Then the values there.
struct Block {
  Real weight[3][4][together], found[3][together];
  int point[3][together];
};

// Whole numbers modulo n, without a division of integers, which takes a GPU as long as all else. The factor is
// rounded, so that the quotient may be off by one.
INLINE int modulo(double whole, int n, double per_n) {
  const double rest = fma(-double(n), floor(whole * per_n), whole);
  const int i = int(rest);
  return i < 0 ? i + n : i >= n ? i - n : i;
}

// The same for a neighbour of a point, up to two further.
INLINE int wrapped(int i, int n) { return i < 0 ? i + n : i < n ? i : n > 2 ? i - n : i % n; }

// A position along an axis in points, and the whole number of them.
INLINE double in_points(double position, double per_length, double& whole) {
  double s = position * per_length;
  if (!(fabs(s) < 1e15)) s = 0;  // of a flow that has blown up
  whole = floor(s);
  return s;
}

INLINE void find_place(Block& block, int axis, int p, double position, double per_length, int n) {
  double whole;
  const double s = in_points(position, per_length, whole);
  const Real t = Real(s - whole), r = 1 - t;
  block.point[axis][p] = modulo(whole, n, 1.0 / double(n));
#if LAGRANGE
  const Real weights[4] = {-t * r * (1 + r) / 6, (1 + t) * r * (1 + r) / 2, (1 + t) * t * (1 + r) / 2,
                           -(1 + t) * t * r / 6};
#else
  const Real weights[4] = {r * r * r / 6, Real(2) / 3 - t * t * (1 - t / 2), Real(2) / 3 - r * r * (1 - r / 2),
                           t * t * t / 6};
#endif
  UNROLL for (int i = 0; i < 4; ++i) block.weight[axis][i][p] = weights[i];
}

// Where a point is, counted from the first of this rank: of its periodic images the nearest to the rank's `count`.
INLINE int own_place(int point, int first, int count, int n) {
  const int place = point < first ? point - first + n : point - first, after = place - count + 1, before = n - place;
  return place < count || after <= before ? place : place - n;
}

// By how many points a place lies outside of this rank's.
INLINE int outside(int place, int count) { return place < 0 ? -place : place >= count ? place - count + 1 : 0; }

// The four points around a place, counted from the first that is stored.
template <int HALO>
INLINE void points_around(int point, int first, int count, int n, int* points) {
  if constexpr (HALO > 0) {
    // What is further away is looked for before the next step: see `Particles`.
    int own = own_place(point, first, count, n);
    own = own < 1 - HALO ? 1 - HALO : own > count + HALO - 3 ? count + HALO - 3 : own;
    UNROLL for (int i = 0; i < 4; ++i) points[i] = own + i - 1 + HALO;
  } else {
    UNROLL for (int i = 0; i < 4; ++i) points[i] = wrapped(point + i - 1, n);
  }
}

// Whether a particle has gone too far along a divided axis for another step.
template <int HALO>
INLINE bool is_far(double position, double per_length, int first, int count, int n) {
  if constexpr (HALO > 0) {
    double whole;
    in_points(position, per_length, whole);
    return outside(own_place(modulo(whole, n, 1.0 / double(n)), first, count, n), count) > HALO - 2;
  }
  return false;
}

// The values at a particle of a block, by all threads that share it; `part` is the number of this one.
INLINE void find_values(Block& block, const Real* RESTRICT values, Index component, const Grid& g, int p, int part) {
  const auto& weight = block.weight;
  int line[4], level[4];
  points_around<HALO_Y>(block.point[1][p], g.first_y, g.rows, g.ny, line);
  points_around<HALO_Z>(block.point[2][p], g.first_z, g.planes, g.nz, level);
  UNROLL for (int j = 0; j < 4; ++j) line[j] *= row_of_points(g.nx);
  const Index plane = Index(g.rows + 2 * HALO_Y) * row_of_points(g.nx);
#ifdef SLIPSTREAM_GPU
  const int x = part % 4, c = part < 12 ? part / 4 : 0;
  const Real* RESTRICT first = values + c * component + place_in_row(wrapped(block.point[0][p] + x - 1, g.nx));
  Real sum = 0;
  UNROLL for (int k = 0; k < 4; ++k) {
    const Real* RESTRICT rows = first + level[k] * plane;
    UNROLL for (int j = 0; j < 4; ++j) sum += weight[2][k][p] * weight[1][j][p] * rows[line[j]];
  }
  sum *= weight[0][x][p];
  sum += of_row_thread(sum, 2);
  sum += of_row_thread(sum, 1);
  if (x == 0 && part < 12) block.found[c][p] = sum;
#else
  int column[4];
  Real w[4], sums[3][4];
  UNROLL for (int i = 0; i < 4; ++i) {
    column[i] = place_in_row(wrapped(block.point[0][p] + i - 1, g.nx));
    w[i] = weight[0][i][p];
  }
  UNROLL for (int c = 0; c < 3; ++c)
    UNROLL for (int i = 0; i < 4; ++i) sums[c][i] = 0;
  NOT_UNROLLED for (int k = 0; k < 4; ++k) {
    const Real* RESTRICT rows = values + level[k] * plane;
    UNROLL for (int j = 0; j < 4; ++j) {
      const Real both = weight[2][k][p] * weight[1][j][p];
      const Real* RESTRICT row = rows + line[j];
      UNROLL for (int c = 0; c < 3; ++c)
        UNROLL for (int i = 0; i < 4; ++i) sums[c][i] += both * row[c * component + column[i]];
    }
  }
  UNROLL for (int c = 0; c < 3; ++c)
    block.found[c][p] = (w[0] * sums[c][0] + w[2] * sums[c][2]) + (w[1] * sums[c][1] + w[3] * sums[c][3]);
#endif
}

// The values at the particles from `first` on, `count` of them.
INLINE void fill_block(Block& block, const double* state, Index capacity, int count, const Real* RESTRICT values,
                       Index component, const Grid& g) {
  FOR_TILE(axis, 3, p, together) {
    const double per_length = axis == 0 ? g.per_x : axis == 1 ? g.per_y : g.per_z;
    const double position = p < count ? state[axis * capacity + p] : 0;
    if (sharing > 1 || p < count) find_place(block, axis, p, position, per_length, axis == 0 ? g.nx : axis == 1 ? g.ny : g.nz);
  }
  BLOCK_BARRIER
  // All threads of a warp go along, since those of a particle add up.
  FOR_TILE(p, together, part, sharing) {
    if (sharing > 1 || p < count) find_values(block, values, component, g, p, part);
  }
  BLOCK_BARRIER
}

INLINE int count_from(Index first, Index stop) { return stop - first < together ? int(stop - first) : together; }

#define GRID_ARGUMENTS                                                                                               \
  const Real *RESTRICT values, Index component, Index nz, Index ny, Index nx, Index first_z, Index planes,           \
      Index first_y, Index grid_rows, double per_z, double per_y, double per_x
#define GRID                                                                                                        \
  {int(nz), int(ny), int(nx), int(first_z), int(planes), int(first_y), int(grid_rows), per_z, per_y, per_x}

// One step. With the fluid's velocity u at a particle and N = u + drift, N' the same of the step before:
//   position += to_position[0] * velocity + to_position[1] * N + to_position[2] * N'
//   velocity  = to_velocity[0] * velocity + to_velocity[1] * N + to_velocity[2] * N'
// `state` has positions, N' and, of inertial particles, velocities, a row for each component, x first. `numbers` are
// to_position, to_velocity and the drift. `counts` has the number of particles, and gets how often one is so far from
// this rank's points that the halo does not suffice for the next step.
KERNEL advance_particles(double* state, Index capacity, Index first, Index blocks, Index last,
                         const double* RESTRICT numbers, Index* counts, GRID_ARGUMENTS) {
  const Grid g = GRID;
  const Index stop = last < counts[0] ? last : counts[0];
  FOR_BLOCKS(number, blocks) {
    SHARED(Block, block, 1);
    const Index start = first + number * together;
    if (start >= stop) continue;
    const int count = count_from(start, stop);
    fill_block(*block, state + start, capacity, count, values, component, g);
    FOR_TILE(i, 3, p, together) {
      if (p >= count) continue;
      double* own = state + start + p;
      const double now = block->found[i][p] + numbers[6 + i], before = own[(3 + i) * capacity];
      double move = numbers[1] * now + numbers[2] * before;
#if INERTIAL
      const double velocity = own[(6 + i) * capacity];
      move += numbers[0] * velocity;
      own[(6 + i) * capacity] = numbers[3] * velocity + numbers[4] * now + numbers[5] * before;
#endif
      const double there = own[i * capacity] + move;
      own[i * capacity] = there;
      own[(3 + i) * capacity] = now;
      if (i == 1 && is_far<HALO_Y>(there, per_y, g.first_y, g.rows, g.ny)) add_atomically(counts + 1, Index(1));
      if (i == 2 && is_far<HALO_Z>(there, per_z, g.first_z, g.planes, g.nz)) add_atomically(counts + 1, Index(1));
    }
    BLOCK_BARRIER  // the next particles write the block
  }
}

// Three fields at all particles, in double precision: found[component][capacity].
KERNEL values_at_particles(const double* RESTRICT state, Index capacity, double* RESTRICT found, Index blocks,
                           Index count, GRID_ARGUMENTS) {
  const Grid g = GRID;
  FOR_BLOCKS(number, blocks) {
    SHARED(Block, block, 1);
    const Index start = number * together;
    const int own = count_from(start, count);
    fill_block(*block, state + start, capacity, own, values, component, g);
    FOR_TILE(i, 3, p, together) {
      if (p < own) found[i * capacity + start + p] = block->found[i][p];
    }
    BLOCK_BARRIER
  }
}

#endif
