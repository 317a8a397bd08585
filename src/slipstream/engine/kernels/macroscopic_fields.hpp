// Velocity and density from populations: sums over sites, and fields on voxels.
//
// Between pairs of steps every population lies with the site that it has come to. Half of the force acts
// before the collision, so it is a part of the velocity.
#include "bounce_back.hpp"
#include "digests.hpp"
#include "moments.hpp"

INLINE void load_site(const Stored* f, Index site, Index sites, Real* populations) {
  for (int q = 0; q < DIRECTIONS; ++q) populations[q] = Real(f[address(q, site, sites)]);
}

// What a flow has at a site: velocity along z, y and x, and density.
struct SiteValues {
  Real of[4];
};

INLINE SiteValues site_values(const Stored* f, Index site, Index sites, double fx, double fy, double fz,
                              double unit) {
  Real in[DIRECTIONS];
  load_site(f, site, sites, in);
  const Moments<Real> m = moments(in);
  return {{Real(unit) * (m.z + Real(fz / 2)), Real(unit) * (m.y + Real(fy / 2)), Real(unit) * (m.x + Real(fx / 2)),
           1 + Real(unit) * m.density}};
}

// Over rows of sites: sums of velocity (z, y, x) and of density, the mass that came through links in the
// last step (z, y, x), and the largest square of a velocity in the populations' unit. That mass is the mean of the momentum, the
// force included, before and after the step: walls reverse populations that do not come through links.
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
          SiteValues here = {{0, 0, 0, 1}};
          if (pore[c]) here = site_values(f, first[rows[r]] + before, sites, fx, fy, fz, unit);
          UNROLL for (int i = 0; i < 4; ++i) to[c + i * field] = here.of[i];
        });
  }
}

// The same at sites only, of some segments, in their order.
KERNEL write_sites(const Stored* f, Index low, Index segments, Index sites, double fx, double fy, double fz,
                   double unit, Real* RESTRICT values) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS_IN_TURN(lane, SEGMENT) {
      const SiteValues here = site_values(f, (low + segment) * SEGMENT + lane, sites, fx, fy, fz, unit);
      UNROLL for (int i = 0; i < 4; ++i) values[(i * segments + segment) * SEGMENT + lane] = here.of[i];
    }
  }
}

// Over rows of voxels: sums of the speed and of the velocity (z, y, x) at pores of a part of the box.
KERNEL sum_speeds(const Stored* f, const unsigned char* RESTRICT voxels, const Index* RESTRICT first,
                  const Index* RESTRICT rows, Index row_count, Index columns, Index height, Index sites,
                  Index z_low, Index z_high, Index y_low, Index y_high, Index x_low, Index x_high, double fx,
                  double fy, double fz, double unit, double* RESTRICT sums) {
  FOR_ROWS(r, row_count) {
    const unsigned char* RESTRICT pore = voxels + rows[r] * (columns + 2) + 1;
    const Index z = r / height, y = r % height;
    double sum[4] = {};
    if (z_low <= z && z < z_high && y_low <= y && y < y_high) {
      count_columns(
          columns, [&](Index c) { return pore[c] != 0; },
          [&](Index c, Index before) {
            if (!pore[c] || c < x_low || c >= x_high) return;
            const SiteValues here = site_values(f, first[rows[r]] + before, sites, fx, fy, fz, unit);
            double square = 0;
            UNROLL for (int i = 0; i < 3; ++i) {
              square += double(here.of[i]) * double(here.of[i]);
              sum[1 + i] += double(here.of[i]);
            }
            sum[0] += sqrt(square);
          });
    }
    UNROLL for (int i = 0; i < 4; ++i) {
      const double total = row_sum(sum[i]);
      if (FIRST_COLUMN) sums[r * 4 + i] = total;
    }
  }
}

// Add the digest of the populations at the pores of rows: `start` is the place of the box's first voxel among
// the voxels of the whole image, whose rows and planes have `of_row` and `of_plane` of them.
KERNEL digest_of_sites(const Stored* f, const unsigned char* RESTRICT voxels, const Index* RESTRICT first,
                       const Index* RESTRICT rows, Index row_count, Index columns, Index height, Index sites,
                       Index start, Index of_row, Index of_plane, double unit, Index* RESTRICT sums) {
  FOR_ROWS(r, row_count) {
    const unsigned char* RESTRICT pore = voxels + rows[r] * (columns + 2) + 1;
    const Index place = start + r / height * of_plane + r % height * of_row;
    Bits sum = 0;
    count_columns(
        columns, [&](Index c) { return pore[c] != 0; },
        [&](Index c, Index before) {
          if (!pore[c]) return;
          Bits here = 0;
          for (int q = 0; q < DIRECTIONS; ++q) {
            // Odd factors: a change of one population changes the sum.
            const Bits factor = 2 * (static_cast<Bits>(q) * 0xd1b54a32d192ed03ull) + 1;
            const Number own = Number(unit) * Number(f[address(q, first[rows[r]] + before, sites)]);
            here += factor * digested(own);
          }
          sum += mixed(here, place + c);
        });
    add_to_digest(sums, r, sum);
  }
}
