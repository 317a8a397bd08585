// From columns of products to modes, a substage, and back to columns: one trip through memory.
//
// A block holds LANES neighbouring columns of all products in shared memory. The last forward pass,
// the substage and the first backward pass share their modes, and run in registers without a
// barrier, as in fused_product.hpp. Transforms give the same bits as strided_fft.hpp.
//
// Constants: those of runge_kutta_substage.hpp and strided_fft.hpp; GOES_BACK, whether what the
// substage makes goes to columns.
#pragma once
#include "strided_fft.hpp"
#include "runge_kutta_substage.hpp"
#if defined(MODEL_HEADER) && defined(NODE_END) && defined(LANES)

static_assert(passes > 1, "a single radix has no pass between the first and the last");

// Rows are left empty, so that threads whose rows are the last radix apart meet all banks.
#ifdef PAD
constexpr int padding = radices[passes - 1];
constexpr int tile_size = (N + N / padding) * LANES;
INLINE int place(int row, int lane) { return (row + row / padding) * LANES + lane; }
#else
constexpr int tile_size = N * LANES;
INLINE int place(int row, int lane) { return row * LANES + lane; }
#endif

// The forward passes before the last; the first takes the columns from global memory.
template <int P>
INLINE void forward_columns(const Complex* columns, Index field, Index row, int lanes, Complex* tile,
                            const Complex* RESTRICT roots) {
  if constexpr (P + 1 < passes) {
    using Here = Pass<P>;
    constexpr int R = Here::radix;
    FOR_TILE(item, PRODUCTS * Here::butterflies, lane, LANES) {
      const int i = item / Here::butterflies, b = item % Here::butterflies;
      const int origin = Here::origin(b);
      Complex* own = tile + i * tile_size;
      Complex v[R];
      UNROLL for (int r = 0; r < R; ++r) {
        const int z = origin + r * Here::stride;
        if constexpr (P > 0) v[r] = own[place(z, lane)];
        else v[r] = lane < lanes ? columns[i * field + z * row + lane] : Complex{0, 0};
      }
      Butterfly<R, -1>::apply(v, roots);
      twiddle<R>(v, Here::template root<-1>(roots, b));
      UNROLL for (int r = 0; r < R; ++r) own[place(origin + r * Here::stride, lane)] = v[r];
    }
    BLOCK_BARRIER
    forward_columns<P + 1>(columns, field, row, lanes, tile, roots);
  }
}

// The backward passes after the first; the last leaves the columns in global memory.
template <int P>
INLINE void backward_columns(Complex* columns, Index field, Index row, int lanes, Complex* tile,
                             const Complex* RESTRICT roots) {
  using Here = Pass<P>;
  constexpr int R = Here::radix;
  FOR_TILE(item, INPUTS * Here::butterflies, lane, LANES) {
    const int i = item / Here::butterflies, b = item % Here::butterflies;
    const int origin = Here::origin(b);
    Complex* own = tile + i * tile_size;
    Complex v[R];
    UNROLL for (int r = 0; r < R; ++r) v[r] = own[place(origin + r * Here::stride, lane)];
    twiddle<R>(v, Here::template root<1>(roots, b));
    Butterfly<R, 1>::apply(v, roots);
    UNROLL for (int r = 0; r < R; ++r) {
      const int z = origin + r * Here::stride;
      if constexpr (P > 0) own[place(z, lane)] = v[r];
      else if (lane < lanes) columns[i * field + z * row + lane] = v[r];
    }
  }
  BLOCK_BARRIER
  if constexpr (P > 0) backward_columns<P - 1>(columns, field, row, lanes, tile, roots);
}

// `products` are the columns of some ky, and what goes back is left in their place.
KERNEL fused_substage(Complex* products, const Complex* RESTRICT roots, SUBSTAGE_PARAMETERS) {
  const Index tiles = (nx + LANES - 1) / LANES;
  FOR_BLOCKS(block, ny * tiles) {
    SHARED(Complex, tile, (PRODUCTS > INPUTS ? PRODUCTS : INPUTS) * tile_size);
    const SubstageArrays arrays = SUBSTAGE_ARRAYS;
    const Index column = block % tiles * LANES, y = block / tiles;
    const int lanes = nx - column < LANES ? int(nx - column) : LANES;
    Complex* columns = products + y * row_size + column;
    constexpr int sectors = LANES * sizeof(Complex) / 32;
    if (AHEAD_STATE) {
      FOR_TILE(z, int(nz), part, STATE * sectors) {
        const Complex* mode = start + z * plane + y * row_size + column;
        PREFETCH(mode + part / sectors * state_field + part % sectors * (32 / sizeof(Complex)))
      }
    }
    const Index next = block + BLOCKS_AT_ONCE;
    if (AHEAD_COLUMNS && next < ny * tiles) {
      const Complex* ahead = products + next / tiles * row_size + next % tiles * LANES;
      FOR_TILE(z, N, part, PRODUCTS * sectors) {
        PREFETCH(ahead + part / sectors * product_field + z * plane +
                 part % sectors * (32 / sizeof(Complex)))
      }
    }
    forward_columns<0>(columns, product_field, plane, lanes, tile, roots);
    const Real ky = wavenumbers[nx + first_y + y];
    using Here = Pass<passes - 1>;
    FOR_TILE(b, Here::butterflies, lane, LANES) {
      constexpr int R = Here::radix;
      Complex* own = tile + place(Here::origin(b), lane);
      const Index c = column + lane;
      const int first_mode = mode_at(Here::origin(b));
      Complex v[PRODUCTS][R], w[INPUTS][R];
      UNROLL for (int i = 0; i < PRODUCTS; ++i) {
        UNROLL for (int r = 0; r < R; ++r) v[i][r] = own[i * tile_size + r * LANES];
        Butterfly<R, -1>::apply(v[i], roots);
      }
      UNROLL for (int r = 0; r < R; ++r) {
        const int row = first_mode + r * (N / R);
        const bool kept = lane < lanes && (row < low || row >= low + gap);
        UNROLL for (int i = 0; i < INPUTS; ++i) w[i][r] = {0, 0};
        if (kept) {
          const Index z = row < low ? row : row - gap;
          const Real kx = wavenumbers[c], kz = wavenumbers[nx + all_y + z];
          Complex product[PRODUCTS], next[STATE];
          UNROLL for (int i = 0; i < PRODUCTS; ++i) product[i] = v[i][r];
          Complex phase = {1, 0};
          if (SHIFTED_NOW || SHIFTED_NEXT)
            phase = shift_phase(phases, c, first_y + y, z, nx, all_y);
          advance_mode(arrays, product, z * plane + y * row_size + c, kx, ky, kz, z, y, c, scale,
                       phase, next);
          if (GOES_BACK) {
            Complex input[INPUTS];
            inputs_of(next, kx, ky, kz, parameters, input);
            UNROLL for (int i = 0; i < INPUTS; ++i)
              w[i][r] = SHIFTED_NEXT ? phase * input[i] : input[i];
          }
        }
      }
      if (GOES_BACK) {
        UNROLL for (int i = 0; i < INPUTS; ++i) {
          Butterfly<R, 1>::apply(w[i], roots);
          UNROLL for (int r = 0; r < R; ++r) own[i * tile_size + r * LANES] = w[i][r];
        }
      }
    }
    BLOCK_BARRIER
    if constexpr (GOES_BACK)
      backward_columns<passes - 2>(columns, product_field, plane, lanes, tile, roots);
  }
}

#endif
