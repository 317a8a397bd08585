"""What a step of advection moves, counted from regions and halos as ranks plan them."""

from __future__ import annotations

import numpy as np

from slipstream.advection.advection_memory import memory_with_output
from slipstream.advection.advection_simulation import grid_of_case
from slipstream.advection.overlap_strategies import (
    place,
    strategies_of,
    strategy_of_case,
    usual_strategy,
)
from slipstream.case import AdvectionCase
from slipstream.decomposition import grid_boxes
from slipstream.device import open_device
from slipstream.errors import InputError
from slipstream.exchange import HaloPlan
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.step_counts import StepCounts, check_fit, output_size, room_of_rank

# Where the memory of each kind of device is, and passes over memory: one reads, another writes.
_WHERE = {"gpu": "device", "cpu": "host"}
_PASSES = 2


def advection_counts(case: AdvectionCase, machine: Machine, ranks: int) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    Points of strategies that leave some to the CPU are advanced at the rate of the host's memory.

    Raises
    ------
    InputError
        If the strategy is for one rank or for other devices, a rank would have no point, or its
        field does not fit.
    """
    shape = tuple(reversed(case.grid.points_xyz))
    has_gpus = machine.device.kind == "gpu"
    name = case.run.strategy
    if name == "auto":
        name = usual_strategy(ranks, has_gpus and case.run.device != "cpu")
    strategy = strategy_of_case(name, ranks)
    if "gpu" in strategy.devices and not has_gpus:
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, but devices of {machine.title} are CPUs"
            f" (device.kind); accepted there: auto, {strategies_of(gpu=False)}"
        )
    grid = grid_of_case(case, ranks)
    boxes = grid_boxes(shape, grid)
    if not boxes[-1].size:
        raise InputError(
            f"{ranks} ranks: as {' x '.join(map(str, reversed(grid)))} (x, y, z) some would have"
            " no point; take fewer nodes"
        )
    dtype, divided = np.dtype(case.numerics.precision), [int(count > 1) for count in grid]
    # Larger boxes come first: none is larger than this.
    box = boxes[0]
    devices = {kind: open_device("cpu") for kind in strategy.devices}
    needed = memory_with_output(strategy, devices, box, grid, dtype, case.run.shell)
    for kind, need in needed.items():
        check_fit(ranks, need, room_of_rank(machine, ranks, _WHERE[kind]), _WHERE[kind])
    regions = place(strategy, devices, box, divided, dtype, case.run.shell)
    moved = dict.fromkeys(_WHERE, 0)
    for kind, region in regions.items():
        moved[kind] += _PASSES * sum(part.size for part in region.boxes)
    bus_in, bus_out = 0, 0
    if len(regions) == 2:
        edges, halo = regions["gpu"].copied()
        bus_out, bus_in = (sum(part.size for part in parts) for parts in (edges, halo))
    ranks_of_node = min(ranks, machine.devices_per_node)
    plan = HaloPlan.make(boxes, shape, divided, 0).packed
    in_node = [block.count for block in plan.sends if block.peer < ranks_of_node]
    off_node = [block.count for block in plan.sends if block.peer >= ranks_of_node]
    # Halos are packed, and unpacked, where the points are that others read.
    outermost = next(iter(regions))
    moved[outermost] += _PASSES * (plan.send_size + plan.receive_size)
    is_from_host = strategy.transport.startswith("mpi")
    if is_from_host and outermost == "gpu":
        bus_out, bus_in = bus_out + plan.send_size, bus_in + plan.receive_size
    item = dtype.itemsize
    size = output_size(shape, boxes, [item])
    return StepCounts(
        family="advection",
        ranks=ranks,
        ranks_of_node=ranks_of_node,
        devices_of_rank=1,
        memory_bytes=moved["gpu" if has_gpus else "cpu"] * item,
        fields_bytes=sum(needed.values()),
        is_overlapped=strategy.policy == "overlap",
        host_bytes=moved["cpu"] * item if has_gpus else 0,
        bus_in_bytes=bus_in * item,
        bus_out_bytes=bus_out * item,
        in_node_bytes=sum(in_node) * item,
        off_node_bytes=sum(off_node) * item,
        in_node_messages=len(in_node),
        off_node_messages=len(off_node),
        message_bytes=max(off_node, default=0) * item,
        is_from_host=is_from_host,
        exchanges=1 if ranks > 1 else 0,
        outputs={"fields": size, "checkpoint": size},
    )
