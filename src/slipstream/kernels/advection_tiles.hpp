// The advection scheme tile by tile, for processors whose threads share memory.
//
// A thread blends along z and y for a few rows of a column, marching through the planes of the tile
// with its last two planes in registers; what it makes is shared with the threads beside it, which
// blend along x.
#include "advection.hpp"

// A tile's entry: first plane, row and column, and the number of each; TILE_ROWS is a multiple of
// GROUP. Indices count from the first point, to which `source` and `target` point.
KERNEL advect_tiles(const Real* RESTRICT source, Real* RESTRICT target, const Index* RESTRICT work,
                    Index entries, Index plane, Index row, Index planes, Index rows, Index columns,
                    Real z0, Real z1, Real z2, Real y0, Real y1, Real y2, Real x0, Real x1, Real x2) {
  const Weights<Real> wz = {z0, z1, z2}, wy = {y0, y1, y2}, wx = {x0, x1, x2};
  constexpr int pitch = TILE_COLUMNS + 2;
  FOR_BLOCKS(b, entries) {
    SHARED(Real, shared, TILE_PLANES * TILE_ROWS * pitch);
    const Index* RESTRICT entry = work + 6 * b;
    const Index z = entry[0], y = entry[1], x = entry[2];
    const int deep = int(entry[3]), high = int(entry[4]), wide = int(entry[5]);
    FOR_TILE(g, (high + GROUP - 1) / GROUP, c, wide + 2) {
      const int first = g * GROUP, count = high - first < GROUP ? high - first : GROUP;
      Index at[GROUP + 2];
      UNROLL for (int i = 0; i < GROUP + 2; ++i) {
        const int near = i < count + 1 ? i : count + 1;  // rows beyond the tile are not needed
        at[i] = wrapped(y + first + near - 1, rows) * row + wrapped(x + c - 1, columns);
      }
      const Real* below = source + wrapped(z - 1, planes) * plane;
      const Real* here = source + z * plane;
      Real last[GROUP + 2], now[GROUP + 2];
      UNROLL for (int i = 0; i < GROUP + 2; ++i) {
        last[i] = below[at[i]];
        now[i] = here[at[i]];
      }
      UNROLL for (int k = 0; k < TILE_PLANES; ++k) {
        if (k < deep) {
          const Real* above = source + wrapped(z + k + 1, planes) * plane;
          Real blended[GROUP + 2];
          UNROLL for (int i = 0; i < GROUP + 2; ++i) {
            const Real next = above[at[i]];
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
    FOR_TILE(i, deep * high, c, wide) {
      const int k = i / high, r = i % high;
      const Real* beside = shared + (k * TILE_ROWS + r) * pitch + c;
      target[(z + k) * plane + (y + r) * row + x + c] = blend(wx, beside[0], beside[1], beside[2]);
    }
    BLOCK_BARRIER
  }
}
