// What FFTs of any length share on a CPU, compiled once for all kernels, which call it by its address.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

template <int Sign>
INLINE void transform_plan(const Plan& plan, Values* tile, Values* target) {
  const Chirp& with = plan.with;
  const Index n = plan.of.n, m = with.by.n;
  if (!m) {
    transform_tile<Sign>(plan.of, tile, target);
    return;
  }
  for (int k = 0; k < n; ++k) tile[k] = turn(tile[k], root<Sign>(with.chirp, k));
  for (Index k = n; k < m; ++k) tile[k] = Values{};
  transform_tile<-1>(with.by, tile, target);
  for (int k = 0; k < m; ++k) tile[k] = conjugate(turn(target[k], root<Sign>(with.spectrum, k)));
  transform_tile<-1>(with.by, tile, target);
  for (int k = 0; k < n; ++k) target[k] = turn(conjugate(target[k]), root<Sign>(with.chirp, k));
}

// From one tile to another, in order; the first is overwritten.
KERNEL transform_forward(const Plan* plan, Values* tile, Values* target) {
  transform_plan<-1>(*plan, tile, target);
}
KERNEL transform_backward(const Plan* plan, Values* tile, Values* target) {
  transform_plan<1>(*plan, tile, target);
}
// The passes from number `pass` to the last but one, in place.
KERNEL passes_forward(const Length* of, Values* tile, Index pass) {
  passes_in_place<-1>(*of, tile, int(pass));
}
KERNEL passes_backward(const Length* of, Values* tile, Index pass) {
  passes_in_place<1>(*of, tile, int(pass));
}

#endif
