// From voxels to links. Sites are numbered along rows; `first` is where each row begins.
//
// Voxels, and all tables of rows, have a shell of one voxel around the sites: solid, or, along axes
// that are periodic in place, the image of the other end.
#include "bounce_back.hpp"

// How many pores are before a voxel in its row; and how many in the row there are.
KERNEL rank_sites(const unsigned char* RESTRICT voxels, unsigned short* RESTRICT ranks,
                  Index* RESTRICT counts, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    const unsigned char* RESTRICT pore = voxels + row * (columns + 2) + 1;
    unsigned short* RESTRICT rank = ranks + row * (columns + 2) + 1;
    const Index count = count_columns(
        columns, [&](Index c) { return pore[c] != 0; },
        [&](Index c, Index before) { rank[c] = (unsigned short)before; });
    if (FIRST_COLUMN) counts[row] = count;
  }
}

// Write the links of all sites, [direction - 1][site]. `rows` lists the rows that have sites.
KERNEL link_sites(const unsigned char* RESTRICT voxels, const unsigned short* RESTRICT ranks,
                  const Index* RESTRICT first, const Index* RESTRICT counts,
                  const Index* RESTRICT rows, Index row_count, Index columns, Index rows_per_plane,
                  Index sites, Link* RESTRICT links) {
  FOR_ROWS(r, row_count) {
    const Index row = rows[r], width = columns + 2;
    FOR_COLUMNS_IN_TURN(x, columns) {  // few are pores
      if (voxels[row * width + 1 + x]) {
        const Index site = first[row] + ranks[row * width + 1 + x];
        UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
          const Index upstream = row - CZ[q] * rows_per_plane - CY[q], from = x - CX[q];
          const Index voxel = upstream * width + 1 + from;
          Link link = BOUNCES;
          if (voxels[voxel]) {
            const Index rank = from < 0          ? counts[upstream] - 1
                               : from >= columns ? 0
                                                 : Index(ranks[voxel]);
            link = Link(first[upstream] + rank);
          }
          links[(q - 1) * sites + site] = link;
        }
      }
    }
  }
}
