// The inner passes of FFTs of columns of any length on a CPU, compiled once for all of a sign, and called by
// their address; see vector_fft.hpp.
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU

// The passes from number `pass` to the last but one, in place.
KERNEL transform_passes(const Length* of, Values* tile, Index pass) {
  passes_in_place<SIGN>(*of, tile, int(pass));
}

#endif
