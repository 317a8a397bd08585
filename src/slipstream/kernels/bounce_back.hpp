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
