// From modes to points, a product at every point, and back to modes: one trip through memory.
//
// Along the contiguous axis a pseudospectral step transforms INPUTS fields to physical space,
// multiplies them and transforms OUTPUTS products back. Here rows stay in shared memory throughout,
// and the real fields never reach global memory.
//
// The order of the points does not matter to the product: backward passes leave them
// digit-reversed, and forward passes take them so. The last backward pass, the product and the
// first forward pass share their points, and run in registers without a barrier.
//
// Rows of all products may take more shared memory than leaves room for enough blocks. Then the points
// stay in registers, and products go back in groups, one after the other in the same rows.
//
// Constants: those of paired_real_fft.hpp; INPUTS, OUTPUTS; GROUP, of products that go back together, and
// if that is not all of them, THREADS for all butterflies of the middle pass; PRODUCT_HEADER names the
// header that defines the product,
//   INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS],
//                           const double* RESTRICT parameters),
// whose result is a rate (such as the rate of the CFL condition), for its maximum; ODD_ROWS, the
// rows of a plane if they are an odd number. If points are wanted besides: see stored_points.hpp.
#pragma once
// With KEPT, each row keeps as many modes, and the number of rows is even if there are no ODD_ROWS.
#ifdef KEPT
constexpr bool is_kept_known = true;
#else
constexpr bool is_kept_known = false;
#endif
#include "paired_real_fft.hpp"
#ifndef ODD_ROWS
#define ODD_ROWS 0
#endif
#ifdef PRODUCT_HEADER
#include PRODUCT_HEADER
#endif
#include "stored_points.hpp"

constexpr int row_count = INPUTS > GROUP ? INPUTS : GROUP;  // of a pair

// Pairs of rows never cross planes, so that results do not depend on how planes are divided: the last row
// of an odd number is a pair alone.
constexpr Index pairs_of_plane = ODD_ROWS / 2 + 1;
INLINE Index pairs_of(Index rows) {
#if ODD_ROWS
  return rows / ODD_ROWS * pairs_of_plane;
#else
  return (rows + 1) / 2;
#endif
}

// A pair of rows that exists. With KEPT, which modes are kept is mostly known at compile time.
struct ProductPair {
  Complex *a, *b;
  Index row;
  int kept;
  bool has_second;
  INLINE ProductPair(const Complex* field, Index stride, Index pair, Index rows, Index kept)
      : kept(is_kept_known ? KEPT : int(kept)) {
#if ODD_ROWS
    const Index plane = pair / pairs_of_plane, own = pair - plane * pairs_of_plane;
    row = plane * ODD_ROWS + 2 * own;
    has_second = own < pairs_of_plane - 1;
#else
    row = 2 * pair;
    has_second = is_kept_known || row + 1 < rows;
#endif
    a = const_cast<Complex*>(field) + row * stride;
    b = a + stride;
  }
  INLINE ProductPair from(int mode) const {
    ProductPair rest = *this;
    rest.a = opaque(a + mode), rest.b = opaque(b + mode), rest.kept -= mode;
    return rest;
  }
  INLINE bool has_a(int k, bool is_kept) const { return is_kept_known && is_kept || k < kept; }
  INLINE bool has_b(int k, bool is_kept) const { return has_a(k, is_kept) && has_second; }
};

// `radix` points of every field, of two rows each.
struct Points {
  using Here = Pass<middle>;
  static constexpr int R = Here::radix;
  Complex in[INPUTS][R];

  // The last backward pass.
  INLINE void load_from(const Complex* rows, int b, const Complex* RESTRICT roots) {
    UNROLL for (int field = 0; field < INPUTS; ++field) {
      load<Here>(in[field], rows + field * row_size, Here::origin(b));
      backward_butterfly<Here>(in[field], b, roots);
    }
  }

#if STORES
  // The points of two rows of the inputs that are stored.
  INLINE void store_inputs(Real* points, Index field, const ProductPair& pair, int b) const {
    UNROLL for (int r = 0; r < R; ++r) {
      Real* at = points + pair.row * row_of_points(N) + place_in_row(mode_at<>(Here::origin(b) + r * Here::stride));
      UNROLL for (int i = 0; i < STORES; ++i) {
        const Complex both = in[stored_inputs[i]][r];
        at[i * field] = both.re;
        if (pair.has_second) at[i * field + row_of_points(N)] = both.im;
      }
    }
  }
#endif

  // All products at element r; returns the ordered bits of the larger rate.
  INLINE Index multiply(int r, Real (&out_a)[OUTPUTS], Real (&out_b)[OUTPUTS],
                        const double* RESTRICT parameters) const {
    Real in_a[INPUTS], in_b[INPUTS];
    UNROLL for (int field = 0; field < INPUTS; ++field) {
      in_a[field] = in[field][r].re;
      in_b[field] = in[field][r].im;
    }
    const Index bits_a = ordered_bits(pointwise(in_a, out_a, parameters));
    const Index bits_b = ordered_bits(pointwise(in_b, out_b, parameters));
    return bits_a > bits_b ? bits_a : bits_b;
  }

  INLINE Index largest_rate(const double* RESTRICT parameters) const {
    Index largest = 0;
    UNROLL for (int r = 0; r < R; ++r) {
      Real out_a[OUTPUTS], out_b[OUTPUTS];
      const Index bits = multiply(r, out_a, out_b, parameters);
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }

  // The first forward pass of products first ... first + count - 1.
  template <int first, int count>
  INLINE void store_products(Complex* rows, int b, const Complex* RESTRICT roots,
                             const double* RESTRICT parameters) const {
    UNROLL for (int i = 0; i < count; ++i) {
      Complex product[R];
      UNROLL for (int r = 0; r < R; ++r) {
        Real out_a[OUTPUTS], out_b[OUTPUTS];
        multiply(r, out_a, out_b, parameters);
        product[r] = {out_a[first + i], out_b[first + i]};
      }
      forward_butterfly<Here>(product, b, roots);
      store<Here>(product, rows + i * row_size, Here::origin(b));
    }
  }
};

// Where the modes of products go.
struct Target {
  Complex* modes;
  Index field, row, rows, kept, first_pair, pairs;
  Real scale;
};

// The passes of products first ... first + count - 1, from the middle one on, to global memory.
template <int first, int count>
INLINE void finish_products(const Target& target, Complex* tile, const Complex* RESTRICT roots) {
  forward_passes<middle - 1, count, row_count>(tile, roots);
  FOR_TILE(line, PAIRS * count, q, mirrored_pairs) {
    const int pair = line / count, product = line % count;
    if (PAIRS > 1 && target.first_pair + pair >= target.pairs) continue;
    const ProductPair modes(target.modes + (first + product) * target.field, target.row,
                            target.first_pair + pair, target.rows, target.kept);
    store_modes(modes, tile + (pair * row_count + product) * row_size, q, roots, target.scale);
  }
  BLOCK_BARRIER  // the next products write the tile
}

// The products from `first` on, a group after the other.
template <int first, class Held>
INLINE void products_in_groups(const Held& points, const Target& target, Complex* tile,
                               const Complex* RESTRICT roots, const double* RESTRICT parameters) {
  if constexpr (first < OUTPUTS) {
    constexpr int count = OUTPUTS - first < GROUP ? OUTPUTS - first : GROUP;
    FOR_TILE(pair, PAIRS, b, Pass<middle>::butterflies) {
      OF_ITEM(points, pair * Pass<middle>::butterflies + b)
          .template store_products<first, count>(tile + pair * row_count * row_size,
                                                 spread<Pass<middle>>(b), roots, parameters);
    }
    BLOCK_BARRIER
    finish_products<first, count>(target, tile, roots);
    products_in_groups<first + GROUP>(points, target, tile, roots, parameters);
  }
}

#if STORES
// Of a pair that does not exist, the last one is stored once more.
#define STORE_INPUTS(values)                                                                      \
  {                                                                                               \
    const Index number_ = block * PAIRS + pair;                                                   \
    const ProductPair rows_(source, source_row, number_ < pairs ? number_ : pairs - 1, rows, kept); \
    values.store_inputs(stored, stored_field, rows_, spread<Pass<middle>>(b));                    \
  }
#else
#define STORE_INPUTS(values)
#endif

// target[field][row][k] = scale * rfft(pointwise(irfft(source)))[k], k < kept <= N / 2 + 1, where
// source[field][row][k] has its modes k >= kept zero and irfft does not divide by N. Strides count
// Complex elements. Source and target may be the same array. maxima[i], zero before, receives the
// ordered bits of the largest rate in the i-th 2 * PAIRS rows.
KERNEL fused_product(const Complex* source, Complex* target, const Complex* RESTRICT roots,
                     Real scale, Index* maxima, const double* RESTRICT parameters, Index rows,
                     Index kept, Index source_field, Index source_row, Index target_field,
                     Index target_row STORED_POINTS) {
  constexpr int butterflies = Pass<middle>::butterflies;
  const Index pairs = pairs_of(rows);
  FOR_BLOCKS(block, (pairs + PAIRS - 1) / PAIRS) {
    SHARED(Complex, tile, PAIRS * row_count * row_size);
    FOR_TILE(line, PAIRS * INPUTS, q, mirrored_pairs) {
      const int pair = line / INPUTS, field = line % INPUTS;
      const Index number = block * PAIRS + pair;
      // Instead of a pair that does not exist, the last one, which is a pair of this block too.
      const ProductPair modes(source + field * source_field, source_row,
                              PAIRS == 1 || number < pairs ? number : pairs - 1, rows, kept);
      load_modes(modes, tile + (pair * row_count + field) * row_size, q, roots);
    }
    BLOCK_BARRIER
    backward_passes<1, INPUTS, row_count>(tile, roots);
    const Target products = {target, target_field, target_row, rows, kept, block * PAIRS, pairs, scale};
    Index largest = 0;
    if constexpr (GROUP < OUTPUTS) {
      PER_ITEM(Points, points, PAIRS * butterflies);
      FOR_TILE(pair, PAIRS, b, butterflies) {
        Points& here = OF_ITEM(points, pair * butterflies + b);
        here.load_from(tile + pair * row_count * row_size, spread<Pass<middle>>(b), roots);
        STORE_INPUTS(here)
        const Index bits = here.largest_rate(parameters);
        largest = bits > largest ? bits : largest;
      }
      block_maximum(maxima + block, largest);
      products_in_groups<0>(points, products, tile, roots, parameters);
    } else {
      FOR_TILE(pair, PAIRS, b, butterflies) {
        Complex* here = tile + pair * row_count * row_size;
        Points points;
        points.load_from(here, spread<Pass<middle>>(b), roots);
        STORE_INPUTS(points)
        const Index bits = points.largest_rate(parameters);
        largest = bits > largest ? bits : largest;
        points.template store_products<0, OUTPUTS>(here, spread<Pass<middle>>(b), roots, parameters);
      }
      block_maximum(maxima + block, largest);
      BLOCK_BARRIER
      finish_products<0, OUTPUTS>(products, tile, roots);
    }
  }
}
