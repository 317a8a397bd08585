"""The tables that cases of every solver family share."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slipstream.case.toml import to_toml

Positive = Annotated[float, Field(gt=0)]


class Table(BaseModel):
    """One table of a case: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Time(Table):
    """``[time]``: how far to go, and in which steps.

    Attributes
    ----------
    end : float
        Time at which the run ends (non-dimensional).
    step : float or None
        Fixed time step (non-dimensional); exactly one of `step` and `cfl` is given.
    cfl : float or None
        Courant number of an adaptive time step, 0 < cfl <= 2.
    max_step : float or None
        Upper bound of an adaptive time step (non-dimensional).
    max_steps : int or None
        Number of steps after which the run ends even if `end` is not reached. It counts the steps
        of this run: one that goes on from another's state has as many again.
    """

    end: Positive
    step: Positive | None = None
    cfl: Annotated[float, Field(gt=0, le=2)] | None = None
    max_step: Positive | None = None
    max_steps: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_way_to_step(self):
        if (self.step is None) == (self.cfl is None):
            given = "neither" if self.step is None else "both"
            raise ValueError(
                f"exactly one of 'step' (fixed) and 'cfl' (adaptive) is needed, {given} given"
            )
        if self.max_step is not None and self.cfl is None:
            raise ValueError("'max_step' bounds an adaptive step: it goes with 'cfl', not 'step'")
        return self


class Run(Table):
    """``[run]``: where and in which order the work is done; results do not depend on it.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
        Processor; "auto" takes a GPU where there is one.
    schedule : {"overlap", "serial"}
        Whether communication hides behind computation; both give identical bits.
    transport : {"auto", "mpi-p2p", "mpi", "nccl"}
        How ranks exchange data.
    timeline : bool
        Whether to draw which work was done when.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    schedule: Literal["overlap", "serial"] = "overlap"
    transport: Literal["auto", "mpi-p2p", "mpi", "nccl"] = "auto"
    timeline: bool = False


class Output(Table):
    """``[output]``: what is written, and how often.

    Attributes
    ----------
    diagnostics_interval : float
        Time between rows of the time series; by default a 200th of the run.
    spectra_interval : float
        Time between spectra; by default a 20th of the run.
    fields_interval : float or None
        Time between snapshots of the fields; None writes the last state only.
    pictures : bool
        Whether to draw pictures at the end.
    checkpoint : bool
        Whether to write the state from which a later run can go on.
    checkpoint_interval : float or None
        Time between such states, each of which replaces the one before; None writes the last only.
    """

    diagnostics_interval: Positive
    spectra_interval: Positive
    fields_interval: Positive | None = None
    pictures: bool = True
    checkpoint: bool = True
    checkpoint_interval: Positive | None = None


class Case(Table):
    """What every case has, whichever solver family it is for.

    Attributes
    ----------
    solver : str
        Name of the solver family.
    title : str
        For people: heads the output and the pictures.
    time : Time
        How far to go, and in which steps.
    run : Run
        Where and in which order the work is done.
    output : Output
        What is written, and how often.
    """

    # A key given on the command line displaces these, which the file may hold and which could
    # not stand beside it.
    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        "time.step": ("time.cfl", "time.max_step"),
        "time.cfl": ("time.step",),
    }

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
        defaults = {"diagnostics_interval": end / 200, "spectra_interval": end / 20}
        return {**data, "output": {**defaults, **output}}

    @property
    def points(self) -> int:
        """Number of grid points that one time step updates."""
        raise NotImplementedError

    def to_toml(self) -> str:
        """Return the effective case as TOML; loading it gives an equal case."""
        data = self.model_dump(mode="json", exclude_none=True)
        # What is solved comes before how far, where and what is written.
        shared = {name: data.pop(name) for name in ("time", "run", "output")}
        return to_toml({**data, **shared})
