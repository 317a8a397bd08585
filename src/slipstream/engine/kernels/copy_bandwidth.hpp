// The copies that bound every kernel which only moves data: each byte read once and written once.
#include "simd_vectors.hpp"

KERNEL copy_rows(const Real* RESTRICT source, Real* RESTRICT target, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    FOR_COLUMNS(c, columns) target[row * columns + c] = source[row * columns + c];
  }
}

// The same with stores that bypass the caches, of a CPU that has them. Columns fill vectors.
KERNEL stream_rows(const Real* RESTRICT source, Real* RESTRICT target, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    for (Index c = 0; c < columns; c += lanes_of<Vector>)
      stream(target + row * columns + c, load(source + row * columns + c, Vector{}));
    wait_for_streamed_stores();
  }
}
