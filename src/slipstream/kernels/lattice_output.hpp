// What is asked of the populations between pairs of steps: sums over sites, fields, changes to them.
//
// Then every population lies with the site that it has come to.
#include "lattice_links.hpp"

INLINE Moments<Real> site_moments(const Stored* f, Index site, Index sites) {
  Real in[DIRECTIONS];
  for (int q = 0; q < DIRECTIONS; ++q) in[q] = Real(f[address(q, site, sites)]);
  return moments(in);
}

// Sums of momentum (z, y, x) and of density over rows of sites, and the largest square of a velocity.
// Half of the force acts before the collision, so it is a part of the velocity.
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

// The equilibrium of a density one and a momentum.
KERNEL set_momentum(Stored* RESTRICT f, Index segments, Index sites, double x, double y, double z) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS(lane, SEGMENT) {
      for (int q = 0; q < DIRECTIONS; ++q)
        f[address(q, segment * SEGMENT + lane, sites)] =
            Stored(3 * weight(q) * along<double>(q, x, y, z));
    }
  }
}

// Where the populations of some slots are: with their site, or where the links say (these are WIDE). A
// slot is site * DIRECTIONS + direction.
KERNEL locate_slots(const Link* wide, const Index* RESTRICT slots, Index count, Index sites,
                    Index* RESTRICT own, Index* RESTRICT linked) {
  FOR_ROWS(r, (count + SEGMENT - 1) / SEGMENT) {
    FOR_COLUMNS(c, SEGMENT) {
      const Index i = r * SEGMENT + c;
      if (i < count) {
        const Index site = slots[i] / DIRECTIONS;
        const int q = int(slots[i] % DIRECTIONS);
        own[i] = address(q, site, sites);
        linked[i] = linked_address(q, wide[(q - 1) * sites + site], site, sites);
      }
    }
  }
}

// Copy the populations of some slots into an array, or from it: a checkpoint has them in an order of
// its own.
KERNEL take_populations(const Stored* f, const Index* RESTRICT order, Index rows, Index columns,
                        Index count, Index sites, Index direction, Stored* RESTRICT values) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) values[i] = f[address(int(direction), order[i], sites)];
    }
  }
}

KERNEL put_populations(Stored* f, const Index* RESTRICT order, Index rows, Index columns, Index count,
                       Index sites, Index direction, const Stored* RESTRICT values) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) f[address(int(direction), order[i], sites)] = values[i];
    }
  }
}

// Add a number to the populations at some addresses.
KERNEL add_to_slots(Stored* f, const Index* RESTRICT addresses, const double* RESTRICT change, Index count) {
  FOR_ROWS(r, (count + SEGMENT - 1) / SEGMENT) {
    FOR_COLUMNS(c, SEGMENT) {
      const Index i = r * SEGMENT + c;
      if (i < count) f[addresses[i]] += Stored(change[i]);
    }
  }
}
