// Points of three fields whose neighbours an interpolation takes: in one row of each field, or in chunks. A chunk
// has CHUNK points of a row, field by field, and the next one follows; so all three lie close together, and CHUNK of
// them fill a sector of the cache. Without CHUNK, or with 0, fields are apart.
#pragma once
#include "portability.hpp"
#ifndef CHUNK
#define CHUNK 0
#endif

constexpr int chunk = CHUNK > 0 ? CHUNK : 1, fields_of_chunk = CHUNK > 0 ? 3 : 1;

INLINE int row_of_points(int n) { return n * fields_of_chunk; }
// Where a point of the first field is in its row; the point of the next field is CHUNK further.
INLINE int place_in_row(int x) {
  return CHUNK > 0 ? x / chunk * (chunk * fields_of_chunk) + x % chunk : x;
}
