// Tables of rows: row r of plane o lies at offset[r] + (first + o) * pitch[r], in complex numbers.
// Offsets may be negative, for what lies before, and this one marks rows that are not kept.
#pragma once
#include "portability.hpp"

constexpr Index not_kept = -(Index(1) << 62);

// Offset and pitch of a row, and, 32 bits higher, whether it is kept: kernels read all by one access.
struct alignas(2 * sizeof(Index)) RowEntry {
  Index offset, pitch_and_stored;
};
