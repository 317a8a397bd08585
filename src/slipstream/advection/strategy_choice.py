"""Which strategy a case uses, and whether it suits the devices and ranks."""

from __future__ import annotations

from slipstream.advection.advection_solver import checked_strategy
from slipstream.advection.overlap_strategies import STRATEGIES, Strategy
from slipstream.array_types import Comm
from slipstream.device import Device, cuda_device_count
from slipstream.errors import InputError


def strategy_of_case(name: str, ranks: int) -> Strategy:
    """Return the strategy that ``run.strategy`` names."""
    try:
        return checked_strategy(name, ranks)
    except InputError as error:
        raise InputError(f"run.{error}") from error


def check_device(name: str, device: str) -> None:
    """Refuse a strategy that contradicts the device asked for, or lacks the GPU that it needs."""
    needs_gpu = "gpu" in STRATEGIES[name].devices
    if device != "auto" and needs_gpu != (device == "cuda"):
        raise InputError(
            f"run.strategy: {name!r} needs {'a' if needs_gpu else 'no'} GPU, but run.device is "
            f"{device!r}; accepted with it: auto, {_strategies(gpu=not needs_gpu)}"
        )
    if needs_gpu and not cuda_device_count():
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, and CuPy finds none (its extra is "
            f"slipstream[cuda13]); accepted here: auto, {_strategies(gpu=False)}"
        )


def _strategies(gpu: bool) -> str:
    return ", ".join(name for name, one in STRATEGIES.items() if ("gpu" in one.devices) == gpu)


def automatic_strategy(comm: Comm, device: Device) -> str:
    """Return the strategy that suits the kind of device, the same on all ranks. Collective."""
    ranks = 1 if comm is None else comm.size
    if device.kind == "cpu":
        return "single" if ranks == 1 else "mpi-nonblocking"
    if ranks == 1:
        return "gpu"
    # Peers store into each other's memory, which takes a GPU for each rank.
    shared = len(set(comm.allgather(device.identity))) < ranks
    return "gpu-mpi-streams" if shared else "gpu-peer"
