// Packing wide links into compact ones, and the exceptions that do not fit.
#include "link_encoding.hpp"

// The number, in COMPACT links, of a site of an upstream row, less the number of the site itself: of the
// site at the same x, if it is a pore, else of the next pore. False if no link leads to a pore of that row.
INLINE bool number_of_row(const Link* RESTRICT links, Index sites, Index site, int row, Index& number) {
  for (int q = 1; q < DIRECTIONS; ++q) {
    if (ROW_OF[q] != row) continue;
    const Link link = links[(q - 1) * sites + site];
    if (link & BOUNCES) continue;
    number = Index(link) + (CX[q] > 0 ? 1 : 0) - site;
    return true;  // the direction without motion along x comes first
  }
  return false;
}

// The least number, above a bound, that the sites of a block have for an upstream row; NONE if there is none.
constexpr Index NONE = Index(1) << 60;
INLINE Index least_number(const Link* RESTRICT links, Index sites, Index start, Index count, int row,
                          Index bound) {
  Index most = -NONE;
  FOR_COLUMNS_MAXIMUM(i, count, most) {
    Index number;
    const bool any = number_of_row(links, sites, start + i, row, number) && number > bound;
    most = any && -number > most ? -number : most;
  }
  return -row_maximum(most);
}

// Pack the links of all sites, whatever of them fits.
KERNEL pack_links(const Link* RESTRICT links, Index sites, Link* RESTRICT flags,
                  unsigned short* RESTRICT offsets, int* RESTRICT bases) {
  FOR_ROWS(block, (sites + BASE_BLOCK - 1) / BASE_BLOCK) {
    const Index start = block * BASE_BLOCK;
    const Index count = sites - start < BASE_BLOCK ? sites - start : Index(BASE_BLOCK);
    for (int row = 0; row < UPSTREAM_ROWS; ++row) {
      const Index first = least_number(links, sites, start, count, row, -NONE);
      const Index last = first + SECOND_BASE - 1;
      const Index second = first == NONE ? NONE : least_number(links, sites, start, count, row, last);
      if (FIRST_COLUMN) {
        int* base = bases + (block * UPSTREAM_ROWS + row) * 2;
        base[0] = first == NONE ? 0 : int(first);
        base[1] = second == NONE ? 0 : int(second) - SECOND_BASE;
      }
      FOR_COLUMNS(i, count) {
        Index number = first;
        number_of_row(links, sites, start + i, row, number);
        const Index offset = number > last ? number - second + SECOND_BASE : number - first;
        offsets[row * sites + start + i] = (unsigned short)offset;
      }
    }
    FOR_COLUMNS(i, count) {
      Link bits = 0;
      for (int q = 1; q < DIRECTIONS; ++q)
        bits |= Link(!(links[(q - 1) * sites + start + i] & BOUNCES)) << q;
      flags[start + i] = bits;
    }
  }
}

// Mark sites whose packed links are not their links.
KERNEL check_links(const Link* RESTRICT links, Index sites, const Link* flags,
                   const unsigned short* offsets, const int* bases, unsigned char* RESTRICT wrong) {
  const Links packed = {nullptr, flags, offsets, bases, nullptr};
  FOR_BLOCKS(segment, sites / SEGMENT) {
    FOR_TILE_VECTORS(part, 1, lane, SEGMENT, LANES) {
      const Index site = segment * SEGMENT + lane;
      SiteLinks own;
      read_links(packed, site, sites, own);
      for (int i = 0; i < LANES; ++i) {
        Link different = 0;
        UNROLL for (int q = 1; q < DIRECTIONS; ++q)
          different |= own.of[q][i] ^ links[(q - 1) * sites + site + i];
        wrong[site + i] = different != 0;
      }
    }
  }
}

// Copy the links of exceptional sites, and number the exceptions at the sites.
KERNEL list_exceptions(const Link* RESTRICT links, Index sites, const Index* RESTRICT found,
                       Index count, Link* RESTRICT flags, Link* RESTRICT exceptions) {
  FOR_ROWS(e, count) {
    FOR_COLUMNS(k, LINKS) exceptions[e * LINKS + k] = links[k * sites + found[e]];
    if (FIRST_COLUMN) flags[found[e]] = EXCEPTION | Link(e);
  }
}
