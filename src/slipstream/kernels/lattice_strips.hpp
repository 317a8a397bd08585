// A step with links for the vectors of a CPU.
//
// A strip is a vector of neighbouring sites, or fewer, whose links in each direction either bounce
// back or lead to neighbouring sites: a whole vector is loaded from one place, and spread over the
// lanes that do not bounce. Strips are made from wide links; along a pore they are as long as vectors.
#include "lanes.hpp"
#include "lattice_step.hpp"

#ifndef SLIPSTREAM_GPU

#if STORED_BYTES == 4 && REAL_BYTES == 4
using StripLanes = unsigned short;
#else
using StripLanes = unsigned char;
#endif
static_assert(LANES <= 8 * int(sizeof(StripLanes)), "a bit for each lane");

struct Strip {
  Link site;
  Link walls, mixed;        // bits of directions: all lanes bounce; some do
  Link base[LINKS];         // the first site that is linked to, by direction - 1; `site` if none is
  StripLanes open[LINKS];   // lanes that do not bounce,
  StripLanes first[LINKS];  // as many lanes from the first on,
  StripLanes bound[LINKS];  // and lanes that bounce
  StripLanes all;
};

KERNEL strip_words(Index* RESTRICT words) { *words = sizeof(Strip) / sizeof(Link); }

// How many sites, at most `limit`, make a strip from `site` on.
INLINE int make_strip(const Link* RESTRICT links, Index sites, Index site, int limit, Strip& strip) {
  int next[LINKS];
  for (int k = 0; k < LINKS; ++k) {
    strip.base[k] = 0;
    strip.open[k] = 0;
    next[k] = 0;
  }
  strip.site = Link(site);
  int count = 0;
  for (; count < limit; ++count) {
    bool fits = true;
    for (int k = 0; k < LINKS; ++k) {
      const Link link = links[k * sites + site + count];
      fits &= (link & BOUNCES) || !next[k] || link == strip.base[k] + Link(next[k]);
    }
    if (!fits) break;
    for (int k = 0; k < LINKS; ++k) {
      const Link link = links[k * sites + site + count];
      if (link & BOUNCES) continue;
      if (!next[k]) strip.base[k] = link;
      strip.open[k] |= 1u << count;
      ++next[k];
    }
  }
  strip.all = StripLanes((1u << count) - 1);
  strip.walls = strip.mixed = 0;
  for (int k = 0; k < LINKS; ++k) {
    strip.first[k] = StripLanes((1u << next[k]) - 1);
    strip.bound[k] = StripLanes(strip.all & ~strip.open[k]);
    if (!next[k]) strip.base[k] = strip.site;
    strip.walls |= Link(!next[k]) << k;
    strip.mixed |= Link(next[k] && next[k] < count) << k;
  }
  return count;
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

// Where the linked populations of a strip begin: all of them, or those that do not bounce.
INLINE Index strip_address(const Strip& strip, int q, Index sites) {
  return (strip.walls >> (q - 1) & 1 ? address(q, 0, sites) : address(opposite(q), 0, sites)) +
         strip.base[q - 1];
}

template <bool MIXED>
INLINE Population load_strip(const Stored* f, const Strip& strip, int q, Index sites) {
  const Stored* linked = f + strip_address(strip, q, sites);
  Elements result;
  if (MIXED && strip.mixed >> (q - 1) & 1) {
    result = (Elements)load_some(f + address(q, strip.site, sites), strip.bound[q - 1]);
    result = load_packed(result, linked, strip.open[q - 1]);
  } else {
    result = (Elements)load_some(linked, strip.all);
  }
  return __builtin_convertvector(result, Vector);
}

template <bool MIXED>
INLINE void store_strip(Stored* f, const Strip& strip, int q, Index sites, Population population) {
  const Elements value = __builtin_convertvector(population, Elements);
  Stored* linked = f + strip_address(strip, q, sites);
  if (MIXED && strip.mixed >> (q - 1) & 1) {
    store_some(f + address(q, strip.site, sites), strip.bound[q - 1], value);
    store_packed(linked, strip.open[q - 1], strip.first[q - 1], value);
  } else {
    store_some(linked, strip.all, value);
  }
}

INLINE Population load_own(const Stored* f, int q, const Strip& strip, Index sites) {
  const Elements own = (Elements)load_some(f + address(q, strip.site, sites), strip.all);
  return __builtin_convertvector(own, Vector);
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
  store_some(target + address(0, strip.site, sites), strip.all, __builtin_convertvector(f[0], Elements));
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    store_strip<MIXED>(target, strip, opposite(q), sites, f[q]);
}

// Advance strips[list[first ... first + count - 1]], or these very strips where there is no list.
KERNEL advance_strips(const Stored* source, Stored* target, const Strip* strips, const Link* list,
                      Index first, Index count, Index sites, double even, double odd, double x,
                      double y, double z) {
  static_assert(LAYOUT == STREAM, "strips are vectors in memory");
  const Collision collision = {Real(even), Real(odd), Real(x), Real(y), Real(z)};
  FOR_ROWS(number, count) {
    const Strip& strip = strips[list ? Index(list[first + number]) : first + number];
    if (strip.mixed)
      advance_strip<true>(source, target, strip, sites, collision);
    else
      advance_strip<false>(source, target, strip, sites, collision);
  }
}

#endif
