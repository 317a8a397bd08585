"""Timing of a peer by the scripts of this folder: alone, or in turn with another program.

Alone, a script times its action some times and prints one line of JSON. With ``--served`` it prints
its facts, then answers each line that it reads with the seconds of one more action, so that
`compare.py` can let two programs alternate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def arguments(description: str | None, **given: Any) -> argparse.Namespace:
    """Return the options of a script: some numbers with their defaults, and how it is timed."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in given.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--served", action="store_true", help="answer lines with times")
    return parser.parse_args()


def serve(
    options: argparse.Namespace,
    action: Callable[[], object],
    facts: dict[str, Any],
    *,
    per_call: float = 1,
    comm: Any = None,
    results: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Time an action that does ``per_call`` units of work, on all ranks of a communicator."""
    action()  # compiles and plans
    answers = sys.stdout

    def timed() -> tuple[float, float]:
        """Return the seconds of one action, and the processor time that it took."""
        if comm:
            comm.Barrier()
        began = time.perf_counter(), time.process_time()
        action()
        seconds = (time.perf_counter() - began[0]) / per_call
        processor = (time.process_time() - began[1]) / per_call
        return (max(comm.allgather(seconds)) if comm else seconds), processor

    def say(line: dict[str, Any]) -> None:
        if not comm or comm.rank == 0:
            print(json.dumps(line), file=answers, flush=True)

    facts = {**facts, "python": sys.version.split()[0], "cores": len(os.sched_getaffinity(0))}
    with contextlib.redirect_stdout(sys.stderr):  # peers print, too
        if not options.served:
            times = [timed()[0] for _ in range(options.repetitions)]
            say({**facts, "seconds": min(times), "times": times, **(results() if results else {})})
            return
        say(facts)
        while True:
            if not sys.stdin.readline():
                break
            seconds, processor = timed()
            say({"seconds": seconds, "processor": processor, **(results() if results else {})})
