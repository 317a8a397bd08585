// One time step of the sites in a list of segments: gather populations, collide, hand them on.
//
// With two lattices, a step reads its own sites of one and stores to the sites downstream of the
// other. In place (the AA pattern of Bailey et al. 2009), an even step leaves what it has to send
// with its own site, turned around; an odd step fetches from, and stores to, the sites around. A
// population has one reader and one writer in each step, the same site, so the order is free.
//
// Constants: PROPAGATION, and those of link_encoding.hpp and trt_collision.hpp.
#include "link_encoding.hpp"
#include "trt_collision.hpp"

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
  Population f[DIRECTIONS];
  Place at[DIRECTIONS][LANES];
  if (PROPAGATION != AA_EVEN) read_places(links, site, sites, at);
#ifdef SLIPSTREAM_GPU
  if (PROPAGATION != TWO_LATTICE) source = target;  // as they are: then an address serves both
#endif
  f[0] = load_own(source, 0, site, sites);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q)
    f[q] = PROPAGATION == AA_ODD ? gather(source + linked_start(q, sites), at[q])
                                 : load_own(source, q, site, sites);
  collide(f, collision);
  store_own(target, 0, site, sites, f[0]);
  UNROLL for (int q = 1; q < DIRECTIONS; ++q) {
    // What comes in along q next time is what the site upstream sends along q, or a wall returns.
    if (PROPAGATION == AA_EVEN)
      store_own(target, opposite(q), site, sites, f[q]);
    else
      scatter(target + linked_start(opposite(q), sites), at[opposite(q)], f[q]);
  }
}

// Advance segments[first ... first + count - 1], or these very segments where there is no list.
KERNEL advance(const Stored* source, Stored* target, const Link* wide, const Link* flags,
               const unsigned short* offsets, const int* bases, const Link* exceptions,
               const Link* segments, Index first, Index count, Index sites, Real even, Real odd, Real x,
               Real y, Real z, Real unit) {
  const Links links = {wide, flags, offsets, bases, exceptions};
  const Collision collision = {even, odd, x, y, z, unit};
  FOR_BLOCKS(block, (count + SEGMENTS - 1) / SEGMENTS) {
    FOR_TILE_VECTORS(i, SEGMENTS, lane, SEGMENT, LANES) {
      const Index number = block * SEGMENTS + i;
      if (number < count) {
        const Index segment = segments ? Index(segments[first + number]) : first + number;
        advance_sites(source, target, links, segment * SEGMENT + lane, sites, collision);
      }
    }
  }
}
