// Packing wide links into relative ones, and the links of blocks that do not fit.
#include "link_encoding.hpp"

// Pack the links of all sites, and mark blocks in which the sites upstream in a direction are too far apart.
KERNEL pack_relative_links(const Link* RESTRICT links, Index sites, Link* RESTRICT offsets, int* RESTRICT bases,
                           unsigned char* RESTRICT wrong) {
  FOR_ROWS(block, (sites + RELATIVE_BLOCK - 1) / RELATIVE_BLOCK) {
    const Index start = block * RELATIVE_BLOCK, none = -(Index(1) << 60);
    const Index count = sites - start < RELATIVE_BLOCK ? sites - start : Index(RELATIVE_BLOCK);
    Link base[DIRECTIONS];
    bool fits = true;
    for (int q = 1; q < DIRECTIONS; ++q) {
      const Link* RESTRICT own = links + (q - 1) * sites + start;
      Index last = none, before_first = none;  // the latter with the other sign
      FOR_COLUMNS_MAXIMUM(i, count, last) {
        const Index from = own[i] & BOUNCES ? none : Index(own[i]);
        last = from > last ? from : last;
      }
      FOR_COLUMNS_MAXIMUM(i, count, before_first) {
        const Index from = own[i] & BOUNCES ? none : -Index(own[i]);
        before_first = from > before_first ? from : before_first;
      }
      last = row_maximum(last);
      before_first = row_maximum(before_first);
      base[q] = last == none ? 0 : Link(-before_first);
      fits = fits && (last == none || last + before_first < 1 << 15);
    }
    if (FIRST_COLUMN) {
      for (int q = 1; q < DIRECTIONS; ++q) bases[block * BASES + q - 1] = int(base[q]);
      bases[block * BASES + LINKS] = bases[block * BASES + LINKS + 1] = -1;
      wrong[block] = !fits;
    }
    FOR_COLUMNS(i, count) {
      Link packed[DIRECTIONS];
      for (int q = 1; q < DIRECTIONS; ++q) {
        const Link link = links[(q - 1) * sites + start + i];
        packed[q] = link & BOUNCES ? Link(1) << 15 : (link - base[q]) & 0x7fff;
      }
      for (int q = 1; q < DIRECTIONS; q += 2)
        offsets[(block * (LINKS / 2) + q / 2) * RELATIVE_BLOCK + i] = packed[q] | packed[q + 1] << 16;
    }
  }
}

// Copy the links of exceptional blocks, and tell the blocks which of the exceptions is theirs.
KERNEL list_exceptional_blocks(const Link* RESTRICT links, Index sites, const Index* RESTRICT found, Index count,
                               int* RESTRICT bases, Link* RESTRICT exceptions) {
  FOR_ROWS(e, count) {
    const Index start = found[e] * RELATIVE_BLOCK;
    FOR_COLUMNS(i, RELATIVE_BLOCK) {
      for (int k = 0; k < LINKS && start + i < sites; ++k)
        exceptions[(e * LINKS + k) * RELATIVE_BLOCK + i] = links[k * sites + start + i];
    }
    if (FIRST_COLUMN) bases[found[e] * BASES + LINKS] = int(e);
  }
}
