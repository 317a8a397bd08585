#include "digests.hpp"

// Add the digest of boxes of fields: values[field][z][y][x] at the given strides, with their places among
// the numbers of all ranks; the first is at `start`.
KERNEL digest_of_rows(const Real* RESTRICT values, Index* RESTRICT sums, Index fields, Index nz, Index ny,
                      Index nx, Index field_pitch, Index z_pitch, Index y_pitch, Index start,
                      Index field_places, Index z_places, Index y_places) {
  FOR_ROWS(row, fields * nz * ny) {
    const Index y = row % ny, z = row / ny % nz, field = row / ny / nz;
    const Real* RESTRICT v = values + field * field_pitch + z * z_pitch + y * y_pitch;
    const Index first = start + field * field_places + z * z_places + y * y_places;
    Bits sum = 0;
    FOR_COLUMNS_SUM(i, nx, sum) sum += mixed(digested(v[i]), first + i);
    add_to_digest(sums, row, sum);
  }
}
