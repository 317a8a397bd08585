// A step with links for the vectors of a CPU.
//
// A strip is a vector of neighbouring sites, or fewer, whose links in each direction either bounce
// back or lead to neighbouring sites: a whole vector is loaded from one place, and spread over the
// lanes that do not bounce. Strips are made from wide links; along a pore they are as long as vectors.
#include "masked_vectors.hpp"
#include "collide_and_stream.hpp"

#ifndef SLIPSTREAM_GPU

#if REAL_BYTES == 4
using StripLanes = unsigned short;
#else
using StripLanes = unsigned char;
#endif
static_assert(LANES <= 8 * int(sizeof(StripLanes)), "a bit for each lane");
constexpr int STRIPS_AHEAD = 4;  // how far ahead of the current strip data are fetched

struct Strip {
  Link site;
  Link walls, mixed;        // bits of directions: all lanes bounce; only some do
  Link base[LINKS];         // the first site that is linked to, by direction - 1; `site` if none is
  StripLanes open[LINKS];   // lanes that do not bounce,
  StripLanes first[LINKS];  // as many lanes from the first on,
  StripLanes bound[LINKS];  // and lanes that bounce
  StripLanes all;
};

KERNEL strip_words(Index* RESTRICT words) { *words = sizeof(Strip) / sizeof(Link); }

// How many sites, at most `limit`, make a strip from `site` on.
INLINE int make_strip(const Link* RESTRICT links, Index sites, Index site, int limit, Strip& strip) {
  for (int k = 0; k < LINKS; ++k) {
    const Link* RESTRICT own = links + k * sites + site;
    Link base = Link(site);
    unsigned open = 0;
    int next = 0;
    for (int i = 0; i < limit; ++i) {
      if (own[i] & BOUNCES) continue;
      if (!next) base = own[i];
      if (own[i] != base + Link(next)) limit = i;  // it belongs to the next strip
      open |= 1u << i;
      ++next;
    }
    strip.base[k] = base;
    strip.open[k] = StripLanes(open);
  }
  strip.site = Link(site);
  strip.all = StripLanes((1u << limit) - 1);
  strip.walls = strip.mixed = 0;
  for (int k = 0; k < LINKS; ++k) {
    strip.open[k] &= strip.all;
    strip.bound[k] = strip.all & ~strip.open[k];
    strip.first[k] = StripLanes((1u << __builtin_popcount(strip.open[k])) - 1);
    strip.walls |= Link(!strip.open[k]) << k;
    strip.mixed |= Link(strip.open[k] && strip.bound[k]) << k;
    if (!strip.open[k]) strip.base[k] = strip.site;
  }
  return limit;
}

// Strips of blocks of sites: count them, or, where `strips` is given, write them from begin[block] on.
KERNEL make_strips(const Link* RESTRICT links, Index sites, Index block_size, Index blocks,
                   const Index* RESTRICT begin, Index* RESTRICT counts, Strip* RESTRICT strips) {
  FOR_ROWS(block, blocks) {
    const Index stop = (block + 1) * block_size < sites ? (block + 1) * block_size : sites;
    Index number = 0;
    for (Index site = block * block_size; site < stop; ++number) {
      Strip strip;
      site += make_strip(links, sites, site, int(stop - site < LANES ? stop - site : LANES), strip);
      if (strips) strips[begin[block] + number] = strip;
    }
    counts[block] = number;
  }
}

// A strip is MIXED if only some of its lanes bounce in some direction: all its directions are treated
// as if some lanes bounced, since the branch could not be predicted.
template <bool MIXED>
INLINE Population load_strip(const Stored* f, const Strip& strip, int q, Index sites) {
  const Stored* linked = f + address(opposite(q), strip.base[q - 1], sites);
  const Stored* own = f + address(q, strip.site, sites);
  Elements result;
  if (MIXED)
    result = load_packed((Elements)load_some(own, strip.bound[q - 1]), linked, strip.open[q - 1]);
  else
    result = (Elements)load_some(strip.walls >> (q - 1) & 1 ? own : linked, strip.all);
  return widened(result);
}

template <bool MIXED>
INLINE void store_strip(Stored* f, const Strip& strip, int q, Index sites, Population population) {
  const Elements value = narrowed(population);
  Stored* linked = f + address(opposite(q), strip.base[q - 1], sites);
  Stored* own = f + address(q, strip.site, sites);
  if (MIXED) {
    store_some(own, strip.bound[q - 1], value);
    store_packed(linked, strip.open[q - 1], strip.first[q - 1], value);
  } else {
    store_some(strip.walls >> (q - 1) & 1 ? own : linked, strip.all, value);
  }
}

INLINE Population load_own(const Stored* f, int q, const Strip& strip, Index sites) {
  const Elements own = (Elements)load_some(f + address(q, strip.site, sites), strip.all);
  return widened(own);
}

template <bool MIXED>
INLINE void advance_strip(const Stored* source, Stored* target, const Strip& strip, Index sites,
                          Collision collision) {
  Population f[DIRECTIONS];
  f[0] = load_own(source, 0, strip, sites);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    f[q] = PROPAGATION == AA_ODD ? load_strip<MIXED>(source, strip, q, sites)
                                 : load_own(source, q, strip, sites);
  collide(f, collision);
  store_some(target + address(0, strip.site, sites), strip.all, narrowed(f[0]));
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    store_strip<MIXED>(target, strip, opposite(q), sites, f[q]);
}

// Advance strips[list[first ... first + count - 1]], or these very strips where there is no list.
KERNEL advance_strips(const Stored* source, Stored* target, const Strip* strips, const Link* list,
                      Index first, Index count, Index sites, Real even, Real odd, Real x, Real y,
                      Real z, Real unit) {
  static_assert(LAYOUT == STREAM, "strips are vectors in memory");
  const Collision collision = {even, odd, x, y, z, unit};
  FOR_ROWS(number, count) {
    // Rows in pores are too short, and directions too many, for a processor to foresee all of them.
    const Index ahead = number + STRIPS_AHEAD < count ? number + STRIPS_AHEAD : number;
    const Strip& later = strips[list ? Index(list[first + ahead]) : first + ahead];
    UNROLL for (int q = 1; q < DIRECTIONS; ++q)
      __builtin_prefetch(source + address(opposite(q), later.base[q - 1], sites), 1);
    const Strip& strip = strips[list ? Index(list[first + number]) : first + number];
    if (strip.mixed)
      advance_strip<true>(source, target, strip, sites, collision);
    else
      advance_strip<false>(source, target, strip, sites, collision);
  }
}

#endif
