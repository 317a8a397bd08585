#include "portability.hpp"

// Combine the numbers of some rows of a table at a time: totals[group][columns] of table[row][columns].
template <class Combine>
INLINE void combine_rows(const double* RESTRICT table, double* RESTRICT totals, Index groups,
                         Index rows_of_group, Index rows, Index columns, Combine combine) {
  FOR_ROWS(group, groups) {
    const Index low = group * rows_of_group;
    const Index high = low + rows_of_group < rows ? low + rows_of_group : rows;
    FOR_COLUMNS(i, columns) {
      double total = 0;
      for (Index row = low; row < high; ++row) total = combine(total, table[row * columns + i]);
      totals[group * columns + i] = total;
    }
  }
}

KERNEL sums_of_rows(const double* RESTRICT table, double* RESTRICT totals, Index groups,
                    Index rows_of_group, Index rows, Index columns) {
  const auto sum = [](double a, double b) { return a + b; };
  combine_rows(table, totals, groups, rows_of_group, rows, columns, sum);
}

// The largest of each column, of numbers that are not negative.
KERNEL maxima_of_rows(const double* RESTRICT table, double* RESTRICT totals, Index groups,
                      Index rows_of_group, Index rows, Index columns) {
  const auto larger = [](double a, double b) { return b > a ? b : a; };
  combine_rows(table, totals, groups, rows_of_group, rows, columns, larger);
}
