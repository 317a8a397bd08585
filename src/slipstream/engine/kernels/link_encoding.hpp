// How the links of sites are encoded. Constants: ENCODING.
//
// WIDE has a word per link. COMPACT has for each site a word of flags and a 16-bit number for each
// upstream row: sites are numbered along rows, so those of one upstream row differ by one, and it takes
// the number of one of them, relative to one of two bases that a block of sites shares. Its highest bit says
// which: where rows lie in tiles, those upstream of one row are near, and those of the next in another tile.
#pragma once
#include "bounce_back.hpp"

enum Encoding { WIDE, COMPACT, STRIPS };
constexpr int BASE_BLOCK = 256;  // sites that share bases
constexpr int SECOND_BASE = 1 << 15;
constexpr Link EXCEPTION = Link(1) << 31;  // of the flags: all links are in a table of exceptions

struct Links {
  const Link* wide;               // [direction - 1][site]
  const Link* flags;              // [site]; bit q: the site upstream along q is fluid
  const unsigned short* offsets;  // [row][site]
  const int* bases;               // [site / BASE_BLOCK][row][2], the second less SECOND_BASE
  const Link* exceptions;         // [exception][direction - 1]
};

// Links of sites that are advanced together.
struct SiteLinks {
  Link of[DIRECTIONS][ITEMS];
};

INLINE void read_wide_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    NOT_UNROLLED for (int i = 0; i < ITEMS; ++i)
      result.of[q][i] = links.wide[(q - 1) * sites + site + item_site(i)];
}

INLINE void read_compact_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  Link flags[ITEMS], any = 0;
  NOT_UNROLLED for (int i = 0; i < ITEMS; ++i) any |= flags[i] = links.flags[site + item_site(i)];
  const int* base = links.bases + site / BASE_BLOCK * (2 * UPSTREAM_ROWS);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
    const int row = ROW_OF[q];
    const int middle = ROW_MIDDLE[q];
    NOT_UNROLLED for (int i = 0; i < ITEMS; ++i) {
      const Link here = Link(site) + item_site(i);
      Link from = here - CX[q];
      if (row >= 0) {
        const int offset = links.offsets[row * sites + site + item_site(i)];
        from = here + Link(offset & SECOND_BASE ? base[2 * row + 1] : base[2 * row]) + Link(offset);
      }
      if (row >= 0 && CX[q] > 0) from -= 1;
      if (row >= 0 && CX[q] < 0) from += flags[i] >> middle & 1;
      result.of[q][i] = flags[i] >> q & 1 ? from : BOUNCES;
    }
  }
  if (any & EXCEPTION) {
    NOT_UNROLLED for (int i = 0; i < ITEMS; ++i) {
      if (!(flags[i] & EXCEPTION)) continue;
      const Link* own = links.exceptions + Index(flags[i] & ~EXCEPTION) * LINKS;
      UNROLL for (int q = 1; q < DIRECTIONS; ++q) result.of[q][i] = own[q - 1];
    }
  }
}

INLINE void read_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  if (ENCODING == WIDE)
    read_wide_links(links, site, sites, result);
  else
    read_compact_links(links, site, sites, result);
}

// Fetch compact links of a unit that is advanced later into the cache: each of the first lanes one line.
INLINE void prefetch_links(const Links& links, Index begin, int lane, Index sites) {
  if (begin >= sites) return;
  if (lane < UPSTREAM_ROWS)
    prefetch_line(links.offsets + lane * sites + begin);
  else if (lane < UPSTREAM_ROWS + 2)
    prefetch_line(links.flags + begin + (lane - UPSTREAM_ROWS) * (UNIT / 2));
}

// The places, counted from linked_start, of the populations to which the links of these sites refer.
INLINE void read_places(const Links& links, Index site, Index sites, Place (*at)[ITEMS]) {
  SiteLinks linked;
  read_links(links, site, sites, linked);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    NOT_UNROLLED for (int i = 0; i < ITEMS; ++i)
      at[q][i] = linked_place(q, linked.of[q][i], Place(site + item_site(i)), Place(sites));
}
