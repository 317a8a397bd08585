// How many threads the kernels use that the calling thread runs from now on.
#include "portability.hpp"

#ifndef SLIPSTREAM_GPU
#include <omp.h>
static thread_local bool is_alone = false;
KERNEL set_threads(Index threads) { omp_set_num_threads(is_alone ? 1 : int(threads)); }
// In a forked process: GNU's OpenMP would wait for threads of the parent.
KERNEL keep_to_one_thread(Index) {
  is_alone = true;
  omp_set_num_threads(1);
}
#endif
