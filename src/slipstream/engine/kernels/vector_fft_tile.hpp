// FFTs of any length on a CPU from one tile to another, compiled once for all kernels that call them by their
// address.
//
// Constants: CHIRP, if the length has a prime above MOST; see vector_fft.hpp.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// From one tile to another, in order; the first is overwritten.
KERNEL transform_whole_tile(const Plan* plan, Values* tile, Values* target) {
#if CHIRP
  const Chirp& with = plan->with;
  const Index n = plan->of.n, m = with.by.n;
  for (int k = 0; k < n; ++k) tile[k] = turn(tile[k], root<SIGN>(with.chirp, k));
  for (Index k = n; k < m; ++k) tile[k] = Values{};
  transform_tile<-1>(with.by, tile, target);
  for (int k = 0; k < m; ++k) tile[k] = conjugate(turn(target[k], root<SIGN>(with.spectrum, k)));
  transform_tile<-1>(with.by, tile, target);
  for (int k = 0; k < n; ++k) target[k] = turn(conjugate(target[k]), root<SIGN>(with.chirp, k));
#else
  transform_tile<SIGN>(plan->of, tile, target);
#endif
}

#endif
