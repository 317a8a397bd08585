// Rows of complex numbers between a working array and a packed one.
//
// A packed array keeps only the modes that a truncation keeps, block by block for the ranks that
// they come from or go to; tables say where rows lie. One pass does
// the work of three: unpack, re-order, pad with zeros (or truncate, re-order, pack).
#include "row_tables.hpp"

// A division takes as long as a short row: a CPU finds out once for all rows of a plane where it is.
#ifdef SLIPSTREAM_GPU
#define FOR_ROWS_OF_PLANES                     \
  FOR_ROWS(r, fields* planes* rows)            \
  if (const Index row = r % rows, plane = r / rows % planes, field = r / rows / planes; true)
#else
#define FOR_ROWS_OF_PLANES          \
  FOR_ROWS(number, fields* planes)  \
  for (Index row = 0, field = number % fields, plane = number / fields; row < rows; ++row)
#endif

// Column c of a packed row is column c, or c + gap from `low` on, of the working row: the second
// part holds the negative wavenumbers of a complex transform. Working rows are multiplied by `scale`.
KERNEL gather_rows(const Complex* RESTRICT packed, Complex* RESTRICT work,
                   const Index* RESTRICT offset, const Index* RESTRICT pitch, Index first,
                   Index fields, Index planes, Index rows, Index columns, Index low,
                   Index gap, Index packed_field, Index work_field, Index work_plane, Index work_row,
                   Real scale) {
  FOR_ROWS_OF_PLANES {
    Complex* RESTRICT to = work + field * work_field + plane * work_plane + row * work_row;
    const Complex zero = {0, 0};
    if (offset[row] == not_kept) {
      FOR_COLUMNS(c, columns + gap) to[c] = zero;
    } else {
      const Complex* RESTRICT from =
          packed + field * packed_field + offset[row] + (first + plane) * pitch[row];
      FOR_COLUMNS(c, low) to[c] = scale * from[c];
      FOR_COLUMNS(c, gap) to[low + c] = zero;
      FOR_COLUMNS(c, columns - low) to[low + gap + c] = scale * from[low + c];
    }
  }
}

KERNEL scatter_rows(Complex* RESTRICT packed, const Complex* RESTRICT work,
                    const Index* RESTRICT offset, const Index* RESTRICT pitch, Index first,
                    Index fields, Index planes, Index rows, Index columns, Index low,
                    Index gap, Index packed_field, Index work_field, Index work_plane, Index work_row) {
  FOR_ROWS_OF_PLANES {
    if (offset[row] != not_kept) {
      const Complex* RESTRICT from =
          work + field * work_field + plane * work_plane + row * work_row;
      Complex* RESTRICT to = packed + field * packed_field + offset[row] + (first + plane) * pitch[row];
      FOR_COLUMNS(c, low) to[c] = from[c];
      FOR_COLUMNS(c, columns - low) to[low + c] = from[low + gap + c];
    }
  }
}
