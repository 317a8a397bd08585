// The advection scheme tile by tile, for processors whose threads share memory.
//
// A thread blends along z and y for a few rows of a column, marching through the planes of the tile
// with its last two planes in registers; what it makes is shared with the threads beside it, and
// each blends along x.
#include "lax_wendroff_blend.hpp"

// A tile of `deep` planes, `high` rows and `wide` columns; where it is FULL, of TILE_PLANES planes.
template <bool FULL>
INLINE void advect_tile(const Real* RESTRICT source, Real* RESTRICT target, Real* RESTRICT shared,
                        const Index* RESTRICT entry, Layout at, Weights<Real> wz, Weights<Real> wy,
                        Weights<Real> wx) {
  constexpr int pitch = TILE_COLUMNS + 2;
  const Index z = entry[0], y = entry[1], x = entry[2];
  const int deep = FULL ? TILE_PLANES : int(entry[3]), high = int(entry[4]), wide = int(entry[5]);
  const int groups = (high + GROUP - 1) / GROUP;
  FOR_TILE(g, groups, c, wide + 2) {
    const int first = g * GROUP, count = high - first;
    Index offset[GROUP + 2];
    UNROLL for (int i = 0; i < GROUP + 2; ++i) {
      const int near = i < count + 1 ? i : count + 1;  // rows beyond the tile are not needed
      offset[i] = wrapped(y + first + near - 1, at.rows) * at.row + wrapped(x + c - 1, at.columns);
    }
    const Real* RESTRICT below = source + wrapped(z - 1, at.planes) * at.plane;
    const Real* RESTRICT here = source + z * at.plane;
    Real last[GROUP + 2], now[GROUP + 2];
    UNROLL for (int i = 0; i < GROUP + 2; ++i) {
      last[i] = below[offset[i]];
      now[i] = here[offset[i]];
    }
    UNROLL for (int k = 0; k < TILE_PLANES; ++k) {
      if (k < deep) {
        const Real* RESTRICT above = source + wrapped(z + k + 1, at.planes) * at.plane;
        Real blended[GROUP + 2];
        UNROLL for (int i = 0; i < GROUP + 2; ++i) {
          const Real next = above[offset[i]];
          blended[i] = blend(wz, last[i], now[i], next);
          last[i] = now[i];
          now[i] = next;
        }
        UNROLL for (int r = 0; r < GROUP; ++r) {
          shared[(k * TILE_ROWS + first + r) * pitch + c] =
              blend(wy, blended[r], blended[r + 1], blended[r + 2]);
        }
      }
    }
  }
  BLOCK_BARRIER
  FOR_TILE(g, groups, c, wide + 2) {
    const int first = g * GROUP, count = high - first;
    if (c > 0 && c <= wide) {
      Real* RESTRICT to = target + z * at.plane + (y + first) * at.row + x + c - 1;
      const Real* RESTRICT beside = shared + first * pitch + c;
      UNROLL for (int k = 0; k < TILE_PLANES; ++k) {
        if (k < deep) {
          UNROLL for (int r = 0; r < GROUP; ++r) {
            const Real* RESTRICT point = beside + (k * TILE_ROWS + r) * pitch;
            if (r < count)
              to[k * at.plane + r * at.row] = blend(wx, point[-1], point[0], point[1]);
          }
        }
      }
    }
  }
  BLOCK_BARRIER
}

// An entry of the work is: first plane, row and column of a tile, and the number of each. Indices
// count from the first point, to which `source` and `target` point.
KERNEL advect_tiles(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT work,
                    Index entries, Index plane, Index row, Index planes, Index rows, Index columns,
                    Real z0, Real z1, Real z2, Real y0, Real y1, Real y2, Real x0, Real x1, Real x2) {
  const Layout at = {plane, row, planes, rows, columns};
  const Weights<Real> wz = {z0, z1, z2}, wy = {y0, y1, y2}, wx = {x0, x1, x2};
  FOR_BLOCKS(b, entries) {
    SHARED(Real, shared, TILE_PLANES * TILE_ROWS * (TILE_COLUMNS + 2));
    const Index* RESTRICT entry = work + 6 * b;
    if (entry[3] == TILE_PLANES)
      advect_tile<true>(source, target, shared, entry, at, wz, wy, wx);
    else
      advect_tile<false>(source, target, shared, entry, at, wz, wy, wx);
  }
}
