"""Print where the time of `permeability` goes: ``tools/pore_times.py 256 512 --porosity 0.2``.

Each size is a sandstone's number of voxels along each axis. The device finishes each phase before
the next one is timed, so that the phases add up; the total without timers is measured too, last.
On several ranks, under ``mpiexec``, the phases are those of rank 0.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from slipstream.engine import processes as mpi_launch
from slipstream.engine.device import Device
from slipstream.engine.exchange import open_matching_device
from slipstream.lattice import make_sample, permeability

# Phases by their function. The time of an inner phase does not count for the outer one.
PHASES = {
    "image: read and make voxels": "samples:Sample.read",
    "image: connectivity and division": "domain_decomposition:decompose",
    "host: percolation": "domain_decomposition:keep_percolating",
    "host: narrow pores": "domain_decomposition:pore_widths",
    "storage: choose by measurement": "lattice_simulation:measured_storage",
    "flow: sites, links, memory": "pore_flow:PoreFlow.__init__",
    "lattice steps": "pore_flow:PoreFlow.advance",
    "sums of the flow": "pore_flow:PoreFlow.sums",
    "acceleration: memory": "acceleration:Acceleration.__init__",
    "acceleration: residual and products": "acceleration:Acceleration.measure",
    "acceleration: add correction": "acceleration:Acceleration.go_on",
    "pressure: blocks and couplings": "pressure_blocks:PressureBlocks.__init__",
    "pressure: sums over blocks and back": "pressure_blocks:PressureBlocks.solve",
    "pressure: solve": "pressure_blocks:PressureGrids.solve",
    "coarse start": "lattice_simulation:begin_coarsely",
    "result: means and fields": "lattice_simulation:LatticeSimulation.axis_flow",
    "result: porosity profile": "permeability:porosity_profile",
}


class Phases:
    """Times functions while it is entered; an inner one is no part of the outer one."""

    def __init__(self, device: Device) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._device, self._stack, self._since = device, ["other"], time.perf_counter()
        self._replaced: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Phases:
        for phase, place in PHASES.items():
            module, _, names = place.partition(":")
            owner: Any = importlib.import_module(f"slipstream.lattice.{module}")
            *path, name = names.split(".")
            for one in path:
                owner = getattr(owner, one)
            function = getattr(owner, name)
            self._replaced.append((owner, name, function))
            setattr(owner, name, self._timed(phase, function))
        self._since = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._turn()
        for owner, name, function in self._replaced:
            setattr(owner, name, function)

    def _turn(self) -> None:
        self._device.synchronize()
        now = time.perf_counter()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    def _timed(self, phase: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._turn()
            self._stack.append(phase)
            self.calls[phase] += 1
            try:
                return function(*arguments, **options)
            finally:
                self._turn()
                self._stack.pop()

        return timed


def measure(size: int, arguments: argparse.Namespace, device: Device, comm: Any) -> dict[str, Any]:
    """Compute a permeability with timers and without them; return figures."""
    radius = arguments.radius or size / 16
    sample = make_sample("sandstone", (size,) * 3, porosity=arguments.porosity, radius=radius)
    settings = {
        "tolerance": arguments.tolerance,
        "vectors": arguments.vectors,
        "precision": arguments.precision,
        "relaxation_time": arguments.relaxation_time or "auto",
        "coarse_start": arguments.coarse_start,
        "keep_fields": arguments.keep_fields,
        "device": device,
        "comm": comm,
    }
    began = time.perf_counter()
    first = permeability(sample, **settings)
    cold = time.perf_counter() - began
    with Phases(device) as phases:
        timed = permeability(sample, **settings)
    began = time.perf_counter()
    permeability(sample, **settings)
    warm = time.perf_counter() - began
    return {
        "size": size,
        "k": timed.k,
        "steps": timed.steps,
        "iteration error": timed.iteration_error,
        "storage": timed.storage.choices,
        "seconds of the first call": cold,
        "seconds without timers": warm,
        "seconds of steps without timers": first.seconds,
        "phases": {
            name: {"seconds": seconds, "calls": phases.calls[name]}
            for name, seconds in sorted(phases.seconds.items(), key=lambda one: -one[1])
        },
        "history": timed.history,
    }


def show(figures: dict[str, Any]) -> None:
    """Print the figures of one size."""
    print(
        f"\n{figures['size']}^3: k = {figures['k']:.8g}, {figures['steps']} steps, error"
        f" {figures['iteration error']:.2g}\n{figures['storage']}\n"
        f"{figures['seconds of the first call']:.3f} s first,"
        f" {figures['seconds without timers']:.3f} s then,"
        f" {figures['seconds of steps without timers']:.3f} s of it in the flow"
    )
    for name, phase in figures["phases"].items():
        print(f"  {name:36} {phase['seconds']:9.3f} s  {phase['calls']:6} calls")


def main() -> None:
    """Measure all sizes and print the phases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="+")
    parser.add_argument("--porosity", type=float, default=0.2)
    parser.add_argument("--radius", type=float, help="of the grains; default: a 16th of the size")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--vectors", type=int, default=10)
    parser.add_argument("--precision", default="float64")
    parser.add_argument("--relaxation-time", type=float, help='default: "auto"')
    parser.add_argument("--coarse-start", action="store_true")
    parser.add_argument("--keep-fields", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    comm = mpi_launch.world_comm()
    device = open_matching_device(arguments.device, comm)
    results = []
    for size in arguments.sizes:
        results.append(measure(size, arguments, device, comm))
        if comm is None or comm.rank == 0:
            show(results[-1])
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    main()
