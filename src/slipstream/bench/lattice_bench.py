"""``bench lattice``: flow through pores, every way to store and to share it side by side."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.bench.comparison import Headline
from slipstream.bench.harness import (
    Column,
    Outcome,
    exposed_moves,
    medians,
    number_of,
    plot_timelines,
    seconds_of,
    show_table,
    text_of,
)
from slipstream.bench.requests import LatticeRequest
from slipstream.decomposition import Box
from slipstream.device import Device, large_copy
from slipstream.exchange import make_transport
from slipstream.lattice import Fluid, PoreFlow, Storage, Subdomain, decompose, make_sample
from slipstream.lattice.population_layout import LAYOUTS
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.report.number_text import counted
from slipstream.schedule import Timeline

_FORCE = (1e-6, 0.0, 0.0)
# Pairs of steps that are timed together.
_PAIRS = 5


def run(request: LatticeRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    timelines: dict[str, Timeline] = {}
    result = measure_lattice(request, device, comm, timelines)
    shape = " x ".join(map(str, request.shape))
    title = f"lattice Boltzmann, {request.sample} {shape}, on {device.name}"
    # A sweep on several ranks has both of these, which are worth comparing.
    compared = {name: one for name, one in timelines.items() if name in ("serial", "overlap")}

    def draw(path: Path, title: str) -> None:
        plot_timelines(path, f"{title}: two steps on rank 0", compared or timelines)

    first, sites = result["rows"][0], result["pore sites"]
    step = sites / first["MLUPS"] / 1e6
    bound = step * first["fraction of copy, pair"]
    headlines = {"step": Headline(step, first["spread of repetitions"], bound)}
    pictures = [(request.timelines, draw)]
    return Outcome("lattice", title, device, result, print_lattice, pictures, headlines=headlines)


@dataclass(frozen=True)
class _Dense:
    """A box without solid."""

    shape: tuple[int, int, int]

    def read(self, box: Box) -> np.ndarray:
        return np.ones(box.shape, np.uint8)


@dataclass(frozen=True)
class _Variant:
    """One way to do it."""

    name: str
    storage: Storage
    partition: str
    schedule: str
    aligned: bool = True


class _Unaligned(PoreFlow):
    """With populations that begin anywhere, as they do where edge sites, or halos, come first."""

    def _empty(self) -> Any:
        shape = self.subdomain.velocity_set.directions, self.sites.stored
        return self.device.empty((shape[0] * shape[1] + 1,), self.storage.dtype)[1:].reshape(shape)


def measure_lattice(
    request: LatticeRequest,
    device: Device,
    comm: Comm,
    timelines: dict[str, Timeline] | None = None,
) -> dict[str, Any]:
    """Return figures of steps, beside the copy bandwidth of the device. Collective.

    `timelines` is given what ran when in one of this rank's steps, by name of the variant.
    """
    ranks = 1 if comm is None else comm.size
    began = time.perf_counter()
    source = (
        _Dense(request.shape)
        if request.sample == "dense"
        else make_sample(request.sample, request.shape, **request.parameters)
    )
    subdomains = {request.partition: decompose(source, (True,) * 3, (0,), request.partition, comm)}
    handed_out = time.perf_counter() - began
    subdomain = subdomains[request.partition]
    storage, tried = choose_storage(
        dict(request.storage), subdomain, device, comm, is_measured=True
    )
    transport = make_transport(request.transport, comm, device)
    first = _Variant("as asked", storage, request.partition, request.schedule)
    variants = [first, *(_sweep(first, device, ranks) if request.sweep else [])]
    rows = []
    for variant in variants:
        if variant.partition not in subdomains:
            subdomains[variant.partition] = decompose(
                source, (True,) * 3, (0,), variant.partition, comm
            )
        rows.append(
            _measure(
                request, variant, subdomains[variant.partition], device, transport, comm, timelines
            )
        )
    return {
        "sample": request.sample,
        "voxels (z, y, x)": request.shape,
        "parameters": dict(request.parameters),
        "porosity": subdomain.connectivity.porosity,
        "pore sites": _total(subdomain, comm),
        "ranks": ranks,
        "transport": "none" if transport is None else transport.name,
        "making, analysing and dividing the image (s)": handed_out,
        "pairs tried (s)": {_text(one): seconds for one, seconds in tried.items()},
        "rows": rows,
    }


def _sweep(first: _Variant, device: Device, ranks: int) -> list[_Variant]:
    """Return variants that differ from the first one in one thing each."""
    usual = first.storage
    # Strips have one layout only: layouts are compared with links that have them all.
    linked = dataclasses.replace(usual, encoding="compact")

    def stored(name: str, base: Storage, **changes: str) -> _Variant:
        return dataclasses.replace(first, name=name, storage=dataclasses.replace(base, **changes))

    found = [stored(f"layout {layout}", linked, layout=layout) for layout in LAYOUTS]
    encodings = ("compact", "wide") + (("strips",) if device.kind == "cpu" else ())
    found += [stored(f"links {one}", linked, layout="stream", encoding=one) for one in encodings]
    found += [stored(f"order {one}", usual, order=one) for one in ("raster", "row-tiles")]
    found += [stored(f"{one}", usual, propagation=one) for one in ("aa", "two-lattice")]
    found += [stored(f"{one}", usual, precision=one) for one in ("float64", "float32", "mixed")]
    found.append(dataclasses.replace(first, name="unaligned", aligned=False))
    if ranks > 1:
        found += [
            dataclasses.replace(first, name=one, schedule=one) for one in ("serial", "overlap")
        ]
        for one in ("bisection", "cartesian"):
            found.append(dataclasses.replace(first, name=one, partition=one))
    return found


def _total(subdomain: Subdomain, comm: Comm) -> int:
    mine = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))
    return mine if comm is None else comm.allreduce(mine)


def _measure(
    request: LatticeRequest,
    variant: _Variant,
    subdomain: Subdomain,
    device: Device,
    transport: Any,
    comm: Comm,
    timelines: dict[str, Timeline] | None,
) -> dict[str, Any]:
    began = time.perf_counter()
    kind = PoreFlow if variant.aligned else _Unaligned
    flow = kind(
        subdomain, Fluid(force=_FORCE), variant.storage, device, transport, variant.schedule
    )
    flow.synchronize()
    setting_up = time.perf_counter() - began

    def pairs() -> None:
        flow.advance(2 * _PAIRS)
        flow.synchronize()

    copies = {kind: large_copy(device, kernel=kind) for kind in ("copy_rows", "library")}
    actions: dict[str, Any] = {f"step {number}": _runner(flow, number) for number in (0, 1)}
    actions["pairs"] = pairs
    actions |= {kind: copy for kind, (copy, _) in copies.items()}
    seconds = medians(device, actions, request.repetitions, comm)
    bandwidth = max(moved / seconds[kind] for kind, (_, moved) in copies.items())

    def profile() -> Timeline:
        flow.advance(2, profile=True)
        flow.synchronize()
        return flow.timeline(forget=True)

    exposed, timeline = exposed_moves(profile)
    if timelines is not None:
        timelines[variant.name] = timeline
    mine = flow.sites.count, len(subdomain.neighbours), exposed / 2, setting_up
    everyone = [mine] if comm is None else comm.allgather(mine)
    counts, neighbours, uncovered, set_up = (list(one) for one in zip(*everyone, strict=True))
    sites, ranks = sum(counts), len(counts)
    steps = [seconds[f"step {number}"] for number in (0, 1)]
    bytes_ = variant.storage.bytes_per_update(flow.links.bytes_per_site)
    bandwidth *= ranks
    rates = [sites / one for one in steps]
    pair = 2 * _PAIRS * sites / seconds["pairs"]
    return {
        "name": variant.name,
        "storage": _text(variant.storage),
        "partition": variant.partition,
        "schedule": variant.schedule,
        "MLUPS": pair / 1e6,
        "MLUPS per device": pair / ranks / 1e6,
        "spread of repetitions": getattr(seconds["pairs"], "spread", 0.0),
        "MLUPS of the two steps": [rate / 1e6 for rate in rates],
        "bytes per update": list(bytes_),
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


def _runner(flow: PoreFlow, number: int) -> Any:
    def run() -> None:
        flow.pair[number].run(False)
        flow.pair[number].synchronize()

    return run


def _text(storage: Storage) -> str:
    return ", ".join(dataclasses.astuple(storage))


def _rate(millions: float) -> str:
    """Return a rate with three digits at least, and without powers of ten."""
    return f"{millions:.0f}" if millions >= 1000 else f"{millions:.3g}"


def print_lattice(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each variant, and what the rates mean."""
    ranks = result["ranks"]
    columns: dict[str, Column] = {
        "": text_of("name"),
        "MLUPS": lambda row: _rate(row["MLUPS"]),
        "of\ncopy": number_of("fraction of copy, pair", ".2f"),
        "MLUPS\neven/odd": lambda row: " / ".join(map(_rate, row["MLUPS of the two steps"])),
        "bytes\neven/odd": lambda row: " / ".join(f"{x:.0f}" for x in row["bytes per update"]),
        "of copy\neven/odd": lambda row: " / ".join(f"{x:.2f}" for x in row["fraction of copy"]),
    }
    if ranks > 1:
        columns["exposed"] = seconds_of("exposed (s per step)")
    first = result["rows"][0]
    notes = (
        "MLUPS: million sites updated per second, by all ranks, in pairs of steps and in even and "
        "odd ones; bytes: an update's; of copy: bytes per second over the copy bandwidth"
        + ("; exposed: communication per step that nothing hides" if ranks > 1 else ""),
        f"{result['pore sites'] / 1e6:.3g} million pore sites, porosity {result['porosity']:.3f}, "
        f"{counted(ranks, 'rank')}, transport {result['transport']}",
        f"as asked: {first['storage']}; {first['partition']}, {first['schedule']}; "
        f"{_rate(first['MLUPS per device'])} MLUPS a device",
        f"copy bandwidth in this run: {first['copy bandwidth (B/s)'] / 1e9:.4g} GB/s",
        f"imbalance {first['imbalance']:.3f}, "
        f"at most {counted(first['most neighbours'], 'neighbour')}; "
        f"set-up {first['set-up (s)']:.2f} s = {first['set-up in steps']:.0f} steps",
    )
    show_table(title, columns, result["rows"], notes, first_width=16)
