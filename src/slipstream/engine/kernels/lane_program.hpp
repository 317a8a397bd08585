// What one lane of a CPU does in a step: calls, and waits for other lanes, without the interpreter.
#pragma once
#include "portability.hpp"

#ifndef SLIPSTREAM_GPU

#include <climits>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Each counter of a lane has its own cache line, with the number of threads that sleep until it rises,
// and the core on which it is raised; the last is not zero if a lane has failed.
constexpr int COUNTER_STRIDE = 16, SLEEPERS = 1, CORE = 2, REALS = 8;
// To wake a thread takes as long as a small transform, and steps often follow each other: so threads that
// wait stay awake for AWAKE nanoseconds, and look at the clock every SPINS spins.
constexpr Index AWAKE = 50000;
constexpr int SPINS = 50;

INLINE int value_of(const int* counter) { return __atomic_load_n(counter, __ATOMIC_SEQ_CST); }
INLINE void wake(int* counter) { syscall(SYS_futex, counter, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }
// Sleep while the counter has this value; `sleepers` says so, and spares others a call of the system.
INLINE void sleep_while(int* counter, int value) {
  __atomic_fetch_add(counter + SLEEPERS, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, counter, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  __atomic_fetch_sub(counter + SLEEPERS, 1, __ATOMIC_SEQ_CST);
}
INLINE void note_core(int* counter) { __atomic_store_n(counter + CORE, sched_getcpu(), __ATOMIC_RELAXED); }
INLINE void raise(int* counter, int value) {
  note_core(counter);
  __atomic_store_n(counter, value, __ATOMIC_SEQ_CST);
  if (value_of(counter + SLEEPERS)) wake(counter);
}
INLINE void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Where calls pass integers and pointers in the order of arguments, apart from up to eight floating-point
// numbers in separate registers, and callers clear the stack, any function can be
// called with more arguments than it has: so it is on x86-64 and on 64-bit ARM.
template <class T, int>
using Same = T;
template <int... I, int... R>
INLINE void call(void (*function)(), const Index* i, const double* r, Integers<I...>, Integers<R...>) {
  reinterpret_cast<void (*)(Same<Index, I>..., Same<double, R>...)>(function)(i[I]..., r[R]...);
}
template <int SIZE>
INLINE void call(const Item& item) {
  using I = typename IntegersBelow<SIZE>::Type;
  call(item.function, item.integers, item.reals, I{}, IntegersBelow<REALS>::Type{});
}

// Whether a counter, which may have begun again after the largest value, has come to a value.
INLINE bool has_come(int now, int value) { return int(unsigned(now) - unsigned(value)) >= 0; }

// Wait until the counter has come to the value; return false if a lane has failed before.
INLINE bool await_value(int* counter, int value, const int* failed) {
  for (Index began = 0; !value_of(failed);) {
    for (int spin = 0; spin < SPINS && !has_come(value_of(counter), value); ++spin) relax();
    const int now = value_of(counter);
    if (has_come(now, value)) return true;
    if (!began) began = nanoseconds();
    // A thread that has no other core cannot continue while this one is awake.
    const bool shares_core = __atomic_load_n(counter + CORE, __ATOMIC_RELAXED) == sched_getcpu();
    if (shares_core || nanoseconds() - began > AWAKE) sleep_while(counter, now);
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
      raise(item.counter, int(item.value));
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
    raise(counters + lane * COUNTER_STRIDE, INT_MAX);
  }
}

// A thread that runs lanes of steps next to the calling thread. It counts the programs received
// and the programs finished, and has a program for each.
struct Program {
  const Item* items;
  Index count;
  const int* failed;
  Index* times;
  INLINE void run(Index timed) const { run_items(items, count, failed, times, timed); }
};
struct Member {
  alignas(64) int given[COUNTER_STRIDE];
  int ended[COUNTER_STRIDE];
  const Program* program;
  Index timed;
  INLINE void give(const Program* one, Index is_timed) {
    program = one;
    timed = is_timed;
    raise(given, int(unsigned(*given) + 1));
  }
};

// The life of a member of the crew: it ends when it is given no program.
KERNEL serve(Member* self) {
  const int never = 0;
  for (unsigned next = 1; await_value(self->given, int(next), &never) && self->program; ++next) {
    note_core(self->ended);
    self->program->run(self->timed);
    raise(self->ended, int(next));
  }
}
KERNEL dismiss(Member* member) { member->give(nullptr, 0); }

// Run programs side by side, the last of them in this thread. Counters of lanes begin at 0.
KERNEL run_programs(Member* const* crew, const Program* programs, Index count, int* counters, Index timed) {
  const int never = 0;
  for (Index lane = 0; lane < count; ++lane) counters[lane * COUNTER_STRIDE] = 0;
  for (Index i = 0; i + 1 < count; ++i) crew[i]->give(programs + i, timed);
  programs[count - 1].run(timed);
  for (Index i = 0; i + 1 < count; ++i) await_value(crew[i]->ended, *crew[i]->given, &never);
}

#endif
