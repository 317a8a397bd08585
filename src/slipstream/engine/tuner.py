"""Timing: actions side by side, and the tuner, which drops slow candidates and remembers the best.

A candidate is whatever does not change a result but its speed. Measuring the parts of a
computation alone misleads, since they compete for the same memory; so a candidate is timed as it
will be used. The fastest one goes to ``tuning.json`` in the cache folder, under a readable key;
delete the file, or an entry, to measure again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, together
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, OutOfMemory
from slipstream.engine.private_cache import cache_folder, write_atomically

Candidate = TypeVar("Candidate")

# Timed runs of a candidate that is not dropped.
REPETITIONS = {"quick": 5, "full": 11}
# Seconds after which no further candidate is begun, or multiples of the best time if that is more.
SECONDS = {"quick": 10.0, "full": 15.0}
BEST_TIMES = 100
# A candidate is dropped after its first runs if its best run is this many times as long as the best
# candidate.
DROP_AT_ONCE = 4.0
# The same after more runs, and before its options are combined with others.
DROP = 1.5
# The number of runs after which `DROP` applies.
_RUNS_TO_DROP = 3


class Median(float):
    """A median that knows how far apart the quartiles were, over the median."""

    spread: float = 0.0

    @classmethod
    def of(cls, samples: Sequence[float]) -> Median:
        """Return the median of samples."""
        low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
        result = cls(middle)
        result.spread = float((high - low) / middle) if middle else 0.0
        return result

    def __truediv__(self, number: float) -> Median:
        result = Median(float(self) / number)
        result.spread = self.spread
        return result


def medians(
    device: Device,
    actions: Mapping[Any, Callable[[], object]],
    repetitions: int,
    comm: Comm = None,
) -> dict[Any, float]:
    """Return median seconds of actions side by side, on the slowest rank. Collective.

    One repetition runs each action once, so that all of them see the same noise; the first one
    is not timed. The device is waited for before and after each action.
    """
    samples: dict[Any, list[float]] = {name: [] for name in actions}
    for repetition in range(repetitions + 1):
        for name, action in actions.items():
            device.synchronize()
            if comm is not None:
                comm.Barrier()
            start = time.perf_counter()
            action()
            device.synchronize()
            elapsed = time.perf_counter() - start
            if repetition:
                samples[name].append(elapsed)
    local: dict[Any, float] = {name: Median.of(values) for name, values in samples.items()}
    everyone = [local] if comm is None else comm.allgather(local)
    return {name: max(ranks_medians[name] for ranks_medians in everyone) for name in local}


class Times(dict[Candidate, float]):
    """Seconds by candidate, dropped ones included; infinite where memory does not suffice."""

    def best(self) -> Candidate:
        return min(self, key=self.__getitem__)

    def shortest(self) -> float:
        return min(self.values(), default=math.inf)


def measure(
    candidates: Callable[[Times[Candidate]], Iterable[Candidate]],
    prepare: Callable[[Candidate], Callable[[], object]],
    comm: Comm,
    tune: str = "quick",
    repetitions: int | None = None,
) -> Times[Candidate]:
    """Return the median seconds, on the slowest rank, of the candidates that can be. Collective.

    `candidates` yields them and may look at the times so far, which are the same on all ranks.
    `prepare` makes a timed function, which must have finished when it returns. A candidate for
    which it raises InputError or MemoryError on any rank is dropped on all; if it does so for every
    candidate, the first error is raised. The memory of a candidate is freed before the next.
    """
    times: Times[Candidate] = Times()
    failure: Exception | None = None
    began = None
    for candidate in candidates(times):
        if candidate in times:
            continue
        action, error = None, None
        try:
            with together(comm):
                action = prepare(candidate)
        except (InputError, MemoryError, OutOfMemory) as caught:
            error = caught.with_traceback(None)  # whose frames would keep memory
        if largest(comm, int(action is None)) or action is None:
            failure = failure or error or InputError("another rank cannot do this")
            times[candidate] = math.inf
        else:
            runs = repetitions or REPETITIONS[tune]
            times[candidate] = _seconds(action, comm, runs, times.shortest())
        del action
        if began is None:  # the first candidate may have compiled kernels for all
            began = time.perf_counter()
        most = max(SECONDS[tune], BEST_TIMES * times.shortest())
        if largest(comm, time.perf_counter() - began) > most:
            break
    possible = Times({one: seconds for one, seconds in times.items() if math.isfinite(seconds)})
    if failure is not None and not possible:
        raise failure
    return possible


def _seconds(action: Callable[[], object], comm: Comm, runs: int, best: float) -> float:
    """Return the median of some runs, of fewer if the candidate is dropped."""
    action()  # the first run prepares
    samples: list[float] = []
    while len(samples) < runs:
        if comm is not None:
            comm.Barrier()
        start = time.perf_counter()
        action()
        samples.append(largest(comm, time.perf_counter() - start))
        patience = DROP if len(samples) >= _RUNS_TO_DROP else DROP_AT_ONCE
        if min(samples) > patience * best:
            break
    return statistics.median(samples)


def variations(
    base: Candidate, options: Mapping[str, Sequence[Any]], tune: str
) -> Callable[[Times[Candidate]], Iterator[Candidate]]:
    """Return candidates that differ from `base`, a dataclass, in fields named by `options`.

    One field is varied after the other, with the best values so far of earlier fields. "full" goes
    on with all combinations of values that were not far behind, the most promising first.
    """

    def vary(times: Times[Any]) -> Iterator[Any]:
        best: Any = base
        near: list[list[tuple[str, Any, float]]] = []
        yield best
        for name, values in options.items():
            ways = {value: dataclasses.replace(best, **{name: value}) for value in values}
            yield from ways.values()
            # What is no candidate after all, such as one equal to another, stays in the race.
            ratios = [times.get(way, times.shortest()) / times.shortest() for way in ways.values()]
            pairs = zip(values, ratios, strict=True)
            near.append([(name, value, ratio) for value, ratio in pairs if ratio <= DROP])
            best = times.best()
        if tune == "full":
            combined = list(itertools.product(*near))
            combined.sort(key=lambda fields: math.prod(ratio for _, _, ratio in fields))
            for fields in combined:
                yield dataclasses.replace(best, **{name: value for name, value, _ in fields})

    return vary


def recall(key: str, comm: Comm) -> Any:
    """Return the entry of a key; None if there is none. Collective."""
    found = _read_entries().get(key) if comm is None or comm.rank == 0 else None
    return comm.bcast(found) if comm is not None else found


def remember(
    key: str, times: Times[Candidate], tune: str, write: Callable[[Any], dict[str, Any]]
) -> None:
    """Remember the best candidate, with its seconds and the seconds of the slowest."""
    best = times.best()
    entries = _read_entries()
    entries[key] = {
        "tune": tune,
        **write(best),
        "milliseconds of forward and backward": round(times[best] * 1e3, 4),
        "slowest of those tried": round(max(times.values()) * 1e3, 4),
    }
    try:
        write_atomically(_file(), json.dumps(entries, indent=1, sort_keys=True).encode())
    except OSError:
        return  # it will be measured again


def tuned(
    key: str,
    read: Callable[[Any], Candidate | None],
    candidates: Callable[[Times[Candidate]], Iterable[Candidate]],
    prepare: Callable[[Candidate], Callable[[], object]],
    comm: Comm,
    tune: str,
    again: bool = False,
    write: Callable[[Any], dict[str, Any]] = dataclasses.asdict,
) -> Candidate:
    """Return the fastest candidate, remembered or measured now. Collective.

    `write` makes an entry of a candidate, and `read` a candidate of an entry, or None if it is of
    another version; "full" repeats quick measurements, `again` all.
    """
    record = None if again else recall(key, comm)
    if isinstance(record, dict) and (tune == "quick" or record.get("tune") == "full"):
        known = read(record)
        if known is not None:
            return known
    times = measure(candidates, prepare, comm, tune)
    if comm is None or comm.rank == 0:
        remember(key, times, tune, write)
    return times.best()


def _file() -> Path:
    return cache_folder() / "tuning.json"


def _read_entries() -> dict[str, Any]:
    try:
        content = json.loads(_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
