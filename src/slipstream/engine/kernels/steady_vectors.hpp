// Vectors from which the steady state of a flow is extrapolated (lattice/acceleration.py).
//
// A vector has the density and the momentum along x, y and z of all sites, each of them an array of
// `sites`. Constants: VECTORS, how many changes of a kind are kept, one after the other. Rows are of
// so few columns that sums of whole numbers below 2^34 are exact.
#include "moments.hpp"
#include "population_layout.hpp"

constexpr int NUMBERS = 4;
// Of the inner product of two vectors: what makes momentum an entropy like density.
INLINE constexpr double number_weight(int i) { return i ? 3.0 : 1.0; }

struct Numbers {
  Real of[NUMBERS];
};

INLINE Numbers numbers_of_site(const Stored* f, Index site, Index sites) {
  Real in[DIRECTIONS];
  UNROLL for (int q = 0; q < DIRECTIONS; ++q) in[q] = Real(f[address(q, site, sites)]);
  const Moments<Real> m = moments(in);
  return {{m.density, m.x, m.y, m.z}};
}

// The residual: how the numbers of sites have changed since `before`. How it has changed itself goes to
// `residual_change`, and the residual is added to `change`. Over rows: the largest of the squares of the residual,
// of its change, of the density of `change`, and of the numbers before.
KERNEL take_residual(const Stored* RESTRICT f, const Real* RESTRICT before, float* RESTRICT residual,
                     float* RESTRICT residual_change, float* RESTRICT change, double* RESTRICT largest,
                     Index rows, Index columns, Index count, Index sites) {
  FOR_ROWS(row, rows) {
    const Index first = row * columns, stop = first + columns < sites ? first + columns : sites;
    OF_LANES(double, most, 4);
    FOR_LANES(lane, first, stop) {
      UNROLL for (int k = 0; k < 4; ++k) OF_LANE(most, k, lane) = 0;
    }
    for (Index start = first; start < stop; start += ROW_LANES) {
      FOR_LANES(lane, start, stop) {
        const Index site = start + lane;
        // What pads the last segment is no fluid.
        const Real inside = site < count ? 1 : 0;
        const Numbers now = numbers_of_site(f, site, sites);
        double squares[4] = {};
        UNROLL for (int i = 0; i < NUMBERS; ++i) {
          const Index place = i * sites + site;
          const Real old = before[place];
          const float here = float(inside * (now.of[i] - old)), more = here - residual[place];
          const float total = change[place] + here;
          residual_change[place] = more;
          residual[place] = here;
          change[place] = total;
          squares[0] += number_weight(i) * double(here) * double(here);
          squares[1] += number_weight(i) * double(more) * double(more);
          if (i == 0) squares[2] = double(total) * double(total);
          squares[3] += number_weight(i) * double(inside * old) * double(old);
        }
        UNROLL for (int k = 0; k < 4; ++k) {
          OF_LANE(most, k, lane) = squares[k] > OF_LANE(most, k, lane) ? squares[k] : OF_LANE(most, k, lane);
        }
      }
    }
    UNROLL for (int k = 0; k < 4; ++k) {
      const double found = maximum_of_lanes(most, k);
      if (FIRST_COLUMN) largest[row * 4 + k] = found;
    }
  }
}

// Products over rows, scaled by `scales` to at most 2^34 and rounded to whole numbers: their sums have
// the same bits in any order. For each of the kept changes its products with the newest one
// and with the residual; then the residual's with itself, the density of `change`, and of half precision the
// square of the numbers before. Scales are powers of two.
KERNEL multiply_vectors(const Real* RESTRICT before, const float* RESTRICT residual, const float* RESTRICT residual_changes,
                        const float* RESTRICT change, const double* RESTRICT scales,
                        double* RESTRICT sums, Index newest, Index rows, Index columns, Index count,
                        Index sites) {
  constexpr int OF_PAIRS = 2 * VECTORS, COUNT = OF_PAIRS + 3;
  const Index size = NUMBERS * sites;
  FOR_ROWS(row, rows) {
    const Index first = row * columns, stop = first + columns < sites ? first + columns : sites;
    OF_LANES(double, sum, COUNT);
    FOR_LANES(lane, first, stop) {
      UNROLL for (int k = 0; k < COUNT; ++k) OF_LANE(sum, k, lane) = 0;
    }
    for (Index start = first; start < stop; start += ROW_LANES) {
      // Sites that pad the last segment have changes and residuals of 0.
      FOR_LANES(lane, start, stop) {
        const Index site = start + lane;
        double latest[NUMBERS], left[NUMBERS], square = 0;
        UNROLL for (int i = 0; i < NUMBERS; ++i) {
          latest[i] = number_weight(i) * scales[newest] * double(residual_changes[newest * size + i * sites + site]);
          const double here = scales[VECTORS] * double(residual[i * sites + site]);
          left[i] = number_weight(i) * here;
          square += left[i] * here;
        }
        UNROLL for (int j = 0; j < VECTORS; ++j) {
          double with_latest = 0, with_left = 0;
          UNROLL for (int i = 0; i < NUMBERS; ++i) {
            const double one = scales[j] * double(residual_changes[(j * NUMBERS + i) * sites + site]);
            with_latest += one * latest[i];
            with_left += one * left[i];
          }
          OF_LANE(sum, 2 * j, lane) += rint(with_latest);
          OF_LANE(sum, 2 * j + 1, lane) += rint(with_left);
        }
        OF_LANE(sum, OF_PAIRS, lane) += rint(square);
        OF_LANE(sum, OF_PAIRS + 1, lane) += rint(scales[VECTORS + 1] * double(change[site]));
#if STORED_BYTES == 2
        double numbers = 0;
        UNROLL for (int i = 0; i < NUMBERS; ++i) {
          const double old = site < count ? scales[VECTORS + 2] * double(before[i * sites + site]) : 0;
          numbers += number_weight(i) * old * old;
        }
        OF_LANE(sum, OF_PAIRS + 2, lane) += rint(numbers);
#endif
      }
    }
    UNROLL for (int k = 0; k < COUNT; ++k) {
      const double total = sum_of_lanes(sum, k);
      if (FIRST_COLUMN) sums[row * COUNT + k] = total;
    }
  }
}

// Take weights times the kept changes, and a mean density, from the numbers of all sites, by equilibria, and add
// `share` times a pressure. What is added goes to `correction`, which may be one of the changes, and the numbers
// to `before`.
KERNEL add_correction(Stored* RESTRICT f, const float* changes, const double* RESTRICT weights,
                      const float* RESTRICT pressure, double share, double mean, float* correction,
                      Real* RESTRICT before, Index rows, Index columns, Index count, Index sites) {
  FOR_ROWS(row, rows) {
    const Index first = row * columns, stop = first + columns < sites ? first + columns : sites;
    for (Index start = first; start < stop; start += ROW_LANES) FOR_LANES(lane, start, stop) {
      const Index site = start + lane;
      // The changes of what pads the last segment are 0.
      double added[NUMBERS] = {site < count ? share * double(pressure[site]) - mean : 0.0, 0, 0, 0};
      UNROLL for (int j = 0; j < VECTORS; ++j) {
        UNROLL for (int i = 0; i < NUMBERS; ++i) {
          added[i] -= weights[j] * double(changes[(j * NUMBERS + i) * sites + site]);
        }
      }
      Real populations[DIRECTIONS];
      UNROLL for (int q = 0; q < DIRECTIONS; ++q) {
        const Index place = address(q, site, sites);
        const double more = added[0] + 3 * along<double>(q, added[1], added[2], added[3]);
        const Stored population = Stored(double(f[place]) + weight(q) * more);
        f[place] = population;
        populations[q] = Real(population);
      }
      const Moments<Real> m = moments(populations);
      const Real now[] = {m.density, m.x, m.y, m.z};
      UNROLL for (int i = 0; i < NUMBERS; ++i) {
        correction[i * sites + site] = float(added[i]);
        before[i * sites + site] = now[i];
      }
    }
  }
}
