// The advection scheme tile by tile, for processors whose threads share rows: STEPS steps in one pass.
//
// The threads of a row hold a strip, COLUMNS neighbouring points each, of ROWS rows and of what these
// need around them. They march through the planes. A plane that is read completes the blend along z
// of the plane below it, then those along y and x, and so the first step of that plane, which
// completes the second step of the plane below that. A strip lacks its neighbours along x, so
// each step loses a column at either end; values computed there are never stored.
#include "lax_wendroff_blend.hpp"

constexpr int READ_ROWS = ROWS + 2 * STEPS;
constexpr int MARGIN = (STEPS + COLUMNS - 1) / COLUMNS * COLUMNS;

// What one thread holds of a row, in one access.
struct alignas(COLUMNS * sizeof(Real)) Part {
  Real at[COLUMNS];
};

#ifdef SLIPSTREAM_GPU
constexpr int PARTS = 1;
#else
constexpr int ROW_THREADS = 32, PARTS = ROW_THREADS;
#endif

// What the threads of a row hold together: on a GPU, the part of this thread.
struct Strip {
  Part part[PARTS];
};

INLINE Real left_of(const Strip& strip, int part) {
#ifdef SLIPSTREAM_GPU
  return of_thread_before(strip.part[part].at[COLUMNS - 1]);
#else
  return part > 0 ? strip.part[part - 1].at[COLUMNS - 1] : 0;
#endif
}
INLINE Real right_of(const Strip& strip, int part) {
#ifdef SLIPSTREAM_GPU
  return of_thread_behind(strip.part[part].at[0]);
#else
  return part + 1 < PARTS ? strip.part[part + 1].at[0] : 0;
#endif
}

INLINE Strip operator*(Real weight, const Strip& a) {
  Strip result;
  for (int p = 0; p < PARTS; ++p)
    UNROLL for (int c = 0; c < COLUMNS; ++c) result.part[p].at[c] = weight * a.part[p].at[c];
  return result;
}
INLINE Strip fused(Real weight, const Strip& a, const Strip& b) {
  Strip result;
  for (int p = 0; p < PARTS; ++p)
    UNROLL for (int c = 0; c < COLUMNS; ++c)
      result.part[p].at[c] = fused(weight, a.part[p].at[c], b.part[p].at[c]);
  return result;
}
INLINE Strip blend(Weights<Real> w, const Strip& before, const Strip& at, const Strip& behind) {
  return fused(w.behind, behind, fused(w.at, at, w.before * before));
}
INLINE Strip blend_columns(Weights<Real> w, const Strip& a) {
  Strip result;
  for (int p = 0; p < PARTS; ++p) {
    const Real left = left_of(a, p), right = right_of(a, p);
    UNROLL for (int c = 0; c < COLUMNS; ++c)
      result.part[p].at[c] = blend(w, c > 0 ? a.part[p].at[c - 1] : left, a.part[p].at[c],
                                   c + 1 < COLUMNS ? a.part[p].at[c + 1] : right);
  }
  return result;
}

// Rows `first` and following of a tile of `deep` planes, `high` rows and `wide` columns.
INLINE void advect_strip(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT entry,
                         Layout at, int first, int thread, Weights<Real> wz, Weights<Real> wy,
                         Weights<Real> wx) {
  const Index z = entry[0], y = entry[1] + first, x = entry[2];
  const int deep = int(entry[3]), count = int(entry[4]) - first, wide = int(entry[5]);
  if (count <= 0) return;
  // Of columns and rows that nothing needs, others are read.
  const Index start = x - x % COLUMNS - MARGIN, last = x + wide - 1 + STEPS;
  int column[PARTS], row[READ_ROWS];
  for (int p = 0; p < PARTS; ++p) {
    const Index it = start + Index(thread + p) * COLUMNS;
    column[p] = int(wrapped(it < last ? it : last - (last - start) % COLUMNS, at.columns));
  }
  UNROLL for (int i = 0; i < READ_ROWS; ++i) {
    const int near = i < count + 2 * STEPS ? i : count + 2 * STEPS - 1;
    row[i] = int(wrapped(y - STEPS + near, at.rows) * at.row);
  }
  const auto read = [&](const Real* plane, int i) {
    Strip strip;
    for (int p = 0; p < PARTS; ++p)
      strip.part[p] = *reinterpret_cast<const Part*>(plane + (row[i] + column[p]));
    return strip;
  };
  Index above = wrapped(z - STEPS, at.planes);
  Real* to = target + (z - 2 * STEPS) * at.plane + y * at.row + start + thread * COLUMNS;
  // Points that a thread stores: from and to which of its columns.
  const int begin = int(x - start) - thread * COLUMNS, end = begin + wide;
  Strip next[READ_ROWS], before[STEPS][READ_ROWS], now[STEPS][READ_ROWS];
  UNROLL for (int i = 0; i < READ_ROWS; ++i) {
    next[i] = read(source + above * at.plane, i);
    UNROLL for (int s = 0; s < STEPS; ++s) before[s][i] = now[s][i] = Strip{};
  }
  for (int k = 0; k < deep + 2 * STEPS; ++k) {
    above = k + 1 == deep + 2 * STEPS ? above : above + 1 == at.planes ? 0 : above + 1;
    const Real* RESTRICT plane = source + above * at.plane;
    Strip value[READ_ROWS];
    UNROLL for (int s = 0; s < STEPS; ++s) {
      Strip rows[3] = {};
      UNROLL for (int i = 0; i < READ_ROWS; ++i) {
        if (i < READ_ROWS - 2 * s) {
          const Strip it = s == 0 ? next[i] : value[i];
          if (s == 0) next[i] = read(plane, i);
          rows[0] = rows[1];
          rows[1] = rows[2];
          rows[2] = fused(wz.behind, it, now[s][i]);
          now[s][i] = fused(wz.at, it, before[s][i]);
          before[s][i] = wz.before * it;
          if (i >= 2) value[i - 2] = blend_columns(wx, blend(wy, rows[0], rows[1], rows[2]));
        }
      }
    }
    if (k >= 2 * STEPS) {
      UNROLL for (int r = 0; r < ROWS; ++r) {
        if (r < count) {
          for (int p = 0; p < PARTS; ++p) {
            const int low = begin - p * COLUMNS, high = end - p * COLUMNS;
            Real* point = to + r * at.row + p * COLUMNS;
            if (low <= 0 && high >= COLUMNS) {
              *reinterpret_cast<Part*>(point) = value[r].part[p];
            } else {
              UNROLL for (int c = 0; c < COLUMNS; ++c)
                if (low <= c && c < high) point[c] = value[r].part[p].at[c];
            }
          }
        }
      }
    }
    to += at.plane;
  }
}

// An entry of the work is: first plane, row and column of a tile, and the number of each. Indices
// count from the first point, to which `source` and `target` point.
KERNEL advect_tiles(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT work,
                    Index entries, Index plane, Index row, Index planes, Index rows, Index columns,
                    Real z0, Real z1, Real z2, Real y0, Real y1, Real y2, Real x0, Real x1, Real x2) {
  const Layout at = {plane, row, planes, rows, columns};
  const Weights<Real> wz = {z0, z1, z2}, wy = {y0, y1, y2}, wx = {x0, x1, x2};
  FOR_BLOCKS(b, entries) {
    FOR_TILE(strip, STRIPS, thread, ROW_THREADS / PARTS)
      advect_strip(source, target, work + 6 * b, at, strip * ROWS, thread, wz, wy, wx);
  }
}
