"""The strategies of White and Dongarra, and ours: where a step runs, and what overlaps.

`record_step` records the same step for every strategy. A strategy only says which devices share a
rank's box, which transport carries the halos, and by which policy the graph is committed: the nine
programs of the paper differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.advection.stencil import DeviceRegion, Region, padded, record_copies
from slipstream.array_types import Comm
from slipstream.decomposition import Box
from slipstream.device import Device, cuda_device_count
from slipstream.errors import InputError
from slipstream.exchange import HaloExchange
from slipstream.schedule import StepGraph


@dataclass(frozen=True)
class Strategy:
    """Where a step runs, and what overlaps."""

    # "cpu", "gpu", or both: then the CPU has a shell around the GPU's block.
    devices: tuple[str, ...]
    transport: str = "mpi-p2p"
    policy: str = "overlap"  # advance the edge first, so that halos travel meanwhile; or "serial"
    spare_core: bool = False  # whether one core does nothing but communicate


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
    """Return the strategy of a name, which a key or an argument gives."""
    fitting = [one for one, it in STRATEGIES.items() if ranks == 1 or it.transport != "none"]
    if name not in fitting:
        is_known = isinstance(name, str) and name in STRATEGIES
        what = "is for one rank" if is_known else "is unknown"
        raise InputError(f"{key} {name!r} {what}; accepted: {', '.join(fitting)}")
    return STRATEGIES[name]


def check_device(name: str, device: str) -> None:
    """Refuse a strategy that contradicts the device asked for, or lacks the GPU that it needs."""
    needs_gpu = "gpu" in STRATEGIES[name].devices
    if device != "auto" and needs_gpu == (device == "cpu"):
        raise InputError(
            f"run.strategy: {name!r} needs {'a' if needs_gpu else 'no'} GPU, but run.device is "
            f"{device!r}; accepted with it: auto, {strategies_of(gpu=not needs_gpu)}"
        )
    if needs_gpu and device != "hip" and not cuda_device_count():
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, and CuPy finds none; accepted here: auto, "
            f"{strategies_of(gpu=False)}"
        )


def strategies_of(gpu: bool) -> str:
    """Return the names of the strategies that need a GPU, or of those that need none."""
    return ", ".join(name for name, one in STRATEGIES.items() if ("gpu" in one.devices) == gpu)


def automatic_strategy(comm: Comm, device: Device) -> str:
    """Return the strategy that suits the kind of device, the same on all ranks. Collective."""
    ranks = 1 if comm is None else comm.size
    if device.kind == "cpu" or comm is None or ranks == 1:
        return usual_strategy(ranks, device.kind != "cpu")
    # Peers store into each other's memory, which takes a GPU for each rank, of NVIDIA's.
    shared = len(set(comm.allgather(device.identity))) < ranks or device.kind == "hip"
    return "gpu-mpi-streams" if shared else usual_strategy(ranks, True)


def usual_strategy(ranks: int, gpu: bool) -> str:
    """Return the strategy for ranks that have a GPU of NVIDIA's each, or have none."""
    if gpu:
        return "gpu" if ranks == 1 else "gpu-peer"
    return "single" if ranks == 1 else "mpi-nonblocking"


def place(
    strategy: Strategy,
    devices: Mapping[str, Device],
    box: Box,
    divided: Sequence[int],
    dtype: Any,
    shell: int,
) -> dict[str, Region]:
    """Divide a rank's box among its devices.

    A shell of no points leaves all to the GPU, one that fills the box leaves all to the CPU.
    `divided` is 1 for axes that ranks divide, which have a halo, and 0 for those that are periodic
    in place.
    """
    walls = tuple(shell * max(axis < 2, width) for axis, width in enumerate(divided))
    block = box.grown([-wall for wall in walls])
    if len(strategy.devices) == 1 or not shell or not block.size:
        name = strategy.devices[0 if shell else -1]
        layout = padded(devices[name], box, divided, dtype)
        return {name: Region(layout, (box,), box.grown([-width for width in divided]))}
    cut = [min(wall, 1) for wall in walls]
    inside = padded(devices["gpu"], block, cut, dtype)
    outside = padded(devices["cpu"], box, divided, dtype)
    return {
        "cpu": Region(outside, tuple(box.without(block)), box.grown([-width for width in divided])),
        "gpu": Region(inside, (block,), block.grown([-width for width in cut])),
    }


def record_step(
    strategy: Strategy,
    regions: Mapping[str, DeviceRegion],
    halos: HaloExchange | None,
    target: int,
) -> StepGraph:
    """Record one step to array `target` of each device, and the halos that the next step reads."""
    graph = StepGraph(next(iter(regions.values())).device)
    for one in regions.values():
        if strategy.policy == "serial":
            one.record(graph, one.region.boxes, target, "all points")
        else:
            one.record(graph, one.region.outer(), target, "edge")
    if halos is not None:
        halos.record(graph, target)
    if strategy.policy == "overlap":
        for one in regions.values():
            one.record(graph, one.region.inner(), target, "inner points")
    if len(regions) == 2:
        record_copies(graph, regions["cpu"], regions["gpu"], target)
    return graph
