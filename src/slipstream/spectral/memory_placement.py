"""Where the fields of a simulation are: in the memory of the device, or of the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.case.spectral_case import SpectralRun
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.device import Device, HostDevice
from slipstream.engine.device.device_choice import home_of
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.device_memory import MakeTransport, noted_memory, ranks_per_device
from slipstream.engine.exchange import (
    GridTransports,
    RankPlace,
    Transport,
    chosen_transport,
    make_grid_transports,
    make_transport,
)
from slipstream.engine.fft.slab_engine import Beside, Passes, SlabEngine
from slipstream.engine.fields import Fact
from slipstream.engine.outofcore.file_arrays import SECTOR, FileHome, TileHost, file_home, files_of
from slipstream.engine.outofcore.memory_budget import (
    NO_LIMIT,
    Streaming,
    devices_of,
    fits_on_all,
    memory_limit,
)
from slipstream.engine.schedule import CommittedStep, StepGraph
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem, product_of_model

if TYPE_CHECKING:
    from slipstream.engine.fft.slab_tiles import SlabTiles, TileNeeds
    from slipstream.engine.fft.streamed_slabs import StreamedPasses


# The most bytes of fields at points that are written together.
_TOGETHER = 1 << 30
# The number of points along an axis.
_LONG = 1 << 16


def fields_written_together(problem: SpectralProblem) -> int:
    """Return the number of fields whose values at this rank's points are in memory together."""
    field = problem.geometry.physical_box.size * problem.real_dtype.itemsize
    return max(1, _TOGETHER // max(1, field))


@dataclass(frozen=True)
class Placement:
    """Where fields are: in device memory, or in host memory, from which they stream."""

    problem: SpectralProblem
    comm: Comm
    device: Device
    home: Device  # the memory of the fields
    transport: str  # connects the homes of all ranks
    rank: RankPlace
    tiles: SlabTiles | None = None  # the devices that fields on the host stream through
    limit: int = 0  # the bytes available on each of them
    is_chosen: bool = False  # whether the free memory decided, for "auto" in the case
    on_disk: bool = False  # whether the fields are in files

    @property
    def streaming(self) -> Streaming | None:
        """The settings of streaming, for fields on the host."""
        return self.tiles.streaming if self.tiles else None

    @property
    def devices(self) -> list[Device]:
        """The devices that a step uses."""
        return self.tiles.devices if self.tiles else [self.device]

    @property
    def residency(self) -> str:
        """One of "device", "host" and "disk"."""
        return "disk" if self.on_disk else "host" if self.streaming else "device"

    @property
    def lanes(self) -> int:
        """The number of lanes of a device that work on a step in parallel."""
        return 1 if self.streaming else self.device.lanes

    def make_transport(self) -> Transport | GridTransports | None:
        """Make the transport between the homes of all ranks. Collective."""
        grid, wire = self.problem.geometry.grid, self.problem.wire
        if grid is None:
            return make_transport(self.transport, self.comm, self.home, wire)
        return make_grid_transports(self.transport, self.comm, self.home, grid, wire)

    def transport_of_all(self, transport: Transport | GridTransports | None) -> Transport | None:
        """Return the transport name that all ranks use, given this rank's. Collective."""
        if isinstance(transport, GridTransports):
            return make_transport(self.transport, self.comm, self.home, self.problem.wire)
        return transport

    def passes(self) -> Callable[[Transport | GridTransports | None], StreamedPasses] | None:
        """Return a function with which `SpectralStep` makes its passes."""
        tiles = self.tiles
        if tiles is None:
            return None
        # On a CPU the fields themselves are in the same memory.
        fields = self.in_core_bytes if self.home in tiles.devices else 0
        return passes_from(self.problem, tiles, self.comm, self.limit, fields)

    @cached_property
    def fields_bytes(self) -> int:
        """The bytes that `SpectralStep` allocates where the fields are."""
        tiles = self.tiles
        if tiles is None or self.home in tiles.devices:
            return self.in_core_bytes
        return self.taken["host"]

    @cached_property
    def taken(self) -> dict[str, int]:
        """The bytes of a step of fields on the host: there, and on each of its devices."""
        assert self.streaming is not None
        streaming = self.streaming

        def make(make_transport: MakeTransport) -> object:
            device = NotingDevice.like(self.device, "cuda")
            tiles = tiles_of(self.problem, streaming, [device], device.home)
            transport = make_transport(
                self.transport, device.home, self.problem.wire, self.problem.geometry.grid
            )
            passes = passes_from(self.problem, tiles, None, self.limit, 0)
            return SpectralStep(self.problem, device.home, transport, passes)

        return noted_memory(make, self.rank)

    @cached_property
    def in_core_bytes(self) -> int:
        """The bytes that `SpectralStep` allocates where the fields are, without tiles.

        For a grid with a very long axis whose state exceeds the memory, these are the bytes of the
        fields alone: the tables of a noted step would take too much memory.
        """
        problem, geometry = self.problem, self.problem.geometry
        item = problem.complex_dtype.itemsize
        state = item * problem.size * math.prod(geometry.stored_shape)
        if max(geometry.shape) > _LONG and state > self.home.memory_total():
            totals = problem.size * problem.method.has_total
            return state * (problem.size + problem.stage_size + totals) // problem.size

        def make(note_transport: MakeTransport) -> object:
            home = NotingDevice.like(self.home)
            transport = note_transport(
                self.transport, home, self.problem.wire, self.problem.geometry.grid
            )
            step = SpectralStep(self.problem, home, transport)
            # Exchanges allocate the arrays of a reduced-precision wire.
            return step, self.problem.wire and step.record_step()

        taken = noted_memory(make, self.rank)
        return taken["host" if self.home.kind == "cpu" else "device"]

    def need(self) -> int:
        """Return the bytes that this rank needs where its fields are, output included."""
        problem = self.problem
        field = problem.geometry.physical_box.size * problem.real_dtype.itemsize
        written = field * min(problem.size, fields_written_together(problem))
        return self.fields_bytes + (written if self.home.kind == "cpu" else 0)

    def memory(self) -> int:
        """Return the bytes that all ranks need together where this rank's fields are."""
        return ranks_per_device(self.comm, self.home) * self.need()

    def facts(self) -> dict[str, Fact]:
        """Return where fields are, their memory, and the traffic over the bus. Collective."""
        need, free = [self.memory()], [self.home.memory_free()]
        if self.tiles is None:
            found = {"residency": Fact("device")} if self.is_chosen else {}
            memory = Fact(need, "bytes", free=free)
            return {"device": Fact([self.device.name]), **found, "memory per device": memory}
        streaming = self.tiles.streaming
        all_ky = self.problem.geometry.columns_shape[1]
        # Planes in parts cross the bus more often, and then no columns stay on the device.
        count, _ = self.tiles.planned(self.limit)
        is_whole = (
            self.tiles.shape(count).has_whole_planes or self.problem.geometry.grid is not None
        )
        tiles = None if is_whole else count
        least = self._crossings(all_ky) if streaming.resident and is_whole else None
        return {
            "device": Fact([self.device.name], count=len(self.devices)),
            "residency": Fact(self.residency, bytes=need, free=free, **self._together()),
            "memory per device": Fact([self.limit], "bytes", is_limit=True),
            "bus": Fact(self._crossings(0, tiles), "bytes", least=least, update=streaming.update),
        }

    def _together(self) -> dict[str, Any]:
        """Return the bytes of a step at home and on its device, in core, and in files."""
        if self.home in self.devices:
            return {}
        sizes = {"total": sum(self.taken.values()), "in_core": self.in_core_bytes}
        if not isinstance(self.home, FileHome):
            return sizes
        return sizes | {"folders": self.home.folders, "is_direct": self.home.is_direct}

    def columns(self, passes: Passes) -> dict[str, Fact]:
        """Return the columns that stay on the device, now that its memory is known."""
        if self.streaming is None:
            return {}
        streamed = cast("StreamedPasses", passes)
        stay, all_ky = streamed.resident.ky, self.problem.geometry.columns_shape[1]
        bus = self._crossings(stay, streamed.tiles)
        return {"columns": Fact(stay, of=all_ky, bus=bus, tiles=streamed.tiles)}

    def _crossings(self, resident: int = 0, tiles: int | None = None) -> tuple[float, float]:
        """Return the bytes in and out over the bus per step, if `resident` ky stay."""
        update = self.streaming.update if self.streaming else "device"
        return crossings(self.problem, update, resident, tiles)

    def run(self, step: CommittedStep, profile: bool = False) -> None:
        """Run `step`; if the fields are on the host, wait until they are up to date."""
        if self.tiles is None:
            step.run(profile)
        else:
            self.home.synchronize()
            step.run(profile)
            step.synchronize()


def place(
    problem: SpectralProblem,
    run: SpectralRun,
    device: Device,
    comm: Comm,
    rank: RankPlace | None = None,
) -> Placement:
    """Decide where the fields of a simulation are, or raise `InputError`. Collective.

    On noting devices, `rank` is one of any number of ranks; else it is the rank in `comm`.
    """
    rank = rank or RankPlace.of(comm)

    def transport(home: Device) -> str:
        return run.transport if home.notes else chosen_transport(run.transport, comm, home)

    if run.residency == "device":
        return Placement(problem, comm, device, device, transport(device), rank)
    on_disk = run.residency == "disk"
    home = home_of(device)
    if on_disk:
        if not device.notes:
            memory = home
            home = on_every_rank(comm, lambda: file_home(run.scratch, memory))
        if isinstance(device, HostDevice):
            device = TileHost(device)
    limit = memory_limit([device], run.memory, comm)
    if run.residency == "auto":
        # The transport is checked where the fields will be.
        usual = transport(device) if run.transport == "auto" else run.transport
        there = Placement(problem, comm, device, device, usual, rank, is_chosen=True)
        if fits_on_all(comm, there.need(), limit):
            transport(device)
            return there
    streaming = Streaming(**(run.streaming.model_dump() if run.streaming else {}))
    devices = devices_of(device, comm, streaming.devices)
    if len(devices) > 1:
        limit = memory_limit(devices, run.memory, comm)
    if len(devices) > 1:
        home = home_of(devices[0])
    tiles = tiles_of(problem, streaming, devices, home)
    tiles.check(comm, limit)
    return Placement(
        problem, comm, devices[0], home, transport(home), rank, tiles, limit, on_disk=on_disk
    )


def tiles_of(
    problem: SpectralProblem, streaming: Streaming, devices: list[Device], home: Device
) -> SlabTiles:
    """Return the tiles of a step that stream from a home through devices."""
    # Only fields on the host need this import.
    from slipstream.engine.fft.slab_tiles import SlabTiles

    needs = needs_of(problem, streaming.update)
    return SlabTiles(needs, product_of_model(problem.model), devices, home, streaming)


def passes_from(
    problem: SpectralProblem, tiles: SlabTiles, comm: Comm, limit: int, fields_bytes: int
) -> Callable[[Transport | GridTransports | None], StreamedPasses]:
    """Return a function that makes the passes of a step whose fields are on the host."""
    from slipstream.engine.fft.streamed_slabs import StreamedPasses

    at_home = tiles.streaming.update == "host"

    def make(transport: Transport | GridTransports | None) -> StreamedPasses:
        # One rank exchanges nothing: its passes store the columns that leave the device.
        fields = problem.transformed if transport or at_home else 0
        dtype, home = problem.complex_dtype, tiles.home
        # If ranks share memory, tiles go directly to their receivers; if the user asks for chunks,
        # fields travel one by one.
        along = transport.along if isinstance(transport, GridTransports) else transport
        travels = along is not None and along.pack_buffer_bytes(1) > 0
        beside: Beside = "planes" if travels and not tiles.streaming.tiles_per_exchange else ""
        engine = SlabEngine(
            home, problem.geometry, fields, dtype, transport, works=at_home, beside=beside
        )
        for memory in () if at_home else engine.exchange_memory():
            if files_of(memory) is None:  # new files are zero already
                home.run(home.fill(memory, 0))
        return StreamedPasses(engine, tiles, comm, limit, fields_bytes)

    return make


def row_bytes(run: SpectralRun, device: Device) -> int:
    """Return the alignment of rows of modes in bytes: fields on disk align to sectors."""
    return max(device.row_bytes, SECTOR) if run.residency == "disk" else device.row_bytes


def needs_of(problem: SpectralProblem, update: str) -> TileNeeds:
    """Return the needs of a step from tiles, by whether the device or the host advances modes."""
    from slipstream.engine.fft.slab_tiles import TileNeeds

    g, inputs = problem.geometry, len(problem.model.inputs)
    counts = {"inputs": inputs, "forcing": len(problem.forced), "decay": 0}
    counts["propagators"] = len(problem.propagators) * len(problem.coupled)
    used, reals, substages = [], 0, problem.method.substages
    for substage in range(substages):
        read, written = problem.accesses(substage)
        # At the end the inputs of the next step are there too.
        names = read | written | ({"inputs"} if problem.has_inputs else set())
        used.append(sum(counts.get(name, problem.size) for name in names))
        reals = max(reals, len(problem.decays) * ("decay" in read))
    if update == "host":
        used, reals = [inputs], 0
    used.append(problem.stage_size)  # which is transformed between steps
    real = np.dtype(problem.real_dtype).itemsize
    tables = 1024 * sum(g.shape) + real * problem.decay_size * problem.is_separable
    return TileNeeds(
        geometry=g,
        dtype=np.dtype(problem.complex_dtype),
        inputs=inputs,
        products=len(problem.model.products),
        spectral=max(used),
        reals=reals,
        constants=2 * 8 * g.planes * g.shape[1] + tables,
        between=problem.stage_size,
        stored=len(problem.stored),
    )


def crossings(
    problem: SpectralProblem, update: str, resident: int = 0, tiles: int | None = None
) -> tuple[float, float]:
    """Return the bytes of a rank that cross the bus in a step that follows another, in and out.

    `update` says whether the device or the host advances modes; columns of `resident` ky stay on
    the device, a multiple of those of one of `tiles` tiles; None chooses their number.
    """
    from slipstream.engine.step_walk import traffic_of_step

    geometry = problem.geometry
    all_ky = geometry.columns_shape[1]
    tiles = tiles or max(1, all_ky // (math.gcd(resident, all_ky) or 1))
    streaming = Streaming(update=update, tiles=tiles, resident=resident > 0)

    def record(device: Device, transport: Transport | None) -> StepGraph:
        home = home_of(device)
        slab_tiles = tiles_of(problem, streaming, [device], home)
        slots, count = slab_tiles.fitting(None, NO_LIMIT)
        shape = slab_tiles.shape(count)
        kept = -(-resident // shape.ky) * slab_tiles.needs.column_bytes(shape) if resident else 0
        passes = passes_from(problem, slab_tiles, None, slots.bytes + kept, 0)
        return SpectralStep(problem, home, transport, passes).record_step(begins=False)

    rank, ranks = geometry.rank, geometry.ranks
    traffic = traffic_of_step(
        record, NotingDevice("cuda"), rank, ranks, "auto", is_on_host=True, grid=geometry.grid
    )
    return traffic.bus_in_bytes, traffic.bus_out_bytes
