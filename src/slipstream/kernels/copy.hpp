// The copy that bounds every kernel which only moves data: each byte read once and written once.
#include "core.hpp"

KERNEL copy_rows(const Real* RESTRICT source, Real* RESTRICT target, Index rows, Index columns) {
  FOR_ROWS(row, rows) {
    FOR_COLUMNS(c, columns) target[row * columns + c] = source[row * columns + c];
  }
}
