// Numbers whose type in memory may be shorter than the type of arithmetic.
//
// Constants: STORED, `Half` or a type of C++, and STORED_BYTES, its size. Without them numbers are stored as Real.
#pragma once
#include "simd_vectors.hpp"
#include "vector_intrinsics.hpp"

#ifndef STORED
#define STORED REAL
#define STORED_BYTES 0
#endif

#if STORED_BYTES == 2

#include "half_precision.hpp"
using Stored = Half;
using Number = float;  // has all values of a stored number
using StoredBits = unsigned short;

#else

using Stored = STORED;
using Number = STORED;
using StoredBits = STORED;

#ifndef SLIPSTREAM_GPU
typedef Stored StoredVector __attribute__((vector_size(sizeof(Stored) * lanes_of<Vector>)));

INLINE Vector widened(StoredVector stored) { return __builtin_convertvector(stored, Vector); }
INLINE StoredVector narrowed(Vector value) { return __builtin_convertvector(value, StoredVector); }
#endif

#endif
