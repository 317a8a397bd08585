"""What one rank of very many takes to set up and record its part: processor time, memory, messages.

Nothing runs, and no other rank exists: devices and transports only note what they are asked for.
Each row is a fresh process, whose memory and imports count as a rank's would. A step of turbulence
divides space into slabs, if each rank has a plane, and into the most even pencils, if there are
as many ranks as planes: with fewer, a rank has so many pieces of planes that they take minutes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import on_first_rank

if TYPE_CHECKING:
    from bench.harness import Outcome
    from bench.requests import RanksRequest
    from slipstream.device import Device
    from slipstream.exchange import RankPlace
    from slipstream.schedule import StepGraph

SUBJECTS = {
    "slab step": "RK4 step in slabs",
    "pencil step": "RK4 step in pencils",
    "transform": "forward transform in pencils",
}
_PROGRAM = "from bench.ranks_bench import main; main()"


def run(request: RanksRequest, device: Device, comm: Comm) -> Outcome:
    """Measure on the first rank, and say how to show it. Collective."""
    from bench.harness import Outcome, headline

    result = on_first_rank(comm, lambda: measure_ranks(request, device.kind))
    headlines = {
        f"{row['what']}, {row['ranks']}": headline(row["seconds"]) for row in result["rows"]
    }
    title = f"one rank of many, {request.points}³ points"
    return Outcome("ranks", title, device, result, print_ranks, headlines)


def measure_ranks(request: RanksRequest, kind: str) -> dict[str, Any]:
    """Return a row for each number of ranks and each subject that can be divided among so many."""
    rows = []
    for ranks in request.of:
        for what in SUBJECTS:
            if not _gives_work(what, request.points, ranks):
                continue
            asked = (kind, what, ranks, request.points, request.ranks_per_node, request.transport)
            rows.append(_in_fresh_process(asked))
    return {"points": request.points, "ranks per node": request.ranks_per_node, "rows": rows}


def _gives_work(what: str, points: int, ranks: int) -> bool:
    """Return whether all ranks have work in such a step; any may have none in a transform."""
    from slipstream.fft.slab_layout import pencil_grid
    from slipstream.spectral.kept_modes import kept_modes

    if what == "slab step":
        return ranks <= points
    if what == "transform":
        return True
    shape = (points,) * 3
    grid = pencil_grid(shape, kept_modes(shape, "2/3"), ranks)
    return ranks >= points and grid is not None


def _in_fresh_process(asked: tuple[Any, ...]) -> dict[str, Any]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> None:
    """Measure one row in this process, as its argument asks, and print it."""
    kind, what, ranks, points, of_node, transport = json.loads(sys.argv[1])
    began = time.process_time()
    from slipstream.device.noting_device import NotingDevice
    from slipstream.exchange import RankPlace

    place, device = RankPlace(0, ranks, min(ranks, of_node)), NotingDevice(kind)
    if what == "transform":
        make = _transform(device, place, points, transport)
    else:
        make = _step(device, place, points, transport, what.removesuffix(" step"))
    imported = time.process_time()
    graph = make()
    recorded = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row = {
        "what": what,
        "ranks": ranks,
        "seconds": recorded - imported,
        "seconds of imports": imported - began,
        "Python files": sum(
            bool(getattr(one, "__file__", None)) for one in [*sys.modules.values()]
        ),
        "bytes": peak,
        "nodes": len(graph.nodes),
    }
    print(json.dumps(row | _sent(graph, place)))


def _step(device: Any, place: RankPlace, points: int, transport: str, decomposition: str) -> Any:
    """Import what a step needs, and return what sets it up and records it."""
    from slipstream.case import SpectralCase, make_case
    from slipstream.exchange.noting_transport import noting_grid
    from slipstream.spectral.problem_of_case import problem_of_case
    from slipstream.spectral.runge_kutta_step import SpectralStep

    case = make_case(
        "spectral",
        grid={"points": points},
        time={"end": 1.0, "step": 1e-3, "integrator": "rk4"},
        equation={"model": "hd", "viscosity": 1e-3},
        initial={"flow": "taylor-green"},
        run={"decomposition": decomposition},
    )

    def make() -> StepGraph:
        stated = cast(SpectralCase, case)
        problem = problem_of_case(stated, place.rank, place.ranks, device.row_bytes).problem
        exchange = noting_grid(transport, place, device, None, problem.geometry.grid)
        return SpectralStep(problem, device, exchange).record_step()

    return make


def _transform(device: Any, place: RankPlace, points: int, transport: str) -> Any:
    """Import what a transform needs, and return what plans and records it."""
    from slipstream.exchange.noting_transport import noting_transport
    from slipstream.fft.noted_transform import noted_transform

    shape = (points,) * 3

    def make() -> StepGraph:
        exchange = noting_transport(transport, place, device)
        return noted_transform(
            device, place, shape, transport, exchange, layout="pencil", truncation="2/3"
        )

    return make


def _sent(graph: StepGraph, place: RankPlace) -> dict[str, Any]:
    """Return what a recorded graph sends."""
    from slipstream.simulation.step_walk import traffic_of

    senders: Iterable[Any] = (node.transfer or node.operation for node in graph.nodes)
    peers: Counter[int] = Counter()
    for one in senders:
        if hasattr(one, "messages"):
            peers.update(peer for peer, _ in one.messages())
    found = traffic_of(graph.nodes, place)
    return {
        "exchanges": found.exchanges,
        "peers": len(peers),
        "messages": sum(peers.values()),
        "most messages to a peer": max(peers.values(), default=0),
        "bytes sent": found.in_node_bytes + found.off_node_bytes,
        "largest message": found.message_bytes,
    }


def print_ranks(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each number of ranks and each subject."""
    from bench.harness import show_table

    show_table(
        title,
        {
            "what": lambda row: SUBJECTS[row["what"]],
            "ranks": "ranks",
            "set-up": "seconds|s",
            "imports": "seconds of imports|s",
            "files": "Python files",
            "memory": lambda row: bytes_text(row["bytes"]),
            "peers": "peers",
            "messages": "messages",
            "largest": lambda row: bytes_text(row["largest message"]),
            "sent": lambda row: bytes_text(row["bytes sent"]),
        },
        result["rows"],
        [
            "set-up: geometry, exchanges and recorded graph of a rank, in seconds of the processor;"
            " memory: of its process",
            f"{result['ranks per node']} ranks on a node",
        ],
    )
