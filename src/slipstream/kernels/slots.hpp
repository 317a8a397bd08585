// Numbers that lie anywhere in an array, into a packed one and back; tables say where.
#include "portability.hpp"

#ifndef STORED
#define STORED REAL
#endif
using Slot = STORED;

// Pieces are at most so many numbers that go to one place: where that is, the first, how many.
KERNEL gather_slots(const Slot* source, const Index* RESTRICT addresses, const Index* RESTRICT pieces,
                    Index rows) {
  FOR_ROWS(r, rows) {
    Slot* RESTRICT target = reinterpret_cast<Slot*>(pieces[3 * r]);
    const Index* RESTRICT from = addresses + pieces[3 * r + 1];
    FOR_COLUMNS(c, pieces[3 * r + 2]) target[c] = source[from[c]];
  }
}

KERNEL scatter_slots(Slot* target, const Index* RESTRICT addresses, const Slot* RESTRICT packed,
                     Index rows, Index columns, Index count) {
  FOR_ROWS(r, rows) {
    FOR_COLUMNS(c, columns) {
      const Index i = r * columns + c;
      if (i < count) target[addresses[i]] = packed[i];
    }
  }
}
