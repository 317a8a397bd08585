"""One rank of many in this process: `ranks` starts ``python -m bench.one_rank JSON`` for each row.

Devices and transports record requests without executing them. Imports are inside functions, so that
they are timed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from slipstream.engine.exchange import RankPlace
    from slipstream.engine.schedule import StepGraph


def main() -> None:
    """Measure the row that the argument asks for, and print it as JSON."""
    kind, what, ranks, points, of_node, transport = json.loads(sys.argv[1])
    began = time.process_time()
    from slipstream.engine.device.noting_device import NotingDevice
    from slipstream.engine.exchange import RankPlace

    rank_place, device = RankPlace(0, ranks, min(ranks, of_node)), NotingDevice(kind)
    if what == "transform":
        make = _prepare_transform(device, rank_place, points, transport)
    else:
        make = _prepare_step(device, rank_place, points, transport, what.removesuffix(" step"))
    imported = time.process_time()
    graph = make()
    recorded = time.process_time()
    # getrusage would include the peak of the process that started this one.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    row = {
        "what": what,
        "ranks": ranks,
        "seconds": recorded - imported,
        "seconds of imports": imported - began,
        "Python files": sum(
            bool(getattr(one, "__file__", None)) for one in [*sys.modules.values()]
        ),
        "bytes": int(peak) * 1024,
        "nodes": len(graph.nodes),
    }
    print(json.dumps(row | _count_messages(graph, rank_place)))


def _prepare_step(
    device: Any, rank_place: RankPlace, points: int, transport: str, decomposition: str
) -> Any:
    """Import the modules of a step, and return the function that sets it up and records it."""
    from slipstream.case import SpectralCase, make_case
    from slipstream.engine.exchange.noting_transport import noting_grid
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
        problem = problem_of_case(
            stated, rank_place.rank, rank_place.ranks, device.row_bytes
        ).problem
        exchange = noting_grid(transport, rank_place, device, None, problem.geometry.grid)
        return SpectralStep(problem, device, exchange).record_step()

    return make


def _prepare_transform(device: Any, rank_place: RankPlace, points: int, transport: str) -> Any:
    """Import the modules of a transform, and return the function that plans and records it."""
    from slipstream.engine.exchange.noting_transport import noting_transport
    from slipstream.engine.fft.fft_plan import noted_transform

    shape = (points,) * 3

    def make() -> StepGraph:
        exchange = noting_transport(transport, rank_place, device)
        return noted_transform(
            device, rank_place, shape, transport, exchange, layout="pencil", truncation="2/3"
        )

    return make


def _count_messages(graph: StepGraph, rank_place: RankPlace) -> dict[str, Any]:
    """Return the numbers and bytes of the messages of a recorded graph."""
    from slipstream.engine.step_walk import traffic_of

    senders: Iterable[Any] = (node.transfer or node.operation for node in graph.nodes)
    peers: Counter[int] = Counter()
    for sender in senders:
        if hasattr(sender, "messages"):
            peers.update(peer for peer, _ in sender.messages())
    traffic = traffic_of(graph.nodes, rank_place)
    return {
        "exchanges": traffic.exchanges,
        "peers": len(peers),
        "messages": sum(peers.values()),
        "most messages to a peer": max(peers.values(), default=0),
        "bytes sent": traffic.in_node_bytes + traffic.off_node_bytes,
        "largest message": traffic.message_bytes,
    }


if __name__ == "__main__":
    main()
