// The quadratic products of incompressible flow. Of the symmetric tensor u_i u_j only five entries
// are needed: subtracting w w from the diagonal changes a gradient, which the pressure absorbs.
#pragma once
#include "core.hpp"

// The rate is |u|/dx + |v|/dy + |w|/dz; the parameters are 1/dx, 1/dy, 1/dz.
INLINE double pointwise(const Real (&in)[3], Real (&out)[5], const double* RESTRICT parameters) {
  const Real u = in[0], v = in[1], w = in[2];
  out[0] = u * u - w * w;
  out[1] = u * v;
  out[2] = u * w;
  out[3] = v * v - w * w;
  out[4] = v * w;
  return fabs(double(u)) * parameters[0] + fabs(double(v)) * parameters[1] +
         fabs(double(w)) * parameters[2];
}
