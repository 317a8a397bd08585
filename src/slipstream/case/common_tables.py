"""The tables that cases of all solver families share, and types of keys."""

from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from slipstream.accepted import DEVICES
from slipstream.case.chosen_outputs import AveragesOutput, FieldsOutput, MovieOutput, ScalarsOutput
from slipstream.case.durations import seconds_of
from slipstream.case.table import (
    Positive,
    Table,
    as_tuple,
    one_of,
    three,
)
from slipstream.case.toml_writer import to_toml


class Grid(Table):
    """``[grid]``: the points.

    Attributes
    ----------
    points : int or tuple of 3 int
        Number of points along x, y and z; one number for a cube.
    """

    points: Annotated[Any, BeforeValidator(as_tuple)]

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


def _checked_duration(duration: Any) -> Any:
    seconds_of(duration)
    return duration


class Time(Table):
    """``[time]``: how far to go.

    Attributes
    ----------
    end : float
        Time at which the run ends (non-dimensional).
    max_steps : int or None
        Number of steps after which the run ends even if `end` is not reached. Steps of an earlier
        run, from whose state this one starts, do not count.
    wall : str, float or None
        How long the process may take, by the clock: ``"23h30m"``, or seconds. The run ends early
        enough to write its last state, and can go on.
    """

    end: Positive
    max_steps: Annotated[int, Field(gt=0)] | None = None
    wall: Annotated[str | float, BeforeValidator(_checked_duration)] | None = None

    @property
    def wall_seconds(self) -> float | None:
        """The seconds of `wall`."""
        return None if self.wall is None else seconds_of(self.wall)


class Run(Table):
    """``[run]``: where and in which order the work is done; results do not depend on it.

    Attributes
    ----------
    device : str
        "auto", which takes a GPU where there is one, or a name of `slipstream.accepted.DEVICES`.
    timeline : bool
        Whether to draw which work was done when.
    """

    device: Annotated[str, one_of(DEVICES, auto=True)] = "auto"
    timeline: bool = False


class Output(Table):
    """``[output]``: what is written, and how often.

    Attributes
    ----------
    diagnostics_interval : float
        Time between rows of the time series; a fraction of the run by default.
    fields_interval : float or None
        Time between snapshots of the fields, which adaptive steps hit exactly; None writes the last
        state only.
    pictures : bool
        Whether to draw pictures at the end.
    report : bool
        Whether to write ``report.html`` at the end, with the pictures that are drawn.
    checkpoint : bool
        Whether to write the state from which a later run can go on.
    checkpoint_interval : float or None
        Time between such states; None writes them by `checkpoint_minutes` and at the end only.
    checkpoint_minutes : float
        Minutes by the clock after which the state is written in any case.
    keep_checkpoints : int
        How many states are kept, the latest ones.
    fields : tuple of FieldsOutput
        Fields and expressions, of all points or some, into files of their own.
    scalars : tuple of ScalarsOutput
        Expressions that are reduced to numbers.
    averages : tuple of AveragesOutput
        Averages over time of fields and expressions, with errors.
    movies : tuple of MovieOutput
        Planes, frame by frame.
    """

    diagnostics_interval: Positive
    fields_interval: Positive | None = None
    pictures: bool = True
    report: bool = True
    checkpoint: bool = True
    checkpoint_interval: Positive | None = None
    checkpoint_minutes: Positive = 15.0
    keep_checkpoints: Annotated[int, Field(ge=1)] = 2
    fields: Annotated[tuple[FieldsOutput, ...], BeforeValidator(as_tuple)] = ()
    scalars: Annotated[tuple[ScalarsOutput, ...], BeforeValidator(as_tuple)] = ()
    averages: Annotated[tuple[AveragesOutput, ...], BeforeValidator(as_tuple)] = ()
    movies: Annotated[tuple[MovieOutput, ...], BeforeValidator(as_tuple)] = ()

    def interval(self, kind: str) -> float | None:
        """Return the interval of some output; None if there is none."""
        return getattr(self, f"{kind}_interval", None)


class Case(Table):
    """What cases of all solver families have.

    Attributes
    ----------
    solver : str
        Name of the solver family, and of its package.
    title : str
        For people: heads the output and the pictures.
    time : Time
        How far to go.
    run : Run
        Where and in which order the work is done.
    output : Output
        What is written, and how often.
    """

    # Keys of the file that a key on the command line displaces, since they exclude each other.
    displaces: ClassVar[dict[str, tuple[str, ...]]] = {}
    # Keys of the file that are removed together with a displaced one.
    goes_with: ClassVar[dict[str, tuple[str, ...]]] = {}
    # How often something is written in a run whose interval for it is not given.
    occasions: ClassVar[dict[str, int]] = {"diagnostics_interval": 200}
    # How many time steps are done at once.
    steps_at_once: ClassVar[int] = 1

    solver: str
    title: str = ""
    time: Time
    run: Run = Run()
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
        # Without a usable end time, whose own error is the one to report, any value will do.
        end = end if isinstance(end, int | float) and end > 0 else 1.0
        defaults = {key: end / count for key, count in cls.occasions.items()}
        return {**data, "output": {**defaults, **output}}

    @classmethod
    def suited_to(cls, data: dict[str, Any]) -> type["Case"]:
        """Return the class that validates these tables: this one, if keys are always the same."""
        return cls

    def with_own_code(self, data: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the tables of an earlier run's case, with no code but what this case names.

        `source` is where they come from; an `InputError` if they need other code.
        """
        return data

    @property
    def points(self) -> int | None:
        """Number of grid points that one time step updates; None if the case does not tell."""
        raise NotImplementedError

    @property
    def most_ranks(self) -> int | None:
        """How many ranks can have a part of the work; None if the case does not tell."""
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
        """How the time step is chosen, for people."""
        return f"fixed step {self.fixed_step:.6g}"

    def to_toml(self) -> str:
        """Return the effective case as TOML; loading it gives an equal case."""
        data = self.model_dump(mode="json", exclude_none=True)
        # What is solved comes before how far, where and what is written.
        shared = {name: data.pop(name) for name in ("time", "run", "output")}
        shared["output"] = {key: value for key, value in shared["output"].items() if value != []}
        return to_toml({**data, **shared})
