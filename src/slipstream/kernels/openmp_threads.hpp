// How many threads the kernels use that the calling thread runs from now on.
#include "portability.hpp"

#ifdef SLIPSTREAM_GPU
KERNEL set_threads(Index) {}
KERNEL keep_to_one_thread(Index) {}
#else
#include <omp.h>
static thread_local bool is_alone = false;
KERNEL set_threads(Index threads) { omp_set_num_threads(is_alone ? 1 : int(threads)); }
// In a forked process: GNU's OpenMP would wait for threads of the parent.
KERNEL keep_to_one_thread(Index) {
  is_alone = true;
  omp_set_num_threads(1);
}
#endif
