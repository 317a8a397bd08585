#include "portability.hpp"

// The sums of each row's values and of their squares: sums[row][field][2] of values[field][row][columns].
KERNEL sums_of_values(const Real* RESTRICT values, double* RESTRICT sums, Index fields, Index rows,
                      Index columns, Index field_size) {
  FOR_ROWS(line, fields * rows) {
    const Index field = line / rows, row = line % rows;
    const Real* RESTRICT v = values + field * field_size + row * columns;
    double sum = 0, squares = 0;
    FOR_COLUMNS_SUM(i, columns, sum, squares) {
      const double value = v[i];
      sum += value;
      squares += value * value;
    }
    sum = row_sum(sum);
    squares = row_sum(squares);
    if (FIRST_COLUMN) {
      double* RESTRICT own = sums + 2 * (row * fields + field);
      own[0] = sum;
      own[1] = squares;
    }
  }
}
