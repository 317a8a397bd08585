// Which pore voxels of an image belong to connected sets that percolate, for processors with few and
// fast threads: runs are written, united within blocks of planes, and cleared.
#include "connected_components.hpp"

// Compilers make one load of it.
INLINE unsigned long long eight_of(const Byte* row) {
  unsigned long long eight = 0;
  UNROLL for (int i = 0; i < 8; ++i) eight |= (unsigned long long)(row[i]) << 8 * i;
  return eight;
}

// Eight voxels in one comparison: rows are mostly long runs of the same.
INLINE Index next_change(const Byte* row, Index x, Index columns, bool pore) {
  const unsigned long long same = pore ? 0x0101010101010101ull : 0ull;
  while (x + 8 <= columns && eight_of(row + x) == same) x += 8;
  while (x < columns && (row[x] != 0) == pore) ++x;
  return x;
}

KERNEL count_runs(const Byte* RESTRICT voxels, Index* RESTRICT counts, Index rows, Index columns) {
  FOR_ROWS(r, rows) {
    const Byte* row = voxels + r * columns;
    int count = row[0] != 0;
    for (Index x = 1; x < columns; ++x) count += (row[x] != 0) & (row[x - 1] == 0);
    counts[r] = count;
  }
}

// Write runs, each as its own set. The rows are those of `planes` planes in all, from row `begin`
// on. Only `walled` axes, bits with z first, have faces.
KERNEL write_runs(const Byte* RESTRICT voxels, const Index* RESTRICT first, Run* RESTRICT runs,
                  Index* RESTRICT parents, Shift* RESTRICT shifts, Flags* RESTRICT flags, Index begin,
                  Index rows, Index planes, Index rows_of_plane, Index columns, Index walled) {
  const int counted = int(walled << LOW | walled << HIGH);
  FOR_ROWS(r, rows) {
    const Byte* row = voxels + r * columns;
    const Index z = (begin + r) / rows_of_plane, y = (begin + r) % rows_of_plane;
    const int faces = (z == 0) << LOW | (z == planes - 1) << HIGH | (y == 0) << (LOW + 1) |
                      (y == rows_of_plane - 1) << (HIGH + 1);
    Index x = 0;
    for (Index i = first[r]; i < first[r + 1]; ++i) {
      const Index start = next_change(row, x, columns, false);
      x = next_change(row, start, columns, true);
      runs[i] = {int(start), int(x)};
      parents[i] = i;
      shifts[i] = {0, 0, 0};
      flags[i] = Flags(counted & (faces | (start == 0) << (LOW + 2) | (x == columns) << (HIGH + 2)));
    }
  }
}

// Unite the runs of blocks of planes, each alone: block b are planes from bounds[b] on.
KERNEL unite_blocks(const Index* first, const Run* runs, Index* parents, Shift* shifts, Flags* flags,
                    const Index* bounds, Index blocks, Index rows, Index columns, Index y_periodic,
                    Index x_periodic) {
  const Sets sets = {parents, shifts, flags};
  const Grid grid = {rows, columns, y_periodic != 0, x_periodic != 0};
  FOR_ROWS(b, blocks) {
    const auto take = [&](Index i, Index j, int y, int x) { unite(sets, i, j, shift_of(0, y, x)); };
    for (Index z = bounds[b]; z < bounds[b + 1]; ++z) {
      const Rows plane = plane_of({first, runs}, grid, z), below = plane_of({first, runs}, grid, z - 1);
      for (Index y = 0; y < rows; ++y) {
        if (grid.x_periodic)
          for_pairs_across_x(plane, y, plane, y, columns, [&](Index i, Index j, int x) { take(i, j, 0, x); });
        for_touching(plane, plane, grid, y, -1, true, take);
        if (z > bounds[b]) for_touching_below(plane, below, grid, y, take);
      }
    }
  }
}

// Unite the sets of all blocks.
KERNEL join_blocks(const Index* first, const Run* runs, Index* parents, Shift* shifts, Flags* flags,
                   const Index* bounds, Index blocks, Index rows, Index columns, Index y_periodic,
                   Index x_periodic) {
  const Sets sets = {parents, shifts, flags};
  const Grid grid = {rows, columns, y_periodic != 0, x_periodic != 0};
  for (Index b = 1; b < blocks; ++b) {
    const Rows plane = plane_of({first, runs}, grid, bounds[b]);
    const Rows below = plane_of({first, runs}, grid, bounds[b] - 1);
    for (Index y = 0; y < rows; ++y)
      for_touching_below(plane, below, grid, y,
                         [&](Index i, Index j, int dy, int dx) { unite(sets, i, j, shift_of(0, dy, dx)); });
  }
}

// What others need to know of a run: its root, counted from `base` on, the root's flags, and the
// shift from the root.
KERNEL write_places(Index* parents, Shift* shifts, Flags* flags, Index* RESTRICT places, Index begin,
                    Index count, Index base) {
  FOR_ROWS(i, count) {
    const Place place = place_of({parents, shifts, flags}, begin + i);
    Index* entry = places + 5 * i;
    entry[0] = base + place.root;
    entry[1] = flags[place.root];
    entry[2] = place.shift.z;
    entry[3] = place.shift.y;
    entry[4] = place.shift.x;
  }
}

// Write how the sets of a plane touch those of the plane below, which lies across `z_seams` seams
// of z: two roots, the flags of both, and the way from root to root. *count becomes the number of entries.
KERNEL write_edges(const Index* first, const Run* runs, const Index* places, const Index* below_first,
                   const Run* below_runs, const Index* below_places, Index* edges, Index* count,
                   Index rows, Index columns, Index z_seams, Index y_periodic, Index x_periodic) {
  const Grid grid = {rows, columns, y_periodic != 0, x_periodic != 0};
  Index written = 0;
  for (Index y = 0; y < rows; ++y)
    for_touching_below({first, runs}, {below_first, below_runs}, grid, y, [&](Index i, Index j, int dy, int dx) {
      const Index *one = places + 5 * i, *other = below_places + 5 * j;
      Index* entry = edges + 7 * written++;
      entry[0] = one[0];
      entry[1] = other[0];
      entry[2] = one[1];
      entry[3] = other[1];
      entry[4] = one[2] + z_seams - other[2];
      entry[5] = one[3] + dy - other[3];
      entry[6] = one[4] + dx - other[4];
    });
  *count = written;
}

// Unite sets along such edges, whose roots have numbers among `nodes`, and make every node a child
// of its root. Without edges that are not `useful`, the result is the same.
KERNEL unite_edges(const Index* ends, const Index* edges, Index count, Byte* useful, Index* parents,
                   Shift* shifts, Flags* flags, Index nodes) {
  const Sets sets = {parents, shifts, flags};
  for (Index e = 0; e < count; ++e) {
    const Index* edge = edges + 7 * e;
    useful[e] = unite(sets, ends[2 * e], ends[2 * e + 1], shift_of(edge[4], edge[5], edge[6]));
  }
  for (Index i = 0; i < nodes; ++i) parents[i] = parents[parents[i]];  // parents come first
}

// Clear the runs of sets that percolate along no wanted axis. Of each row: its pore voxels, those
// that are kept, its roots, and the axes along which their sets percolate. Axes are bits, z first.
KERNEL clear_runs(Byte* RESTRICT voxels, const Index* RESTRICT first, const Run* RESTRICT runs,
                  Index* parents, Shift* shifts, Flags* flags, Index* RESTRICT totals, Index rows,
                  Index columns, Index wanted) {
  FOR_ROWS(r, rows) {
    Index pores = 0, kept = 0, roots = 0, percolated = 0;
    for (Index i = first[r]; i < first[r + 1]; ++i) {
      const Run run = runs[i];
      const Index root = place_of({parents, shifts, flags}, i).root, flag = flags[root];
      const Index percolates = (flag >> WINDS | (flag >> LOW & flag >> HIGH)) & 7;
      pores += run.stop - run.start;
      if (root == i) {
        ++roots;
        percolated |= percolates;
      }
      if (percolates & wanted)
        kept += run.stop - run.start;
      else
        for (Index x = run.start; x < run.stop; ++x) voxels[r * columns + x] = 0;
    }
    Index* total = totals + 4 * r;
    total[0] = pores;
    total[1] = kept;
    total[2] = roots;
    total[3] = percolated;
  }
}
