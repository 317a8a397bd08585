"""The tables that cases of all solver families share."""

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from slipstream.case.output_tables import AveragesOutput, FieldsOutput, MovieOutput, ScalarsOutput
from slipstream.case.table import (
    EndTime,
    Key,
    Positive,
    Table,
    Unchecked,
    as_tuple,
    one_of,
    three,
)
from slipstream.engine.accepted import DEVICES, SCHEDULES, TRANSPORTS
from slipstream.engine.errors import InputError, bytes_of

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _SECONDS))
_LONGEST_DURATION = 100
# Keys that matter only if states are written.
STATE_KEYS = ("checkpoint_interval", "checkpoint_minutes", "keep_checkpoints")


class Grid(Table):
    """``[grid]``: the points."""

    points: Unchecked[int | tuple[int, int, int]] = Key(
        ..., "number of points along each axis, or [x, y, z]", example=64
    )

    @field_validator("points")
    @classmethod
    def _whole_and_positive(cls, points: Any) -> Any:
        sizes = three(points)
        if len(sizes) != 3 or any(isinstance(n, bool) or not isinstance(n, int) for n in sizes):
            raise ValueError("accepted: one whole number, or three for x, y and z")
        for size in sizes:
            if size < 1:
                raise ValueError(f"a grid needs at least 1 point along each axis, not {size}")
        return points

    @property
    def points_xyz(self) -> tuple[int, int, int]:
        """Number of points along x, y and z."""
        nx, ny, nz = three(self.points)
        return nx, ny, nz


def seconds_of(duration: Any) -> float:
    """Return the seconds of a duration; a ValueError names the accepted forms."""
    seconds = math.nan
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    elif isinstance(duration, str) and 0 < len(duration) <= _LONGEST_DURATION:
        found = _DURATION.fullmatch(duration)
        if found:
            parts = found.groupdict()
            seconds = sum(float(parts[unit] or 0) * size for unit, size in _SECONDS.items())
    if not 0 < seconds < math.inf:
        raise ValueError(
            "accepted: seconds as a number, or text such as '20s', '90m', '23h30m' and '1d2h'"
        )
    return seconds


def _check_duration(duration: Any) -> Any:
    seconds_of(duration)
    return duration


class Initial(Table):
    """``[initial]``: the state at the start."""

    restart: Annotated[str, Field(min_length=1)] | None = Key(
        None,
        "output folder of an earlier run, from whose last state to continue",
        example="runs/earlier",
    )


class Time(Table):
    """``[time]``: how far to go."""

    end: EndTime = Key(..., "time at which the run ends", example=10)
    max_steps: Annotated[int, Field(gt=0)] | None = Key(
        None,
        "number of steps after which the run ends even before time.end; steps of an earlier run,"
        " from whose state this one starts, do not count",
        example=1000,
    )
    wall: Annotated[str | float, BeforeValidator(_check_duration)] | None = Key(
        None,
        'wall-clock time of the process, "23h30m" or seconds: the run ends early enough'
        " to write its last state, and `slipstream resume` continues it",
        example="23h30m",
    )

    @property
    def wall_seconds(self) -> float | None:
        """The seconds of `wall`."""
        return None if self.wall is None else seconds_of(self.wall)


class Run(Table):
    """``[run]``: where and in which order the work is done; results do not depend on it."""

    device: Annotated[str, one_of(DEVICES, auto=True)] = Key(
        "auto", 'device that computes; "auto" takes a GPU if there is one'
    )
    timeline: bool = Key(False, "draw the timeline of a step (lattice: of a pair of steps)")


def _is_a_size(memory: Any) -> Any:
    try:
        if memory is not None:
            bytes_of(memory if isinstance(memory, int | str) else "")
    except InputError as error:
        raise ValueError(str(error)) from None
    return memory


# Bytes, as a number or as text such as "8 GiB".
MemorySize = Annotated[int | str | None, BeforeValidator(_is_a_size)]


class ExchangingRun(Run):
    """``[run]`` of families whose ranks exchange data in several ways."""

    schedule: Annotated[str, one_of(SCHEDULES)] = Key(
        "overlap", "whether communication hides behind computation; the bits are the same"
    )
    transport: Annotated[str, one_of(TRANSPORTS, auto=True)] = Key(
        "auto", 'how ranks exchange data; "auto" chooses by devices and nodes'
    )


class Output(Table):
    """``[output]``: contents and intervals of the output."""

    diagnostics_interval: Positive = Key(..., "time between rows of the time series", example=0.05)
    fields_interval: Positive | None = Key(
        None, "time between snapshots of the fields (default: the last state only)", example=1.0
    )
    pictures: bool = Key(True, "draw pictures at the end")
    report: bool = Key(True, "write report.html at the end, with the pictures that are drawn")
    checkpoint: bool = Key(True, "write states, from which a run can continue")
    checkpoint_interval: Positive | None = Key(
        None, "time between states (default: by the clock, and at the end)", example=1.0
    )
    checkpoint_minutes: Positive = Key(
        15.0, "minutes by the clock between states: a kill loses no more than that"
    )
    keep_checkpoints: Annotated[int, Field(ge=1)] = Key(2, "number of the last states to keep")
    digest_steps: Annotated[int, Field(ge=0)] = Key(
        500,
        "time steps between digests of the state, which `slipstream verify` compares; 0 for none",
    )
    fields: Annotated[tuple[FieldsOutput, ...], BeforeValidator(as_tuple)] = Key(
        (), "fields and expressions, at all points or some, each in a file in the folder outputs"
    )
    scalars: Annotated[tuple[ScalarsOutput, ...], BeforeValidator(as_tuple)] = Key(
        (), "expressions that are reduced to numbers, as columns or in separate files"
    )
    averages: Annotated[tuple[AveragesOutput, ...], BeforeValidator(as_tuple)] = Key(
        (), "averages over time of fields and expressions, with errors"
    )
    movies: Annotated[tuple[MovieOutput, ...], BeforeValidator(as_tuple)] = Key(
        (), "planes of fields or expressions, frame by frame"
    )

    @model_validator(mode="after")
    def _states_are_written(self) -> Self:
        """Refuse to say how often and how many where there are none."""
        for key in STATE_KEYS:
            if not self.checkpoint and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key!r} goes with checkpoint = true; unset it by --set output.{key}="
                )
        return self

    def interval(self, kind: str) -> float | None:
        """Return the interval of some output; None if there is none."""
        return getattr(self, f"{kind}_interval", None)


class Case(Table):
    """The tables that cases of all solver families have."""

    # Keys of the file that a key on the command line, or "key=value", displaces, since they exclude
    # each other.
    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        "output.checkpoint=False": tuple(f"output.{key}" for key in STATE_KEYS)
    }
    # Keys of the file that are removed together with a displaced one.
    goes_with: ClassVar[dict[str, tuple[str, ...]]] = {}
    # Number of outputs of a run without an interval for them.
    occasions: ClassVar[dict[str, int]] = {"diagnostics_interval": 200}
    # The number of time steps that are done together.
    steps_at_once: ClassVar[int] = 1
    # Whether steps can be shorter, to hit the end of the run and times of output.
    shortens_steps: ClassVar[bool] = True
    # Tables that may be given as a list.
    one_or_more: ClassVar[frozenset[str]] = frozenset()
    # Examples of keys, in the template, that other families do not share.
    examples: ClassVar[dict[str, Any]] = {}

    solver: str = Key(..., "solver family")
    title: str = Key("", "heads the output and the pictures")
    time: Time
    run: Run = Field(default_factory=Run)
    output: Output

    @model_validator(mode="before")
    @classmethod
    def _fill_intervals(cls, data: Any) -> Any:
        """Derive the default intervals from the end time, so that case.toml shows them."""
        if not isinstance(data, dict):
            return data
        time, output = data.get("time"), data.get("output", {})
        end = time.get("end") if isinstance(time, dict) else None
        if not isinstance(output, dict):
            return data
        # Without a usable end time, whose error is reported, any value will do.
        end = end if isinstance(end, int | float) and end > 0 else 1.0
        defaults = {key: end / count for key, count in cls.occasions.items()}
        return {**data, "output": {**defaults, **output}}

    @classmethod
    def suited_to(cls, data: dict[str, Any]) -> type["Case"]:
        """Return the class that validates these tables: this one, if keys are always the same."""
        return cls

    def with_own_code(self, data: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the tables of an earlier run's case, with no code but the code of this case."""
        return data

    def inputs(self, path: Path | None = None) -> dict[str, Path]:
        """Return the files that a run reads, by their keys; `path` is the case's own."""
        inputs = {} if path is None else {"the case": path}
        for table, key in (("initial", "restart"), ("initial", "path"), ("image", "path")):
            value = getattr(getattr(self, table, None), key, None)
            if value is not None:
                inputs[f"{table}.{key}"] = Path(value)
        model = getattr(getattr(self, "equation", None), "model", "")
        if ".py:" in model:
            inputs["equation.model"] = Path(model.rpartition(":")[0])
        return inputs

    @property
    def path_kinds(self) -> tuple[str, ...]:
        """The kinds of output that are paths of particles."""
        return ()

    def interval(self, kind: str) -> float | None:
        """Return the interval of some output; None if there is none."""
        return self.output.interval(kind)

    @property
    def points(self) -> int | None:
        """Number of points that a time step updates; None if the case does not determine it."""
        raise NotImplementedError

    @property
    def most_ranks(self) -> int | None:
        """Largest number of ranks that share the work; None if the case does not determine it."""
        return self.points

    @property
    def fixed_step(self) -> float | None:
        """The time step (non-dimensional) where it is always the same."""
        raise NotImplementedError

    @property
    def ends_early(self) -> bool:
        """Whether a run may be over before its end time."""
        return False

    @property
    def stepping(self) -> str:
        """The choice of the time step, for people."""
        return f"fixed step {self.fixed_step:.6g}"

    def to_toml(self) -> str:
        """Return the effective case as TOML; loading it gives an equal case."""
        from slipstream.case.toml_text import to_toml  # only needed for writing

        data = self.model_dump(mode="json", exclude_none=True)
        # The problem comes before time, devices and output.
        shared = {name: data.pop(name) for name in ("time", "run", "output")}
        shared["output"] = {key: value for key, value in shared["output"].items() if value != []}
        return to_toml({**self.as_given(data), **shared})

    def as_given(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return dumped tables with a table instead of a list of one, where both are accepted."""
        given = {key: one for key, one in data.items() if key not in self.one_or_more or one}
        single = {key for key in self.one_or_more & given.keys() if len(given[key]) == 1}
        return given | {key: given[key][0] for key in single}
