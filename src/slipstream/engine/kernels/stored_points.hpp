// Points of some inputs of a product, which are stored on their way: stored[i][row][x] of input STORED[i].
//
// Constants, both or none: STORES, how many inputs; STORED, their numbers in braces. Three may lie in chunks:
// see point_chunks.hpp.
#pragma once
#include "point_chunks.hpp"
#ifndef STORES
#define STORES 0
#endif
#if STORES
constexpr int stored_inputs[] = STORED;
// What kernels take besides; `stored_field` counts numbers.
#define STORED_POINTS , Real* stored, Index stored_field
#else
#define STORED_POINTS
#endif
