// The advection scheme row by row, for processors with vectors and a cache: some steps in one pass.
//
// Work is a list of tiles, whose rows stay in the cache while a thread marches through the planes. Of
// each plane, groups of rows are advanced: the blends along z and y are made in registers, vector by
// vector; the blend along x takes the vectors before and after. All steps but the last one store
// three planes of the tile, and of the points around it that the next step reads, in turn.
#include "lax_wendroff_blend.hpp"

#ifndef SLIPSTREAM_GPU

// Rows of a group, first and last neighbours included, in the planes below, at and above.
template <int ROWS>
struct Group {
  const Real* plane[3];
  Index row[ROWS + 2];
  Index ahead;  // from the plane above to the next one to be read, if there is one
};

// Blend all rows along z and y, and hand each over as soon as it is done: registers are few.
template <class V, int ROWS, class Take>
INLINE void blend_zy(const Group<ROWS>& group, Index x, Weights<V> wz, Weights<V> wy, Take take) {
  V first = {}, second = {}, third = {};
  UNROLL for (int i = 0; i < ROWS + 2; ++i) {
    const Index at = group.row[i] + x;
    first = second;
    second = third;
    third = blend(wz, load(group.plane[0] + at, V{}), load(group.plane[1] + at, V{}),
                  load(group.plane[2] + at, V{}));
    if (i >= 2) take(i - 2, blend(wy, first, second, third));
  }
}

// Rows of `columns` points, a vector at least; if they wrap, what lies beyond an end of theirs is the
// other end.
template <class V, int ROWS>
INLINE void advect_group(const Group<ROWS>& group, Real* target, Index pitch, Index columns, bool wraps,
                         bool streams, Weights<V> wz, Weights<V> wy, Weights<V> wx) {
  constexpr int lanes = lanes_of<V>;
  const Index last = columns - lanes;
  V before[ROWS], now[ROWS];
  const auto to_before = [&](int r, V value) { before[r] = value; };
  const auto to_now = [&](int r, V value) { now[r] = value; };
  const auto blended = [&](int r, V after) {
    return blend(wx, left_neighbours(before[r], now[r]), now[r], right_neighbours(now[r], after));
  };
  blend_zy<V>(group, wraps ? last : -lanes, wz, wy, to_before);
  blend_zy<V>(group, 0, wz, wy, to_now);
  Index x = 0;
  for (; x < last; x += lanes) {
    UNROLL for (int r = 0; r < ROWS; ++r) prefetch(group.plane[2] + group.ahead + group.row[r + 1] + x);
    blend_zy<V>(group, x + lanes, wz, wy, [&](int r, V after) {
      Real* to = target + r * pitch + x;
      if (streams)
        stream(to, blended(r, after));
      else
        store(to, blended(r, after));
      before[r] = now[r];
      now[r] = after;
    });
  }
  // The last vector ends where the row does, and may overlap the vector before.
  if (x != last) {
    blend_zy<V>(group, last - lanes, wz, wy, to_before);
    blend_zy<V>(group, last, wz, wy, to_now);
  }
  blend_zy<V>(group, wraps ? 0 : columns, wz, wy,
              [&](int r, V after) { store(target + r * pitch + last, blended(r, after)); });
}

// The part of a plane that is advanced together, and where its neighbours are.
struct Plane {
  const Real* neighbours[3];  // column 0 in the planes below, at and above
  Index ahead;                // from the last of these to the plane that is read next, if any is
  Layout at;                  // of these planes
  Real* target;               // column 0 of the first row
  Index target_row;
  bool wraps, streams;
};

template <class V, int ROWS>
INLINE void advect(const Plane& plane, Index y, Index r, Index columns, const Real* w) {
  Group<ROWS> group;
  for (int k = 0; k < 3; ++k) group.plane[k] = plane.neighbours[k];
  for (int i = 0; i < ROWS + 2; ++i) group.row[i] = wrapped(y + r - 1 + i, plane.at.rows) * plane.at.row;
  group.ahead = plane.ahead;
  Real* to = plane.target + r * plane.target_row;
  const bool aligned = reinterpret_cast<Index>(to) % Index(sizeof(V)) == 0 && plane.target_row % lanes_of<V> == 0;
  advect_group<V, ROWS>(group, to, plane.target_row, columns, plane.wraps,
                        plane.streams && aligned, weights<V>(w[0], w[1], w[2]),
                        weights<V>(w[3], w[4], w[5]), weights<V>(w[6], w[7], w[8]));
}

template <int ROWS>
INLINE void advect_any(const Plane& plane, Index y, Index r, Index columns, const Real* w) {
  // Rows this short are one by one: each kind of group takes its time to compile.
  if (columns < lanes_of<Vector>)
    for (int i = 0; i < ROWS; ++i) advect<Real, 1>(plane, y, r + i, columns, w);
  else
    advect<Vector, ROWS>(plane, y, r, columns, w);
}

// Rows y and following of a plane.
INLINE void advect_plane(const Plane& plane, Index y, Index rows, Index columns, const Real* w) {
  Index r = 0;
  for (; r + 8 <= rows; r += 8) advect_any<8>(plane, y, r, columns, w);
  for (; r + 4 <= rows; r += 4) advect_any<4>(plane, y, r, columns, w);
  for (; r + 2 <= rows; r += 2) advect_any<2>(plane, y, r, columns, w);
  for (; r < rows; ++r) advect_any<1>(plane, y, r, columns, w);
}

INLINE void advect_tile(const Real* source, Real* target, Layout at, const Index* entry, const Real* w,
                        Index steps) {
  constexpr Index unit = 64 / sizeof(Real);
  const Index around = steps - 1;
  const Index z = entry[0], y = entry[1], x = entry[2], deep = entry[3], high = entry[4], wide = entry[5];
  const bool wraps = wide == at.columns;
  const Index beside = wraps ? 0 : around;
  // Three planes for each step but the last; before and behind a row vectors may be read.
  const Index lead = (beside + 2 * unit - 1) / unit * unit;
  const Index pitch = ((lead + wide + beside + 2 * unit - 1) / unit | 1) * unit;
  const Index size = (high + 2 * around) * pitch;
  void* const memory = steps > 1 ? __builtin_malloc((3 * around * size + unit) * sizeof(Real)) : nullptr;
  Real* const planes = reinterpret_cast<Real*>((reinterpret_cast<Index>(memory) + 63) / 64 * 64);
  const auto kept = [&](Index step, Index number) { return planes + (3 * step + number % 3) * size + lead; };
  // Plane `number` of a step is the tile's plane number - around; it needs the next of the step before.
  for (Index k = 0; k < deep + 2 * around; ++k) {
    for (Index step = 0; step < steps; ++step) {
      const Index number = k - step, more = around - step;
      if (number < step) break;
      const Index wider = wraps ? 0 : more;
      Plane plane;
      for (int i = 0; i < 3; ++i)
        plane.neighbours[i] =
            (step == 0 ? source + wrapped(z - around + number - 1 + i, at.planes) * at.plane + x
                       : kept(step - 1, number - 1 + i)) - wider;
      plane.ahead = step == 0 && k + 1 < deep + 2 * around ? at.plane : 0;
      plane.at = step == 0 ? at : Layout{size, pitch, 0, 0, 0};
      plane.wraps = wraps;
      plane.streams = STREAMS && step == around;
      plane.target_row = step == around ? at.row : pitch;
      plane.target = step == around ? target + (z - around + number) * at.plane + y * at.row + x
                                    : kept(step, number) + step * pitch - wider;
      advect_plane(plane, step == 0 ? y - more : step, high + 2 * more, wide + 2 * wider, w);
    }
  }
  if (steps > 1) __builtin_free(memory);
}

// An entry of the work is: first plane, row and column of a tile, and the number of each. Indices
// count from the first point, to which `source` and `target` point.
KERNEL advect_rows(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT work,
                   Index entries, Index plane, Index row, Index planes, Index rows, Index columns,
                   Real z0, Real z1, Real z2, Real y0, Real y1, Real y2, Real x0, Real x1, Real x2,
                   Index steps) {
  const Layout at = {plane, row, planes, rows, columns};
  const Real w[] = {z0, z1, z2, y0, y1, y2, x0, x1, x2};
  FOR_ROWS(i, entries) {
    advect_tile(source, target, at, work + 6 * i, w, steps);
    if (STREAMS) wait_for_streamed_stores();
  }
}

#endif
