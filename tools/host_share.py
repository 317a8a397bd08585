"""Print the time that Python adds to fast work of a device: ``tools/host_share.py``.

Times in one process the setting and reading of fields, steps of a small grid, one per call and many
per call, and, from the shell, runs of the demo case. With ``--profile``, the functions that take
most of the time of setting a field and of single steps follow.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import slipstream
from slipstream.engine.device import open_device

# As in the Makefile.
DEMO = ("grid.points=64", "equation.viscosity=0.005", "title=demo")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--field", type=int, default=256, help="points of the field that is set")
    parser.add_argument("--steps", type=int, default=32, help="points of the grid that is stepped")
    parser.add_argument("--many", type=int, default=1000, help="steps at once")
    parser.add_argument("--demo", type=int, default=3, help="runs of the demo case")
    parser.add_argument("--profile", action="store_true", help="list functions by their time")
    asked = parser.parse_args()
    print(f"on {open_device(asked.device).name}")
    time_fields(asked.field, asked.device, asked.profile)
    time_steps(asked.steps, asked.many, asked.device, asked.profile)
    for number in range(asked.demo):
        time_demo(number, asked.device)


def show(what: str, action: Callable[[], object], times: int, profile: bool = False) -> None:
    """Print the median and the least time of an action, after one that is not timed."""
    action()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    print(f"{what}: {statistics.median(took) * 1e3:.4g} ms, least {min(took) * 1e3:.4g} ms")
    if profile:
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(times):
            action()
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def time_fields(points: int, device: str, profile: bool) -> None:
    """Time setting a velocity from the device and the host, reading it, and stepping."""
    sim = slipstream.Turbulence(
        points=points, viscosity=1e-3, initial="taylor-green", step=1e-4, device=device
    )
    velocity = sim.fields["velocity"]
    values = velocity[...]
    host = sim.device.to_host(values)
    wait = sim.device.synchronize

    def assign(source: object) -> None:
        velocity[...] = source
        wait()

    def read() -> None:
        _ = velocity[...]
        wait()

    show(f"set {points}³ from the device", functools.partial(assign, values), 9, profile)
    show(f"set {points}³ from the host", functools.partial(assign, host), 5)
    show(f"read {points}³", read, 9)
    show(f"step of {points}³", lambda: sim.step(1), 9)


def time_steps(points: int, many: int, device: str, profile: bool) -> None:
    """Time steps of one size and adaptive steps, one per call and many per call."""
    sim = slipstream.Turbulence(
        points=points,
        viscosity=0.01,
        initial="taylor-green",
        step=1e-3,
        integrator="rk2",
        device=device,
    )
    show(f"step(1) of {points}³", lambda: sim.step(1), 200, profile)
    show(f"step({many}) of {points}³, all", lambda: sim.step(many), 3)
    sim = slipstream.Turbulence(
        points=points, viscosity=0.01, initial="taylor-green", integrator="rk2", device=device
    )
    show(f"step(1) of {points}³, adaptive", lambda: sim.step(1), 200)
    show(f"step({many}) of {points}³, adaptive, all", lambda: sim.step(many), 3)


def time_demo(number: int, device: str) -> None:
    """Time a run of the demo case as the shell does."""
    with tempfile.TemporaryDirectory(prefix="slipstream-demo-") as folder:
        command = ["run", "taylor-green", "--out", f"{folder}/demo", "--device", device]
        command += [part for one in DEMO for part in ("--set", one)]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "slipstream", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
    last = (done.stdout or done.stderr).strip().splitlines()[-1:]
    print(f"demo case, run {number + 1}: {took:.3g} s, status {done.returncode}: {last}")


if __name__ == "__main__":
    main()
