// Rows of numbers from anywhere to anywhere that this processor reaches: into a packed buffer, out
// of it, into the memory of another rank. A table says where: faces of a box are a few thousand
// rows in many places, and one launch moves them all.
#include "portability.hpp"

// An entry: address of the source and of the target, count, and the strides of both in elements.
KERNEL copy_listed_rows(const Index* RESTRICT table, Index rows) {
  FOR_ROWS(r, rows) {
    const Index* RESTRICT entry = table + 5 * r;
    const Real* RESTRICT source = reinterpret_cast<const Real*>(entry[0]);
    Real* RESTRICT target = reinterpret_cast<Real*>(entry[1]);
    const Index count = entry[2], from = entry[3], to = entry[4];
    if (from == 1 && to == 1) {
      FOR_COLUMNS(c, count) target[c] = source[c];
    } else {
      FOR_COLUMNS(c, count) target[c * to] = source[c * from];
    }
  }
}
