// Sums of powers of values at points, and counts of values by bins.
#include "portability.hpp"

// Sums of the powers of |v|, v = (value - shift) * scale, from the first to the sixth, and of v^3 with its sign, over
// segments of the points of each field: sums[segment][field][7]. The distance between fields is in values.
KERNEL sums_of_powers(const Real* RESTRICT values, const double* RESTRICT shifts,
                      const double* RESTRICT scales, double* RESTRICT sums, Index fields,
                      Index segments, Index length, Index points, Index field_size) {
  FOR_ROWS(line, fields * segments) {
    const Index field = line / segments, segment = line % segments;
    const Index low = segment * length, rest = points - low;
    const Real* RESTRICT v = values + field * field_size + low;
    const double shift = shifts[field], scale = scales[field];
    double first = 0, second = 0, third = 0, fourth = 0, fifth = 0, sixth = 0, cube = 0;
    FOR_COLUMNS_SUM(i, rest < length ? rest : length, first, second, third, fourth, fifth, sixth, cube) {
      const double value = (v[i] - shift) * scale, size = fabs(value), square = value * value;
      first += size;
      second += square;
      third += size * square;
      fourth += square * square;
      fifth += size * square * square;
      sixth += square * square * square;
      cube += value * square;
    }
    const double found[7] = {row_sum(first), row_sum(second), row_sum(third), row_sum(fourth),
                             row_sum(fifth), row_sum(sixth),  row_sum(cube)};
    if (FIRST_COLUMN) {
      double* RESTRICT own = sums + 7 * (segment * fields + field);
      UNROLL for (int i = 0; i < 7; ++i) own[i] = found[i];
    }
  }
}

// Add to a table that the threads of one row alone add to.
INLINE void add_in_row(Index* target, Index value) {
#ifdef SLIPSTREAM_GPU
  add_atomically(target, value);
#else
  *target += value;
#endif
}

// The bin of a value; a value beyond either end has the bin of that end, not-a-number the first bin.
INLINE Index bin_of(double value, double low, double per_bin, Index bins) {
  const double place = floor((value - low) * per_bin);
  return place > 0 ? (place < double(bins) ? Index(place) : bins - 1) : 0;
}

// Counts of points by the bins of one value, or of two, and sums by bins of other values as whole numbers of 1 / scale:
// table[copy][set][1 + others][bins of the first][bins of the second], zero before. A set has `variables` fields to bin
// by, and then `others`; the edges are those of its variables in turn. Each copy is of a part of the points, so that few
// threads add to one number.
KERNEL sums_in_bins_of_values(const Real* RESTRICT values, const double* RESTRICT lows,
                              const double* RESTRICT per_bin, const double* RESTRICT scales,
                              Index* RESTRICT table, Index sets, Index variables, Index others,
                              Index first_bins, Index second_bins, Index copies, Index length,
                              Index points, Index field_size) {
  FOR_ROWS(line, copies * sets) {
    const Index copy = line / sets, set = line % sets, bins = first_bins * second_bins;
    const Index low = copy * length, rest = points - low;
    const Real* RESTRICT v = values + set * (variables + others) * field_size + low;
    const double* RESTRICT from = lows + set * variables;
    const double* RESTRICT rate = per_bin + set * variables;
    Index* RESTRICT own = table + line * (1 + others) * bins;
    FOR_COLUMNS_IN_TURN(i, rest < length ? rest : length) {
      Index bin = bin_of(v[i], from[0], rate[0], first_bins);
      if (variables > 1) bin = bin * second_bins + bin_of(v[field_size + i], from[1], rate[1], second_bins);
      add_in_row(own + bin, 1);
      for (Index other = 0; other < others; ++other)
        add_in_row(own + (1 + other) * bins + bin,
                   Index(rint(v[(variables + other) * field_size + i] * scales[other])));
    }
  }
}
