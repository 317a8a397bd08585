// The advection scheme row by row, for processors with vectors and a cache.
//
// Work is a list of groups of neighbouring rows. Within a group the blends along z and y are made
// in registers, vector by vector; the blend along x takes the vectors before and after. Groups are
// listed such that a few stay in the cache while the list marches through the planes.
#include "lax_wendroff_blend.hpp"

// Rows of a group, first and last neighbours included, in the planes below, at and above.
template <int ROWS>
struct Group {
  const Real* plane[3];
  Index row[ROWS + 2];
  Index ahead;  // from the plane above to the one that is read next, if any is
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
  // The last vector ends where the row does, and may begin within the one before.
  if (x != last) {
    blend_zy<V>(group, last - lanes, wz, wy, to_before);
    blend_zy<V>(group, last, wz, wy, to_now);
  }
  blend_zy<V>(group, wraps ? 0 : columns, wz, wy,
              [&](int r, V after) { store(target + r * pitch + last, blended(r, after)); });
}

template <class V, int ROWS>
INLINE void advect(const Real* source, Real* target, Layout at, const Index* entry, const Real* w) {
  const Index z = entry[0], y = entry[1], x = entry[3], columns = entry[4];
  Group<ROWS> group;
  for (int k = 0; k < 3; ++k) group.plane[k] = source + wrapped(z - 1 + k, at.planes) * at.plane;
  for (int i = 0; i < ROWS + 2; ++i) group.row[i] = wrapped(y - 1 + i, at.rows) * at.row + x;
  group.ahead = entry[5] * at.plane;
  Real* to = target + z * at.plane + y * at.row + x;
  const bool aligned = reinterpret_cast<Index>(to) % Index(sizeof(V)) == 0 && at.row % lanes_of<V> == 0;
  advect_group<V, ROWS>(group, to, at.row, columns, columns == at.columns, STREAMS && aligned,
                        weights<V>(w[0], w[1], w[2]), weights<V>(w[3], w[4], w[5]),
                        weights<V>(w[6], w[7], w[8]));
}

template <int ROWS>
INLINE void advect_any(const Real* source, Real* target, Layout at, const Index* entry, const Real* w) {
  if (entry[4] < lanes_of<Vector>)
    advect<Real, ROWS>(source, target, at, entry, w);
  else
    advect<Vector, ROWS>(source, target, at, entry, w);
}

// An entry of the work is: plane, first row, number of rows (8, 4, 2 or 1), first column, columns, and
// whether the same rows of the next plane are due soon. Indices count from the first point, to which `source` and `target` point.
KERNEL advect_rows(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT work,
                   Index entries, Index plane, Index row, Index planes, Index rows, Index columns,
                   Real z0, Real z1, Real z2, Real y0, Real y1, Real y2, Real x0, Real x1, Real x2) {
  const Layout at = {plane, row, planes, rows, columns};
  const Real w[] = {z0, z1, z2, y0, y1, y2, x0, x1, x2};
  FOR_ROWS(i, entries) {
    const Index* entry = work + 6 * i;
    switch (entry[2]) {
      case 8: advect_any<8>(source, target, at, entry, w); break;
      case 4: advect_any<4>(source, target, at, entry, w); break;
      case 2: advect_any<2>(source, target, at, entry, w); break;
      default: advect_any<1>(source, target, at, entry, w);
    }
    if (STREAMS) wait_for_streamed_stores();
  }
}
