// Velocity and density from populations: sums over sites, and fields on voxels.
//
// Between pairs of steps every population lies with the site that it has come to. Half of the force acts
// before the collision, so it is a part of the velocity.
#include "moments.hpp"
#include "population_layout.hpp"

INLINE Moments<Real> site_moments(const Stored* f, Index site, Index sites) {
  Real in[DIRECTIONS];
  for (int q = 0; q < DIRECTIONS; ++q) in[q] = Real(f[address(q, site, sites)]);
  return moments(in);
}

// Sums of momentum (z, y, x) and of density over rows of sites, and the largest square of a velocity.
KERNEL sum_sites(const Stored* f, double* RESTRICT sums, Index* RESTRICT fastest, Index rows,
                 Index columns, Index count, Index sites, double fx, double fy, double fz) {
  FOR_ROWS(row, rows) {
    double x = 0, y = 0, z = 0, density = 0;
    Index largest = 0;
    FOR_COLUMNS_IN_TURN(c, columns) {
      const Index site = row * columns + c;
      if (site < count) {
        const Moments<Real> m = site_moments(f, site, sites);
        const double ux = m.x + fx / 2, uy = m.y + fy / 2, uz = m.z + fz / 2;
        x += ux;
        y += uy;
        z += uz;
        density += m.density;
        const Index square = ordered_bits(ux * ux + uy * uy + uz * uz);
        largest = square > largest ? square : largest;
      }
    }
    const double total[] = {row_sum(z), row_sum(y), row_sum(x), row_sum(density)};
    largest = row_maximum(largest);
    if (FIRST_COLUMN) {
      for (int i = 0; i < 4; ++i) sums[row * 4 + i] = total[i];
      fastest[row] = largest;
    }
  }
}

// Velocity (z, y, x) and density at all voxels of rows, zero (and one) where there is no pore.
KERNEL write_fields(const Stored* f, const unsigned char* RESTRICT voxels,
                    const Index* RESTRICT first, const Index* RESTRICT rows, Index row_count,
                    Index columns, Index sites, double fx, double fy, double fz, Real* RESTRICT fields) {
  const Index field = row_count * columns;
  FOR_ROWS(r, row_count) {
    const unsigned char* RESTRICT pore = voxels + rows[r] * (columns + 2) + 1;
    Real* RESTRICT to = fields + r * columns;
    count_columns(
        columns, [&](Index c) { return pore[c] != 0; },
        [&](Index c, Index before) {
          Moments<Real> m = {0, 0, 0, 0};
          if (pore[c]) {
            m = site_moments(f, first[rows[r]] + before, sites);
            m = {m.density, m.x + Real(fx / 2), m.y + Real(fy / 2), m.z + Real(fz / 2)};
          }
          to[c] = m.z;
          to[c + field] = m.y;
          to[c + 2 * field] = m.x;
          to[c + 3 * field] = 1 + m.density;
        });
  }
}
