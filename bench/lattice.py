"""Flow through pores by the lattice Boltzmann method, with every way to store and divide it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np

from bench.harness import (
    MOVING,
    Column,
    Headline,
    Outcome,
    Picture,
    Request,
    Shape,
    Sweep,
    Transport,
    Way,
    choice,
    computed_bytes,
    measure_ways,
    notes_of,
    option,
    over_ranks,
    show_table,
)
from slipstream.engine import accepted
from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device
from slipstream.engine.device.array_kernels import large_copy
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import Transport as ExchangeTransport
from slipstream.engine.exchange import make_transport
from slipstream.engine.schedule import Timeline
from slipstream.lattice import Fluid, PoreFlow, Storage, Subdomain, decompose, make_sample
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.lattice.velocity_set import LAYOUTS

_FORCE = (1e-6, 0.0, 0.0)
# Pairs of steps that are timed together.
_PAIRS = 5
# Samples, with those of their parameters that are set here.
SAMPLES = {
    "dense": (),
    "sandstone": ("porosity", "radius"),
    "spheres": ("lattice", "solid_fraction"),
    "random-pack": ("solid_fraction", "radius"),
}


@dataclass(frozen=True, kw_only=True)
class LatticeRequest(Request):
    """Time lattice Boltzmann flow through pores: layouts, propagations, encodings, ranks.

    Bound: a read and a write of every population, and the links, at the rate of a large copy.
    """

    shape: Shape = (256, 256, 256)
    sample: Annotated[str, choice(SAMPLES, "{}; dense has no solid.")] = "sandstone"
    porosity: Annotated[float, option("Of the sample.", min=0.01, max=0.99)] = 0.13
    radius: Annotated[
        float | None, option("Of grains, in voxels; 1/32 of the edge by default.")
    ] = None
    precision: Annotated[str, choice(accepted.LATTICE_PRECISIONS)] = "float64"
    transport: Transport = "auto"
    sweep: Sweep = False
    timelines: Picture = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the sample."""
        if self.sample not in SAMPLES:
            names = ", ".join(SAMPLES)
            raise InputError(f"--sample {self.sample!r} is unknown; accepted: {names}")
        values = {
            "porosity": self.porosity,
            "radius": self.radius if self.radius is not None else max(2.0, min(self.shape) / 32),
            "lattice": "simple",
            "solid_fraction": 1 - self.porosity,
        }
        return {name: values[name] for name in SAMPLES[self.sample]}

    def check(self) -> None:
        _ = self.parameters


def run(request: LatticeRequest, device: Device, comm: Comm) -> Outcome:
    """Measure steps of all variants. Collective."""
    result, timelines = measure_lattice(request, device, comm)
    shape = " x ".join(map(str, request.shape))
    title = f"lattice Boltzmann, {request.sample} {shape}, on {device.name}"
    # A sweep on several ranks has both of these, which are compared in a picture.
    compared = {name: one for name, one in timelines.items() if name in ("serial", "overlap")}
    first, sites = result["rows"][0], result["pore sites"]
    step = sites / first["MLUPS"] / 1e6
    bound = step * first["fraction of copy, pair"]
    headlines = {"step": Headline(step, first["spread of repetitions"], bound)}
    show, drawn = print_lattice, (compared or timelines, "two steps on rank 0")
    return Outcome("lattice", title, device, result, show, headlines, None, *drawn)


@dataclass(frozen=True)
class _Dense:
    """A box without solid."""

    shape: tuple[int, int, int]

    def read(self, box: Box) -> np.ndarray:
        return np.ones(box.shape, np.uint8)


@dataclass(frozen=True)
class _Variant:
    """One way to store the populations, divide the image and schedule the step."""

    name: str
    storage: Storage
    partition: str = "bisection"
    schedule: str = "overlap"


def measure_lattice(
    request: LatticeRequest, device: Device, comm: Comm
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Return figures, and timelines of two steps of this rank, by variant. Collective."""
    ranks = 1 if comm is None else comm.size
    began = time.perf_counter()
    source = (
        _Dense(request.shape)
        if request.sample == "dense"
        else make_sample(request.sample, request.shape, **request.parameters)
    )
    subdomains: dict[str, Subdomain] = {}

    def divided(partition: str) -> Subdomain:
        if partition not in subdomains:
            subdomains[partition] = decompose(source, (True,) * 3, (0,), partition, comm)
        return subdomains[partition]

    subdomain = divided("bisection")
    handed_out = time.perf_counter() - began
    # "auto": the fastest.
    asked = dict.fromkeys(("propagation", "layout", "order", "encoding"), "auto")
    asked["precision"] = request.precision
    storage, tried = choose_storage(asked, subdomain, device, comm, is_measured=True)
    transport = make_transport(request.transport, comm, device)

    def make(variant: _Variant) -> Way:
        return _way(variant, divided(variant.partition), device, transport, comm)

    first = _Variant("as asked", storage)
    variants = [first, *(_sweep(first, device, ranks) if request.sweep else [])]
    names = [one.name for one in variants]
    ways = {one.name: partial(make, one) for one in variants}
    measured = measure_ways(ways, names, request.repetitions)
    local_sites = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))
    return {
        "sample": request.sample,
        "voxels (z, y, x)": request.shape,
        "parameters": dict(request.parameters),
        "porosity": subdomain.connectivity.porosity,
        "pore sites": over_ranks(comm, local_sites, sum),
        "ranks": ranks,
        "transport": "none" if transport is None else transport.name,
        "making, analysing and dividing the image (s)": handed_out,
        "pairs tried (s)": {_text(one): seconds for one, seconds in tried.items()},
        "rows": measured.rows,
    }, measured.timelines


def _sweep(first: _Variant, device: Device, ranks: int) -> Iterator[_Variant]:
    """Yield variants that differ from the first one in one thing each."""
    storages = [
        # Strips have a single layout: layouts are compared with links that have them all.
        *((f"layout {one}", {"encoding": "compact", "layout": one}) for one in LAYOUTS),
        *(
            (f"links {one}", {"encoding": one, "layout": "stream"})
            for one in ("compact", "wide", "strips")
            if one != "strips" or device.kind == "cpu"
        ),
        *((f"order {one}", {"order": one}) for one in ("raster", "row-tiles")),
        *((one, {"propagation": one}) for one in ("aa", "two-lattice")),
        *((one, {"precision": one}) for one in ("float64", "float32", "mixed", "float16")),
    ]
    for name, changes in storages:
        storage = dataclasses.replace(first.storage, **changes)
        yield dataclasses.replace(first, name=name, storage=storage)
    if ranks > 1:
        for choice in ("serial", "overlap"):
            yield dataclasses.replace(first, name=choice, schedule=choice)
        for choice in ("bisection", "cartesian"):
            yield dataclasses.replace(first, name=choice, partition=choice)


def _way(
    variant: _Variant,
    subdomain: Subdomain,
    device: Device,
    transport: ExchangeTransport | None,
    comm: Comm,
) -> Way:
    """Return single steps, pairs of steps, and two kinds of large copies."""
    began = time.perf_counter()
    flow = PoreFlow(
        subdomain, Fluid(force=_FORCE), variant.storage, device, transport, variant.schedule
    )
    flow.synchronize()
    setting_up = time.perf_counter() - began

    def step(number: int) -> None:
        flow.pair[number].run(False)
        flow.pair[number].synchronize()

    def pairs() -> None:
        flow.advance(2 * _PAIRS)
        flow.synchronize()

    def profile() -> Timeline:
        flow.advance(2, profile=True)
        flow.synchronize()
        return flow.timeline(forget=True)

    copies = {kind: large_copy(device, kernel=kind) for kind in ("copy_rows", "library")}
    actions: dict[str, Any] = {f"step {number}": partial(step, number) for number in (0, 1)}
    actions |= {"pairs": pairs, **{kind: copy for kind, (copy, _) in copies.items()}}

    def row(seconds: Mapping[str, float], timeline: Timeline) -> dict[str, Any]:
        bandwidth = max(moved / seconds[kind] for kind, (_, moved) in copies.items())
        exposed = timeline.exposed(*MOVING) / 2
        local_figures = flow.sites.count, len(subdomain.neighbours), exposed, setting_up
        everyone = over_ranks(comm, local_figures, list)
        counts, neighbours, uncovered, set_up = (list(one) for one in zip(*everyone, strict=True))
        sites, ranks = sum(counts), len(counts)
        steps = [seconds[f"step {number}"] for number in (0, 1)]
        bytes_ = [computed_bytes(one) / max(1, flow.sites.stored) for one in flow.pair]
        rates = [sites / one for one in steps]
        pair = 2 * _PAIRS * sites / seconds["pairs"]
        bandwidth *= ranks
        return {
            "name": variant.name,
            "storage": _text(variant.storage),
            "partition": variant.partition,
            "schedule": variant.schedule,
            "MLUPS": pair / 1e6,
            "MLUPS per device": pair / ranks / 1e6,
            "spread of repetitions": getattr(seconds["pairs"], "spread", 0.0),
            "MLUPS of the two steps": [rate / 1e6 for rate in rates],
            "bytes per update": bytes_,
            "copy bandwidth (B/s)": bandwidth,
            "fraction of copy": [
                rate * size / bandwidth for rate, size in zip(rates, bytes_, strict=True)
            ],
            "fraction of copy, pair": pair * sum(bytes_) / 2 / bandwidth,
            "exceptional sites": flow.links.exceptions,
            "exposed (s per step)": max(uncovered),
            "imbalance": max(counts) * ranks / sites,
            "most neighbours": max(neighbours),
            "set-up (s)": max(set_up),
            "set-up in steps": max(set_up) / (sum(steps) / 2),
        }

    return Way(device, comm, actions, profile, row)


def _text(storage: Storage) -> str:
    return ", ".join(dataclasses.astuple(storage))


def _rate(millions: float) -> str:
    """Return a rate with at least three digits and without an exponent."""
    return f"{millions:.0f}" if millions >= 1000 else f"{millions:.3g}"


def print_lattice(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each variant, and the meaning of the rates."""
    columns: dict[str, Column] = {
        "": "name",
        "MLUPS": lambda row: _rate(row["MLUPS"]),
        "of\ncopy": "fraction of copy, pair|.2f",
        "MLUPS\neven/odd": lambda row: " / ".join(map(_rate, row["MLUPS of the two steps"])),
        "bytes\neven/odd": lambda row: " / ".join(f"{x:.0f}" for x in row["bytes per update"]),
        "of copy\neven/odd": lambda row: " / ".join(f"{x:.2f}" for x in row["fraction of copy"]),
    }
    if result["ranks"] > 1:
        columns["exposed"] = "exposed (s per step)|s"
    first = result["rows"][0]
    notes = (
        "MLUPS: million sites updated per second, by all ranks, in pairs of steps and in even and "
        "odd ones; bytes: per update; of copy: bytes per second over the copy bandwidth",
        f"as asked: {first['storage']}; copy bandwidth {first['copy bandwidth (B/s)'] / 1e9:.4g}"
        f" GB/s; imbalance {first['imbalance']:.3f}; set-up {first['set-up (s)']:.2f} s",
        *notes_of(result),
    )
    show_table(title, columns, result["rows"], notes, first_width=16)
