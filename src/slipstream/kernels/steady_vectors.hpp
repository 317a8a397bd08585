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
// `residual_change`, and the residual is added to `change`.
KERNEL take_residual(const Stored* RESTRICT f, const Real* RESTRICT before, float* RESTRICT residual,
                     float* RESTRICT residual_change, float* RESTRICT change, Index segments,
                     Index count, Index sites) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS(lane, SEGMENT) {
      const Index site = segment * SEGMENT + lane;
      // What pads the last segment is no fluid.
      const Real inside = site < count ? 1 : 0;
      const Numbers now = numbers_of_site(f, site, sites);
      UNROLL for (int i = 0; i < NUMBERS; ++i) {
        const Index place = i * sites + site;
        const float here = float(inside * (now.of[i] - before[place]));
        residual_change[place] = here - residual[place];
        residual[place] = here;
        change[place] += here;
      }
    }
  }
}

template <class T>
INLINE double square_of(const T* RESTRICT vector, Index site, Index sites) {
  double square = 0;
  UNROLL for (int i = 0; i < NUMBERS; ++i) {
    square += number_weight(i) * double(vector[i * sites + site]) * double(vector[i * sites + site]);
  }
  return square;
}

// Over rows: the largest of the squares of the residual, of its change, of the density of `change`, and
// of the numbers before.
KERNEL find_largest(const Real* RESTRICT before, const float* RESTRICT residual,
                    const float* RESTRICT residual_change, const float* RESTRICT change,
                    Index* RESTRICT largest, Index rows, Index columns, Index count, Index sites) {
  FOR_ROWS(row, rows) {
    const Index first = row * columns, here = count - first < columns ? count - first : columns;
    double residuals = 0, changes = 0, densities = 0, numbers = 0;
    FOR_COLUMNS_MAXIMUM(c, here, residuals) {
      const double square = square_of(residual, first + c, sites);
      residuals = square > residuals ? square : residuals;
    }
    FOR_COLUMNS_MAXIMUM(c, here, changes) {
      const double square = square_of(residual_change, first + c, sites);
      changes = square > changes ? square : changes;
    }
    FOR_COLUMNS_MAXIMUM(c, here, densities) {
      const double square = double(change[first + c]) * double(change[first + c]);
      densities = square > densities ? square : densities;
    }
    FOR_COLUMNS_MAXIMUM(c, here, numbers) {
      const double square = square_of(before, first + c, sites);
      numbers = square > numbers ? square : numbers;
    }
    const Index found[] = {
        row_maximum(ordered_bits(residuals)), row_maximum(ordered_bits(changes)),
        row_maximum(ordered_bits(densities)), row_maximum(ordered_bits(numbers))};
    if (FIRST_COLUMN) {
      for (int i = 0; i < 4; ++i) largest[row * 4 + i] = found[i];
    }
  }
}

INLINE double inner_product(const float* RESTRICT a, const float* RESTRICT b, Index site, Index sites) {
  double sum = 0;
  UNROLL for (int i = 0; i < NUMBERS; ++i) {
    sum += number_weight(i) * double(a[i * sites + site]) * double(b[i * sites + site]);
  }
  return sum;
}

// Products over rows, of which `scales` make numbers of at most 2^34 that are rounded to whole ones: their
// sums have the same bits in any order. For each of the kept changes its products with the newest one
// and with the residual; then the residual's with itself, the density of `change`, and of half precision the
// square of the numbers before.
KERNEL multiply_vectors(const Real* RESTRICT before, const float* RESTRICT residual, const float* RESTRICT residual_changes,
                        const float* RESTRICT change, const double* RESTRICT scales,
                        double* RESTRICT sums, Index newest, Index rows, Index columns, Index count,
                        Index sites) {
  const Index size = NUMBERS * sites;
  FOR_ROWS(row, rows) {
    const Index first = row * columns, here = count - first < columns ? count - first : columns;
    double* RESTRICT out = sums + row * (2 * VECTORS + 3);
    for (int j = 0; j < VECTORS; ++j) {
      const float* RESTRICT one = residual_changes + j * size;
      const double with_change = scales[j] * scales[newest], with_residual = scales[j] * scales[VECTORS];
      double changes = 0, residuals = 0;
      FOR_COLUMNS_SUM(c, here, changes, residuals) {
        const Index site = first + c;
        changes += rint(with_change * inner_product(one, residual_changes + newest * size, site, sites));
        residuals += rint(with_residual * inner_product(one, residual, site, sites));
      }
      changes = row_sum(changes);
      residuals = row_sum(residuals);
      if (FIRST_COLUMN) {
        out[2 * j] = changes;
        out[2 * j + 1] = residuals;
      }
    }
    const double with_itself = scales[VECTORS] * scales[VECTORS], of_density = scales[VECTORS + 1];
    double square = 0, density = 0;
    FOR_COLUMNS_SUM(c, here, square, density) {
      const Index site = first + c;
      square += rint(with_itself * inner_product(residual, residual, site, sites));
      density += rint(of_density * double(change[site]));
    }
    square = row_sum(square);
    density = row_sum(density);
    double numbers = 0;
#if STORED_BYTES == 2
    const double of_numbers = scales[VECTORS + 2] * scales[VECTORS + 2];
    FOR_COLUMNS_SUM(c, here, numbers) numbers += rint(of_numbers * square_of(before, first + c, sites));
    numbers = row_sum(numbers);
#endif
    if (FIRST_COLUMN) {
      out[2 * VECTORS] = square;
      out[2 * VECTORS + 1] = density;
      out[2 * VECTORS + 2] = numbers;
    }
  }
}

// Take weights times the kept changes, and a mean density, from the numbers of all sites, by equilibria, and add
// `share` times a pressure. What is added goes to `correction`, which may be one of the changes, and the numbers
// to `before`.
KERNEL add_correction(Stored* RESTRICT f, const float* changes, const double* RESTRICT weights,
                      const float* RESTRICT pressure, double share, double mean, float* correction,
                      Real* RESTRICT before, Index segments, Index count, Index sites) {
  FOR_ROWS(segment, segments) {
    FOR_COLUMNS(lane, SEGMENT) {
      const Index site = segment * SEGMENT + lane;
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
