// Velocity and density from populations: sums over sites, and fields on voxels.
//
// Between pairs of steps every population lies with the site that it has come to. Half of the force acts
// before the collision, so it is a part of the velocity.
#include "bounce_back.hpp"
#include "moments.hpp"

INLINE void load_site(const Stored* f, Index site, Index sites, Real* populations) {
  for (int q = 0; q < DIRECTIONS; ++q) populations[q] = Real(f[address(q, site, sites)]);
}

// Over rows of sites: sums of velocity (z, y, x) and of density, the mass that came through links in the
// last step (z, y, x), and the largest square of a velocity in the populations' unit. That mass is the mean of the momentum, the
// force included, before and after the step: walls turn around what does not come through links.
KERNEL sum_sites(const Stored* f, const Link* RESTRICT walls, double* RESTRICT sums,
                 Index* RESTRICT fastest, Index rows, Index columns, Index count, Index sites, double fx,
                 double fy, double fz, double unit) {
  FOR_ROWS(row, rows) {
    double x = 0, y = 0, z = 0, density = 0, through_x = 0, through_y = 0, through_z = 0;
    Index largest = 0;
    FOR_COLUMNS_IN_TURN(c, columns) {
      const Index site = row * columns + c;
      if (site < count) {
        Real in[DIRECTIONS];
        load_site(f, site, sites, in);
        const Moments<Real> m = moments(in);
        const double ux = m.x + fx / 2, uy = m.y + fy / 2, uz = m.z + fz / 2;
        x += ux;
        y += uy;
        z += uz;
        density += m.density;
        const Index square = ordered_bits(ux * ux + uy * uy + uz * uz);
        largest = square > largest ? square : largest;
        const Link wall = walls[site];
        UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
          const double came = wall >> (q - 1) & 1 ? 0 : double(in[q]);
          if (CX[q]) through_x = CX[q] > 0 ? through_x + came : through_x - came;
          if (CY[q]) through_y = CY[q] > 0 ? through_y + came : through_y - came;
          if (CZ[q]) through_z = CZ[q] > 0 ? through_z + came : through_z - came;
        }
      }
    }
    const double total[] = {row_sum(z),         row_sum(y),         row_sum(x),        row_sum(density),
                            row_sum(through_z), row_sum(through_y), row_sum(through_x)};
    largest = row_maximum(largest);
    if (FIRST_COLUMN) {
      for (int i = 0; i < 7; ++i) sums[row * 7 + i] = unit * total[i];
      fastest[row] = largest;
    }
  }
}

// Velocity (z, y, x) and density at all voxels of rows, zero (and one) where there is no pore.
KERNEL write_fields(const Stored* f, const unsigned char* RESTRICT voxels,
                    const Index* RESTRICT first, const Index* RESTRICT rows, Index row_count,
                    Index columns, Index sites, double fx, double fy, double fz, double unit,
                    Real* RESTRICT fields) {
  const Index field = row_count * columns;
  FOR_ROWS(r, row_count) {
    const unsigned char* RESTRICT pore = voxels + rows[r] * (columns + 2) + 1;
    Real* RESTRICT to = fields + r * columns;
    count_columns(
        columns, [&](Index c) { return pore[c] != 0; },
        [&](Index c, Index before) {
          Moments<Real> m = {0, 0, 0, 0};
          if (pore[c]) {
            Real in[DIRECTIONS];
            load_site(f, first[rows[r]] + before, sites, in);
            m = moments(in);
            m = {m.density, m.x + Real(fx / 2), m.y + Real(fy / 2), m.z + Real(fz / 2)};
          }
          to[c] = Real(unit) * m.z;
          to[c + field] = Real(unit) * m.y;
          to[c + 2 * field] = Real(unit) * m.x;
          to[c + 3 * field] = 1 + Real(unit) * m.density;
        });
  }
}
