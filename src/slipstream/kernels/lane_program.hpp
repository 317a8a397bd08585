// What one lane of a CPU does in a step: calls, and waits for other lanes, without the interpreter.
#pragma once
#include "portability.hpp"

#ifndef SLIPSTREAM_GPU

#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

enum Kind : Index { CALL, WAIT, RAISE };

// A call, or the counter of a lane, which is awaited or raised: it has come to `value`. Each field has 8 bytes.
struct Item {
  Index kind;
  void (*function)();
  const Index* integers;  // 6, 16 or 48 of them
  Index count;
  const double* reals;  // REALS of them
  int* counter;
  Index value;
};

// Counters of lanes stand in lines of the cache of their own; the last is not zero if a lane has failed.
constexpr int COUNTER_STRIDE = 16, REALS = 8;
constexpr int SPINS = 500;  // some microseconds

INLINE void wake(int* counter) { syscall(SYS_futex, counter, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }
INLINE void sleep_while(int* counter, int value) {
  syscall(SYS_futex, counter, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
INLINE void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Where calls pass integers and pointers in the order of arguments, apart from up to eight floating-point
// numbers in registers of their own, and callers remove what is left on the stack, any function can be
// called with more arguments than it has: so it is on x86-64 and on 64-bit ARM.
template <class T, int>
using Same = T;
template <int... I, int... R>
INLINE void call(void (*function)(), const Index* i, const double* r, std::integer_sequence<int, I...>,
                 std::integer_sequence<int, R...>) {
  reinterpret_cast<void (*)(Same<Index, I>..., Same<double, R>...)>(function)(i[I]..., r[R]...);
}
template <int SIZE>
INLINE void call(const Item& item) {
  call(item.function, item.integers, item.reals, std::make_integer_sequence<int, SIZE>{},
       std::make_integer_sequence<int, REALS>{});
}

// Whether the counter has come to the value, and no lane has failed.
INLINE bool await_value(int* counter, int value, const int* failed) {
  for (int spin = 0; !__atomic_load_n(failed, __ATOMIC_SEQ_CST); ++spin) {
    const int now = __atomic_load_n(counter, __ATOMIC_SEQ_CST);
    if (now >= value) return true;
    if (spin < SPINS)
      relax();
    else
      sleep_while(counter, now);
  }
  return false;
}

// Do some of a lane's items. If `timed`, `times` gets the start and stop of each, in nanoseconds.
KERNEL run_items(const Item* items, Index count, const int* failed, Index* times, Index timed) {
  for (Index i = 0; i < count; ++i) {
    const Item& item = items[i];
    if (timed) times[2 * i] = nanoseconds();
    if (item.kind == WAIT) {
      if (!await_value(item.counter, int(item.value), failed)) return;
    } else if (item.kind == RAISE) {
      __atomic_store_n(item.counter, int(item.value), __ATOMIC_SEQ_CST);
      wake(item.counter);
    } else if (item.count <= 6) {
      call<6>(item);
    } else if (item.count <= 16) {
      call<16>(item);
    } else {
      call<48>(item);
    }
    if (timed) times[2 * i + 1] = nanoseconds();
  }
}

// Let all lanes end that wait, or will.
KERNEL stop_lanes(int* counters, Index lanes) {
  __atomic_store_n(counters + lanes * COUNTER_STRIDE, 1, __ATOMIC_SEQ_CST);
  for (Index lane = 0; lane < lanes; ++lane) {
    __atomic_store_n(counters + lane * COUNTER_STRIDE, INT_MAX, __ATOMIC_SEQ_CST);
    wake(counters + lane * COUNTER_STRIDE);
  }
}

#endif
