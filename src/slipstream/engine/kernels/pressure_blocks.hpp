// The pressure of blocks of sites, from which a steady flow is extrapolated (lattice/pressure_blocks.py).
//
// Blocks are the cells of a grid that is periodic. `couplings` has, for the first direction of each pair of
// opposite ones, how well a block conducts to the next one: 0 if nothing leads there.
#include "bounce_back.hpp"

// A grid of cells along z, y and x.
struct Grid {
  Index planes, rows, columns;
};

constexpr int PAIRS = LINKS / 2;

INLINE constexpr int unit_of(int q) { return int(weight(q) / weight(DIRECTIONS - 1) + 0.5); }

// The pair whose first direction has this velocity, -1 if there is none.
INLINE int pair_of(int x, int y, int z) {
  int found = -1;
  UNROLL for (int k = 0; k < PAIRS; ++k) {
    if (CX[2 * k + 1] == x && CY[2 * k + 1] == y && CZ[2 * k + 1] == z) found = k;
  }
  return found;
}

INLINE Index wrapped(Index place, int by, Index size) {
  const Index next = place + by;
  return next < 0 ? size - 1 : next == size ? 0 : next;
}

// Places of sites, each of them z, y and x in the image, and tables that say in which block a plane, row or
// column is: the first entry is for the position before the image, the last for the position behind it.
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

// Note the places of the sites of all rows of a box that begins at `z`, `y` and `x` of the image.
KERNEL place_sites(const unsigned char* RESTRICT voxels, const Index* RESTRICT first, const Index* RESTRICT rows,
                   unsigned short* RESTRICT places, Index row_count, Index columns, Index height, Index z, Index y,
                   Index x, Index sites) {
  FOR_ROWS(r, row_count) {
    const unsigned char* RESTRICT pore = voxels + rows[r] * (columns + 2) + 1;
    count_columns(
        columns, [&](Index c) { return pore[c] != 0; },
        [&](Index c, Index before) {
          if (!pore[c]) return;
          const Index site = first[rows[r]] + before;
          places[site] = (unsigned short)(z + r / height);
          places[sites + site] = (unsigned short)(y + r % height);
          places[2 * sites + site] = (unsigned short)(x + c);
        });
  }
}

// Count the links between blocks, in units of the smallest weight. Where a pair's second direction leads, the
// first one leads back.
KERNEL count_links(const Link* RESTRICT walls, const unsigned short* RESTRICT places,
                   const int* RESTRICT tables, unsigned* couplings, Index edge, Index planes,
                   Index image_rows, Index image_columns, Index block_planes, Index block_rows,
                   Index block_columns, Index rows, Index columns, Index count, Index sites) {
  const Grid blocks = {block_planes, block_rows, block_columns};
  const Index cells = block_planes * block_rows * block_columns;
  const Places p = places_of(places, tables, sites, planes, image_rows);
  FOR_ROWS(row, rows) {
    const Index first = row * columns, here = count - first < columns ? count - first : columns;
    FOR_COLUMNS_IN_TURN(c, here) {
      const Index site = first + c, block = block_of(p, blocks, site, 0);
      for (int q = 1; q < DIRECTIONS; ++q) {
        // What comes along a direction comes from the site upstream.
        if (walls[site] >> (opposite(q) - 1) & 1) continue;
        const int to = pair_of(step_between(p.x[site], CX[q], edge, image_columns),
                               step_between(p.y[site], CY[q], edge, image_rows),
                               step_between(p.z[site], CZ[q], edge, planes));
        if (to >= 0) add_atomically(couplings + to * cells + block, unsigned(unit_of(q)));
      }
    }
  }
}

// What the weights leave of the residual's density: of sites, and summed over blocks as whole numbers.
KERNEL sum_over_blocks(const float* RESTRICT residual, const float* RESTRICT residual_changes,
                       const double* RESTRICT weights, Index vectors, double scale,
                       const unsigned short* RESTRICT places, const int* RESTRICT tables,
                       float* RESTRICT rest, Index* sums, Index planes, Index image_rows, Index block_planes,
                       Index block_rows, Index block_columns, Index size, Index rows, Index columns, Index count,
                       Index sites) {
  const Grid blocks = {block_planes, block_rows, block_columns};
  const Places p = places_of(places, tables, sites, planes, image_rows);
  FOR_ROWS(row, rows) {
    const Index first = row * columns, here = count - first < columns ? count - first : columns;
    FOR_COLUMNS(c, here) {
      const Index site = first + c;
      double left = residual[site];
      for (Index j = 0; j < vectors; ++j) left -= weights[j] * double(residual_changes[j * size + site]);
      rest[site] = float(left);
    }
    FOR_COLUMNS_IN_TURN(c, here) {
      const Index site = first + c;
      const Index whole = Index(rint(scale * double(rest[site])));
      if (whole) add_atomically(sums + block_of(p, blocks, site, 0), whole);
    }
  }
}

// The pressure of sites from the pressure of the blocks that their links lead to, times a factor, instead of
// the rest of the residual; and sums over rows as whole numbers.
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
      const Index z[] = {p.planes[p.z[site]], p.planes[p.z[site] + 1], p.planes[p.z[site] + 2]};
      const Index y[] = {p.rows[p.y[site]], p.rows[p.y[site] + 1], p.rows[p.y[site] + 2]};
      const Index x[] = {p.columns[p.x[site]], p.columns[p.x[site] + 1], p.columns[p.x[site] + 2]};
      const Link closed = walls[site];
      double value = rest[site];
      int units = 0;
      UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
        const int open = closed >> (opposite(q) - 1) & 1 ? 0 : unit_of(q);
        const Index block = (z[1 + CZ[q]] * blocks.rows + y[1 + CY[q]]) * blocks.columns + x[1 + CX[q]];
        units += open;
        value += open * double(pressure[block]);
      }
      rest[site] = units ? float(factor * value / units) : 0.0f;
      sum += rint(scale * double(rest[site]));
    }
    sum = row_sum(sum);
    if (FIRST_COLUMN) sums[row] = sum;
  }
}

// Rows of what follows have one more place before and behind, for the last block and the first, so that no block
// but those of other rows has to be looked for: a CPU loads neighbours of many blocks as vectors.
INLINE Index inner(Index place, Index columns) { return place == 0 ? columns : place > columns ? 1 : place; }

// Numbers of blocks, with those places: counts times a factor, and whole numbers over the largest of them.
KERNEL with_ends(const unsigned* RESTRICT counts, double factor, float* RESTRICT out, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    FOR_COLUMNS(place, columns + 2) {
      out[row * (columns + 2) + place] = float(counts[row * columns + inner(place, columns) - 1]) * float(factor);
    }
  }
}

KERNEL give_parts(const Index* RESTRICT sums, double largest, float* RESTRICT b, float* RESTRICT found,
                  float* RESTRICT along, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    FOR_COLUMNS(place, columns + 2) {
      const Index to = row * (columns + 2) + place;
      b[to] = float(double(sums[row * columns + inner(place, columns) - 1]) / largest);
      found[to] = 0;
      along[to] = 0;
    }
  }
}

// The largest of each row: of whole numbers, and of pressures, which are taken times a factor without those places.
KERNEL largest_sums(const Index* RESTRICT sums, double* RESTRICT largest, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    double most = 0;
    FOR_COLUMNS_MAXIMUM(x, columns, most) {
      const double size = fabs(double(sums[row * columns + x]));
      most = size > most ? size : most;
    }
    const Index found = row_maximum(ordered_bits(most));
    if (FIRST_COLUMN) largest[row] = number_of_bits(found);
  }
}

KERNEL take_found(const float* RESTRICT found, double factor, float* RESTRICT pressure, double* RESTRICT largest,
                  Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    double most = 0;
    FOR_COLUMNS_MAXIMUM(x, columns, most) {
      const float here = found[row * (columns + 2) + 1 + x] * float(factor);
      pressure[row * columns + x] = here;
      const double size = fabs(double(here));
      most = size > most ? size : most;
    }
    const Index bits = row_maximum(ordered_bits(most));
    if (FIRST_COLUMN) largest[row] = number_of_bits(bits);
  }
}

// Couplings of blocks twice as large: of all that leads from one to another, over twice the distance.
KERNEL couple_larger_blocks(const float* RESTRICT fine, float* RESTRICT coarse, Index fine_planes,
                            Index fine_rows, Index fine_columns, Index planes, Index rows,
                            Index columns) {
  const Index fine_cells = fine_planes * fine_rows * (fine_columns + 2), cells = planes * rows * (columns + 2);
  FOR_ROWS(row, planes * rows) {
    FOR_COLUMNS_IN_TURN(place, columns + 2) {
      float sums[PAIRS] = {};
      for (int child = 0; child < 8; ++child) {
        const Index z = row / rows * 2 + child / 4, y = row % rows * 2 + child / 2 % 2,
                    x = (inner(place, columns) - 1) * 2 + child % 2;
        if (z >= fine_planes || y >= fine_rows || x >= fine_columns) continue;
        for (int q = 1; q < DIRECTIONS; ++q) {
          const int to = pair_of(step_between(x, CX[q], 2, fine_columns), step_between(y, CY[q], 2, fine_rows),
                                 step_between(z, CZ[q], 2, fine_planes));
          if (to < 0) continue;
          // The coupling along a second direction is the next block's.
          const bool is_first = q % 2;
          const Index from_z = is_first ? z : wrapped(z, CZ[q], fine_planes),
                      from_y = is_first ? y : wrapped(y, CY[q], fine_rows), from_x = is_first ? x : x + CX[q];
          const Index cell = (from_z * fine_rows + from_y) * (fine_columns + 2) + 1 + from_x;
          sums[to] += fine[(q - 1) / 2 * fine_cells + cell] / 2;
        }
      }
      for (int k = 0; k < PAIRS; ++k) coarse[k * cells + row * (columns + 2) + place] = sums[k];
    }
  }
}

// Where the blocks of a row and of those next to it begin.
struct Rows {
  Index at[3][3];
};

INLINE Rows rows_around(Index row, Index planes, Index rows, Index columns) {
  const Index z = row / rows, y = row % rows;
  Rows around;
  UNROLL for (int dz = -1; dz <= 1; ++dz) {
    UNROLL for (int dy = -1; dy <= 1; ++dy) {
      around.at[dz + 1][dy + 1] = (wrapped(z, dz, planes) * rows + wrapped(y, dy, rows)) * (columns + 2) + 1;
    }
  }
  return around;
}

// Pressures: those of an array; what a sweep makes of none; 1 here and none elsewhere.
struct Given {
  const float* values;
  INLINE float here(Index block) const { return values[block]; }
  INLINE float operator()(Index block) const { return values[block]; }
};
struct Swept {
  const float *inverse, *b;
  float share;
  INLINE float here(Index block) const { return (*this)(block); }
  INLINE float operator()(Index block) const { return share * inverse[block] * b[block]; }
};
struct Unit {
  INLINE float here(Index) const { return 1; }
  INLINE float operator()(Index) const { return 0; }
};

// What pressures drive out of the block at x of a row. Pairs by recursion, so that a CPU's compiler sees no loop
// over them when it makes vectors of the loop over columns.
template <int PAIR, class Pressure>
INLINE float outflow(const float* couplings, Index cells, Rows around, Pressure pressure, Index x, float here) {
  if constexpr (PAIR < PAIRS) {
    constexpr int Q = 2 * PAIR + 1, X = CX[Q], Y = CY[Q], Z = CZ[Q];
    const Index to = around.at[1 + Z][1 + Y] + x + X, from = around.at[1 - Z][1 - Y] + x - X;
    const float* coupling = couplings + PAIR * cells;
    return coupling[around.at[1][1] + x] * (here - pressure(to)) + coupling[from] * (here - pressure(from)) +
           outflow<PAIR + 1>(couplings, cells, around, pressure, x, here);
  }
  return 0;
}

// What is made of the outflow of a block, and whether others look for it at both ends of the row.
struct Invert {
  static constexpr bool HAS_ENDS = true;
  float* out;
  INLINE void operator()(Index place, Index, float, float outflow) const {
    out[place] = outflow > 0 ? 1 / outflow : 0;
  }
};
struct Relax {
  static constexpr bool HAS_ENDS = true;
  const float *inverse, *b;
  float* out;
  float share;
  INLINE void operator()(Index place, Index block, float here, float outflow) const {
    out[place] = here + share * inverse[block] * (b[block] - outflow);
  }
};
struct Leave {
  static constexpr bool HAS_ENDS = false;
  const float* b;
  float* out;
  INLINE void operator()(Index place, Index block, float, float outflow) const { out[place] = b[block] - outflow; }
};
struct Keep {
  static constexpr bool HAS_ENDS = false;
  float* out;
  INLINE void operator()(Index place, Index, float, float outflow) const { out[place] = outflow; }
};

// `count` rows of blocks, from `first` on.
template <class Pressure, class Use>
INLINE void each_row(const float* couplings, Pressure of_block, Use what_for, Index first, Index planes, Index rows,
                     Index columns, Index count) {
  FOR_ROWS(i, count) {
    // Copies, which a thread of a CPU has to itself: vectors are made of loops over what cannot change.
    const Pressure pressure = of_block;
    const Use use = what_for;
    const Index cells = planes * rows * (columns + 2);
    const Rows around = rows_around(first + i, planes, rows, columns);
    const Index start = around.at[1][1];
    FOR_COLUMNS(x, columns) {
      const float here = pressure.here(start + x);
      use(start + x, start + x, here, outflow<0>(couplings, cells, around, pressure, x, here));
    }
    if constexpr (Use::HAS_ENDS) {
      FOR_COLUMNS(end, 2) {
        const Index x = end ? columns - 1 : 0;
        const float here = pressure.here(start + x);
        use(end ? start - 1 : start + columns, start + x, here,
            outflow<0>(couplings, cells, around, pressure, x, here));
      }
    }
  }
}

// One over what each block conducts to all others; 0 if that is nothing.
KERNEL invert_conductances(const float* couplings, float* inverse, Index first, Index planes, Index rows,
                           Index columns, Index count) {
  each_row(couplings, Unit{}, Invert{inverse}, first, planes, rows, columns, count);
}

// Two sweeps from zero pressure; each relaxes it by a fraction of the residual.
KERNEL relax_twice(const float* couplings, const float* inverse, const float* b, float* out, double relaxation,
                   double second, Index first, Index planes, Index rows, Index columns, Index count) {
  each_row(couplings, Swept{inverse, b, float(relaxation)}, Relax{inverse, b, out, float(second)}, first, planes,
           rows, columns, count);
}

// A sweep that relaxes the pressure by a fraction of the residual.
KERNEL relax_pressure(const float* couplings, const float* inverse, const float* given, const float* b, float* out,
                      double relaxation, Index first, Index planes, Index rows, Index columns, Index count) {
  each_row(couplings, Given{given}, Relax{inverse, b, out, float(relaxation)}, first, planes, rows, columns, count);
}

// What the pressure leaves of b.
KERNEL leave_of(const float* couplings, const float* given, const float* b, float* out, Index first, Index planes,
                Index rows, Index columns, Index count) {
  each_row(couplings, Given{given}, Leave{b, out}, first, planes, rows, columns, count);
}

INLINE float sum_of_eight(const float* RESTRICT fine, Index planes, Index rows, Index columns, Index z, Index y,
                          Index x) {
  float sum = 0;
  UNROLL for (int child = 0; child < 8; ++child) {
    const Index below = 2 * z + child / 4, aside = 2 * y + child / 2 % 2, along = 2 * x + child % 2;
    if (below < planes && aside < rows && along < columns) {
      sum += fine[(below * rows + aside) * (columns + 2) + 1 + along];
    }
  }
  return sum;
}

KERNEL sum_of_children(const float* RESTRICT fine, float* RESTRICT coarse, Index fine_planes, Index fine_rows,
                       Index fine_columns, Index first, Index rows, Index columns, Index count) {
  FOR_ROWS(i, count) {
    const Index z = (first + i) / rows, y = (first + i) % rows, start = (first + i) * (columns + 2) + 1;
    FOR_COLUMNS(x, columns) {
      coarse[start + x] = sum_of_eight(fine, fine_planes, fine_rows, fine_columns, z, y, x);
    }
    FOR_COLUMNS(end, 2) {
      coarse[end ? start - 1 : start + columns] =
          sum_of_eight(fine, fine_planes, fine_rows, fine_columns, z, y, end ? columns - 1 : 0);
    }
  }
}

KERNEL add_to_children(const float* RESTRICT coarse, float* RESTRICT fine, Index coarse_rows,
                       Index coarse_columns, Index first, Index rows, Index columns, Index count) {
  FOR_ROWS(i, count) {
    const Index z = (first + i) / rows, y = (first + i) % rows, start = (first + i) * (columns + 2) + 1;
    const float* RESTRICT above = coarse + (z / 2 * coarse_rows + y / 2) * (coarse_columns + 2) + 1;
    FOR_COLUMNS(x, columns) fine[start + x] += above[x >> 1];
    FOR_COLUMNS(end, 2) fine[end ? start - 1 : start + columns] += above[end ? (columns - 1) / 2 : 0];
  }
}

// The pressure of a few blocks, by a matrix.
KERNEL solve_few(const float* RESTRICT inverse, const float* RESTRICT b, float* RESTRICT out, Index columns,
                 Index cells) {
  FOR_ROWS(row, cells) {
    double sum = 0;
    FOR_COLUMNS_SUM(cell, cells, sum) {
      sum += double(inverse[row * cells + cell]) * double(b[cell + cell / columns * 2 + 1]);
    }
    sum = row_sum(sum);
    if (FIRST_COLUMN) out[row + row / columns * 2 + 1] = float(sum);
  }
}

// Conjugate gradients. Their scalars stay where they are computed: residual * preconditioned residual,
// its previous value, direction * A direction, and the squared residual.
enum Scalar { SIZE, SIZE_BEFORE, COST, REST };

KERNEL multiply_rows(const float* RESTRICT a, const float* RESTRICT b, double* RESTRICT sums, Index first,
                     Index columns, Index count) {
  FOR_ROWS(i, count) {
    const Index start = (first + i) * (columns + 2) + 1;
    double sum = 0;
    FOR_COLUMNS_SUM(x, columns, sum) sum += double(a[start + x]) * double(b[start + x]);
    sum = row_sum(sum);
    if (FIRST_COLUMN) sums[first + i] = sum;
  }
}

// Sums over groups of numbers. With a number of a scalar, of all of them: that is the new one.
KERNEL add_up(const double* RESTRICT parts, double* RESTRICT sums, double* RESTRICT scalars, Index scalar,
              Index parts_count, Index columns, Index groups) {
  FOR_ROWS(group, groups) {
    const Index start = group * columns, here = parts_count - start < columns ? parts_count - start : columns;
    double sum = 0;
    FOR_COLUMNS_SUM(x, here, sum) sum += parts[start + x];
    sum = row_sum(sum);
    if (FIRST_COLUMN && scalar < 0) sums[group] = sum;
    if (FIRST_COLUMN && scalar >= 0) {
      if (scalar == SIZE) scalars[SIZE_BEFORE] = scalars[SIZE];
      scalars[scalar] = sum;
    }
  }
}

// The next direction.
KERNEL turn_along(const float* RESTRICT relaxed, const double* RESTRICT scalars, float* RESTRICT along,
                  Index first, Index columns, Index count) {
  const float share = scalars[SIZE_BEFORE] > 0 ? float(scalars[SIZE] / scalars[SIZE_BEFORE]) : 0.0f;
  FOR_ROWS(i, count) {
    const Index start = (first + i) * (columns + 2);
    FOR_COLUMNS(place, columns + 2) along[start + place] = relaxed[start + place] + share * along[start + place];
  }
}

// What the direction drives out of each block.
KERNEL drive_along(const float* couplings, const float* along, float* driven, Index first, Index planes, Index rows,
                   Index columns, Index count) {
  each_row(couplings, Given{along}, Keep{driven}, first, planes, rows, columns, count);
}

// A step in that direction.
KERNEL step_along(const float* RESTRICT along, const float* RESTRICT driven, const double* RESTRICT scalars,
                  float* RESTRICT found, float* RESTRICT left, double* RESTRICT sums, Index first, Index columns,
                  Index count) {
  const bool goes_on = scalars[COST] > 0 && scalars[SIZE] > 0;
  const float step = goes_on ? float(scalars[SIZE] / scalars[COST]) : 0.0f;
  FOR_ROWS(i, count) {
    const Index start = (first + i) * (columns + 2) + 1;
    double sum = 0;
    FOR_COLUMNS_SUM(x, columns, sum) {
      found[start + x] += step * along[start + x];
      const float rest = left[start + x] - step * driven[start + x];
      left[start + x] = rest;
      sum += double(rest) * double(rest);
    }
    sum = row_sum(sum);
    if (FIRST_COLUMN) sums[first + i] = sum;
    FOR_COLUMNS(end, 2) left[end ? start - 1 : start + columns] -= step * driven[end ? start + columns - 1 : start];
  }
}
