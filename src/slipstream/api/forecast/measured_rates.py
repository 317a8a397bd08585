"""The rates of this machine: copies in memory and over the bus, exchanges between ranks, files.

Benchmarks measure against them, and `calibration` writes them down for forecasts. All ranks measure
at the same time, so a rate is what a rank reaches while the others work too.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from slipstream.engine.array_types import Array, Comm, Communicator
from slipstream.engine.collective import largest, on_every_rank, on_first_rank
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, Operation, Stream
from slipstream.engine.device.array_kernels import large_copy
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import TRANSPORTS, Block, ExchangePlan, Transport, make_transport
from slipstream.engine.exchange.transport_registry import can_aggregate, transport_class
from slipstream.engine.outofcore.file_arrays import FileHome, OpenFile, files_of
from slipstream.engine.processes import map_in_threads
from slipstream.engine.schedule import StepGraph, commit
from slipstream.engine.tuner import medians
from slipstream.files.durable_files import errors_name, flush_file, flush_folder, replace_file

PATTERNS = ("uni-directional", "bi-directional", "all-to-all")
ELEMENT = np.dtype("float64")
# Bytes of a copy over the bus.
_BUFFER = 256 << 20
# Copies over the bus that are timed together.
_REPEATED = 8
# Bytes of files on a drive, at least and at most.
_LEAST_ON_DRIVE = 256 << 20
_MOST_ON_DRIVE = 4 << 30
# Bytes of a request to a drive.
_REQUEST = 1 << 20
# Requests to a drive that are under way at the same time.
_AT_ONCE = 32
_Piece: TypeAlias = "tuple[OpenFile, int, int]"
# Seconds that a timing of exchanges lasts at least: a shorter one is mostly the start of a loop and
# its noise.
_SHORTEST_TIMING = 1.5e-3
_MOST_REPEATS = 1000
# Share of the free memory that arrays may take.
_SHARE_OF_MEMORY = 0.8
# Bytes of a rank's file.
_FILE = 64 << 20
# Share of the free space that all files take at most.
_SHARE = 0.05
# Bytes that are read in one call.
_PIECE = 4 << 20
# Small files per rank.
_SMALL_FILES = 32
# Repetitions of everything.
_REPETITIONS = 3
# Places in a file that are looked at to see whether it is in memory.
_PROBES = 16


def copy_bandwidth(
    device: Device,
    size: int = 1 << 30,
    repetitions: int = 5,
    arrays: tuple[Array, Array] | None = None,
) -> Callable[[], float]:
    """Return a function that measures bytes read plus written per second by a large copy."""
    copy, moved = large_copy(device, size, arrays=arrays)
    return lambda: moved / medians(device, {"copy": copy}, repetitions)["copy"]


def bus_rates(devices: Sequence[Device], home: Device, comm: Comm) -> dict[str, float]:
    """Return bytes per second in, out, and each way together, to each device with all at work."""
    lanes: dict[str, list[tuple[Stream, Operation]]] = {"in": [], "out": []}
    for device in devices:
        for way, lane in lanes.items():
            host, there = (side.empty((_BUFFER,), np.uint8) for side in (home, device))
            host[...] = 1
            target, source = (there, host) if way == "in" else (host, there)
            lane.append((device.stream(), device.copy(target, source)))

    def run(*ways: str) -> Callable[[], None]:
        chosen = [copied for way in ways for copied in lanes[way]]

        def action() -> None:
            for _ in range(_REPEATED):
                for stream, copy in chosen:
                    stream.submit(copy)
            for stream, _ in chosen:
                stream.synchronize()

        return action

    actions = {"in": run("in"), "out": run("out"), "both": run("in", "out")}
    seconds = medians(devices[0], actions, 5, comm)
    return {name: _REPEATED * _BUFFER / median for name, median in seconds.items()}


def drive_rates(home: FileHome, comm: Comm, moved: tuple[float, float]) -> dict[str, float]:
    """Return bytes per second in, out, and of both together, of the drives of files. Collective.

    `moved` is what a step reads and writes: both happen together in these shares, in files of about
    as many bytes. Requests are those of a benchmark of drives, large and direct, many under way
    all the time, each byte once; this knows nothing of tiles. All ranks work at the same
    time, each on its own files.
    """
    size = int(min(_MOST_ON_DRIVE, max(_LEAST_ON_DRIVE, sum(moved)))) // _REQUEST * _REQUEST
    files = files_of(memory := home.empty((size,), np.uint8))
    assert files is not None, memory.shape
    places = [
        piece
        for offset in range(0, size, _REQUEST)
        for piece in files.pieces(files.address + offset, min(_REQUEST, size - offset))
    ]
    whole = [("out", piece) for piece in places]
    half = len(places) // 2
    ways = {
        "in": [("in", piece) for piece in places],
        "out": whole,
        # The halves of the files, so that nothing is read that has just been written.
        "mixed": _mixed(places[:half], places[half:], moved),
    }
    # The first write also makes the file system allocate the file.
    on_every_rank(comm, lambda: _make_requests(whole))
    rates = {}
    for way, requests in ways.items():
        total = sum(count for _, (_, _, count) in requests)
        rates[way] = total / _time_slowest(comm, partial(_make_requests, requests))
    return rates


def _mixed(
    reads: Sequence[_Piece], writes: Sequence[_Piece], shares: tuple[float, float]
) -> list[tuple[str, _Piece]]:
    """Return requests that read and write in turn, in these shares of all bytes."""
    all_bytes = sum(shares) or 1.0
    into, out = (one / all_bytes for one in shares)
    count = int(min(len(reads) / max(into, 1e-9), len(writes) / max(out, 1e-9)))
    result: list[tuple[str, _Piece]] = []
    done = 0
    for number in range(count):
        if into * (number + 1) > done + 0.5:
            result.append(("in", reads[done]))
            done += 1
        else:
            result.append(("out", writes[number - done]))
    return result


def _make_requests(requests: Sequence[tuple[str, _Piece]]) -> None:
    """Make requests of files in order, a number of them at the same time."""
    left = iter(requests)
    turn = threading.Lock()

    def work(_: int) -> None:
        memory = mmap.mmap(-1, _REQUEST)
        memory.write(bytes(range(256)) * (_REQUEST // 256))
        while True:
            with turn:
                way, (file, offset, count) = next(left, ("", (None, 0, 0)))
            if file is None:
                return
            number = file.pages if file.direct is None else file.direct
            part = [memoryview(memory)[:count]]
            if (os.preadv if way == "in" else os.pwritev)(number, part, offset) != count:
                raise OSError(f"a drive took less than {count} bytes")

    map_in_threads(_AT_ONCE, work, range(_AT_ONCE))


def senders_and_receivers(pattern: str, ranks: int) -> list[tuple[int, int]]:
    """Return the pairs of sender and receiver in a pattern."""
    if pattern == "uni-directional":
        return [(0, 1)]
    if pattern == "bi-directional":
        return [(0, 1), (1, 0)]
    return [(s, r) for s in range(ranks) for r in range(ranks) if s != r]


def pattern_plan(pattern: str, rank: int, ranks: int, elements: int) -> ExchangePlan:
    """Return a rank's plan of a pattern; no rank sends to itself."""
    pairs = senders_and_receivers(pattern, ranks)

    def blocks(side: int, opposite: int) -> tuple[Block, ...]:
        own_pairs = [pair for pair in pairs if pair[side] == rank]
        starts = [(sender * ranks + receiver) * elements for sender, receiver in own_pairs]
        return tuple(
            Block(pair[opposite], Box((start,), (start + elements,)), index * elements, elements)
            for index, (pair, start) in enumerate(zip(own_pairs, starts, strict=True))
        )

    sends, receives = blocks(0, 1), blocks(1, 0)
    return ExchangePlan(rank, sends, receives, len(sends) * elements, len(receives) * elements)


class ExchangeTimer:
    """Times exchanges over several transports, side by side. Collective, like its methods.

    It raises InputError if arrays for messages of this size do not fit into memory.
    """

    def __init__(
        self, device: Device, comm: Communicator, transports: Mapping[str, Transport], largest: int
    ) -> None:
        self.device, self.comm, self.transports = device, comm, dict(transports)
        elements = (comm.size - 1) * (largest // ELEMENT.itemsize)
        _check_memory(device, comm, 2 * len(self.transports) * elements * ELEMENT.itemsize, largest)
        self._arrays = {
            name: [_fill_array(device, transport.empty((elements,), ELEMENT)) for _ in range(2)]
            for name, transport in self.transports.items()
        }
        # Receivers and bytes of the messages of this rank, in the exchanges timed last.
        self.messages: dict[str, list[tuple[int, int]]] = {}

    def seconds(self, pattern: str, size: int, repetitions: int) -> dict[str, float]:
        """Return the median seconds of one exchange over each transport, of the slowest rank."""
        elements = size // ELEMENT.itemsize
        plan = pattern_plan(pattern, self.comm.rank, self.comm.size, elements)
        runs = {name: self._exchange(name, plan) for name in self.transports}
        # The first exchanges make connections, and show how many make one timing.
        single = medians(self.device, runs, 3, self.comm)
        repeats = {
            name: min(_MOST_REPEATS, max(1, math.ceil(_SHORTEST_TIMING / one)))
            for name, one in single.items()
        }
        actions = {name: repeated(run, repeats[name]) for name, run in runs.items()}
        timed = medians(self.device, actions, repetitions, self.comm)
        return {name: seconds / repeats[name] for name, seconds in timed.items()}

    def _exchange(self, name: str, plan: ExchangePlan) -> Callable[[], None]:
        graph, (source, target) = StepGraph(self.device), self._arrays[name]
        pair = source[: plan.send_size], target[: plan.receive_size]
        exchange = self.transports[name].prepare(plan, [pair], whole=True)
        exchange.record_close(graph, "exchange")
        self.messages[name] = exchange.messages()
        return commit(graph, "overlap").run


def repeated(action: Callable[[], object], count: int) -> Callable[[], None]:
    """Return a function that runs an action `count` times."""

    def run() -> None:
        for _ in range(count):
            action()

    return run


def usable_transports(
    names: Sequence[str], device: Device, comm: Communicator
) -> tuple[dict[str, Transport], dict[str, str]]:
    """Make some transports, or all usable ones; return the reasons against others. Collective."""
    made: dict[str, Transport] = {}
    skipped: dict[str, str] = {}
    for name in names or TRANSPORTS:
        same = transport_class(name).without_gpu if name in TRANSPORTS else None
        if not names and device.kind == "cpu" and same:
            skipped[name] = f"transport {name!r} is the same as {same!r} without a GPU"
            continue
        if not names and transport_class(name).aggregates and not can_aggregate(comm):
            skipped[name] = f"transport {name!r} is for several ranks on each of several nodes"
            continue
        try:
            transport = make_transport(name, comm, device)
        except InputError as error:
            skipped[name] = str(error)
            continue
        if transport is not None:
            made.setdefault(transport.name, transport)
    if not made:
        raise InputError("no transport is usable here: " + "; ".join(skipped.values()))
    return made, skipped


def _check_memory(device: Device, comm: Communicator, wanted: int, largest: int) -> None:
    """Raise InputError on all ranks if ranks want more than there is where they are."""
    facts = comm.allgather((device.identity, device.memory_free()))
    sharing = [identity for identity, _ in facts]
    fits = min(_SHARE_OF_MEMORY * free / sharing.count(identity) for identity, free in facts)
    if wanted > fits:
        at_most = int(largest * fits / wanted) >> 20
        raise InputError(
            f"messages of {largest} bytes need {wanted / 2**30:.3g} GiB on every rank; "
            f"at most --largest {at_most}MiB fits"
        )


def _fill_array(device: Device, array: Array) -> Array:
    """Fill an array with random numbers: zeros, and memory never written, would be flattered."""
    values = np.random.default_rng(0).random(min(array.size, 1 << 20))
    for start in range(0, array.size, values.size):
        part = array[start : start + values.size]
        device.run(device.copy(part, values[: part.size]))
    return array


def storage_rates(folder: Path, comm: Comm, ranks_of_node: int) -> dict[str, float]:
    """Return the rates of writing and reading of a node, as `Storage` has them. Collective.

    Files are written as runs write them: as a whole, under another name, flushed. Ranks read what
    others have written, of another node if there are several, after the system has dropped it from
    the host's memory; where it does not, there is no rate of reading. Data in the memory of servers
    or disks counts as stored: the two look alike.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    probe_folder = Path(on_first_rank(comm, lambda: _make_folder(folder)))
    try:
        free = on_first_rank(comm, lambda: shutil.disk_usage(probe_folder).free)
        size = max(_PIECE, int(min(_FILE, _SHARE * free / ranks)) // _PIECE * _PIECE)
        # Nothing makes less of noise.
        content = np.random.default_rng(rank).bytes(size)
        written_path = probe_folder / f"{rank}"
        read_path = probe_folder / f"{(rank + ranks_of_node) % ranks}"
        writing, reading, were_read = [], [], True
        for _ in range(_REPETITIONS):
            on_every_rank(comm, lambda: written_path.unlink(missing_ok=True))
            writing.append(_time_slowest(comm, lambda: _write(written_path, content)))
            on_every_rank(comm, lambda: _forget(written_path))
            were_read = were_read and not largest(comm, int(_is_in_memory(read_path)))
            reading.append(_time_slowest(comm, lambda: _read(read_path)))
        small = _time_slowest(comm, lambda: _write_small(probe_folder, rank))
    finally:
        if rank == 0:
            shutil.rmtree(probe_folder, ignore_errors=True)
    of_node = 1e-9 * size * min(ranks, ranks_of_node)
    rates = {"node_write_gb_per_s": of_node / statistics.median(writing)}
    if were_read:
        rates["node_read_gb_per_s"] = of_node / statistics.median(reading)
    return {**rates, "file_ms": 1e3 * small / _SMALL_FILES}


def _make_folder(folder: Path) -> str:
    absolute = folder.absolute()
    there = next(one for one in (absolute, *absolute.parents) if one.is_dir())
    with errors_name(there):
        return tempfile.mkdtemp(prefix=".slipstream-storage-", dir=there)


def _time_slowest(comm: Comm, do: Callable[[], None]) -> float:
    """Return the seconds until all ranks have done something that they begin together."""

    def timed() -> float:
        began = time.perf_counter()
        do()
        return time.perf_counter() - began

    if comm is not None:
        comm.Barrier()
    return largest(comm, on_every_rank(comm, timed))


def _write(path: Path, content: bytes) -> None:
    replace_file(path, content)
    flush_file(path)


def _write_small(folder: Path, rank: int) -> None:
    for number in range(_SMALL_FILES):
        _write(folder / f"{rank}.{number}", b"0" * 4096)
    flush_folder(folder)


def _forget(path: Path) -> None:
    """Drop a file, which has been flushed, from this host's memory."""
    with errors_name(path), path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _is_in_memory(path: Path) -> bool:
    """Return whether parts of a file are read without waiting, or that is not known."""
    with errors_name(path), path.open("rb") as file:
        size, byte = os.fstat(file.fileno()).st_size, bytearray(1)
        # From the end: to read a part makes the system read what follows.
        for number in reversed(range(_PROBES)):
            try:
                os.preadv(file.fileno(), [byte], number * size // _PROBES, os.RWF_NOWAIT)
                return True
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    # The file system does not say: its files may be in memory, as those of tmpfs.
                    return True
    return False


def _read(path: Path) -> None:
    with errors_name(path), path.open("rb", buffering=0) as file:
        while file.read(_PIECE):
            pass
