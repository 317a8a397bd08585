"""Choices that do not change the result, measured for the whole transform and remembered.

Measuring exchanges or local transforms alone misleads, since they compete for the same memory:
what is timed is a forward and a backward transform, as the user will run them. The fastest choice
goes to ``tuning.json`` in the cache folder, under a readable key of machine, ranks and transform;
delete the file, or an entry, to measure again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipstream.device import Device
from slipstream.device.host_compiler import cache_folder, write_atomically
from slipstream.errors import InputError
from slipstream.exchange import TRANSPORTS, chosen_transport
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_plan import Choices, Plan
from slipstream.fft.out_of_core_fft import StreamedPlan
from slipstream.fft.slab_pipeline import SlabOptions
from slipstream.schedule import StepGraph, commit

REPETITIONS = {"quick": 5, "full": 11}

# Bytes of a GPU's modes from which copy engines beat transforms that store into other GPUs: they
# are faster, but take longer to start. And bytes of a piece, of which there should be 4 to 8.
_COPIED, _PIECE = 192 << 20, 384 << 20

# Points along the longest axis at which cuFFT's own plan is the faster way forward on one GPU.
_WHOLE = range(256, 513)


def choose(
    arguments: Arguments,
    device: Device,
    comm: Any,
    transport: str,
    workers: int | None,
    tune: str,
    schedule: str,
) -> Choices:
    """Return the choices for a transform. Collective.

    Parameters
    ----------
    arguments : Arguments
        The transform.
    device : Device
        This rank's device.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    transport, workers
        What the user has chosen; "auto" and None leave it open.
    tune : {"off", "quick", "full"}
        "off" goes by rules from our measurements. "quick" measures transports and pieces, one after
        the other; "full" all transports with all divisions. Both take what an earlier measurement
        found.
    schedule : str
        The policy to measure with.
    """
    default = default_choices(arguments, device, comm, transport, workers)
    if tune == "off":
        return default
    key = transform_key(arguments, device, comm, transport, workers, schedule)
    remembered = recall(key, comm)
    known = _from_record(remembered)
    if known and not _possible(known, arguments.ranks, comm, device):
        known = None
    if known and not (tune == "full" and remembered["tune"] == "quick"):
        return known
    times: dict[Choices, float] = {}
    for candidates in _rounds(arguments, device, comm, default, transport, workers, tune, times):
        for candidate in candidates:
            if candidate not in times:
                times[candidate] = _seconds(
                    arguments, device, comm, candidate, REPETITIONS[tune], schedule
                )
    best = min(times, key=times.__getitem__)
    if comm is None or comm.rank == 0:
        remember(key, dataclasses.asdict(best), times[best], max(times.values()), tune)
    return best


def default_choices(
    arguments: Arguments, device: Device, comm: Any, transport: str, workers: int | None
) -> Choices:
    """Return the choices by rule. Collective."""
    name = chosen_transport(transport, comm, device)
    slab = SlabOptions(whole=device.kind == "cuda" and max(arguments.shape) in _WHOLE)
    if device.kind == "cuda" and arguments.ranks > 1:
        bytes_per_rank = (
            math.prod(arguments.spectral_shape)
            * arguments.fields
            * arguments.complex_dtype.itemsize
            // arguments.ranks
        )
        if bytes_per_rank >= _COPIED:
            pieces = max(4, min(8, bytes_per_rank // _PIECE))
            slab = dataclasses.replace(slab, pieces=pieces, store=False)
    return Choices(name, workers or arguments.ranks, slab)


def _rounds(
    arguments: Arguments,
    device: Device,
    comm: Any,
    default: Choices,
    transport: str,
    workers: int | None,
    tune: str,
    times: dict[Choices, float],
) -> Iterator[list[Choices]]:
    """Yield candidates, round after round; later rounds look at the times of earlier ones."""
    names = [default.transport]
    if transport == "auto" and arguments.ranks > 1:
        names = [name for name in TRANSPORTS if _usable(name, comm, device)]
    pieces = (1, 2, 4, 8, 16) if arguments.ranks > 1 else (1,)
    divisions = [
        SlabOptions(pieces=p, parts=q, store=store, tiled=tiled, whole=whole)
        for p in pieces
        # On GPUs planes in parts were never faster than ranges of kx.
        for q in (pieces if tune == "full" and p == 1 and device.kind == "cpu" else (1,))
        for store in ((True, False) if arguments.ranks > 1 else (True,))
        for tiled in ((True, False) if device.tiled_transforms() else (True,))
        for whole in ((True, False) if arguments.ranks == 1 else (False,))
    ]
    teams = [default.workers]
    if workers is None and arguments.ranks > 1 and tune == "full":
        teams.append(1)
    if tune == "full":
        yield [Choices(n, w, d) for n in names for w in teams for d in divisions]
        return
    yield [dataclasses.replace(default, transport=name) for name in names]
    best = min(times, key=times.__getitem__)
    yield [dataclasses.replace(best, slab=division) for division in divisions]


def _possible(choices: Choices, ranks: int, comm: Any, device: Device) -> bool:
    """Return whether choices that were remembered can be made here. Collective."""
    if choices.workers > ranks or (choices.transport == "none") != (ranks == 1):
        return False
    return ranks == 1 or _usable(choices.transport, comm, device)


def _usable(name: str, comm: Any, device: Device) -> bool:
    try:
        chosen_transport(name, comm, device)
    except InputError:
        return False
    return True


def _seconds(
    arguments: Arguments,
    device: Device,
    comm: Any,
    choices: Choices,
    repetitions: int,
    schedule: str,
) -> float:
    """Return the median time of a pair of transforms, on the slowest rank. Collective."""
    plan = Plan(arguments, device, comm, choices)
    return seconds_of(plan, arguments, device, device, comm, repetitions, schedule)


def seconds_of(
    plan: Plan | StreamedPlan,
    arguments: Arguments,
    device: Device,
    home: Device,
    comm: Any,
    repetitions: int,
    schedule: str,
) -> float:
    """Return the median time of a pair of transforms, on the slowest rank. Collective.

    Parameters
    ----------
    plan : Plan or StreamedPlan
        Of the transform that `arguments` describe.
    device, home : Device
        Where graphs run, and where the arrays are.
    comm, repetitions, schedule
        The ranks; how many pairs are timed, after two others; the policy.
    """
    rank = comm.rank if comm is not None else 0
    boxes = arguments.input_boxes[rank], arguments.output_boxes[rank]
    physical = home.zeros((arguments.fields, *boxes[0].shape), arguments.dtype)
    spectral = home.zeros((arguments.fields, *boxes[1].shape), arguments.complex_dtype)
    forward, backward = StepGraph(device), StepGraph(device)
    plan.record_forward(forward, physical, spectral)
    plan.record_backward(backward, spectral, physical)
    steps = commit(forward, schedule), commit(backward, schedule)
    times = []
    for _ in range(repetitions + 2):
        device.synchronize()
        if comm is not None:
            comm.Barrier()
        began = time.perf_counter()
        for step in steps:
            step.run()
            if home is not device:  # several devices are in no order but that of a step
                step.synchronize()
        device.synchronize()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[2:])
    return max(comm.allgather(seconds)) if comm is not None else seconds


def transform_key(arguments, device, comm, transport, workers, schedule) -> str:
    """Return the readable key of a transform on this machine."""
    a = arguments
    # Boxes can be many: the first ones make the key readable, a digest tells arrangements apart.
    boxes = [f"{b[0].shape}" for b in (a.input_boxes, a.output_boxes)]
    digest = hash((a.input_boxes, a.output_boxes)) % 16**6
    return (
        f"{device.name}; {a.ranks} ranks; {'x'.join(map(str, a.shape))} {a.dtype.name}; "
        f"{'x'.join(map(str, a.spectral_shape))} modes; {a.fields} fields; "
        f"boxes {' '.join(boxes)} {digest:06x}; wire {a.wire}; transport {transport}; "
        f"workers {workers or 'any'}; {schedule}"
    )


def _file() -> Path:
    return cache_folder() / "tuning.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def recall(key: str, comm: Any) -> Any:
    """Return what is remembered of a transform; None if nothing is. Collective."""
    found = _read(_file()).get(key) if comm is None or comm.rank == 0 else None
    return comm.bcast(found) if comm is not None else found


def remember(key: str, choices: dict[str, Any], fastest: float, slowest: float, tune: str) -> None:
    """Remember choices, and the seconds of these and of the slowest that were tried."""
    entries = _read(_file())
    entries[key] = {
        "tune": tune,
        **choices,
        "milliseconds of forward and backward": round(fastest * 1e3, 4),
        "slowest of those tried": round(slowest * 1e3, 4),
    }
    try:
        write_atomically(_file(), json.dumps(entries, indent=1, sort_keys=True).encode())
    except OSError:
        return  # it will be measured again


def _from_record(record: Any) -> Choices | None:
    """Return remembered choices; None if there are none, or not those of this version."""
    try:
        known = Choices(record["transport"], record["workers"], SlabOptions(**record["slab"]))
        numbers = [operator.index(n) for n in (known.workers, known.slab.pieces, known.slab.parts)]
        switches = [known.slab.store, known.slab.tiled, known.slab.whole]
    except (TypeError, KeyError):
        return None
    valid = min(numbers) >= 1 and all(isinstance(switch, bool) for switch in switches)
    named = known.transport in ("none", *TRANSPORTS) and record.get("tune") in ("quick", "full")
    return known if valid and named else None
