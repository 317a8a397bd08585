// Numbers that lie anywhere in an array, gathered into a packed one and scattered back: addresses are
// indices into the array.
#include "portability.hpp"

#ifndef STORED
#define STORED REAL
#endif
using Element = STORED;

// A piece is a stretch of numbers that go to one place: where that is, the first, how many.
KERNEL gather_elements(const Element* source, const Index* RESTRICT addresses,
                       const Index* RESTRICT pieces, Index rows) {
  FOR_ROWS(r, rows) {
    Element* RESTRICT target = reinterpret_cast<Element*>(pieces[3 * r]);
    const Index* RESTRICT from = addresses + pieces[3 * r + 1];
    FOR_COLUMNS(c, pieces[3 * r + 2]) target[c] = source[from[c]];
  }
}

KERNEL scatter_elements(Element* target, const Index* RESTRICT addresses,
                        const Element* RESTRICT packed, Index rows, Index columns, Index count) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) target[addresses[i]] = packed[i];
    }
  }
}
