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
INLINE Index pair_start(int q, Index sites) {
  return BY_ROW ? 0 : address(q < opposite(q) ? q : opposite(q), 0, sites);
}
INLINE Place place_in_pair(int q, Link link, Place site, Place sites) {
  if (BY_ROW) return Place(linked_address(q, link, site, sites));
  const bool bounces = link & BOUNCES;
  const Place from = bounces ? site : Place(link);
  const Place step = LAYOUT == STREAM ? sites : Place(GROUP);
  return from + from / GROUP * Place((bundle_size(q) - 1) * GROUP) +
         (bounces == q > opposite(q) ? step : Place(0));
}
