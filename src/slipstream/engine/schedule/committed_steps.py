"""Committed steps, ready to run any number of times, and timelines of their nodes."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slipstream.engine.collective import RankFailed, WaitedTooLong, timeout
from slipstream.engine.device import Event, Stream
from slipstream.engine.errors import InputError, RunError, SlipstreamError
from slipstream.engine.schedule.overlap_executor import (
    Lanes,
    OverlapExecutor,
    Patience,
    named_error,
)
from slipstream.engine.schedule.step_graph import MAIN_LANE, Node, StepGraph
from slipstream.engine.stop_signals import signals_held

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch


# Colour-blind safe (Okabe and Ito 2008), one per category.
COLOURS = {
    "fft": "#0072B2",
    "pack": "#E69F00",
    "communication": "#D55E00",
    "copy": "#CC79A7",
    "compute": "#009E73",
    "io": "#999999",
}
# The schedules of steps.
POLICIES = ("serial", "overlap")
# The approximate time to wake the threads of a CPU and to wait for them, if they sleep and others
# use the cores.
_SECONDS_TO_WAKE = 1e-4
# The number of runs of a step in which its work is timed. The first run is often slow, as memory is
# touched for the first time.
_TIMED_RUNS = 10
# The seconds of work that never run alone, whatever these runs take: the moment may be busy. So may
# the other cores be, and then these runs take as long as the work; alone it has to take less than
# this share of them, since the choice stays.
_LONGEST_ALONE = 1e-3
_SHARE_ALONE = 0.7


@dataclass(frozen=True)
class Entry:
    """One node's run; times in seconds."""

    label: str
    category: str
    lane: str
    start: float
    stop: float


class Timeline:
    """The entries of all profiled runs of a step; with several devices, lanes name theirs."""

    def __init__(self, several_devices: bool = False) -> None:
        self.entries: list[Entry] = []
        self._several_devices = several_devices

    def add(self, node: Node, start: float, stop: float) -> None:
        """Append the run of a node."""
        of_device = self._several_devices and not node.transfer
        lane = f"{node.device.kind}: {node.lane}" if of_device else node.lane
        self.entries.append(Entry(node.label, node.category, lane, start, stop))

    @classmethod
    def merged(cls, timelines: Sequence[Timeline], forget: bool = False) -> Timeline:
        """Return the joint timeline of several steps, in order; `forget` clears their timelines."""
        result = cls()
        result.entries = sorted(
            (entry for timeline in timelines for entry in timeline.entries),
            key=lambda entry: entry.start,
        )
        for timeline in timelines if forget else ():
            timeline.clear()
        return result

    def clear(self) -> None:
        """Forget all entries."""
        self.entries.clear()

    def duration(self) -> float:
        """Return the seconds from the first start to the last end."""
        start = min((entry.start for entry in self.entries), default=0.0)
        return max((entry.stop for entry in self.entries), default=start) - start

    def totals(self) -> dict[str, float]:
        """Return the busy seconds of each category; overlapping work counts in each."""
        result: dict[str, float] = {}
        for entry in self.entries:
            result[entry.category] = result.get(entry.category, 0.0) + entry.stop - entry.start
        return result

    def exposed(self, *categories: str) -> float:
        """Return the seconds in which only `categories` ran, not hidden by overlap.

        By default that is "communication".
        """
        chosen = categories or ("communication",)
        shown = _union((e.start, e.stop) for e in self.entries if e.category in chosen)
        other_work = _union((e.start, e.stop) for e in self.entries if e.category not in chosen)
        hidden = sum(
            max(0.0, min(b, d) - max(a, c))
            for a, b in shown
            for c, d in other_work
            if c < b and a < d
        )
        return sum(b - a for a, b in shown) - hidden

    def write_chrome_trace(self, path: str | Path, rank: int = 0) -> None:
        """Write the entries as Chrome-trace JSON, which Perfetto and chrome://tracing open."""
        origin = min((e.start for e in self.entries), default=0.0)
        events = [
            {
                "name": entry.label,
                "cat": entry.category,
                "ph": "X",
                "pid": rank,
                "tid": entry.lane,
                "ts": (entry.start - origin) * 1e6,
                "dur": (entry.stop - entry.start) * 1e6,
            }
            for entry in self.entries
        ]
        Path(path).write_text(json.dumps({"traceEvents": events}))

    def write_picture(self, path: str | Path, title: str = "") -> None:
        """Draw one bar per entry, lanes as rows, colour by category, as PNG."""
        import matplotlib
        from matplotlib.figure import Figure

        lanes = {entry.lane for entry in self.entries}
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # a matplotlibrc has no effect
            figure = Figure(figsize=(9, 1.2 + 0.5 * len(lanes)), layout="constrained")
            axes = figure.subplots()
            self.draw(axes, title)
            axes.legend(
                handles=legend_of([self]),
                loc="upper center",
                bbox_to_anchor=(0.5, -0.35),
                ncols=len(COLOURS),
                frameon=False,
            )
            figure.savefig(path, dpi=160)

    def draw(self, axes: Axes, title: str = "") -> None:
        """Draw the entries into Matplotlib's axes."""
        origin = min((e.start for e in self.entries), default=0.0)
        lanes = list(dict.fromkeys(entry.lane for entry in self.entries))
        for entry in self.entries:
            bar = [((entry.start - origin) * 1e3, (entry.stop - entry.start) * 1e3)]
            row = lanes.index(entry.lane)
            axes.broken_barh(bar, (row - 0.4, 0.8), color=COLOURS[entry.category], linewidth=0.3)
        axes.set(xlabel="time (ms)", yticks=range(len(lanes)), yticklabels=lanes, title=title)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)


def _union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[list[float]] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return [(a, b) for a, b in merged]


def legend_of(timelines: Sequence[Timeline]) -> list[Patch]:
    """Return the legend's handles for the categories in some timelines."""
    from matplotlib.patches import Patch

    present = {entry.category for timeline in timelines for entry in timeline.entries}
    return [Patch(color=COLOURS[c], label=c) for c in COLOURS if c in present]


def commit(graph: StepGraph, policy: str = "overlap") -> CommittedStep:
    """Order a graph, which must not be changed afterwards, by a policy: see the module."""
    if policy not in POLICIES:
        raise InputError(f"schedule {policy!r} is unknown; accepted: {', '.join(POLICIES)}")
    has_transfers = any(node.transfer for node in graph.nodes)
    several_devices = any(node.device != graph.device for node in graph.nodes)
    if policy == "overlap" and (has_transfers or several_devices):
        return OverlappedStep(graph)
    if policy == "overlap" and graph.device.has_graphs:
        return CapturedStep(graph)
    waits = any(node.category == "communication" for node in graph.nodes)
    if graph.device.kind == "cpu" and not (waits or several_devices):
        return ProgrammedStep(graph, policy)
    several_lanes = graph.device.lanes > 1 or several_devices
    if policy == "overlap":
        several_lanes |= any(node.lane != MAIN_LANE for node in graph.nodes)
    return PhasedStep(graph) if several_lanes else SerialStep(graph)


class CommittedStep:
    """A step that can be run."""

    def __init__(self, graph: StepGraph) -> None:
        self.device = graph.device
        self.nodes = graph.nodes
        devices = dict.fromkeys([graph.device, *(node.device for node in graph.nodes)])
        self._several_devices = len(devices) > 1
        for device in devices:  # no step is to be timed with its compilation
            device.load_kernels()
        self._patience = Patience(*devices)
        self.timeline = Timeline(self._several_devices)

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        """Run the step after all earlier work of a stream, by default the device's.

        Work on a GPU may still be running when this returns; it is ordered before later work of the
        stream. A profiled run records the times of every node, which costs microseconds for each. A
        failure, or a wait for other ranks of more than ``SLIPSTREAM_TIMEOUT`` seconds, raises a
        `RunError` that names the node, on all ranks. After that, steps with exchanges of the same
        transport cannot be run.
        """
        with signals_held:  # a step that a signal cuts short leaves lanes that wait for each other
            try:
                self._run(profile, stream)
            except InputError:
                raise  # before any node has run, on all ranks
            except BaseException as failure:
                raised = failure
                if isinstance(failure, Exception) and not isinstance(failure, SlipstreamError):
                    raised = RunError(f"the step failed: {str(failure) or type(failure).__name__}")
                for node in self.nodes:
                    if node.transfer:
                        node.transfer.give_up(raised)
                if raised is failure:
                    raise
                raise raised from failure

    def _run(self, profile: bool, stream: Stream | None) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all work of the last run has finished.

        If the host orders the exchanges, it has finished when `run` returns. If the device does,
        this waits for all work of the last run's stream.
        """

    def _follow(self, main: Stream, stream: Stream | None) -> Event:
        """Order the step after the work of a stream; return an event of that stream."""
        start = (stream or self.device.default_stream).record()
        if self._several_devices:  # the others cannot wait for this event
            self._patience.wait(start.done, "what came before the step")
            start.synchronize()  # raises errors
        main.wait(start)
        return start

    def _run_alone(self, node: Node, profile: bool, stream: Stream, inline: bool = False) -> None:
        """Run a node alone and wait for its end.

        An `inline` stream has finished the node when it returns from submitting it.
        """
        began = time.perf_counter()
        try:
            if node.transfer:
                node.transfer.start()
                self._patience.wait(node.transfer.test, f"exchange {node.label!r}")
            elif node.operation:
                stream.submit(node.operation)
                if not inline:
                    if node.category == "communication":
                        self._patience.wait(stream.record().done, f"exchange {node.label!r}")
                    stream.synchronize()
        except (WaitedTooLong, RankFailed):
            raise
        except Exception as failure:
            raise named_error(node, failure) from failure
        if profile:
            self.timeline.add(node, began, time.perf_counter())


class SerialStep(CommittedStep):
    """One node after another."""

    def _run(self, profile: bool, stream: Stream | None) -> None:
        self._patience.limit = timeout()
        # A CPU's own stream never has pending work.
        inline = stream is None and self.device.kind == "cpu"
        stream = stream or self.device.default_stream
        if not inline:
            self._patience.wait(stream.record().done, "what came before the step")
            stream.synchronize()  # raises errors
        for node in self.nodes:
            self._run_alone(node, profile, stream, inline)


class PhasedStep(CommittedStep):
    """Devices, and lanes of batches, run in parallel from one exchange to the next.

    Nothing else runs during an exchange.
    """

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph, bulk=True)

    def _run(self, profile: bool, stream: Stream | None) -> None:
        self._patience.limit = timeout()
        lanes = self._lanes
        self._follow(lanes.main, stream)
        lanes.begin(profile)
        with lanes.drained():
            for node in self.nodes:
                if node.category != "communication":
                    lanes.issue(node)
                    continue
                lanes.drain()
                if node.transfer:
                    self._run_alone(node, profile, lanes.main)
                else:
                    lanes.issue(node)
                    end = lanes.stream_of[node.index].record()
                    self._patience.wait(end.done, f"exchange {node.label!r}")
        if profile:
            for index, span in lanes.spans.items():
                self.timeline.add(self.nodes[index], *span.interval())


class ProgrammedStep(CommittedStep):
    """A step whose lanes run in parallel on a CPU, each as a compiled program.

    So no thread issues nodes one by one, and no thread waits for the interpreter. The calling
    thread wakes the others and then runs a lane itself. If the step takes less time than waking
    them, it runs all lanes. The first runs are timed to decide this.
    """

    def __init__(self, graph: StepGraph, policy: str) -> None:
        super().__init__(graph)
        # A lane that waits for a drive leaves its core to others.
        waits = policy == "overlap" and any(node.category == "io" for node in graph.nodes)
        self._lanes = Lanes(graph, bulk=not waits)
        in_order = self._lanes.in_order()[::-1]  # a lane that the calling thread runs comes last
        self._streams = [stream for stream, _ in in_order[:-1]] + [self.device.calling_stream()]
        self._programs = self.device.lane_programs([nodes for _, nodes in in_order] or [[]])
        self._runs_to_time = 0 if self.device.inline else _TIMED_RUNS
        # The shortest times of each node, and of a run, in these runs.
        self._shortest = np.array(math.inf)
        self._fastest = math.inf

    def _run(self, profile: bool, stream: Stream | None) -> None:
        if stream is not None:  # a CPU's own stream never has pending work
            self._patience.limit = timeout()
            start = stream.record()
            self._patience.wait(start.done, "what came before the step")
            start.synchronize()  # raises errors
        timed = profile or self._runs_to_time > 0
        began = time.perf_counter()
        if not self._programs.run(self._streams, timed):
            self._lanes.drain(self._streams)
        if timed:
            self._fastest = min(self._fastest, time.perf_counter() - began)
            if profile:
                for index, interval in self._programs.intervals().items():
                    self.timeline.add(self.nodes[index], *interval)
            if self._runs_to_time:
                self._choose_threads()

    def _choose_threads(self) -> None:
        """Make the calling thread run all nodes in turn, if that takes less time.

        This has to be quick: the other threads fall asleep, and the next run seems to take longer.
        """
        self._shortest = np.minimum(self._shortest, self._programs.durations())
        seconds = float(self._shortest.sum())
        self._runs_to_time -= 1
        # Many threads may take longer to wake than the nodes of a small step.
        longest = min(_SHARE_ALONE * self._fastest, _LONGEST_ALONE)
        if seconds < (_SECONDS_TO_WAKE if self._runs_to_time else longest):
            self._streams = [self.device.calling_stream()]
            self._programs = self.device.lane_programs([self._lanes.in_one()])
            self._runs_to_time = 0


class CapturedStep(CommittedStep):
    """All nodes as one graph of the GPU, replayed by one call."""

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)
        self._replay = self._lanes.main.capture(self._enqueue)
        self._latest = self.device.default_stream

    def _enqueue(self, profile: bool = False) -> None:
        self._lanes.begin(profile)
        for node in self.nodes:
            self._lanes.issue(node)
        self._lanes.join()

    def _run(self, profile: bool, stream: Stream | None) -> None:
        stream = stream or self.device.default_stream
        if profile:
            self._run_profiled(stream)
        else:
            # Replays wait for each other on the device, even on different streams.
            stream.submit(self._replay)
        self._latest = stream

    def synchronize(self) -> None:
        self._await(self._latest.record())

    def _await(self, event: Event) -> None:
        self._patience.limit = timeout()
        self._patience.wait(event.done, "the step")
        event.synchronize()  # raises errors

    def _run_profiled(self, stream: Stream) -> None:
        main = self._lanes.main
        self.synchronize()  # single nodes do not wait for a replay elsewhere
        main.wait(stream.record())
        self._enqueue(profile=True)
        self._await(main.record())
        for index, span in self._lanes.spans.items():
            self.timeline.add(self.nodes[index], *span.interval())


class OverlappedStep(CommittedStep):
    """Nodes are issued as soon as their dependencies allow it, most urgent first.

    Operations wait for each other on the device, by streams and events. Transfers need the host:
    one is started once the operations before it are done, and polled; nodes that depend on it are
    issued when it is complete, in any order of completion. Nodes that wait for another device are
    issued when that is done.
    """

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)
        self._executor = OverlapExecutor(graph.nodes, self._lanes, self._patience)

    def _run(self, profile: bool, stream: Stream | None) -> None:
        patience, executor = self._patience, self._executor
        patience.limit = timeout()
        patience.moved()
        start = self._follow(self._lanes.main, stream)
        self._lanes.begin(profile)
        executor.begin(start)
        with self._lanes.drained():
            while not executor.finished():
                if executor.advance():
                    patience.moved()
                else:
                    patience.rest(executor.obstacle)
        if profile:
            for node in self.nodes:
                self.timeline.add(node, *executor.interval(node))
