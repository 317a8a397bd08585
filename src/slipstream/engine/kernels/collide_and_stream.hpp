// One time step of the sites in a list of units: gather populations, collide, hand them on.
//
// With two lattices, a step reads its own sites of one and stores to the sites downstream of the
// other. In place (the AA pattern of Bailey et al. 2009), an even step leaves what it has to send
// with its own site, turned around; an odd step fetches from, and stores to, the sites around. A
// population has one reader and one writer in each step, the same site, so the order is free.
//
// Constants: PROPAGATION, UNITS (those of a block), AHEAD (of how many sites further on compact links are
// fetched), and those of link_encoding.hpp and trt_collision.hpp.
#include "link_encoding.hpp"
#include "trt_collision.hpp"

#ifndef AHEAD
#define AHEAD 0
#endif

enum Propagation { TWO_LATTICE, AA_EVEN, AA_ODD };

// Populations of LANES sites, from anywhere.
template <class Any>
INLINE Population gather(const Stored* f, const Any* at) {
  Stored values[LANES];
  NOT_UNROLLED for (int i = 0; i < LANES; ++i) values[i] = f[at[i]];
  return load_population(values);
}
template <class Any>
INLINE void scatter(Stored* f, const Any* at, Population population) {
  Stored values[LANES];
  store_population(values, population);
  NOT_UNROLLED for (int i = 0; i < LANES; ++i) f[at[i]] = values[i];
}

INLINE Population load_own(const Stored* f, int q, Index site, Index sites) {
  if (LANES == 1 || CONTIGUOUS) return load_population(f + address(q, site, sites));
  Index at[LANES];
  NOT_UNROLLED for (int i = 0; i < LANES; ++i) at[i] = address(q, site + i, sites);
  return gather(f, at);
}
INLINE void store_own(Stored* f, int q, Index site, Index sites, Population population) {
  if (LANES == 1 || CONTIGUOUS) return store_population(f + address(q, site, sites), population);
  Index at[LANES];
  NOT_UNROLLED for (int i = 0; i < LANES; ++i) at[i] = address(q, site + i, sites);
  scatter(f, at, population);
}

INLINE void advance_sites(const Stored* source, Stored* target, const Links& links, Index site,
                          Index sites, Collision collision) {
  Population f[AT_ONCE][DIRECTIONS];
  Place at[DIRECTIONS][ITEMS];
  if (PROPAGATION != AA_EVEN) read_places(links, site, sites, at);
#ifdef SLIPSTREAM_GPU
  if (PROPAGATION != TWO_LATTICE) source = target;  // as they are: then an address serves both
#endif
  UNROLL for (int v = 0; v < AT_ONCE; ++v) {
    f[v][0] = load_own(source, 0, site + v * APART, sites);
    UNROLL for (int q = 1; q < DIRECTIONS; ++q)
      f[v][q] = PROPAGATION == AA_ODD ? gather(source + linked_start(q, sites), at[q] + v * LANES)
                                      : load_own(source, q, site + v * APART, sites);
  }
  UNROLL for (int v = 0; v < AT_ONCE; ++v) {
    collide(f[v], collision);
    store_own(target, 0, site + v * APART, sites, f[v][0]);
    UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
      // What comes in along q next time is what the site upstream sends along q, or a wall returns.
      if (PROPAGATION == AA_EVEN)
        store_own(target, opposite(q), site + v * APART, sites, f[v][q]);
      else
        scatter(target + linked_start(opposite(q), sites), at[opposite(q)] + v * LANES, f[v][q]);
    }
  }
}

// Advance units[first ... first + count - 1], or these very units where there is no list.
KERNEL advance(const Stored* source, Stored* target, const Link* wide, const Link* flags,
               const unsigned short* offsets, const int* bases, const Link* exceptions,
               const Link* units, Index first, Index count, Index sites, Real even, Real odd, Real x,
               Real y, Real z, Real unit) {
  const Links links = {wide, flags, offsets, bases, exceptions};
  const Collision collision = {even, odd, x, y, z, unit};
  FOR_BLOCKS(block, (count + UNITS - 1) / UNITS) {
    FOR_TILE_VECTORS(i, UNITS, lane, APART, LANES) {
      const Index number = block * UNITS + i;
      if (number < count) {
        const Index begin = (units ? Index(units[first + number]) : first + number) * UNIT;
        if (AHEAD && PROPAGATION != AA_EVEN && ENCODING == COMPACT)
          prefetch_links(links, begin + AHEAD, lane, sites);
        advance_sites(source, target, links, begin + lane, sites, collision);
      }
    }
  }
}
