// Addition of numbers to listed populations, such as the jumps of a pressure drop to populations that
// cross the faces of the domain (lattice/pore_flow.py).
#include "population_layout.hpp"

// Add a number to the populations at some addresses.
KERNEL add_to_populations(Stored* f, const Index* RESTRICT addresses, const double* RESTRICT change, Index count) {
  FOR_ROWS(r, (count + SEGMENT - 1) / SEGMENT) {
    FOR_COLUMNS(c, SEGMENT) {
      const Index i = r * SEGMENT + c;
      if (i < count) f[addresses[i]] = Stored(Number(f[addresses[i]]) + Number(change[i]));
    }
  }
}
