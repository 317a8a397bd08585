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

// Add `rows` numbers of each of `count` particles, a row for each number at a distance of `pitch`; those of particle
// `identity` have the places from start + rows * identity on.
KERNEL digest_of_particles(const Real* RESTRICT values, const Index* RESTRICT identity, Index* RESTRICT sums,
                           Index pitch, Index count, Index rows, Index start) {
  constexpr Index together = 256;
  FOR_ROWS(row, (count + together - 1) / together) {
    const Index first = row * together, rest = count - first;
    Bits sum = 0;
    FOR_COLUMNS_SUM(p, rest < together ? rest : together, sum) {
      const Index place = start + rows * identity[first + p];
      for (Index i = 0; i < rows; ++i) sum += mixed(digested(values[i * pitch + first + p]), place + i);
    }
    add_to_digest(sums, row, sum);
  }
}
