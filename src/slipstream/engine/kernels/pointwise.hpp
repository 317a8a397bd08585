// A product of fields at every point, in place, where the points are in memory.
//
// Constants: INPUTS, OUTPUTS, PRODUCT_HEADER as in fused_product.hpp.
#pragma once
#include "portability.hpp"
#ifdef PRODUCT_HEADER
#include PRODUCT_HEADER
#endif

// points[0 .. INPUTS-1] hold the factors on entry, points[0 .. OUTPUTS-1] the products on return.
// maxima[row] receives the ordered bits of the largest rate in the row.
KERNEL apply_pointwise(Real* RESTRICT points, Index* RESTRICT maxima,
                       const double* RESTRICT parameters, Index rows, Index columns, Index field) {
  FOR_ROWS(row, rows) {
    Real* RESTRICT p = points + row * columns;
    Index largest = 0;
    FOR_COLUMNS_MAXIMUM(c, columns, largest) {
      Real in[INPUTS], out[OUTPUTS];
      UNROLL for (int i = 0; i < INPUTS; ++i) in[i] = p[c + i * field];
      const Index bits = ordered_bits(pointwise(in, out, parameters));
      largest = bits > largest ? bits : largest;
      UNROLL for (int i = 0; i < OUTPUTS; ++i) p[c + i * field] = out[i];
    }
    largest = row_maximum(largest);
    if (FIRST_COLUMN) maxima[row] = largest;
  }
}
