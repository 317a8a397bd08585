"""The rates of this machine, measured, as `slipstream project` takes those of any machine.

All ranks measure at the same time, so a rate is that of a rank while the others work too.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from slipstream import mpi_launch
from slipstream.argument_checks import check_folder_of
from slipstream.array_types import Comm, Communicator
from slipstream.case.table import Table
from slipstream.case.toml_text import to_toml
from slipstream.collective import on_first_rank, own, together
from slipstream.device import Device, open_device
from slipstream.device.copy_bandwidth import copied_arrays
from slipstream.device.device_choice import home_of
from slipstream.exchange import open_matching_device
from slipstream.exchange.communicators import node_numbers
from slipstream.forecast.measured_rates import (
    ExchangeTimer,
    bus_rates,
    copy_bandwidth,
    storage_rates,
    usable_transports,
)
from slipstream.forecast.step_rates import cache_rates, step_rates
from slipstream.io.durable_files import errors_name
from slipstream.report.number_text import counted
from slipstream.simulation.machine_description import Machine

_REPETITIONS = 5
# Rates that are medians of some rounds, and the factor by which rounds may differ.
_ROUNDS, _STEADY = 3, 1.5
# Bytes of each of two arrays that copies take.
_COPIED = {"cpu": 1 << 27, "gpu": 1 << 30}
# Messages: of an exchange within a node, and to other nodes.
_LARGE = {"cpu": 1 << 22, "gpu": 1 << 26}
_MESSAGES = [10**4, 10**5, 10**6, 16 * 10**6]
# A message that takes no time but its latency; transports that take messages from the host.
_SMALL = 1 << 12
_FROM_HOST = ("mpi-p2p", "mpi")


def calibrate_here(path: Path, device: str, folder: Path, console: Console) -> None:
    """Measure on all ranks of this program; print and write the rates. Collective.

    Storage is that of a folder in which runs would be.
    """
    comm = own(mpi_launch.world_comm(), "calibration")
    on_first_rank(comm, lambda: check_folder_of("--calibrate", path))
    with together(comm):
        machine = calibrate(open_matching_device(device, comm), comm, path, folder)
    if comm is None or comm.rank == 0:
        if machine.storage is not None and machine.storage.node_read_gb_per_s is None:
            console.print(
                f"reading is not timed: files in {folder} stay in the host's memory, or cannot be"
                " told to leave it",
                highlight=False,
                markup=False,
            )
        for text in machine.sources[1:]:
            console.print(f"warning: {text}", highlight=False, markup=False)
        measured = machine.model_dump(exclude_unset=True)
        console.print(to_toml(measured), highlight=False, markup=False, soft_wrap=True)
        console.print(
            f"not measured, so taken as usual: {', '.join(_assumed(machine))}",
            highlight=False,
            markup=False,
        )
        console.print(f"written to {path}; use it with: slipstream project CASE --machine {path}")


def calibrate(device: Device, comm: Comm, path: Path, folder: Path | None = None) -> Machine:
    """Measure, write the description of this machine, and return it. Collective.

    Rates between nodes are measured if ranks are on several, and those of storage in a folder.
    """
    ranks = 1 if comm is None else comm.size
    of_node = _ranks_of_node(comm)
    steady = _Steady()
    copy, of_caches = _copies(device, comm, steady)
    description: dict[str, Any] = {
        "title": socket.gethostname(),
        "sources": [
            f"slipstream info --calibrate, {counted(ranks, 'rank')}, {of_node} of a node,"
            f" {datetime.now(UTC):%Y-%m-%d}"
        ],
        "devices_per_node": of_node,
        "device": {
            "name": device.name,
            "kind": device.processor,
            "memory_gib": _rounded(device.memory_total() / _sharing(device, of_node) / 2**30),
            "copy_gb_per_s": _rounded(copy / 1e9),
            **{name: _rounded(value) for name, value in of_caches.items()},
        },
        "bus": _bus(device, comm, copy, of_node),
        "node": {
            "memory_gib": _rounded(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
            ),
            **_in_node(device, comm, copy, steady),
        },
    }
    of_steps = step_rates(device, comm, Machine.model_validate(description))
    description["device"] |= {name: _rounded(value) for name, value in of_steps.items()}
    if comm is not None and of_node < ranks:
        description["network"] = _network(device, comm, of_node)
    if folder is not None:
        rates = storage_rates(folder, comm, of_node)
        description["storage"] = {name: _rounded(value) for name, value in rates.items()}
    description["sources"] += steady.doubts
    machine = Machine.model_validate(description)

    def write() -> None:
        with errors_name(path):
            path.write_text(to_toml(machine.model_dump(exclude_unset=True)), encoding="utf-8")

    on_first_rank(comm, write)
    return machine


def _copies(
    device: Device, comm: Comm, steady: _Steady
) -> tuple[float, Mapping[str, Sequence[float]]]:
    """Return the bytes per second of a large copy, and the rates of copies in caches."""
    size = _COPIED[device.processor]
    arrays = copied_arrays(device, size)
    bandwidth = copy_bandwidth(device, size, 2, arrays)
    copy = steady("device.copy_gb_per_s", lambda: _least(comm, bandwidth()) / 1e9) * 1e9
    return copy, cache_rates(device, comm, arrays)


class _Steady:
    """Takes the median of some rounds of a measurement, and remembers where they differ much."""

    def __init__(self) -> None:
        self.doubts: list[str] = []

    def __call__(self, name: str, measure: Callable[[], float]) -> float:
        """Return the median of a measurement, the same on all ranks, under a key's name."""
        found = sorted(measure() for _ in range(_ROUNDS))
        if found[-1] > _STEADY * found[0]:
            self.doubts.append(
                f"{name} varied from {found[0]:.3g} to {found[-1]:.3g} in {_ROUNDS} rounds, of"
                " which the median is taken: measure again where nothing else runs"
            )
        return found[_ROUNDS // 2]


def _assumed(machine: Machine) -> list[str]:
    """Return the keys that the description leaves out, with what forecasts take for them."""
    tables = {name: table for name, table in machine if isinstance(table, Table)}
    return [
        f"{name}.{key} = {value:g}"
        for name, table in tables.items()
        for key, value in table
        if key not in table.model_fields_set and isinstance(value, float)
    ]


def _ranks_of_node(comm: Comm) -> int:
    return 1 if comm is None else max(Counter(node_numbers(comm)).values())


def _sharing(device: Device, of_node: int) -> int:
    """Return how many ranks have the memory of a device: all of a node, if it is the host."""
    return of_node if device.kind == "cpu" else 1


def _least(comm: Comm, value: float) -> float:
    return value if comm is None else min(comm.allgather(value))


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else [_rounded(one) for one in value]


def _bus(device: Device, comm: Comm, copy: float, of_node: int) -> dict[str, float]:
    """Return the rates between host and device; on a CPU, the rates of copies."""
    each_way = copy / 2
    if device.kind != "cpu":
        each_way = _least(comm, bus_rates([device], home_of(device), comm)["both"])
    return {
        "device_gb_per_s": _rounded(each_way / 1e9),
        "node_gb_per_s": _rounded(2 * each_way * of_node / 1e9),
    }


def _in_node(device: Device, comm: Comm, copy: float, steady: _Steady) -> dict[str, float]:
    """Return the rate from each rank to the others of its node; for one rank, of copies."""
    if comm is None or _ranks_of_node(comm) == 1:
        return {"gb_per_s": _rounded(copy / 2 / 1e9)}
    node = comm.Split(node_numbers(comm)[comm.rank], comm.rank)

    def rates(timer: ExchangeTimer, size: int) -> float:
        seconds = min(timer.seconds("all-to-all", size, _REPETITIONS).values())
        return _least(comm, (node.size - 1) * size / seconds) / 1e9

    try:
        large = _LARGE[device.processor]
        timer = _timer(device, node, (), large)
        host = _timer(open_device("cpu"), node, _FROM_HOST, large)
        found = {
            "gb_per_s": steady("node.gb_per_s", lambda: rates(timer, large)),
            "host_gb_per_s": steady("node.host_gb_per_s", lambda: rates(host, large)),
            "latency_us": (node.size - 1) * _SMALL / rates(timer, _SMALL) / 1e3,
        }
        return {name: _rounded(one) for name, one in found.items()}
    finally:
        node.Free()


def _timer(device: Device, comm: Communicator, names: Sequence[str], largest: int) -> ExchangeTimer:
    """Return a function that times some transports, or all that send each message as it is."""
    transports, _ = usable_transports(names, device, comm)
    direct = {name: one for name, one in transports.items() if not one.aggregates}
    return ExchangeTimer(device, comm, direct, largest)


def _network(device: Device, comm: Communicator, of_node: int) -> dict[str, Any]:
    """Return what a node sends to others while all exchange with all, and the latency."""
    beyond = (comm.size - of_node) / (comm.size - 1)
    timer, own = _timer(device, comm, (), max(_MESSAGES)), []
    for size in _MESSAGES:
        seconds = min(timer.seconds("all-to-all", size, _REPETITIONS).values())
        own.append(_rounded((comm.size - 1) * size / seconds * beyond * of_node / 1e9))
    # A rate that falls for larger messages is noise.
    return {
        "latency_us": _rounded(1e6 * _latency(comm)),
        "message_bytes": [float(size) for size in _MESSAGES],
        "node_gb_per_s": np.maximum.accumulate(own).tolist(),
    }


def _latency(comm: Communicator, repetitions: int = 200) -> float:
    """Return the seconds of a meeting of all ranks."""
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(repetitions):
        comm.Barrier()
    return (time.perf_counter() - began) / repetitions
