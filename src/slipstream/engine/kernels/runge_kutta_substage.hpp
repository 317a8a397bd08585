// A Runge-Kutta substage of any model, in one pass over the modes.
//
// MODEL_HEADER defines, for the model,
//   STATE, PRODUCTS, INPUTS     numbers of components, of products, and of fields for physical space
//   rates(products, state, kx, ky, kz, parameters, rate)
//   what integrating_factor.hpp needs
//   project_vectors(state, kx, ky, kz), and SHEARED, shear_of(parameters)
//   inputs_of(state, kx, ky, kz, parameters, input)
//
// T, the products, are laid out with all nz modes (a gap after `low`), all else with the kept ones.
// Integrating factors are those of a duration of step / divisions.
#include "dealiasing.hpp"
#include "integrating_factor.hpp"
#ifdef MODEL_HEADER
#include MODEL_HEADER

#ifdef NODE_END  // the constants of a substage are defined

#ifdef GAUSS
#define FOR_MODES(column, columns, variable) FOR_COLUMNS_IN_TURN(column, columns)
#else
#define FOR_MODES(column, columns, variable) FOR_COLUMNS_SUM(column, columns, variable)
#endif

#ifdef PROPAGATED
// Return the product of the propagator of a number, or 1 if that is negative, and a mode.
INLINE void propagate(const Complex* RESTRICT propagators, int number, Index here, Index field,
                      const Complex* mode, Complex* product) {
  UNROLL for (int i = 0; i < STATE; ++i) product[i] = number < 0 ? mode[i] : Complex{0, 0};
  if (number >= 0) {
    UNROLL for (int e = 0; e < COUPLED; ++e)
      product[ROW_OF[e]] = product[ROW_OF[e]] +
                           propagators[here + (number * COUPLED + e) * field] * mode[COLUMN_OF[e]];
  }
}
#endif

// How a frame is tilted at the start of a step, and by how much more at its end.
struct Frame {
  Real tilt, change;
};

INLINE Frame frame_of(Real tilt, Real step, const double* RESTRICT parameters) {
  return {tilt, SHEARED ? step * shear_of(parameters) : Real(0)};
}

// Return the wavenumber along y in a frame, when a part of the step is over.
INLINE Real along_y(Real upright, Real kx, Frame frame, double part) {
  return SHEARED ? upright - (frame.tilt + Real(part) * frame.change) * kx : upright;
}

#ifndef PROPAGATED
// Return (the integrating factor from one node to another) - 1, of that between nodes: see below.
template <int SHEARED_FACTORS, int FROM, int TO, int COUNT>
INLINE Real span_less_one(const Real (&factor)[COUNT][DECAYS], int which) {
  if (!SHEARED_FACTORS) return power_less_one<TO - FROM>(factor[0][which]);
  Real result = 0;
  UNROLL for (int n = FROM; n < TO; ++n)
    result = n > FROM ? product_less_one(result, factor[n][which]) : factor[n][which];
  return result;
}

#ifdef GAUSS
// A CPU sets the factors of FACTORS_AHEAD columns together, in SIMD lanes; nothing else here uses these.
#ifdef SLIPSTREAM_GPU
#define FACTORS_AHEAD 1
#else
#define FACTORS_AHEAD 32
#endif

// Integrating factors less one from each node to the next, of modes whose wavenumber changes. Their rates are
// integrated by a rule of Gauss and Legendre, which is exact where they are polynomials of k.
struct ShearedFactors {
  Real factor[NODE_END][DECAYS][FACTORS_AHEAD];

  // Set those of some columns, whose numbers along x begin at `kx`.
  INLINE void set(const Real* RESTRICT kx, Index columns, Real upright, Real kz, Frame frame, Real duration,
                  const double* RESTRICT parameters) {
    constexpr double places[] = GAUSS_PLACES, weights[] = GAUSS_WEIGHTS;
    UNROLL for (int n = 0; n < NODE_END; ++n) {
      for (Index c = 0; c < columns; ++c) {
        Real lost[DECAYS];
        UNROLL for (int d = 0; d < DECAYS; ++d) lost[d] = 0;
        UNROLL for (int g = 0; g < GAUSS; ++g) {
          Real rate[STATE];
          decay_rates(kx[c], along_y(upright, kx[c], frame, (n + places[g]) / NODE_END), kz, parameters, rate);
          UNROLL for (int d = 0; d < DECAYS; ++d) {
            bool is_first = true;
            UNROLL for (int i = 0; i < STATE; ++i) {
              if (DECAY_OF[i] == d && is_first) {
                lost[d] += Real(weights[g] / NODE_END) * rate[i];
                is_first = false;
              }
            }
          }
        }
        UNROLL for (int d = 0; d < DECAYS; ++d) factor[n][d][c] = Real(exp_less_one(-double(lost[d]) * duration));
      }
    }
  }
};
#endif
#endif

// What a mode changes by: its decay, if that is integrated here, and all else.
INLINE Complex decay_and(Real less_one, Complex origin, Complex change) {
  return INTEGRATING_FACTOR ? less_one * origin + change : change;
}

// 0, or not-a-number for a value that is not finite, or has a square near the largest double.
INLINE Real excess_of(Real value) {
  const Real raised = (sizeof(Real) == 8 ? Real(1e158) : Real(1)) * value;
  return raised - raised;
}

// With d the integrating factor and N the rates (without the decay under INTEGRATING_FACTOR),
//
//   stage  = d^NODE_NEXT start + step a d^(NODE_NEXT - NODE) N
//   result = (total or d^NODE_END start) + step b d^(NODE_END - NODE) N
//
// or, if all linear terms are PROPAGATED, with matrices instead of powers of d (see propagators.hpp), whose
// numbers are START_TO_STAGE, RATE_TO_STAGE, START_TO_RESULT and RATE_TO_RESULT. With START_TO_CARRIED and
// CARRY_RATE the start of a later stage is stored in `carried`, from which that one BEGINS_CARRIED.
//
// WRITES_STAGE and WRITES_RESULT store `stage` and `result`; WRITES_INPUTS stores the fields of the stage
// that go to physical space. Each of FORCES patterns of force is added to the
// rate of its component, one of FORCED, times a factor of this SUBSTAGE, which follows the time step
// in `step`. With MARKS the result is checked: marks[ky of this rank] receives the ordered bits of
// not-a-number where a value is not finite, or so large that energies are not. If SPHERE is not
// negative, parameters[SPHERE ...] are one over the squares of the sphere's radii, and nothing changes
// outside of it. With HELD fields, in shells of HELD_LOW to HELD_HIGH of the width UNIT, the rates of
// HELD_SIZE components from HELD_FIRST on are multiplied by the factor of their shell, from
// step[HELD_AT] on. The products belong to the grid number GRID_NOW of those
// that are shifted, and the inputs to GRID_NEXT: -1 is the grid itself. `phases` has the factors of each along
// x, y and z.
//
// If the model is SHEARED, the wavenumber along y is its entry in the table less the tilt of the frame times kx.
// The last number of the table is the tilt at the start of the step. Rates keep vectors solenoidal only to the
// order of the method, so stored vectors are projected with the wavevector of that time.
KERNEL advance_substage(const Complex* RESTRICT products, const Complex* start,
                        const Complex* current, const Complex* total, Complex* stage,
                        Complex* result, Complex* inputs, const Complex* RESTRICT forcing,
                        const Real* RESTRICT step,
                        const Real* RESTRICT decay, const Real* RESTRICT wavenumbers,
                        const Complex* RESTRICT phases, const double* RESTRICT parameters,
                        Index* marks, const Complex* RESTRICT propagators, Complex* carried, Index nz, Index ny, Index nx,
                        Index row_size, Index low, Index gap, Index product_field,
                        Index product_plane, Index product_row, Index state_field, Index plane,
                        Index first_x, Index all_x, Index first_y, Index all_y,
                        Index decay_field, Index decay_plane, double a, double b, double scale) {
  const Modes modes = {nz, nx, first_x, all_x, first_y, all_y, decay_field, decay_plane};
  FOR_ROWS(row, nz * ny) {
    const Index z = row / ny, y = row % ny;
    const Real step_a = step[0] * Real(a), step_b = step[0] * Real(b);
    const Real kz = wavenumbers[all_x + all_y + z], upright = wavenumbers[all_x + first_y + y];
    const Frame frame = frame_of(wavenumbers[all_x + all_y + nz], step[0], parameters);
    const Complex* RESTRICT t =
        products + (z < low ? z : z + gap) * product_plane + y * product_row;
    const Index at = z * plane + y * row_size;
    Real excess = 0;  // not-a-number once a value has been too large
#ifdef GAUSS
    ShearedFactors ahead;
#endif
    FOR_MODES(c, nx, excess) {
#ifdef GAUSS
      if (c % FACTORS_AHEAD == 0)
        ahead.set(wavenumbers + first_x + c, nx - c < FACTORS_AHEAD ? nx - c : FACTORS_AHEAD, upright, kz, frame,
                  step[0], parameters);
#endif
      const Real kx = wavenumbers[first_x + c], ky = along_y(upright, kx, frame, double(NODE) / NODE_END);
      const Real ky_next = along_y(upright, kx, frame, double(NODE_NEXT) / NODE_END);
      Complex product[PRODUCTS], now[STATE], rate[STATE], next[STATE];
#ifndef PROPAGATED
      Real slowing[STATE], factor[SHEARED ? NODE_END : 1][DECAYS];
#endif
      UNROLL for (int i = 0; i < PRODUCTS; ++i) product[i] = Real(scale) * t[c + i * product_field];
      if (GRID_NOW >= 0) {
        const Complex phase =
            shift_phase(phases, GRID_NOW, first_x + c, first_y + y, z, all_x, all_y, nz);
        UNROLL for (int i = 0; i < PRODUCTS; ++i) product[i] = conjugate(phase) * product[i];
      }
#ifdef PROPAGATED
      UNROLL for (int i = 0; i < STATE; ++i) now[i] = {0, 0};
#else
      if (RATES_READ_STATE || !INTEGRATING_FACTOR) {
        UNROLL for (int i = 0; i < STATE; ++i) now[i] = current[at + c + i * state_field];
      }
#endif
      rates(product, now, kx, ky, kz, parameters, rate);
      constexpr int forced[] = FORCED;
      UNROLL for (int i = 0; i < FORCES; ++i)
        rate[forced[i]] = rate[forced[i]] + step[1 + SUBSTAGE * FORCES + i] *
                                                forcing[at + c + i * state_field];
#ifndef PROPAGATED
      if (!INTEGRATING_FACTOR) {
        decay_rates(kx, ky, kz, parameters, slowing);
        UNROLL for (int i = 0; i < STATE; ++i) rate[i] = rate[i] - slowing[i] * now[i];
      }
#endif
#ifdef HELD
      // Shells that keep their energy are numbered as in `shell_numbers`.
      const double kx2 = double(kx) * kx, ky2 = double(ky) * ky, kz2 = double(kz) * kz;
      const int shell = int(sqrt(kx2 + ky2 + kz2) / (UNIT) + 0.5);
      constexpr int held_first[] = HELD_FIRST, held_size[] = HELD_SIZE, held_at[] = HELD_AT;
      constexpr int held_low[] = HELD_LOW, held_high[] = HELD_HIGH;
      UNROLL for (int h = 0; h < HELD; ++h) {
        const bool inside = shell >= held_low[h] && shell <= held_high[h];
        const Real gain = inside ? step[held_at[h] + (inside ? shell - held_low[h] : 0)] : Real(1);
        UNROLL for (int i = 0; i < held_size[h]; ++i)
          rate[held_first[h] + i] = gain * rate[held_first[h] + i];
      }
#endif
      if (SPHERE >= 0) {
        const double* RESTRICT over = parameters + (SPHERE >= 0 ? SPHERE : 0);
        const bool outside = is_outside_sphere(kx, upright, kz, over);
        UNROLL for (int i = 0; i < STATE; ++i) rate[i] = Real(!outside) * rate[i];
      }
#ifdef PROPAGATED
      Complex origin[STATE], begun[STATE], moved[STATE];
      const Index here = at + c;
      UNROLL for (int i = 0; i < STATE; ++i) origin[i] = start[here + i * state_field];
      if (WRITES_STAGE) {
        propagate(propagators, START_TO_STAGE, here, state_field, origin, begun);
        if (BEGINS_CARRIED) {
          UNROLL for (int i = 0; i < STATE; ++i) begun[i] = carried[here + i * state_field];
        }
        propagate(propagators, RATE_TO_STAGE, here, state_field, rate, moved);
        UNROLL for (int i = 0; i < STATE; ++i) {
          next[i] = begun[i] + step_a * moved[i];
          stage[here + i * state_field] = next[i];
        }
      }
      if (CARRY_RATE >= 0) {
        propagate(propagators, START_TO_CARRIED, here, state_field, origin, begun);
        propagate(propagators, CARRY_RATE, here, state_field, rate, moved);
        UNROLL for (int i = 0; i < STATE; ++i)
          carried[here + i * state_field] = begun[i] + step[0] * moved[i];
      }
      if (WRITES_RESULT) {
        if (READS_TOTAL) {
          UNROLL for (int i = 0; i < STATE; ++i) begun[i] = total[here + i * state_field];
        } else if (CARRY_RATE < 0 || START_TO_CARRIED != START_TO_RESULT) {
          propagate(propagators, START_TO_RESULT, here, state_field, origin, begun);
        }
        propagate(propagators, RATE_TO_RESULT, here, state_field, rate, moved);
        UNROLL for (int i = 0; i < STATE; ++i) {
          const Complex reached = begun[i] + step_b * moved[i];
          result[here + i * state_field] = reached;
          if (MARKS) excess += excess_of(reached.re) + excess_of(reached.im);
        }
      }
#else
#ifdef GAUSS
      UNROLL for (int n = 0; n < NODE_END; ++n)
        UNROLL for (int d = 0; d < DECAYS; ++d) factor[n][d] = ahead.factor[n][d][c % FACTORS_AHEAD];
#else
      UNROLL for (int d = 0; d < DECAYS; ++d)
        factor[0][d] = INTEGRATING_FACTOR ? factor_less_one(decay, d, z, y, c, modes) : Real(0);
#endif
      Complex reached[STATE];
      UNROLL for (int i = 0; i < STATE; ++i) {
        const Index here = at + c + i * state_field;
        constexpr int S = SHEARED && INTEGRATING_FACTOR;
        const int d = DECAY_OF[i];
        const Complex origin = start[here];
        if (WRITES_STAGE) {
          const Complex change = step_a * (1 + span_less_one<S, NODE, NODE_NEXT>(factor, d)) * rate[i];
          next[i] = origin + decay_and(span_less_one<S, 0, NODE_NEXT>(factor, d), origin, change);
          if (!SHEARED) stage[here] = next[i];
        }
        if (WRITES_RESULT) {
          const Complex change = step_b * (1 + span_less_one<S, NODE, NODE_END>(factor, d)) * rate[i];
          reached[i] = READS_TOTAL ? total[here] + change
                                   : origin + decay_and(span_less_one<S, 0, NODE_END>(factor, d),
                                                        origin, change);
          if (!SHEARED) result[here] = reached[i];
          if (MARKS) excess += excess_of(reached[i].re) + excess_of(reached[i].im);
        }
      }
      if (SHEARED) {
        if (WRITES_STAGE) project_vectors(next, kx, ky_next, kz);
        if (MARKS) project_vectors(reached, kx, along_y(upright, kx, frame, 1), kz);
        UNROLL for (int i = 0; i < STATE; ++i) {
          if (WRITES_STAGE) stage[at + c + i * state_field] = next[i];
          if (WRITES_RESULT) result[at + c + i * state_field] = reached[i];
        }
      }
#endif
      if (WRITES_STAGE && WRITES_INPUTS) {
        Complex input[INPUTS];
        inputs_of(next, kx, ky_next, kz, parameters, input);
        if (GRID_NEXT >= 0) {
          const Complex phase =
              shift_phase(phases, GRID_NEXT, first_x + c, first_y + y, z, all_x, all_y, nz);
          UNROLL for (int i = 0; i < INPUTS; ++i) input[i] = phase * input[i];
        }
        UNROLL for (int i = 0; i < INPUTS; ++i) inputs[at + c + i * state_field] = input[i];
      }
    }
    // All rows of a ky write the same.
    if (MARKS && excess != excess) marks[first_y + y] = ordered_bits(excess);
  }
}

#endif

#endif
