// Flags by which ranks that share memory tell each other that data may come, or have come.
//
// Every flag has one writer and one reader. Both count the exchanges that it has announced, each in
// its own epoch: nothing is ever reset, and a recorded exchange repeats without arguments.
#include "portability.hpp"

// Raise flags in the memory of other ranks, after everything written before.
KERNEL raise_flags(const Index* addresses, Index* epochs, Index count) {
  FOR_ROWS(i, count) if (FIRST_COLUMN) {
    store_release(reinterpret_cast<Index*>(addresses[i]), ++epochs[i]);
  }
}

// Wait until the flags of some ranks are raised. After `patience` nanoseconds give up, and say so in
// `failed`: a GPU that waits for ever could not even be asked what it waits for.
KERNEL await_flags(const Index* flags, const Index* ranks, Index* epochs, Index count,
                   Index patience, Index* failed) {
  FOR_ROWS(i, count) if (FIRST_COLUMN) {
    const Index wanted = ++epochs[i], start = nanoseconds();
    while (load_acquire(flags + ranks[i]) < wanted) {
      if (nanoseconds() - start > patience) {
        *failed = 1;
        break;
      }
    }
  }
}

// Say whether these flags are all raised; if so, the next call asks for the next time.
KERNEL test_flags(const Index* flags, const Index* ranks, Index* epochs, Index count,
                  Index* raised) {
  *raised = 1;
  for (Index i = 0; i < count; ++i) *raised &= load_acquire(flags + ranks[i]) > epochs[i];
  if (*raised)
    for (Index i = 0; i < count; ++i) ++epochs[i];
}
