// Spheres of one radius: placed at random without overlap, and drawn into a mask of voxels.
//
// Lengths are in voxels. A centre is z, y, x.
#include "portability.hpp"

// In rows of a mask, of `columns` voxels from index `start` on, whose planes and rows are at z and
// y, voxels with their centre in a sphere become 0; others stay. The spheres are sorted by z:
// a plane is reached by the spheres first[plane] up to last[plane] of the list only.
KERNEL clear_spheres(unsigned char* RESTRICT mask, const double* RESTRICT centres,
                     const Index* RESTRICT first, const Index* RESTRICT last,
                     const double* RESTRICT z, const double* RESTRICT y, Index planes, Index rows,
                     Index columns, Index start, double radius) {
  FOR_ROWS(r, planes * rows) {
    const Index plane = r / rows, row = r % rows;
    unsigned char* RESTRICT to = mask + r * columns;
    for (Index i = first[plane]; i < last[plane]; ++i) {
      const double dz = z[plane] - centres[3 * i], dy = y[row] - centres[3 * i + 1];
      const double rest = radius * radius - dz * dz - dy * dy;
      if (rest < 0) continue;
      // Whole numbers are subtracted last: the voxels must not depend on where a rank's rows start.
      const double half = sqrt(rest), middle = centres[3 * i + 2] - 0.5;
      const Index low = Index(ceil(middle - half)) - start;
      const Index high = Index(floor(middle + half)) + 1 - start;
      const Index from = low > 0 ? low : 0, count = (high < columns ? high : columns) - from;
      FOR_COLUMNS(c, count) to[from + c] = 0;
    }
  }
}

INLINE double nearest_image(double distance, double period) {
  return distance - period * floor(distance / period + 0.5);
}

// A periodic box of cells that are so small that none has room for two centres.
struct Cells {
  double period[3];
  Index count[3], reach[3];  // cells along each axis, and how many of them a diameter spans
};

INLINE Index cell_of(const double* centre, const Cells& cells, int axis) {
  const Index cell = Index(centre[axis] / cells.period[axis] * cells.count[axis]);
  return cell < cells.count[axis] ? cell : cells.count[axis] - 1;
}

INLINE bool is_free(const double* centre, const double* centres, const int* owner,
                    const Cells& cells, double diameter) {
  Index at[3];
  for (int axis = 0; axis < 3; ++axis) at[axis] = cell_of(centre, cells, axis);
  const Index* n = cells.count;
  const Index* reach = cells.reach;
  for (Index z = at[0] - reach[0]; z <= at[0] + reach[0]; ++z)
    for (Index y = at[1] - reach[1]; y <= at[1] + reach[1]; ++y)
      for (Index x = at[2] - reach[2]; x <= at[2] + reach[2]; ++x) {
        const Index row = (z + n[0]) % n[0] * n[1] + (y + n[1]) % n[1];
        const Index other = owner[row * n[2] + (x + n[2]) % n[2]];
        if (other < 0) continue;
        double square = 0;
        for (int axis = 0; axis < 3; ++axis) {
          const double distance = centre[axis] - centres[3 * other + axis];
          const double least = nearest_image(distance, cells.period[axis]);
          square += least * least;
        }
        if (square < diameter * diameter) return false;
      }
  return true;
}

// Take candidates in their order, each where it overlaps none that was taken before, until there
// are `wanted`. `owner` has the number of the sphere whose centre is in a cell, or -1; *taken is
// how many there are. One thread does it all.
KERNEL add_spheres(double* RESTRICT centres, int* RESTRICT owner, Index* RESTRICT taken,
                   const double* RESTRICT candidates, Index count, Index wanted, double diameter,
                   double period_z, double period_y, double period_x, Index cells_z, Index cells_y,
                   Index cells_x, Index reach_z, Index reach_y, Index reach_x) {
  const Cells cells = {{period_z, period_y, period_x}, {cells_z, cells_y, cells_x},
                       {reach_z, reach_y, reach_x}};
  FOR_ROWS(all, 1) {
    if (!FIRST_COLUMN) continue;
    for (Index i = 0; i < count && *taken < wanted; ++i) {
      const double* centre = candidates + 3 * i;
      if (!is_free(centre, centres, owner, cells, diameter)) continue;
      for (int axis = 0; axis < 3; ++axis) centres[3 * *taken + axis] = centre[axis];
      const Index row = cell_of(centre, cells, 0) * cells_y + cell_of(centre, cells, 1);
      owner[row * cells_x + cell_of(centre, cells, 2)] = int(*taken);
      *taken += 1;
    }
  }
}
