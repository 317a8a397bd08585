#include "portability.hpp"

// Sums over some rows of a table at a time: totals[group][columns] of table[row][columns].
KERNEL sums_of_rows(const double* RESTRICT table, double* RESTRICT totals, Index groups,
                    Index rows_of_group, Index rows, Index columns) {
  FOR_ROWS(group, groups) {
    const Index low = group * rows_of_group;
    const Index high = low + rows_of_group < rows ? low + rows_of_group : rows;
    FOR_COLUMNS(i, columns) {
      double sum = 0;
      for (Index row = low; row < high; ++row) sum += table[row * columns + i];
      totals[group * columns + i] = sum;
    }
  }
}

// The largest of each column instead, of numbers that are not negative.
KERNEL maxima_of_rows(const double* RESTRICT table, double* RESTRICT totals, Index groups,
                      Index rows_of_group, Index rows, Index columns) {
  FOR_ROWS(group, groups) {
    const Index low = group * rows_of_group;
    const Index high = low + rows_of_group < rows ? low + rows_of_group : rows;
    FOR_COLUMNS(i, columns) {
      double most = 0;
      for (Index row = low; row < high; ++row) {
        const double one = table[row * columns + i];
        most = one > most ? one : most;
      }
      totals[group * columns + i] = most;
    }
  }
}
