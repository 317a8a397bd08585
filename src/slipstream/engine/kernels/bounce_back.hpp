// Links, and half-way bounce-back.
//
// A link says for a site and a direction where the population that moves along it comes from: it is the
// number of the site upstream, or says that the population bounces back from a wall between.
#pragma once
#include "population_layout.hpp"

using Link = unsigned int;
constexpr Link BOUNCES = Link(1) << 31;
constexpr int LINKS = DIRECTIONS - 1;

// The address of the population that a link refers to. At a wall (bounce-back) it is population q of
// the site itself, elsewhere the population of the neighbour that the link names.
INLINE Index linked_address(int q, Link link, Index site, Index sites) {
  return link & BOUNCES ? address(q, site, sites) : address(opposite(q), link, sites);
}

// The same address in two parts: what it is counted from is known when a kernel is compiled, or the same for
// all sites; the rest takes few instructions.
INLINE Index linked_start(int q, Index sites) {
  if (BY_ROW) return 0;
  const bool is_first = q < opposite(q);
  const Index start = address(is_first ? q : opposite(q), 0, sites);
  return is_first && LAYOUT != STREAM ? start + GROUP - bundle_size(q) * GROUP : start;
}
INLINE Place place_in_group(int q, Place site) {
  return site + site / GROUP * Place((bundle_size(q) - 1) * GROUP);
}
// The places of a population that bounces back, and of one that comes from upstream.
INLINE Place bounced_place(int q, Place site, Place sites) {
  if (BY_ROW) return Place(address(q, site, sites));
  const bool is_first = q < opposite(q);
  if (LAYOUT == STREAM) return is_first ? site : site + sites;
  return place_in_group(q, site) + Place(is_first ? (bundle_size(q) - 1) * GROUP : GROUP);
}
INLINE Place upstream_place(int q, Link from, Place sites) {
  if (BY_ROW) return Place(address(opposite(q), from, sites));
  const bool is_first = q < opposite(q);
  if (LAYOUT == STREAM) return is_first ? Place(from) + sites : Place(from);
  return place_in_group(q, is_first ? Place(from) + GROUP : Place(from));
}
INLINE Place linked_place(int q, Link link, Place site, Place sites) {
  return link & BOUNCES ? bounced_place(q, site, sites) : upstream_place(q, link, sites);
}
