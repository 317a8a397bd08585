// Copies of boxes between arrays of any strides, also from and to pinned memory of the host.
#pragma once
#include "portability.hpp"

// target[i][j][k][c] = source[i][j][k][c] for c < columns, contiguous; strides count elements. Long
// rows are copied in parts, so that one row keeps all threads busy too.
KERNEL copy_box(Real* RESTRICT target, const Real* RESTRICT source, Index rows, Index size_j,
                Index size_k, Index columns, Index parts, Index part_size, Index to_i, Index to_j,
                Index to_k, Index of_i, Index of_j, Index of_k) {
  FOR_ROWS(one, rows * parts) {
    const Index row = one / parts, first = one % parts * part_size;
    const Index k = row % size_k, j = row / size_k % size_j, i = row / size_k / size_j;
    Real* RESTRICT to = target + i * to_i + j * to_j + k * to_k + first;
    const Real* RESTRICT of = source + i * of_i + j * of_j + k * of_k + first;
    const Index count = columns - first < part_size ? columns - first : part_size;
    FOR_COLUMNS(c, count) to[c] = of[c];
  }
}

// target[i][j][k][c] = value; as above.
KERNEL fill_box(Real* RESTRICT target, Real value, Index rows, Index size_j, Index size_k,
                Index columns, Index to_i, Index to_j, Index to_k) {
  FOR_ROWS(row, rows) {
    const Index k = row % size_k, j = row / size_k % size_j, i = row / size_k / size_j;
    Real* RESTRICT to = target + i * to_i + j * to_j + k * to_k;
    FOR_COLUMNS(c, columns) to[c] = value;
  }
}
