"""The tables of the ``lattice`` family: flow through the pores of voxel images.

Numbers per axis are given in the order x, y, z; arrays in memory are [z, y, x]. Forces, pressures
and times are in lattice units: voxels, time steps, and the density of the fluid at rest.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from slipstream.case.common_tables import Case, Output, Positive, Run, Table, Time
from slipstream.case.lattice_image_table import KEYS_OF_FILES, KEYS_OF_SAMPLES, Axis, Image

__all__ = ["Convergence", "Flow", "Image", "LatticeCase", "LatticeRun", "Numerics"]


def _whole(value: Any) -> Any:
    """Let a whole number pass that is written with a decimal point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _even(number: int) -> int:
    if number % 2:
        raise ValueError(f"accepted: even numbers, as steps come in pairs, not {number}")
    return number


EvenSteps = Annotated[int, BeforeValidator(_whole), Field(gt=0), AfterValidator(_even)]


class Flow(Table):
    """``[flow]``: the fluid, and what drives it.

    Attributes
    ----------
    axis : {"x", "y", "z"}
        Along which it flows.
    relaxation_time : float
        Of the even part; the viscosity is (relaxation_time - 1/2) / 3. The permeability does not
        depend on it.
    magic : float
        (relaxation_time - 1/2) times the same of the odd part.
    force : float or None
        Force per volume along the axis; 1e-5 unless `pressure_drop` is given.
    pressure_drop : float or None
        Difference of pressure between the two ends of the axis, instead of a force.
    inertia : bool
        Navier-Stokes instead of Stokes flow.
    """

    axis: Axis = "z"
    relaxation_time: Annotated[float, Field(gt=0.5)] = 1.0
    magic: Positive = 3 / 16
    force: Positive | None = None
    pressure_drop: Positive | None = None
    inertia: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_way_to_drive(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("force") is not None and data.get("pressure_drop") is not None:
            raise ValueError("give one of 'force' and 'pressure_drop', not both")
        if data.get("pressure_drop") is None:
            return {"force": 1e-5, **{k: v for k, v in data.items() if v is not None}}
        return data


class LatticeTime(Time):
    """``[time]`` of the lattice family, in time steps.

    Attributes
    ----------
    end : int
        Number of time steps at which the run ends if it has not converged; an even number, as steps
        come in pairs.
    max_steps : int or None
        Number of time steps of this run, also of one that goes on from another's state; even.
    """

    end: EvenSteps
    max_steps: EvenSteps | None = None


class Convergence(Table):
    """``[convergence]``: when the flow counts as steady, which ends the run.

    Attributes
    ----------
    tolerance : float
        Estimated relative distance to the permeability of the steady flow; 0 for never.
    interval : int
        Time steps between two looks; an even number.
    """

    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    interval: EvenSteps = 100


class Numerics(Table):
    """``[numerics]``: how populations are stored.

    Attributes
    ----------
    precision : {"float64", "float32", "mixed"}
        Of storage and arithmetic; mixed stores float32 and computes with float64.
    propagation, layout, order, encoding : str
        See `slipstream.lattice.Storage`; "auto" for what is fastest, which is measured. Results do
        not depend on them.
    """

    precision: Literal["float64", "float32", "mixed"] = "float64"
    propagation: Literal["auto", "two-lattice", "aa"] = "auto"
    layout: Literal[
        "auto", "stream", "collision", "bundle", "vector-collision", "vector-bundle"
    ] = "auto"
    order: Literal["auto", "raster", "row-tiles"] = "auto"
    encoding: Literal["auto", "wide", "compact", "strips"] = "auto"

    @model_validator(mode="after")
    def _strips_have_one_layout(self):
        if self.encoding == "strips" and self.layout not in ("auto", "stream"):
            raise ValueError(
                f"encoding 'strips' needs layout 'stream', not {self.layout!r}; accepted with it:"
                " auto, compact, wide"
            )
        return self


class LatticeRun(Run):
    """``[run]`` of the lattice family.

    Attributes
    ----------
    partition : {"bisection", "cartesian"}
        Whether ranks have boxes with about as many pores each, or of about the same size.
    schedule : {"overlap", "serial"}
        Whether communication hides behind computation; both give identical bits.
    transport : str
        How ranks exchange populations.
    """

    partition: Literal["bisection", "cartesian"] = "bisection"
    schedule: Literal["overlap", "serial"] = "overlap"
    transport: Literal["auto", "peer", "nccl", "mpi-p2p", "mpi", "mpi-device-p2p", "mpi-device"] = (
        "auto"
    )


class Initial(Table):
    """``[initial]``: the state at the start: a fluid at rest, or that of an earlier run.

    Attributes
    ----------
    restart : str or None
        Output folder of an earlier run whose last state to go on from.
    """

    restart: Annotated[str, Field(min_length=1)] | None = None


class LatticeOutput(Output):
    """``[output]`` of the lattice family.

    Attributes
    ----------
    vtk : bool
        Whether to write the last state as ``flow.vti`` too.
    """

    vtk: bool = False


class LatticeCase(Case):
    """A case of the ``lattice`` family.

    Attributes
    ----------
    image : Image
        The pores.
    flow : Flow
        The fluid, and what drives it.
    initial : Initial
        The state at the start.
    time : LatticeTime
        How far to go at most.
    convergence : Convergence
        When the flow counts as steady.
    numerics : Numerics
        How populations are stored.
    run : LatticeRun
        Where and in which order the work is done.
    output : LatticeOutput
        What is written, and how often.
    """

    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        "flow.force": ("flow.pressure_drop",),
        "flow.pressure_drop": ("flow.force",),
        "image.path": ("image.sample",),
        "image.sample": ("image.path",),
    }
    goes_with: ClassVar[dict[str, tuple[str, ...]]] = {
        "image.sample": tuple(f"image.{key}" for key in KEYS_OF_SAMPLES),
        "image.path": tuple(f"image.{key}" for key in KEYS_OF_FILES),
    }
    occasions: ClassVar[dict[str, int]] = {}
    steps_at_once: ClassVar[int] = 2

    solver: Literal["lattice"]
    image: Image
    flow: Flow = Flow()
    initial: Initial = Initial()
    time: LatticeTime
    convergence: Convergence = Convergence()
    numerics: Numerics = Numerics()
    run: LatticeRun = LatticeRun()
    output: LatticeOutput

    @model_validator(mode="before")
    @classmethod
    def _show_what_is_looked_at(cls, data: Any) -> Any:
        """Write a row of diagnostics at each look at the permeability, which then costs nothing."""
        if not isinstance(data, dict):
            return data
        output, convergence = data.get("output", {}), data.get("convergence", {})
        if not isinstance(output, dict) or not isinstance(convergence, dict):
            return data
        interval = convergence.get("interval", Convergence.model_fields["interval"].default)
        # Without a usable interval, whose own error is the one to report, any value will do.
        interval = interval if isinstance(interval, int | float) and interval > 0 else 1
        return {**data, "output": {"diagnostics_interval": float(interval), **output}}

    @model_validator(mode="after")
    def _flow_is_not_walled_in(self):
        if self.flow.axis in self.image.walls:
            others = [name for name in "xyz" if name != self.flow.axis]
            raise ValueError(
                f"image.walls: {list(self.image.walls)} closes flow.axis = {self.flow.axis!r};"
                f" accepted: any of {', '.join(others)}"
            )
        return self

    @property
    def points(self) -> None:
        """What is updated is known when the image has been read."""

    @property
    def fixed_step(self) -> float:
        """The time step, in lattice units: a pair of steps."""
        return float(self.steps_at_once)

    @property
    def ends_early(self) -> bool:
        """Whether the run is over when the flow is steady."""
        return self.convergence.tolerance > 0

    @property
    def stepping(self) -> str:
        """How the time step is chosen, for people."""
        if not self.ends_early:
            return "in lattice steps"
        return f"in lattice steps, or when within {self.convergence.tolerance:g} of steady"
