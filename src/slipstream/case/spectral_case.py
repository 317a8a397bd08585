"""The tables of the ``spectral`` family: turbulence in periodic boxes.

Sizes and lengths are given in the order x, y, z; arrays in memory are [z, y, x]. All
quantities are non-dimensional.
"""

import functools
import math
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from slipstream.case.common_tables import (
    Case,
    Grid,
    Output,
    Positive,
    Precision,
    Table,
    Time,
    as_tuple,
    three,
)
from slipstream.case.spectral_initial_table import Initial, as_three
from slipstream.case.spectral_run_table import SpectralRun

_MULTIPLE_OF_PI = re.compile(
    r"\s*(?P<factor>[0-9]+(\.[0-9]*)?|\.[0-9]+)?\s*\*?\s*pi\s*(/\s*(?P<divisor>[0-9.]+))?\s*"
)


def length_value(length: float | str) -> float:
    """Return a length that may be written as a multiple of pi.

    Parameters
    ----------
    length : float or str
        A number, or text such as ``"2 pi"``, ``"pi"``, ``"4*pi"`` or ``"pi/2"``.

    Returns
    -------
    float
        The length (non-dimensional).

    Raises
    ------
    ValueError
        If the text is no multiple of pi, or the length is not positive and finite.
    """
    accepted = 'accepted: a positive number, or a multiple of pi such as "2 pi", "pi" or "pi/2"'
    if isinstance(length, bool) or not isinstance(length, int | float | str):
        raise ValueError(f"{length!r} is no length; {accepted}")
    value = float(length) if not isinstance(length, str) else _multiple_of_pi(length)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{length!r} is no length; {accepted}")
    return value


def _multiple_of_pi(text: str) -> float:
    """Return the value of `text`, not-a-number where it cannot be read."""
    match = _MULTIPLE_OF_PI.fullmatch(text)
    try:
        if match is None:
            return float(text)
        return float(match["factor"] or 1) * math.pi / float(match["divisor"] or 1)
    except (ValueError, ZeroDivisionError):
        return math.nan


class SpectralGrid(Grid):
    """``[grid]`` of the spectral family: the periodic box and its points.

    Attributes
    ----------
    length : float, str or tuple of 3
        Length of the box along x, y and z (non-dimensional), or multiples of pi as text.
    """

    length: Annotated[Any, BeforeValidator(as_tuple)] = "2 pi"

    @field_validator("length")
    @classmethod
    def _readable_lengths(cls, length: Any) -> Any:
        lengths = three(length)
        if len(lengths) != 3:
            raise ValueError("accepted: one length, or three for x, y and z")
        for one in lengths:
            length_value(one)
        return length

    @property
    def lengths_xyz(self) -> tuple[float, float, float]:
        """Length of the box along x, y and z (non-dimensional)."""
        return tuple(length_value(length) for length in three(self.length))


class Equation(Table):
    """``[equation]``: what is solved. The model's own parameters are keys too.

    Attributes
    ----------
    model : str
        "hd", "boussinesq", "mhd", "gpe", or "FILE.py:FUNCTION" for one of the user's own.
    """

    model: str = "hd"

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the model."""
        return {key: value for key, value in self if key != "model"}


class Forcing(Table):
    """``[forcing]``: what drives a field; without this table nothing does.

    Attributes
    ----------
    kind : {"random", "taylor-green", "abc", "formula"}
        Random modes, a pattern that does not change, or a function of position and time.
    field : str
        The field that is forced.
    amplitude : float
        Largest force of "taylor-green" and "abc", root mean square of a component of "random".
    wavenumber : int
        Number of waves of "taylor-green" and "abc" along each axis of the box.
    coefficients : tuple of 3 float
        A, B and C of "abc".
    formula : str or tuple of str
        Of "formula": of x, y, z and the time t, for each component.
    shells : tuple of 2 int
        First and last shell of "random".
    seed : int
        Seed of "random".
    correlation_time : float
        Time after which "random" is another one; 0 for one that stays.
    injection : float or None
        Energy injected per time; the force's strength follows from it.
    """

    kind: Literal["random", "taylor-green", "abc", "formula"]
    field: str = "velocity"
    amplitude: float = 1.0
    wavenumber: Annotated[int, Field(gt=0)] = 1
    coefficients: Annotated[tuple[float, float, float], BeforeValidator(as_three)] = (1.0,) * 3
    formula: Annotated[Any, BeforeValidator(as_tuple)] = None
    shells: Annotated[tuple[int, int], BeforeValidator(as_tuple)] = (1, 2)
    seed: Annotated[int, Field(ge=0)] = 0
    correlation_time: Annotated[float, Field(ge=0)] = 0.0
    injection: Positive | None = None

    @model_validator(mode="after")
    def _agree(self):
        if (self.formula is not None) != (self.kind == "formula"):
            raise ValueError("'formula' goes with kind = \"formula\", and only with that")
        if not 1 <= self.shells[0] <= self.shells[1]:
            raise ValueError("'shells' are the first, at least 1, and the last")
        return self


class SpectralTime(Time):
    """``[time]`` of the spectral family: how far to go, and in which steps.

    Attributes
    ----------
    step : float or None
        Fixed time step (non-dimensional); exactly one of `step` and `cfl` is given.
    cfl : float or None
        Courant number of an adaptive time step, 0 < cfl <= 2.
    max_step : float or None
        Upper bound of an adaptive time step (non-dimensional).
    integrator : {"rk2", "heun", "rk3", "rk4", "jst3", "jst4"}
        Runge-Kutta method of order 2, 2, 3 or 4, or of Jameson, Schmidt and Turkel in 3 or 4
        substages.
    """

    step: Positive | None = None
    cfl: Annotated[float, Field(gt=0, le=2)] | None = None
    max_step: Positive | None = None
    integrator: Literal["rk2", "heun", "rk3", "rk4", "jst3", "jst4"] = "rk4"

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


class SpectralOutput(Output):
    """``[output]`` of the spectral family.

    Attributes
    ----------
    spectra_interval : float
        Time between spectra; by default a 20th of the run.
    transfer_interval, anisotropic_interval, structure_interval, pdf_interval : float or None
        Time between energy transfer and flux, spectra across and along z, structure functions, and
        probability densities; None leaves them out.
    """

    spectra_interval: Positive
    transfer_interval: Positive | None = None
    anisotropic_interval: Positive | None = None
    structure_interval: Positive | None = None
    pdf_interval: Positive | None = None


class Numerics(Table):
    """``[numerics]``: how the equations are discretised.

    Attributes
    ----------
    precision : {"float64", "float32"}
        Floating-point type of the fields.
    dealiasing : {"2/3", "2/3 sphere", "phase-shift", "1/2", "none"}
        Which modes are dropped so that products do not alias: of two factors, also in a sphere or
        with shifted grids; of three.
    integrating_factor : bool
        Whether the viscous term is integrated exactly.
    """

    precision: Precision = "float64"
    dealiasing: Literal["2/3", "2/3 sphere", "phase-shift", "1/2", "none"] = "2/3"
    integrating_factor: bool = True


class SpectralCase(Case):
    """A case of the ``spectral`` family.

    Attributes
    ----------
    grid : SpectralGrid
        The periodic box and its points.
    equation : Equation
        What is solved.
    initial : Initial
        The state at the start.
    forcing : Forcing or None
        What drives a field.
    time : SpectralTime
        How far to go, and in which steps.
    numerics : Numerics
        How the equations are discretised.
    run : SpectralRun
        Where and in which order the work is done.
    output : SpectralOutput
        What is written, and how often.
    """

    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        "time.step": ("time.cfl", "time.max_step"),
        "time.cfl": ("time.step",),
        "initial.flow": ("initial.restart",),
        "initial.restart": tuple(
            f"initial.{key}" for key in Initial.model_fields if key != "restart"
        ),
    }
    occasions: ClassVar[dict[str, int]] = {**Case.occasions, "spectra_interval": 20}

    solver: Literal["spectral"]
    title: str = ""
    grid: SpectralGrid
    equation: Equation
    initial: Initial
    forcing: Forcing | None = None
    time: SpectralTime
    numerics: Numerics = Numerics()
    run: SpectralRun = SpectralRun()
    output: SpectralOutput

    @classmethod
    def suited_to(cls, data: dict[str, Any]) -> type[Case]:
        """Return the class whose equation has the parameters of the model that is asked for."""
        equation = data.get("equation")
        name = equation.get("model", "hd") if isinstance(equation, dict) else "hd"
        return _case_of_model(name) if isinstance(name, str) else cls

    def __reduce__(self):
        """Let ranks send cases to each other, though classes are made for models."""
        return _again, (self.model_dump(exclude_unset=True),)

    @property
    def points(self) -> int:
        """Number of grid points that one time step updates."""
        return math.prod(self.grid.points_xyz)

    @property
    def fixed_step(self) -> float | None:
        """The time step (non-dimensional) where it is always the same."""
        return self.time.step

    @property
    def stepping(self) -> str:
        """How the time step is chosen, for people."""
        time = self.time
        if time.step is not None:
            return super().stepping
        bound = f", at most {time.max_step:g}" if time.max_step is not None else ""
        return f"adaptive step, Courant number {time.cfl:g}{bound}"


@functools.cache
def _case_of_model(name: str) -> type[SpectralCase]:
    # The language of equations takes a while to import, which other families need not wait for.
    from slipstream.equations import models

    keys = models.parameters_of(models.find(name))
    equation = create_model("Equation", __base__=Equation, **keys)
    return create_model("SpectralCase", __base__=SpectralCase, equation=(equation, ...))


def _again(data: dict[str, Any]) -> SpectralCase:
    return SpectralCase.suited_to(data).model_validate(data)
