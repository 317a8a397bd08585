// Sets of connected pore voxels, and which runs of them touch.
//
// Nodes are runs: pore voxels that follow each other in a row. Sets of connected runs are trees of
// parents. Each run also knows its shift to its parent: how often, and in which direction, the way
// there crosses the seam of each periodic axis. If two runs of one set meet by a way of another
// shift, there is a closed way around the periodic image: the set winds.
//
// Rows are counted through planes; the runs of row r are those from first[r] up to first[r + 1].
#include "portability.hpp"

using Byte = unsigned char;
using Flags = unsigned short;

// Three bits each, z first: a set touches the face where an axis begins, the face where it ends, or
// winds along it.
constexpr int LOW = 0, HIGH = 3, WINDS = 6;

struct Run {
  int start, stop;
};

// Counts modulo 2^32, in which they are compared: nothing overflows.
struct Shift {
  unsigned z, y, x;
};

INLINE Shift operator+(Shift a, Shift b) { return {a.z + b.z, a.y + b.y, a.x + b.x}; }
INLINE Shift operator-(Shift a, Shift b) { return {a.z - b.z, a.y - b.y, a.x - b.x}; }
INLINE Shift shift_of(Index z, Index y, Index x) { return {unsigned(z), unsigned(y), unsigned(x)}; }

// ---------------------------------------------------------------------------------------- sets

// A root is its own parent, and the first run of its set; it alone has flags that count.
struct Sets {
  Index* parents;
  Shift* shifts;
  Flags* flags;
};

struct Place {
  Index root;
  Shift shift;  // from the root
};

INLINE Place place_of(Sets sets, Index run) {
  Place place = {run, {0, 0, 0}};
  for (; sets.parents[place.root] != place.root; place.root = sets.parents[place.root])
    place.shift = place.shift + sets.shifts[place.root];
  return place;
}

// The same, and every other run on the way becomes a child of its parent's parent.
INLINE Place shorten(Sets sets, Index run) {
  Shift shift = {0, 0, 0};
  while (sets.parents[run] != run) {
    const Index parent = sets.parents[run];
    sets.parents[run] = sets.parents[parent];
    sets.shifts[run] = sets.shifts[run] + sets.shifts[parent];
    shift = shift + sets.shifts[run];
    run = sets.parents[run];
  }
  return {run, shift};
}

// Unite the sets of a run and of its neighbour, which lies across the seams that `across` counts.
// Returns whether this tells anything new of the sets.
INLINE bool unite(Sets sets, Index run, Index neighbour, Shift across) {
  const Place one = shorten(sets, run), other = shorten(sets, neighbour);
  const Shift way = one.shift + across - other.shift;  // from root to root
  if (one.root == other.root) {
    const int winds = (way.z != 0) << WINDS | (way.y != 0) << (WINDS + 1) | (way.x != 0) << (WINDS + 2);
    const int before = sets.flags[one.root], after = before | winds;
    sets.flags[one.root] = Flags(after);
    return after != before;
  }
  const bool first = one.root < other.root;
  const Index root = first ? one.root : other.root, child = first ? other.root : one.root;
  sets.parents[child] = root;
  sets.shifts[child] = first ? way : Shift{0, 0, 0} - way;
  sets.flags[root] |= sets.flags[child];
  return true;
}

// ---------------------------------------------------------------------------------- neighbours

// Rows of a plane, or of several.
struct Rows {
  const Index* first;
  const Run* runs;
};

struct Grid {
  Index rows;  // of a plane
  Index columns;
  bool y_periodic, x_periodic;
};

// Take pairs (a, b) of runs of two rows that come closer than `reach` voxels.
template <class Take>
INLINE void for_pairs(Rows one, Index row, Rows other, Index other_row, int reach, Take take) {
  Index a = one.first[row], b = other.first[other_row];
  const Index a_end = one.first[row + 1], b_end = other.first[other_row + 1];
  while (a < a_end && b < b_end) {
    const Run run = one.runs[a], neighbour = other.runs[b];
    if (run.start < neighbour.stop + reach && neighbour.start < run.stop + reach) take(a, b);
    // Runs are at least a voxel apart: what stops first meets no further one.
    if (run.stop < neighbour.stop)
      ++a;
    else
      ++b;
  }
}

// Take triples (a, b, seams) of runs of two rows that touch each other across the seam of x.
template <class Take>
INLINE void for_pairs_across_x(Rows one, Index row, Rows other, Index other_row, Index columns, Take take) {
  const Index a = one.first[row], a_end = one.first[row + 1];
  const Index b = other.first[other_row], b_end = other.first[other_row + 1];
  if (a == a_end || b == b_end) return;
  if (one.runs[a].start == 0 && other.runs[b_end - 1].stop == columns) take(a, b_end - 1, -1);
  if (one.runs[a_end - 1].stop == columns && other.runs[b].start == 0) take(a_end - 1, b, 1);
}

// Take all (a, b, seams of y, seams of x) of row y of a plane and the row `step` from it in a
// plane. If `faces`, the rows share a face, and neighbours along x count too.
template <class Take>
INLINE void for_touching(Rows one, Rows other, Grid grid, Index y, int step, bool faces, Take take) {
  Index neighbour = y + step;
  const int seam = neighbour < 0 ? -1 : neighbour >= grid.rows ? 1 : 0;
  if (seam && !grid.y_periodic) return;
  neighbour -= seam * grid.rows;
  for_pairs(one, y, other, neighbour, faces ? 1 : 0, [&](Index a, Index b) { take(a, b, seam, 0); });
  if (faces && grid.x_periodic)
    for_pairs_across_x(one, y, other, neighbour, grid.columns,
                       [&](Index a, Index b, int x_seam) { take(a, b, seam, x_seam); });
}

// Take all (a, b, seams of y, seams of x) of row y of a plane and the plane below.
template <class Take>
INLINE void for_touching_below(Rows plane, Rows below, Grid grid, Index y, Take take) {
  for (int step = -1; step <= 1; ++step) for_touching(plane, below, grid, y, step, step == 0, take);
}

INLINE Rows plane_of(Rows rows, Grid grid, Index plane) {
  return {rows.first + plane * grid.rows, rows.runs};
}
