"""Writing what a case asks for, when it is due.

The diagnostics, spectra, statistics, snapshots and states of a run are written here; the outputs
that users choose (`[[output.fields]]` and the like) by `runs/chosen_outputs.py`, which is called
from here in a run, and from the methods of Python's simulations (`api/output_methods.py`).

What is due at a certain time is written after the first step that reaches it. An adaptive step is
shortened to hit the times of fields, statistics and what users choose (`OutputWriter.next_time`).

The GPU continues: a thread writes the copies on the host (`WriteQueue`). Several ranks write
without delay, as they have to meet.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from slipstream.case import Case
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank
from slipstream.engine.device import open_device
from slipstream.engine.fields import Field
from slipstream.engine.processes import result_of
from slipstream.engine.stop_signals import signals_held
from slipstream.files.checkpoint import CHECKPOINTS_NAME, reseal, set_aside_later, write_checkpoint
from slipstream.files.durable_files import errors_name, flush_folder, replace_file
from slipstream.files.folder_seals import KeptOutput, Seal
from slipstream.files.output_folder import OutputFolder
from slipstream.files.run_folder import (
    CASE_NAME,
    FIELDS_NAME,
    OUTPUTS_NAME,
    SERIES_NAME,
    STEPS_NAME,
    EarlierSegments,
    solve_the_same,
)
from slipstream.files.stored_arrays import StoredArrays, StoredSpectra, numbered_stores
from slipstream.files.time_series import Series, spectrum_fields
from slipstream.files.zarr_store import FieldStore
from slipstream.runs.chosen_outputs import ChosenOutputs
from slipstream.runs.run_recorder import StepRecord
from slipstream.runs.simulation_base import Simulation
from slipstream.runs.time_loop import AtIntervals, OutputTimes, check_finite
from slipstream.show.field_planes import FieldPlane, compose_plane, gather_plane

# The share of the host's free memory that may wait to be written.
_SHARE = 0.25
# Seconds after which Python lets the other thread continue. By default steps would wait for 5 ms
# whenever they have something to submit while files are written.
_TURN = 2e-4
# The warning starts here: quotas of file systems are about as large, and copying takes hours.
MANY_FILES = 100_000


def _nothing() -> None:
    pass


class WriteQueue:
    """Writes one thing after the other: in the caller, or, if it is `deferred`, in a thread.

    Once something could not be written, nothing that comes later is. The next call raises what has
    failed, once.
    """

    def __init__(self, deferred: bool, most_bytes: int | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, "slipstream-output") if deferred else None
        self._changed = threading.Condition()
        self._most = most_bytes
        self._bytes = 0
        self._failure: BaseException | None = None
        self._is_told = False
        # Writes under way, and the function to call after each.
        self._under_way: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._usual_turn: float | None = None

    def write(
        self,
        function: Callable[[Iterator[Field]], object],
        fields: Iterable[Field] = (),
        then: Callable[[], None] = _nothing,
    ) -> Future[None]:
        """Write fields, which are made here one by one, by a function; return its future.

        Their memory must not be used for anything else later. Where it is done, `then` is called by
        the thread that calls this: now, or in a later call.
        """
        if self._thread is None:
            function(iter(fields))
            then()
            done: Future[None] = Future()
            done.set_result(None)
            return done
        with signals_held:
            self.check()
            if self._usual_turn is None:
                self._usual_turn = sys.getswitchinterval()
                sys.setswitchinterval(_TURN)
            if self._most is None:
                self._most = int(_SHARE * open_device("cpu").memory_free())
            handed = _HandedFields(self)
            future = self._thread.submit(self._run, function, handed)
            self._under_way.append((future, then))
            try:
                for field in fields:
                    handed.put(field)
                    del field  # before the next one is made
            except BaseException as failure:
                handed.end(failure)
                raise
            handed.end()
            return future

    def has_news(self) -> bool:
        """Return whether `check` has something to do."""
        return bool(self._under_way) and self._under_way[0][0].done()

    def check(self) -> None:
        """Call the functions that wait for finished writes; raise the errors of failed ones."""
        with signals_held:
            while self.has_news():
                _, then = self._under_way.popleft()
                if self._failure is None:
                    then()
            if self._failure is not None and not self._is_told:
                self._is_told = True
                raise self._failure

    def finish(self) -> None:
        """Wait until all is written."""
        for future, _ in list(self._under_way):
            result_of(future)
        self.check()

    def close(self) -> None:
        """Wait until all is written, and end the thread."""
        if self._thread is None:
            return
        with signals_held:
            try:
                self.finish()
            finally:
                self._thread.shutdown()
                self._thread = None
                if self._usual_turn is not None:
                    sys.setswitchinterval(self._usual_turn)

    def _run(self, function: Callable[[Iterator[Field]], object], fields: _HandedFields) -> None:
        try:
            if self._failure is None:
                function(fields)
        except BaseException as failure:
            # Errors in making fields are raised there.
            if failure is not fields.failure:
                self._failure = failure
        finally:
            fields.drop()


class _HandedFields(Iterator[Field]):
    """Fields that one thread makes and another one takes."""

    def __init__(self, queue: WriteQueue) -> None:
        self._queue, self._changed = queue, queue._changed
        self._waiting: deque[Field] = deque()
        self._taken = 0
        self._is_ended = self._is_dropped = False
        self.failure: BaseException | None = None

    def put(self, field: Field) -> None:
        """Hand over a field as soon as there is room."""
        queue, size = self._queue, field.data.nbytes

        def has_room() -> bool:
            is_open = self._is_dropped or not queue._bytes or queue._most is None
            return is_open or queue._bytes + size <= (queue._most or 0)

        with self._changed:
            signals_held.wait(partial(self._changed.wait_for, has_room))
            if not self._is_dropped:
                queue._bytes += size
                self._waiting.append(field)
                self._changed.notify_all()

    def end(self, failure: BaseException | None = None) -> None:
        """Report the end, or that the next one could not be made."""
        with self._changed:
            self._is_ended, self.failure = True, failure
            self._changed.notify_all()

    def __next__(self) -> Field:
        with self._changed:
            self._release(self._taken)
            self._taken = 0
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            if self._waiting:
                field = self._waiting.popleft()
                self._taken = field.data.nbytes
                return field
            if self.failure is not None:
                raise self.failure
            raise StopIteration

    def drop(self) -> None:
        """Take no more."""
        with self._changed:
            self._release(self._taken + sum(one.data.nbytes for one in self._waiting))
            self._waiting.clear()
            self._taken, self._is_dropped = 0, True

    def _release(self, size: int) -> None:
        self._queue._bytes -= size
        self._changed.notify_all()


class OutputWriter:
    """Writes what the case of a simulation asks for. Its methods are collective.

    Output of `earlier` segments of the run continues. A new writer changes nothing, `begin` does.
    """

    def __init__(
        self,
        simulation: Simulation,
        output: OutputFolder,
        chosen: ChosenOutputs | None = None,
        earlier: EarlierSegments | None = None,
    ) -> None:
        case = simulation.case
        self._simulation = simulation
        self._output, self._folder = output, output.path
        self._is_first = simulation.rank == 0
        # The output that users choose is checked before the folder is touched.
        self.chosen = chosen or ChosenOutputs(simulation, earlier)
        self.labels = simulation.labels() | self.chosen.labels()
        self.choice = simulation.pictures()
        self.series = Series(self._folder, self.labels) if self._is_first else None
        self._steps = StepRecord(simulation, self._folder)
        self._spectra: list[str] = []
        # The last of each kind that was written, by name, for pictures.
        self.statistics: dict[str, tuple[float, dict[str, Field]]] = {}
        self.planes: list[FieldPlane] = []
        # The step of the last state that has been written.
        self.last_state: int | None = None
        # The most seconds until an output was written, by kind.
        self.slowest_writes: dict[str, float] = {}
        # Called by all ranks, with its step and time, when all up to a state is on the disk, the
        # state too if states are written.
        self.after_state: Callable[[int, float], None] = lambda step, time: None
        # Called by each rank with a kind of output, its step, and the seconds until it was written.
        self.after_write: Callable[[str, int, float], None] = lambda kind, step, seconds: None
        self.extras: list[Path] = []
        self._spectra_written: Future[None] | None = None
        self._queue = WriteQueue(simulation.comm is None and simulation.output_is_copied)
        # Used by what the queue does, and after it.
        self._stores: dict[str, FieldStore] = {}
        self._is_warned = False
        # Seconds for which the last of each kind held the run up, and how many of each there are.
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._asked = [kind for kind in STATISTICS if case.output.interval(kind) is not None]
        # All ranks write these, each its part.
        self._paths = case.path_kinds
        self._shared = [FIELDS_NAME, *(f"{kind}.zarr" for kind in self._paths)]
        start = simulation.time if earlier is None else earlier.time
        self._due = {
            kind: OutputTimes(AtIntervals(case.interval(kind), start))
            for kind in self._writers(0.0)
        }
        self._flushed_at = clock.monotonic()
        self._has_discarded = False
        # The last state and its time; then the step and time at which the run began.
        self._state: tuple[Path, float] | None = None
        self._sealed: dict[str, Seal] = {}
        began = (simulation.step, simulation.time) if earlier is None else None
        self._began = began or (earlier.step, earlier.time)  # type: ignore[union-attr]
        self._kept = KeptOutput(seals={}) if earlier is None else earlier.kept
        self.earlier = earlier
        if earlier is not None:
            self._find(earlier)

    def begin(self) -> None:
        """Write the case, and drop output later than the state from which the run continues."""
        on_first_rank(self._simulation.comm, self._begin)
        if self.earlier is not None:
            for name in self._shared:
                if name in self._stores:
                    self._stores[name].go_on()
            self.chosen.go_on()
        self._steps.begin()
        if self.earlier is not None:
            self._seal_what_goes_on()

    def _begin(self) -> None:
        self._output.wrote(CASE_NAME, SERIES_NAME, "diagnostics.zarr", STEPS_NAME, *self._stores)
        path = self._folder / CASE_NAME
        with errors_name(path):
            replace_file(path, self._case.to_toml().encode())
        if self.earlier is not None:
            set_aside_later(self._folder, self._simulation.step)
            if self.series is not None:
                self.series.begin()
            for name, store in self._stores.items():
                if name not in self._shared:
                    store.go_on()

    def _find(self, earlier: EarlierSegments) -> None:
        """Find which output of earlier segments continues; change nothing."""
        simulation = self._simulation
        comm, time = simulation.comm, simulation.time
        rows, times = on_first_rank(comm, self._find_on_first_rank)
        rows = list(rows)
        times["diagnostics"] = [row["time"] for row in rows]
        for kind in ("fields", *self._paths):
            if on_first_rank(comm, partial(self._has_store, kind)):
                times[kind] = self._store(f"{kind}.zarr", comm, until=time).times
        for kind, at in times.items():
            before = AtIntervals(earlier.case.interval(kind), earlier.time)
            # A kind that has not been written yet does not continue: it is due now.
            if not at or not self._due[kind].resume_at(time, at, before):
                continue
            if kind == "diagnostics":
                rows.pop()  # the next row does not follow it
                if self.series is not None:
                    self.series.replace_last()
            elif f"{kind}.zarr" in self._stores:
                self._stores[f"{kind}.zarr"].replace_last()
        self._due["checkpoint"].occasions.take(time, simulation.step)
        self._due["checkpoint"].last = time
        self.last_state = simulation.step
        if rows and solve_the_same(earlier.case, self._case):
            simulation.recall(rows[-1])
        self.chosen.find(self._folder / OUTPUTS_NAME, self._kept.below(OUTPUTS_NAME))
        self._steps.find(self._kept)

    def _find_on_first_rank(self) -> tuple[list[dict[str, float]], dict[str, list[float]]]:
        """Return the last rows of the series, and the times in stores that rank 0 writes alone."""
        simulation = self._simulation
        if self._kept.goes_on(SERIES_NAME):
            sealed = (self._kept.seals or {}).get(SERIES_NAME)
            until = simulation.step
            self.series = Series(self._folder, self.labels, until=until, sealed=sealed)
        kinds = [kind for kind in ("spectra", *self._asked) if self._has_store(kind)]
        stores = {kind: self._store(f"{kind}.zarr", None, simulation.time) for kind in kinds}
        rows = self.series.last_rows if self.series else []
        return rows, {kind: store.times for kind, store in stores.items()}

    def _has_store(self, kind: str) -> bool:
        """Return whether there is a store that continues, or a continuation of it."""
        stores = numbered_stores(self._folder / f"{kind}.zarr")
        return any(self._kept.goes_on(one.name) for one in stores)

    @property
    def _case(self) -> Case:
        """The settings, which may change between steps."""
        return self._simulation.case

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size that miss a time of output."""
        self.chosen.check_hits(start, end, step_size)

    def is_due(self) -> bool:
        """Return whether something is to be written."""
        time, step = self._simulation.time, self._simulation.step
        wants_to_keep = not self._case.output.checkpoint and not self._has_discarded
        is_due = any(one.occasions.is_due(time, step) for one in self._due.values())
        is_due = is_due or wants_to_keep or self._steps.is_due()
        return is_due or self.chosen.is_due() or self._queue.has_news()

    def record(self, step_size: float) -> None:
        """Write the output due before a step of this size; fail if the flow has blown up."""
        time, comm = self._simulation.time, self._simulation.comm
        self._queue.check()
        self._steps.record_if_due()
        for kind, write in self._writers(step_size).items():
            if self._due[kind].occasions.take_if_due(time):
                self._write(kind, write)
        if self.chosen.is_due():
            folder = self._chosen_folder()
            self._timed(OUTPUTS_NAME, lambda: self.chosen.record(folder, step_size))
        self._seal_again()
        if not self._case.output.checkpoint and not self._has_discarded:
            # No state will follow: with these first rows the earlier run's output can go.
            self._queue.write(lambda _: on_first_rank(comm, self._output.discard_replaced))
            self._has_discarded = True

    def record_last(self, step_size: float) -> None:
        """Write all of the last state that has not just been written, and what its family adds."""
        time = self._simulation.time
        self._steps.record()
        for kind, write in self._writers(step_size).items():
            if self._due[kind].last != time:
                self._write(kind, write)
        folder = self._chosen_folder()
        self._timed(OUTPUTS_NAME, lambda: self.chosen.record_last(folder, step_size))
        self._seal_again()
        self.extras = self._simulation.write_at_end(self._folder)
        self._output.wrote(*(path.name for path in self.extras))

    def _write(self, kind: str, write: Callable[[], None]) -> None:
        self._timed(kind, write)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._due[kind].last = self._simulation.time

    def _timed(self, kind: str, write: Callable[[], None]) -> None:
        began = clock.perf_counter()
        write()
        self.seconds[kind] = clock.perf_counter() - began
        step = self._simulation.step
        self._queue.write(lambda _: self._note_seconds(kind, step, began))

    def _note_seconds(self, kind: str, step: int, began: float) -> None:
        seconds = clock.perf_counter() - began
        self.slowest_writes[kind] = max(seconds, self.slowest_writes.get(kind, 0.0))
        self.after_write(kind, step, seconds)

    def is_overdue(self) -> bool:
        """Return whether the last state is so old, on rank 0's clock, that another is wanted.

        Does not communicate: the ranks are to agree on it before they `record_state`.
        """
        age = clock.monotonic() - self._flushed_at
        return self._is_first and age > 60 * self._case.output.checkpoint_minutes

    def record_state(self) -> None:
        """Write the state to continue from, whether it is due or not."""
        self._write("checkpoint", self._write_checkpoint)

    def spectra(self) -> Sequence[Any]:
        """Return the spectra that have been written, on rank 0: the time and the curves of each."""
        if self._spectra_written is None:
            return []
        result_of(self._spectra_written)
        self._queue.check()
        return StoredSpectra(StoredArrays(self._stores["spectra.zarr"].path), self._spectra)

    def next_time(self, time: float) -> float:
        """Return when fields, statistics or paths are due next after a time; infinity for never."""
        kinds = ("fields", *self._asked, *self._paths)
        own = min(self._due[kind].occasions.after(time) for kind in kinds)
        return min(own, self.chosen.next_time(time))

    def finish(self) -> None:
        """Wait until all is written that was recorded."""
        self._queue.finish()

    def close(self) -> None:
        """Complete the time series, whatever has happened."""
        try:
            self._queue.close()
        finally:
            if self.series is not None:
                self.series.close()
            self._steps.close()
            self.chosen.close()

    def _chosen_folder(self) -> Path:
        """Return the folder of what users choose, recorded before anything is written there."""
        if self.chosen.has_files:
            # They are written here, and flushed to the disk with a state.
            self._queue.finish()
            self._output.wrote(OUTPUTS_NAME)
        return self._folder / OUTPUTS_NAME

    def _writers(self, step_size: float) -> dict[str, Callable[[], None]]:
        """Return the function that writes each kind of output, in order of writing."""
        return {
            "diagnostics": lambda: self._write_diagnostics(step_size),
            "spectra": self._write_spectra,
            # The state comes first: it must not be lost because the rest could not be written.
            "checkpoint": self._write_checkpoint,
            **{kind: partial(self._write_statistics, kind) for kind in self._asked},
            **{kind: partial(self._write_paths, kind) for kind in self._paths},
            "fields": self._write_fields,
        }

    def _write_diagnostics(self, step_size: float) -> None:
        diagnostics = self._simulation.diagnostics()
        for name, value in diagnostics.items():
            if not (math.isnan(value) and name in self._simulation.needs_earlier):
                check_finite(name, value, self._simulation)
        # These may be infinite though the flow is sound.
        diagnostics = diagnostics | self.chosen.diagnostics()
        if self.series is not None:
            simulation = self._simulation
            self.series.append(simulation.step, simulation.time, step_size, diagnostics)
            if self.series.rewritten is not None:
                self._seal_rewritten(self.series)

    def _write_spectra(self) -> None:
        spectra = self._simulation.spectra()
        time = self._simulation.time
        if self._is_first and spectra:
            self._spectra = list(spectra)
            # Spectra are the same on all ranks, so rank 0 writes them alone.
            fields = spectrum_fields(spectra, self.labels)
            self._spectra_written = self._append("spectra.zarr", None, time, fields)

    def _write_statistics(self, kind: str) -> None:
        fields = list(self._simulation.statistics(kind))
        if self._is_first and fields:
            time = self._simulation.time
            self.statistics[kind] = time, {field.name: field for field in fields}
            self._append(f"{kind}.zarr", None, time, fields)

    def _write_fields(self) -> None:
        simulation = self._simulation
        fields = self._watched(simulation.fields())
        self._append(FIELDS_NAME, simulation.comm, simulation.time, fields, self._count_files)

    def _write_paths(self, kind: str) -> None:
        simulation = self._simulation
        self._append(f"{kind}.zarr", simulation.comm, simulation.time, simulation.paths(kind))

    def _count_files(self) -> None:
        """Warn, once, of more files than file systems like."""
        times = counts_until(self._case, self._case.time.end)["fields"]
        warning = files_warning(times * self._stores[FIELDS_NAME].files_each_time)
        if warning and not self._is_warned:
            self._is_warned = True
            self._simulation.warn([warning])

    def _append(
        self,
        name: str,
        comm: Comm,
        time: float,
        fields: Iterable[Field],
        then: Callable[[], None] = lambda: None,
    ) -> Future[None]:
        return self._queue.write(
            lambda taken: self._store(name, comm).append(time, taken), fields, then
        )

    def _write_checkpoint(self) -> None:
        simulation = self._simulation
        comm, step, time = simulation.comm, simulation.step, simulation.time
        case = self._case  # which may have changed before the state is written
        self._flushed_at = clock.monotonic()
        if not self._case.output.checkpoint:
            self._queue.write(lambda _: self._flush(), then=lambda: self.after_state(step, time))
            return

        self._steps.record()
        is_set = simulation.step_log.is_set_after_steps(simulation.times_fields_set)
        series_seals = self._series_seals()

        def write(fields: Iterable[Field]) -> None:
            self._flush()
            self._output.wrote(CHECKPOINTS_NAME)
            seals = self._seals(series_seals)
            path = write_checkpoint(
                self._folder,
                fields,
                comm,
                step=step,
                time=time,
                case=case.to_toml(),
                keep=case.output.keep_checkpoints,
                seals=seals,
                began=self._began,
                is_set=is_set,
            )
            self._state, self._sealed = (path, time), seals
            on_first_rank(comm, self._output.discard_replaced)
            self._flushed_at = clock.monotonic()

        def then() -> None:
            self.last_state = step
            self.after_state(step, time)

        fields = itertools.chain(simulation.checkpoint(), self.chosen.checkpoint())
        self._queue.write(write, fields, then)

    def _seal_what_goes_on(self) -> None:
        """Reseal the state without output that is set aside or will be replaced."""
        seals = self._seals(self._series_seals())
        if self.earlier is not None and self.earlier.state is not None:
            state = self._folder / CHECKPOINTS_NAME / self.earlier.state.name
            self._state, self._sealed = (state, self._simulation.time), seals
            on_first_rank(self._simulation.comm, lambda: reseal(state, seals))

    def _seal_rewritten(self, series: Series) -> None:
        """Reseal the last state after the series got more columns. On rank 0 alone."""
        series_seal, series.rewritten = series.rewritten, None

        def write(_: Iterable[Field]) -> None:
            if self._state is not None and series_seal is not None:
                series.flush()
                self._sealed = self._sealed | {SERIES_NAME: series_seal}
                reseal(self._state[0], self._sealed)

        self._queue.write(write)

    def _seal_again(self) -> None:
        """Reseal the state of this time with the output that was written after it."""
        comm, time = self._simulation.comm, self._simulation.time

        series_seals = self._series_seals()

        def write(_: Iterable[Field]) -> None:
            if self._state is None or self._state[1] != time:
                return
            self._flush()
            seals, path = self._seals(series_seals), self._state[0]
            # Only the first rank knows them all.
            on_first_rank(comm, lambda: None if seals == self._sealed else reseal(path, seals))

        if self._due["checkpoint"].last == time and self._case.output.checkpoint:
            self._queue.write(write)

    def _series_seals(self) -> dict[str, Seal]:
        """Return the seals of the series now: rows come while other output waits."""
        seal = None if self.series is None else self.series.seal()
        return self._steps.seals() | ({} if seal is None else {SERIES_NAME: seal})

    def _seals(self, series_seals: dict[str, Seal]) -> dict[str, Seal]:
        """Return the seals of all output of the run. Collective; of use on rank 0."""
        # Output that this segment does not write is as it was.
        seals = {k: v for k, v in (self._kept.seals or {}).items() if self._kept.goes_on(k)}
        seals |= {f"{OUTPUTS_NAME}/{name}": seal for name, seal in self.chosen.seals().items()}
        of_stores = {store.path.name: store.seal() for store in self._stores.values()}
        of_stores = {
            name: seal for name, seal in of_stores.items() if name in seals or seal.snapshots
        }
        return seals | of_stores | series_seals

    def _flush(self) -> None:
        """Flush written output to the disk: no state is to be later than its series."""
        if self.series is not None:
            self.series.flush()
            self._steps.flush()
            flush_folder(self._folder)
        for store in self._stores.values():
            store.flush()
        self.chosen.flush()
        self._flushed_at = clock.monotonic()

    def _store(self, name: str, comm: Comm, until: float | None = None) -> FieldStore:
        if name not in self._stores:
            attributes = {"title": self._case.title, "case": self._case.to_toml()}
            if until is None:
                self._output.wrote(name)
            self._stores[name] = FieldStore(
                self._folder / name,
                comm,
                attributes,
                until=until,
                begins=self._output.wrote,
                kept=self._kept,
            )
        return self._stores[name]

    def _watched(self, fields: Iterable[Field]) -> Iterator[Field]:
        """Pass the fields on, keeping a plane of what gets a picture."""
        planes: dict[str, dict[str, FieldPlane | None]] = {}
        for field in fields:
            for choice in self.choice.planes if self._case.output.pictures else ():
                if field.name in choice.needed:
                    planes.setdefault(choice.field, {})[field.name] = gather_plane(
                        field,
                        self._simulation.comm,
                        self._simulation.time,
                        choice.normal,
                        choice.is_central,
                    )
            yield field
            del field  # before the next one is made
        composed = (compose_plane(planes.get(one.field, {}), one) for one in self.choice.planes)
        self.planes = [plane for plane in composed if plane is not None]


def counts_until(case: Case, length: float) -> dict[str, int]:
    """Return the number of outputs of each kind in a run of this length."""
    output, counts = case.output, {}
    for kind in ("diagnostics", "spectra", "checkpoint", *STATISTICS, "fields", *case.path_kinds):
        interval = case.interval(kind)
        counts[kind] = _count_times(interval, length)
        if interval is None and kind in ("spectra", *STATISTICS):
            counts[kind] = 0
    if not output.checkpoint:
        counts["checkpoint"] = 0
    chosen = [*output.fields, *output.scalars, *getattr(output, "densities", ())]
    intervals = [getattr(one, "interval", None) for one in chosen]
    times = [len(getattr(one, "times", None) or ()) for one in chosen]
    own = [_count_times(one, length) for one in intervals if one is not None]
    counts[OUTPUTS_NAME] = max([*own, *times, 1]) if chosen else 0
    return counts


def _count_times(interval: float | None, length: float) -> int:
    """Return the number of times of output: at the start, at intervals, and at the end."""
    if interval is None:
        return 1
    whole = math.floor(length / interval * (1 + 1e-12) + 1e-9)
    return whole + 1 + (length - whole * interval > 1e-6 * interval)


def files_warning(files: int) -> str:
    """Return the warning about the number of a run's files; an empty one if they are few."""
    if files <= MANY_FILES:
        return ""
    return (
        f"the run makes about {files} files, more than {MANY_FILES}: file systems may refuse them;"
        " write snapshots more rarely (output.fields_interval), or planes, boxes or coarser points"
        " of them (output.fields), into HDF5 or VTK, which have one file for each time"
    )
