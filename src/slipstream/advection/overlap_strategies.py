"""The strategies of White and Dongarra, and ours: which devices take part, and what overlaps.

`record_pass` records the same pass for every strategy. A strategy only sets the devices that share
a rank's box, the transport of halos, and the policy of the graph: the nine programs of the paper
differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.advection.stencil import DeviceRegion, Region, padded, record_copies
from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, cuda_device_count
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import HaloExchange
from slipstream.engine.schedule import StepGraph


@dataclass(frozen=True)
class Strategy:
    """Which devices take part, and what overlaps."""

    # "cpu", "gpu", or both: then the CPU has a shell around the GPU's block.
    devices: tuple[str, ...]
    transport: str = "mpi-p2p"
    # "overlap": the edge is advanced first, so that halos are exchanged while the rest is advanced.
    policy: str = "overlap"
    spare_core: bool = False  # whether one core only communicates


STRATEGIES = {
    "single": Strategy(("cpu",), transport="none", policy="serial"),
    "mpi": Strategy(("cpu",), policy="serial"),
    "mpi-nonblocking": Strategy(("cpu",)),
    "mpi-threaded": Strategy(("cpu",), spare_core=True),
    "gpu": Strategy(("gpu",), transport="none"),
    "gpu-mpi": Strategy(("gpu",), policy="serial"),
    "gpu-mpi-streams": Strategy(("gpu",)),
    "gpu-peer": Strategy(("gpu",), transport="peer"),
    "hybrid": Strategy(("cpu", "gpu"), policy="serial"),
    "hybrid-overlap": Strategy(("cpu", "gpu"), spare_core=True),
}


def checked_strategy(name: str, ranks: int, key: str = "strategy") -> Strategy:
    """Return the strategy of a name, from a key or an argument."""
    fitting = [one for one, it in STRATEGIES.items() if ranks == 1 or it.transport != "none"]
    if name not in fitting:
        is_known = isinstance(name, str) and name in STRATEGIES
        what = "is for one rank" if is_known else "is unknown"
        raise InputError(f"{key} {name!r} {what}; accepted: {', '.join(fitting)}")
    return STRATEGIES[name]


def check_device(name: str, device: str) -> None:
    """Refuse a strategy that contradicts the requested device, or needs a missing GPU."""
    needs_gpu = "gpu" in STRATEGIES[name].devices
    if device != "auto" and needs_gpu == (device == "cpu"):
        raise InputError(
            f"run.strategy: {name!r} needs {'a' if needs_gpu else 'no'} GPU, but run.device is "
            f"{device!r}; accepted with it: auto, {strategies_of(gpu=not needs_gpu)}"
        )
    if needs_gpu and not cuda_device_count():
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, and CuPy finds none; accepted here: auto, "
            f"{strategies_of(gpu=False)}"
        )


def strategies_of(gpu: bool) -> str:
    """Return the names of the strategies that need a GPU, or that need none."""
    return ", ".join(name for name, one in STRATEGIES.items() if ("gpu" in one.devices) == gpu)


def automatic_strategy(comm: Comm, device: Device) -> str:
    """Return the default strategy for the kind of device, the same on all ranks. Collective."""
    ranks = 1 if comm is None else comm.size
    if device.kind == "cpu" or comm is None or ranks == 1:
        return usual_strategy(ranks, device.kind != "cpu")
    # Peers store into each other's memory, which requires that no ranks share a GPU.
    shared = len(set(comm.allgather(device.identity))) < ranks
    return "gpu-mpi-streams" if shared else usual_strategy(ranks, True)


def usual_strategy(ranks: int, gpu: bool) -> str:
    """Return the default strategy for ranks with an NVIDIA GPU each, or without GPUs."""
    if gpu:
        return "gpu" if ranks == 1 else "gpu-peer"
    return "single" if ranks == 1 else "mpi-nonblocking"


def place(
    strategy: Strategy,
    devices: Mapping[str, Device],
    box: Box,
    halo: Sequence[int],
    dtype: Any,
    shell: int,
    steps: int = 1,
) -> dict[str, Region]:
    """Divide a rank's box among its devices.

    With a shell of no points the GPU has all points, with a shell that fills the box the CPU does.
    The width of `halo` is the number of steps in a pass along axes that ranks divide, and 0 along
    axes that are periodic in place.
    """
    walls = tuple(shell * (axis < 2 or width > 0) for axis, width in enumerate(halo))
    block = box.grown([-wall for wall in walls])
    if len(strategy.devices) == 1 or not shell or not block.size:
        name = strategy.devices[0 if shell else -1]
        layout = padded(devices[name], box, halo, dtype)
        return {name: Region(layout, (box,), box.grown([-width for width in halo]))}
    cut = [min(wall, steps) for wall in walls]
    inside = padded(devices["gpu"], block, cut, dtype)
    outside = padded(devices["cpu"], box, halo, dtype)
    return {
        "cpu": Region(outside, tuple(box.without(block)), box.grown([-width for width in halo])),
        "gpu": Region(inside, (block,), block.grown([-width for width in cut])),
    }


def record_pass(
    strategy: Strategy,
    regions: Mapping[str, DeviceRegion],
    halos: HaloExchange | None,
    target: int,
    steps: int,
) -> StepGraph:
    """Record a pass to array `target` on all devices, and the halos that the next pass reads."""
    graph = StepGraph(next(iter(regions.values())).device)
    for region in regions.values():
        if strategy.policy == "serial":
            region.record(graph, region.region.boxes, target, "all points", steps)
        else:
            region.record(graph, region.region.outer(), target, "edge", steps)
    if halos is not None:
        halos.record(graph, target)
    if strategy.policy == "overlap":
        for region in regions.values():
            region.record(graph, region.region.inner(), target, "inner points", steps)
    if len(regions) == 2:
        record_copies(graph, regions["cpu"], regions["gpu"], target)
    return graph
