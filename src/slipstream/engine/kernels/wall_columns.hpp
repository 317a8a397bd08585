// Cosine and sine transforms along z of complex numbers, between walls: the passes before and after a Fourier
// transform of as many points (Makhoul, IEEE Trans. ASSP 28, 27 (1980)).
//
// A field is even (sign 1) or odd (sign -1) at both walls, so modes of -k are `sign` times those of k, and only
// k >= 0 is stored. Points are in the middles of n cells. A transform takes them in another order: those
// with even numbers on the way up, the others on the way down. `turns` are exp(i pi k / (2 n)).
// Work is (fields, lines, n, columns), without gaps.
#include "portability.hpp"

INLINE bool is_upward(Index z) { return z % 2 == 0; }
INLINE Index place_in_order(Index z, Index n) { return is_upward(z) ? z / 2 : n - (z + 1) / 2; }

// Modes -> what the transform to points takes.
KERNEL begin_from_modes(const Complex* RESTRICT modes, Complex* RESTRICT work, const Complex* RESTRICT turns,
                        const Real* RESTRICT signs, Index fields, Index lines, Index n, Index columns,
                        Index kept, Index field, Index line, Index row) {
  FOR_ROWS(place, fields * lines * n) {
    const Index k = place % n, own = place / n % lines, f = place / n / lines;
    const Complex* RESTRICT start = modes + f * field + own * line;
    const Index mirrored = n - k;
    const bool is_kept = k < kept && (k > 0 || signs[f] > 0), other_is = k > 0 && mirrored < kept;
    const Complex* RESTRICT p = start + (is_kept ? k : 0) * row;
    const Complex* RESTRICT q = start + (other_is ? mirrored : 0) * row;
    const Complex turn = turns[k];
    const Real a = is_kept ? 1 : 0, b = other_is ? signs[f] : 0;
    Complex* RESTRICT to = work + place * columns;
    FOR_COLUMNS(c, columns) to[c] = turn * Complex{a * p[c].re + b * q[c].im, a * p[c].im - b * q[c].re};
  }
}

// What the transform to points has made -> points.
KERNEL end_at_points(const Complex* RESTRICT work, Complex* RESTRICT points, const Real* RESTRICT signs,
                     Index fields, Index lines, Index n, Index columns, Index field, Index line, Index row) {
  FOR_ROWS(place, fields * lines * n) {
    const Index z = place % n, own = place / n % lines, f = place / n / lines;
    const Real sign = is_upward(z) ? Real(1) : signs[f];
    const Complex* RESTRICT from = work + (place - z + place_in_order(z, n)) * columns;
    Complex* RESTRICT to = points + f * field + own * line + z * row;
    FOR_COLUMNS(c, columns) to[c] = sign * from[c];
  }
}

// Points -> what the transform to modes takes.
KERNEL begin_from_points(const Complex* RESTRICT points, Complex* RESTRICT work, const Real* RESTRICT signs,
                         Index fields, Index lines, Index n, Index columns, Index field, Index line,
                         Index row) {
  FOR_ROWS(place, fields * lines * n) {
    const Index z = place % n, own = place / n % lines, f = place / n / lines;
    const Real sign = is_upward(z) ? Real(1) : signs[f];
    const Complex* RESTRICT from = points + f * field + own * line + z * row;
    Complex* RESTRICT to = work + (place - z + place_in_order(z, n)) * columns;
    FOR_COLUMNS(c, columns) to[c] = sign * from[c];
  }
}

// What the transform to modes has made -> kept modes, unnormalised.
KERNEL end_at_modes(const Complex* RESTRICT work, Complex* RESTRICT modes, const Complex* RESTRICT turns,
                    const Real* RESTRICT signs, Index fields, Index lines, Index n, Index columns, Index kept,
                    Index field, Index line, Index row) {
  FOR_ROWS(place, fields * lines * kept) {
    const Index k = place % kept, own = place / kept % lines, f = place / kept / lines;
    const Complex* RESTRICT start = work + (f * lines + own) * n * columns;
    const Complex* RESTRICT p = start + k * columns;
    const Complex* RESTRICT q = start + (k > 0 ? n - k : 0) * columns;
    const Complex turn = turns[k], back = conjugate(turn);
    const Real sign = signs[f];
    Complex* RESTRICT to = modes + f * field + own * line + k * row;
    FOR_COLUMNS(c, columns) to[c] = Real(0.5) * (back * p[c] + sign * (turn * q[c]));
  }
}
