// How the links of sites are encoded. Constants: ENCODING.
//
// WIDE has a word per link. COMPACT has for each site a word of flags and a 16-bit number for each
// upstream row: sites are numbered along rows, so those of one upstream row differ by one, and it takes
// the number of one of them, relative to a base that a block of sites shares. RELATIVE has 16
// bits per link: the site upstream, relative to a base of the block and the direction, or a sign for what
// bounces back. Opposite links are a word. Blocks of sites where 15 bits do not suffice are exceptions.
#pragma once
#include "bounce_back.hpp"

enum Encoding { WIDE, COMPACT, STRIPS, RELATIVE };
constexpr int BASE_BLOCK = 256;  // sites that share bases
constexpr Link EXCEPTION = Link(1) << 31;  // of the flags: all links are in a table of exceptions
constexpr int RELATIVE_BLOCK = 64;  // sites whose RELATIVE links stand together
constexpr int BASES = LINKS + 2;    // of each such block: of the links, then the exception's number or -1

struct Links {
  const Link* wide;               // [direction - 1][site]
  const Link* flags;              // [site]; bit q: the site upstream along q is fluid
  const unsigned short* offsets;  // [row][site]
  const int* bases;               // [site / BASE_BLOCK][row]
  const Link* exceptions;         // [exception][direction - 1]
  // Of RELATIVE links, whose blocks have RELATIVE_BLOCK sites: flags are offsets of links, [block][pair of
  // directions][site], bases are [block][BASES], and exceptions [exceptional block][direction - 1][site].
};

// Links of LANES sites, that is one on a GPU.
struct SiteLinks {
  Link of[DIRECTIONS][LANES];
};

INLINE void read_wide_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    NOT_UNROLLED for (int i = 0; i < LANES; ++i) result.of[q][i] = links.wide[(q - 1) * sites + site + i];
}

INLINE void read_compact_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  Link flags[LANES], any = 0;
  NOT_UNROLLED for (int i = 0; i < LANES; ++i) any |= flags[i] = links.flags[site + i];
  const int* base = links.bases + site / BASE_BLOCK * UPSTREAM_ROWS;
  UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
    const int row = ROW_OF[q];
    const int middle = ROW_MIDDLE[q];
    NOT_UNROLLED for (int i = 0; i < LANES; ++i) {
      Link from = Link(site) + i - CX[q];
      if (row >= 0) from = Link(site) + i + Link(base[row]) + links.offsets[row * sites + site + i];
      if (row >= 0 && CX[q] > 0) from -= 1;
      if (row >= 0 && CX[q] < 0) from += flags[i] >> middle & 1;
      result.of[q][i] = flags[i] >> q & 1 ? from : BOUNCES;
    }
  }
  if (any & EXCEPTION) {
    NOT_UNROLLED for (int i = 0; i < LANES; ++i) {
      if (!(flags[i] & EXCEPTION)) continue;
      const Link* own = links.exceptions + Index(flags[i] & ~EXCEPTION) * LINKS;
      UNROLL for (int q = 1; q < DIRECTIONS; ++q) result.of[q][i] = own[q - 1];
    }
  }
}

#ifdef SLIPSTREAM_GPU
struct alignas(16) Bases {  // so that four are loaded at a time
#else
struct Bases {
#endif
  int of[BASES];
};

INLINE void read_relative_places(const Links& links, Index site, Index sites, Place (*at)[LANES]) {
  const Index block = site / RELATIVE_BLOCK;
  const int here = int(site % RELATIVE_BLOCK);
  const Bases bases = ((const Bases*)links.bases)[block];
  const Link* own = links.flags + block * (LINKS / 2 * RELATIVE_BLOCK) + here;
  UNROLL for (int q = 1; q < DIRECTIONS; q += 2) {
    NOT_UNROLLED for (int i = 0; i < LANES; ++i) {
      const Link pair = own[q / 2 * RELATIVE_BLOCK + i];
      const int first = short(pair), second = int(pair) >> 16;
      const Place before = bounced_place(q, Place(site + i), Place(sites));
      const Place after = bounced_place(q + 1, Place(site + i), Place(sites));
      at[q][i] = first < 0 ? before : upstream_place(q, Link(bases.of[q - 1] + first), Place(sites));
      at[q + 1][i] = second < 0 ? after : upstream_place(q + 1, Link(bases.of[q] + second), Place(sites));
    }
  }
  if (bases.of[LINKS] >= 0) {
    const Link* other = links.exceptions + Index(bases.of[LINKS]) * (LINKS * RELATIVE_BLOCK) + here;
    UNROLL for (int q = 1; q < DIRECTIONS; ++q)
      NOT_UNROLLED for (int i = 0; i < LANES; ++i)
        at[q][i] = linked_place(q, other[(q - 1) * RELATIVE_BLOCK + i], Place(site + i), Place(sites));
  }
}

INLINE void read_links(const Links& links, Index site, Index sites, SiteLinks& result) {
  if (ENCODING == WIDE)
    read_wide_links(links, site, sites, result);
  else
    read_compact_links(links, site, sites, result);
}

// The places, counted from linked_start, of the populations to which the links of LANES sites refer.
INLINE void read_places(const Links& links, Index site, Index sites, Place (*at)[LANES]) {
  if (ENCODING == RELATIVE) return read_relative_places(links, site, sites, at);
  SiteLinks linked;
  read_links(links, site, sites, linked);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    NOT_UNROLLED for (int i = 0; i < LANES; ++i)
      at[q][i] = linked_place(q, linked.of[q][i], Place(site + i), Place(sites));
}
