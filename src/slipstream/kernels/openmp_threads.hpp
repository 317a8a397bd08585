// How many threads the kernels use that the calling thread runs from now on.
#include "portability.hpp"

#ifdef SLIPSTREAM_GPU
KERNEL set_threads(Index) {}
#else
#include <omp.h>
KERNEL set_threads(Index threads) { omp_set_num_threads(int(threads)); }
#endif
