// No product at all: what a transform to points and back costs alone.
#pragma once
#include "portability.hpp"

INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS],
                        const double* RESTRICT parameters) {
  for (int i = 0; i < OUTPUTS; ++i) out[i] = in[i % INPUTS];
  return 0;
}
