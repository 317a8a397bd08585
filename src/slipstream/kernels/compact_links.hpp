// Packing wide links into compact ones, and the exceptions that do not fit.
#include "link_encoding.hpp"

// The number, in COMPACT links, of the sites of an upstream row: that of the one at the same x, if it
// is a pore, else of the next one; less the number of the site itself. False if it has none there.
INLINE bool number_of_row(const Link* RESTRICT links, Index sites, Index site, int row, Index& number) {
  for (int q = 1; q < DIRECTIONS; ++q) {
    if (ROW_OF[q] != row) continue;
    const Link link = links[(q - 1) * sites + site];
    if (link & BOUNCES) continue;
    number = Index(link) + (CX[q] > 0 ? 1 : 0) - site;
    return true;  // the one without motion along x comes first
  }
  return false;
}

// Pack the links of all sites, whatever of them fits.
KERNEL pack_links(const Link* RESTRICT links, Index sites, Link* RESTRICT flags,
                  unsigned short* RESTRICT offsets, int* RESTRICT bases) {
  FOR_ROWS(block, (sites + BASE_BLOCK - 1) / BASE_BLOCK) {
    const Index start = block * BASE_BLOCK;
    const Index count = sites - start < BASE_BLOCK ? sites - start : Index(BASE_BLOCK);
    for (int row = 0; row < UPSTREAM_ROWS; ++row) {
      const Index none = -(Index(1) << 60);
      Index most = none;
      FOR_COLUMNS_MAXIMUM(i, count, most) {
        Index number;
        const bool any = number_of_row(links, sites, start + i, row, number);
        most = any && -number > most ? -number : most;
      }
      most = row_maximum(most);
      const int base = most == none ? 0 : int(-most);
      if (FIRST_COLUMN) bases[block * UPSTREAM_ROWS + row] = base;
      FOR_COLUMNS(i, count) {
        Index number = base;
        number_of_row(links, sites, start + i, row, number);
        offsets[row * sites + start + i] = (unsigned short)(number - base);
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

// Copy the links of exceptional sites, and tell the sites which of the exceptions is theirs.
KERNEL list_exceptions(const Link* RESTRICT links, Index sites, const Index* RESTRICT found,
                       Index count, Link* RESTRICT flags, Link* RESTRICT exceptions) {
  FOR_ROWS(e, count) {
    FOR_COLUMNS(k, LINKS) exceptions[e * LINKS + k] = links[k * sites + found[e]];
    if (FIRST_COLUMN) flags[found[e]] = EXCEPTION | Link(e);
  }
}
