"""Count the functions of Slipstream that an array crosses, in a `DistributedFFT` or a step.

Run it on as many ranks as you like; it shows the functions that the first one enters. "plan",
"forward" and "replay" show one phase of a distributed transform, by default all are shown: making
the plan, its first transform and its second. With "step" or "permeability" it shows a time step of
turbulence, or a small image, and how many modules that has loaded:

    mpiexec -n 4 python tests/support/functions_crossed.py [plan|forward|replay] [POINTS]
    python tests/support/functions_crossed.py step
    python tests/support/functions_crossed.py permeability

Each function with a name is counted once per phase, however often it is called, except work done
once per process: compilers and planners have served a plan before. Then the time of a replay on
the first rank alone, the median of some, which is mostly time of the interpreter.
"""

from __future__ import annotations

import collections
import statistics
import sys
import time
from pathlib import Path
from types import FrameType

import numpy as np

import slipstream

PHASES = ("plan", "forward", "replay")
PACKAGE = str(Path(slipstream.__file__).parent)


class Crossed:
    """The functions of the package that are entered while it is open, with how often."""

    def __init__(self) -> None:
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()

    def __enter__(self) -> Crossed:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_named = not code.co_name.startswith("<")  # as comprehensions, lambdas and modules are
        if event == "call" and is_named and code.co_filename.startswith(PACKAGE):
            module = str(Path(code.co_filename).relative_to(PACKAGE))
            self.calls[module, code.co_qualname] += 1

    def __len__(self) -> int:
        return len(self.calls)

    def __str__(self) -> str:
        modules: dict[str, list[str]] = {}
        for (module, name), times in sorted(self.calls.items()):
            modules.setdefault(module, []).append(name if times == 1 else f"{name} ({times})")
        return "\n".join(f"  {module}: {', '.join(names)}" for module, names in modules.items())


def phases(comm: object, points: int = 16) -> dict[str, Crossed]:
    """Return the functions entered in making a plan, and in its first and second transform."""
    from slipstream.fft import DistributedFFT

    shape = (points,) * 3
    with DistributedFFT(shape, comm=comm, device="cpu") as fft:
        fft.forward(fft.empty_input())
    crossed = {name: Crossed() for name in PHASES}
    with crossed["plan"]:
        fft = DistributedFFT(shape, comm=comm, device="cpu")
    with fft:
        u, u_hat = fft.empty_input(), fft.empty_output()
        u[:] = 1
        for name in ("forward", "replay"):
            with crossed[name]:
                fft.forward(u, out=u_hat)
    return crossed


def replay_time(points: int, times: int = 200) -> float:
    """Return the seconds of a forward transform on one rank."""
    from slipstream.fft import DistributedFFT

    with DistributedFFT((points,) * 3, device="cpu") as fft:
        u, u_hat = fft.empty_input(), fft.empty_output()
        u[:] = 1
        fft.forward(u, out=u_hat)
        took = []
        for _ in range(times):
            start = time.perf_counter()
            fft.forward(u, out=u_hat)
            took.append(time.perf_counter() - start)
    return statistics.median(took)


def step(points: int = 16) -> tuple[int, Crossed]:
    """Return how many modules a simulation loads until its first step, and what the second enters.

    No other module of the package may have been imported before.
    """
    simulation = slipstream.Turbulence(points=points, viscosity=0.05, initial="taylor-green")
    simulation.step()
    modules = modules_loaded()
    crossed = Crossed()
    with crossed:
        simulation.step()
    return modules, crossed


def permeability(points: int = 16) -> tuple[int, Crossed]:
    """Return how many modules the permeability of a channel loads, and what the second enters."""
    pores = np.ones((points,) * 3, np.uint8)
    pores[:, 0] = pores[:, -1] = 0
    slipstream.permeability(pores, axis="x")
    modules = modules_loaded()
    crossed = Crossed()
    with crossed:
        slipstream.permeability(pores, axis="x")
    return modules, crossed


def modules_loaded() -> int:
    """Return how many modules of Slipstream this process has loaded."""
    return sum(name.partition(".")[0] == "slipstream" for name in sys.modules)


if __name__ == "__main__" and sys.argv[1:] in (["step"], ["permeability"]):
    modules, crossed = {"step": step, "permeability": permeability}[sys.argv[1]]()
    counts = f"{modules} modules, {len(crossed)} functions, {crossed.calls.total()} calls"
    print(f"{sys.argv[1]}: {counts}\n{crossed}")
elif __name__ == "__main__":
    from mpi4py import MPI

    *chosen, points = [*sys.argv[1:], "16"] if sys.argv[-1] in PHASES else sys.argv[1:] or ["16"]
    counted = phases(MPI.COMM_WORLD, int(points))
    if MPI.COMM_WORLD.rank == 0:
        for phase in chosen or PHASES:
            crossed = counted[phase]
            print(f"{phase}: {len(crossed)} functions, {crossed.calls.total()} calls\n{crossed}")
        if not chosen:
            print(f"replay on one rank: {replay_time(int(points)) * 1e6:.1f} us")
