// The pressure of blocks of sites, from which a steady flow is extrapolated (lattice/pressure_blocks.py).
//
// Blocks are the cells of a grid that is periodic. `couplings` has, direction by direction, how well a block
// conducts to the next one: 0 if nothing leads there. LINKS directions, as of the velocity set.
#include "bounce_back.hpp"

// A grid of cells along z, y and x.
struct Grid {
  Index planes, rows, columns;
};

INLINE constexpr int unit_of(int q) { return int(weight(q) / weight(DIRECTIONS - 1) + 0.5); }

// The direction of a velocity, 0 if there is none.
INLINE int direction_of(int x, int y, int z) {
  int found = 0;
  UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
    if (CX[q] == x && CY[q] == y && CZ[q] == z) found = q;
  }
  return found;
}

INLINE Index wrapped(Index place, int by, Index size) {
  const Index next = place + by;
  return next < 0 ? size - 1 : next == size ? 0 : next;
}

// Places of sites, each of them z, y and x in the image, and tables that say in which block a plane, row or
// column is: the first entry is of the one before the image, the last of the one behind it.
struct Places {
  const unsigned short *z, *y, *x;
  const int *planes, *rows, *columns;
};

INLINE Places places_of(const unsigned short* places, const int* tables, Index sites, Index planes,
                        Index rows) {
  return {places, places + sites, places + 2 * sites, tables, tables + planes + 2,
          tables + planes + rows + 4};
}

// The block of the neighbour of a site along a direction; direction 0 is the site itself.
INLINE Index block_of(Places p, Grid blocks, Index site, int q) {
  const Index z = p.planes[p.z[site] + 1 + CZ[q]], y = p.rows[p.y[site] + 1 + CY[q]],
              x = p.columns[p.x[site] + 1 + CX[q]];
  return (z * blocks.rows + y) * blocks.columns + x;
}

// How a step from a place along an axis changes the block, which has `edge` places.
INLINE int step_between(Index place, int by, Index edge, Index size) {
  if (by > 0) return (place + 1) % edge == 0 || place + 1 == size;
  return by < 0 && place % edge == 0 ? -1 : 0;
}

// Count the links between blocks, in units of the smallest weight.
KERNEL count_links(const Link* RESTRICT walls, const unsigned short* RESTRICT places,
                   const int* RESTRICT tables, unsigned* couplings, Index edge, Index planes, Index rows,
                   Index columns, Index block_planes, Index block_rows, Index block_columns,
                   Index segments, Index count, Index sites) {
  const Grid blocks = {block_planes, block_rows, block_columns};
  const Index cells = block_planes * block_rows * block_columns;
  const Places p = places_of(places, tables, sites, planes, rows);
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS_IN_TURN(lane, SEGMENT) {
      const Index site = segment * SEGMENT + lane;
      if (site < count) {
        const Index block = block_of(p, blocks, site, 0);
        for (int q = 1; q < DIRECTIONS; ++q) {
          // What comes along a direction comes from the site upstream.
          if (walls[site] >> (opposite(q) - 1) & 1) continue;
          const int to = direction_of(step_between(p.x[site], CX[q], edge, columns),
                                      step_between(p.y[site], CY[q], edge, rows),
                                      step_between(p.z[site], CZ[q], edge, planes));
          if (to) add_atomically(couplings + (to - 1) * cells + block, unsigned(unit_of(q)));
        }
      }
    }
  }
}

// What the weights leave of the residual's density: of sites, and summed over blocks as whole numbers.
KERNEL sum_over_blocks(const float* RESTRICT residual, const float* RESTRICT residual_changes,
                       const double* RESTRICT weights, Index vectors, double scale,
                       const unsigned short* RESTRICT places, const int* RESTRICT tables,
                       float* RESTRICT rest, Index* sums, Index planes, Index rows, Index block_planes,
                       Index block_rows, Index block_columns, Index size, Index segments, Index count,
                       Index sites) {
  const Grid blocks = {block_planes, block_rows, block_columns};
  const Places p = places_of(places, tables, sites, planes, rows);
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS_IN_TURN(lane, SEGMENT) {
      const Index site = segment * SEGMENT + lane;
      if (site < count) {
        double left = residual[site];
        for (Index j = 0; j < vectors; ++j) left -= weights[j] * double(residual_changes[j * size + site]);
        rest[site] = float(left);
        const Index whole = Index(rint(scale * double(float(left))));
        if (whole) add_atomically(sums + block_of(p, blocks, site, 0), whole);
      }
    }
  }
}

// The pressure of sites from that of the blocks that their links lead to, times a factor, in place of what is
// left of the residual; and sums over rows as whole numbers.
KERNEL spread_pressure(const float* RESTRICT pressure, const Link* RESTRICT walls,
                       const unsigned short* RESTRICT places, const int* RESTRICT tables, double factor,
                       double scale, float* RESTRICT rest, double* RESTRICT sums, Index planes,
                       Index image_rows, Index block_planes, Index block_rows, Index block_columns,
                       Index rows, Index columns, Index count, Index sites) {
  const Grid blocks = {block_planes, block_rows, block_columns};
  const Places p = places_of(places, tables, sites, planes, image_rows);
  FOR_ROWS(row, rows) {
    const Index first = row * columns, here = count - first < columns ? count - first : columns;
    double sum = 0;
    FOR_COLUMNS_IN_TURN(c, here) {
      const Index site = first + c;
      double value = rest[site];
      int units = 0;
      for (int q = 1; q < DIRECTIONS; ++q) {
        if (walls[site] >> (opposite(q) - 1) & 1) continue;
        units += unit_of(q);
        value += unit_of(q) * double(pressure[block_of(p, blocks, site, q)]);
      }
      rest[site] = units ? float(factor * value / units) : 0.0f;
      sum += rint(scale * double(rest[site]));
    }
    sum = row_sum(sum);
    if (FIRST_COLUMN) sums[row] = sum;
  }
}

// Couplings of blocks twice as large: of all that leads from one to another, over twice the distance.
KERNEL couple_larger_blocks(const float* RESTRICT fine, float* RESTRICT coarse, Index fine_planes,
                            Index fine_rows, Index fine_columns, Index planes, Index rows,
                            Index columns) {
  const Index fine_cells = fine_planes * fine_rows * fine_columns, cells = planes * rows * columns;
  FOR_ROWS(row, planes * rows) {
    FOR_COLUMNS_IN_TURN(column, columns) {
      float sums[LINKS] = {};
      for (int child = 0; child < 8; ++child) {
        const Index z = row / rows * 2 + child / 4, y = row % rows * 2 + child / 2 % 2,
                    x = column * 2 + child % 2;
        if (z >= fine_planes || y >= fine_rows || x >= fine_columns) continue;
        for (int q = 1; q < DIRECTIONS; ++q) {
          const int to = direction_of(step_between(x, CX[q], 2, fine_columns),
                                      step_between(y, CY[q], 2, fine_rows),
                                      step_between(z, CZ[q], 2, fine_planes));
          const Index cell = (z * fine_rows + y) * fine_columns + x;
          if (to) sums[to - 1] += fine[(q - 1) * fine_cells + cell] / 2;
        }
      }
      for (int k = 0; k < LINKS; ++k) coarse[k * cells + row * columns + column] = sums[k];
    }
  }
}

// share * b less what `pressure` drives out of each block; or, with a relaxation, the pressure that is relaxed by
// so much of that, over the conductance of the block.
KERNEL flow_out_of_blocks(const float* RESTRICT couplings, const float* RESTRICT pressure,
                          const float* RESTRICT b, float* RESTRICT out, double share, double relaxation,
                          Index planes, Index rows, Index columns) {
  const Index cells = planes * rows * columns;
  FOR_ROWS(row, planes * rows) {
    const Index z = row / rows, y = row % rows;
    // The row of blocks that each direction leads to.
    const float* RESTRICT next[LINKS];
    UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
      next[q - 1] = pressure + (wrapped(z, CZ[q], planes) * rows + wrapped(y, CY[q], rows)) * columns;
    }
    const float* RESTRICT coupling = couplings + row * columns;
    const auto relax = [&](Index x, Index before, Index after) {
      const float here = pressure[row * columns + x];
      float outflow = 0, all = 0;
      UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
        const float one = coupling[(q - 1) * cells + x];
        outflow += one * (here - next[q - 1][CX[q] > 0 ? after : CX[q] < 0 ? before : x]);
        all += one;
      }
      const float left = float(share) * b[row * columns + x] - outflow;
      const float relaxed = all > 0 ? here + float(relaxation) * left / all : 0.0f;
      out[row * columns + x] = relaxation == 0 ? left : relaxed;
    };
    // The first and the last column apart, so that a CPU loads neighbours of the others at once.
    FOR_COLUMNS(x, columns - 2) relax(x + 1, x, x + 2);
    FOR_COLUMNS(end, columns < 2 ? 1 : 2) {
      const Index x = end ? columns - 1 : 0;
      relax(x, wrapped(x, -1, columns), wrapped(x, 1, columns));
    }
  }
}

KERNEL sum_of_children(const float* RESTRICT fine, float* RESTRICT coarse, Index fine_planes,
                       Index fine_rows, Index fine_columns, Index planes, Index rows, Index columns) {
  FOR_ROWS(row, planes * rows) {
    FOR_COLUMNS(column, columns) {
      float sum = 0;
      UNROLL for (int child = 0; child < 8; ++child) {
        const Index z = row / rows * 2 + child / 4, y = row % rows * 2 + child / 2 % 2,
                    x = column * 2 + child % 2;
        if (z < fine_planes && y < fine_rows && x < fine_columns) {
          sum += fine[(z * fine_rows + y) * fine_columns + x];
        }
      }
      coarse[row * columns + column] = sum;
    }
  }
}

KERNEL add_to_children(const float* RESTRICT coarse, float* RESTRICT fine, Index fine_planes,
                       Index fine_rows, Index fine_columns, Index rows, Index columns) {
  FOR_ROWS(row, fine_planes * fine_rows) {
    const Index above = (row / fine_rows / 2 * rows + row % fine_rows / 2) * columns;
    FOR_COLUMNS(column, fine_columns) fine[row * fine_columns + column] += coarse[above + column / 2];
  }
}
