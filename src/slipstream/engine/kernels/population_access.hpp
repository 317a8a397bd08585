// Populations set, found, read and written between pairs of steps, when every one lies with the site that
// it has come to.
#include "bounce_back.hpp"

// The equilibrium of a density one and a momentum, or this momentum added to so much of what there is.
KERNEL set_momentum(Stored* RESTRICT f, Index segments, Index sites, double share, double x, double y,
                    double z) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS(lane, SEGMENT) {
      for (int q = 0; q < DIRECTIONS; ++q) {
        Stored& population = f[address(q, segment * SEGMENT + lane, sites)];
        const double before = share ? share * double(population) : 0;
        population = Stored(before + 3 * weight(q) * along<double>(q, x, y, z));
      }
    }
  }
}

// Bits of the directions, bit 0 for direction 1, along which arriving populations bounce back;
// the links are WIDE.
KERNEL mark_walls(const Link* RESTRICT wide, Index segments, Index sites, Link* RESTRICT walls) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS(lane, SEGMENT) {
      const Index site = segment * SEGMENT + lane;
      Link bits = 0;
      for (int k = 0; k < LINKS; ++k) bits |= (wide[k * sites + site] >> 31) << k;
      walls[site] = bits;
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

// Copy the populations of some sites into an array, or from it, out of the unit or into it: a checkpoint
// has its own order.
KERNEL take_populations(const Stored* f, const Index* RESTRICT order, Index rows, Index columns,
                        Index count, Index sites, Index direction, double unit,
                        Number* RESTRICT values) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) values[i] = Number(unit) * Number(f[address(int(direction), order[i], sites)]);
    }
  }
}

KERNEL put_populations(Stored* f, const Index* RESTRICT order, Index rows, Index columns, Index count,
                       Index sites, Index direction, double unit, const Number* RESTRICT values) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) f[address(int(direction), order[i], sites)] = Stored(values[i] / Number(unit));
    }
  }
}
