// Links, and half-way bounce-back.
//
// A link says for a site and a direction where the population that moves along it comes from: it is the
// number of the site upstream, or says that the population bounces back from a wall between.
#pragma once
#include "population_layout.hpp"

using Link = unsigned int;
constexpr Link BOUNCES = Link(1) << 31;
constexpr int LINKS = DIRECTIONS - 1;

// Where the population that a link tells of is. It bounced where it came from, against direction q.
INLINE Index linked_address(int q, Link link, Index site, Index sites) {
  return link & BOUNCES ? address(q, site, sites) : address(opposite(q), link, sites);
}
