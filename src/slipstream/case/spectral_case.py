"""The tables of the ``spectral`` family: equations, turbulence above all, in periodic boxes.

Sizes and lengths are given in the order x, y, z; arrays in memory are [z, y, x]. All
quantities are non-dimensional.
"""

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from slipstream.accepted import (
    COPIES,
    DEALIASINGS,
    FORCINGS,
    GPU_TRANSPORTS,
    INITIAL_FLOWS,
    INTEGRATORS,
    MAGNETIC_FIELDS,
    MAX_STREAMS,
    MODELS,
    RESIDENCIES,
    SCHEDULES,
    TRANSPORTS,
    UPDATES,
)
from slipstream.byte_sizes import bytes_of
from slipstream.case.common_tables import (
    Case,
    Grid,
    Output,
    Run,
    Time,
)
from slipstream.case.table import (
    Positive,
    Precision,
    Table,
    as_three,
    as_tuple,
    as_tuples,
    one_of,
    three,
)
from slipstream.errors import InputError
from slipstream.printable_text import shown

# The keys of each flow and their defaults; `...` is none.
FLOW_KEYS: dict[str, dict[str, Any]] = {
    "taylor-green": {"amplitude": 1.0, "wavenumber": 1, "magnetic": "none"},
    "abc": {"amplitude": 1.0, "wavenumber": 1, "coefficients": (1.0, 1.0, 1.0)},
    "random": {"amplitude": 1.0, "seed": 0, "peak_wavenumber": 4.0},
    "orszag-tang": {"amplitude": 1.0},
    "orszag-tang-3d": {"amplitude": 1.0},
    "quantum-taylor-green": {"amplitude": 1.0},
    "solitons": {"speed": 0.5},
    "wave": {"wavevector": ..., "amplitude": 1.0, "branch": 0},
    "file": {"path": ..., "time": None},
    "formula": {"fields": {}},
}
# The keys of each kind of forcing, beside those that all have.
FORCING_KEYS: dict[str, tuple[str, ...]] = {
    "random": ("amplitude", "shells", "seed", "correlation_time"),
    "taylor-green": ("amplitude", "wavenumber"),
    "abc": ("amplitude", "wavenumber", "coefficients"),
    "formula": ("formula",),
}

_MULTIPLE_OF_PI = re.compile(
    r"\s*(?P<factor>[0-9]+(\.[0-9]*)?|\.[0-9]+)?\s*\*?\s*pi\s*(/\s*(?P<divisor>[0-9.]+))?\s*"
)


def length_value(length: float | str) -> float:
    """Return a length that may be text: a multiple of pi such as ``"2 pi"`` or ``"pi/2"``."""
    accepted = 'accepted: a positive number, or a multiple of pi such as "2 pi", "pi" or "pi/2"'
    if isinstance(length, bool) or not isinstance(length, int | float | str):
        raise ValueError(f"{shown(length)} is no length; {accepted}")
    value = float(length) if not isinstance(length, str) else _multiple_of_pi(length)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{shown(length)} is no length; {accepted}")
    if not 1e-100 <= value <= 1e100:
        raise ValueError(f"{shown(length)} is no length; accepted: 1e-100 to 1e100")
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
        lx, ly, lz = (length_value(length) for length in three(self.length))
        return lx, ly, lz


class Equation(Table):
    """``[equation]``: what is solved. The model's own parameters are keys too.

    Attributes
    ----------
    model : str
        A name of `slipstream.accepted.MODELS`, or "FILE.py:FUNCTION" for one of the user's own.
    """

    model: str = "hd"

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the model."""
        return {key: value for key, value in self if key != "model"}


class Initial(Table):
    """``[initial]``: the state at the start; keys of other flows are refused.

    Attributes
    ----------
    flow : str or None
        A name of `slipstream.accepted.INITIAL_FLOWS`; exactly one of `flow` and `restart` is given.
        Fields that the flow does not set are zero.
    amplitude : float
        Velocity scale (non-dimensional); for "random" the root mean square of a component, so that
        the energy is 3/2 of its square (in a plane its square); for "wave" the root mean square of
        all components of the state together, of which half the square is the energy.
    wavenumber : int
        Number of waves of "taylor-green" and "abc" along each axis of the box.
    magnetic : str
        Magnetic field of "taylor-green", with the energy of the velocity: a name of
        `slipstream.accepted.MAGNETIC_FIELDS`.
    coefficients : tuple of 3 float
        A, B and C of "abc".
    seed : int
        Seed of "random": the same seed gives the same flow on any number of ranks.
    peak_wavenumber : float
        Wavenumber at which the spectrum of "random" is largest.
    fields : dict
        Of "formula": by field, a formula of x, y and z, or three for a vector.
    speed : float
        Of "solitons": that of the first, in units of the speed of sound, above -1 and below 1.
    wavevector : tuple of 3 int
        Of "wave": number of waves along x, y and z.
    branch : int
        Of "wave": which one, from 0 for that of the highest frequency.
    path : str
        Of "file": output folder of a run, zarr folder, HDF5 file or .npz file, with arrays that are
        named as components are and have the grid's points.
    time : int or None
        Of "file": which snapshot, from 0; by default the last.
    restart : str or None
        Output folder of an earlier run whose last state to go on from.
    """

    flow: Annotated[str, one_of(INITIAL_FLOWS)] | None = None
    amplitude: float | None = None
    wavenumber: Annotated[int, Field(gt=0)] | None = None
    magnetic: Annotated[str, one_of(MAGNETIC_FIELDS)] | None = None
    coefficients: Annotated[tuple[float, float, float], BeforeValidator(as_three)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    peak_wavenumber: Positive | None = None
    fields: dict[str, Annotated[Any, BeforeValidator(as_tuple)]] | None = None
    speed: Annotated[float, Field(gt=-1, lt=1)] | None = None
    wavevector: Annotated[tuple[int, int, int], BeforeValidator(as_three)] | None = None
    branch: Annotated[int, Field(ge=0)] | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    time: Annotated[int, Field(ge=0)] | None = None
    restart: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_the_flows_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        flow, others = data.get("flow"), set(data) - {"flow", "restart"}
        if (flow is None) == (data.get("restart") is None):
            raise ValueError(
                f"exactly one of 'flow' ({', '.join(INITIAL_FLOWS)}) and 'restart' (an earlier"
                f" run's output folder) is needed, {'neither' if flow is None else 'both'} given"
            )
        if flow is not None and flow not in tuple(INITIAL_FLOWS):  # a list has no hash
            return data
        accepted = FLOW_KEYS[flow] if flow is not None else {}
        for key in sorted(others & set(cls.model_fields) - set(accepted)):
            belongs = f"flow = {flow!r}" if flow is not None else "'restart'"
            raise ValueError(
                f"{key!r} does not belong to {belongs}; accepted with it:"
                f" {', '.join(accepted) or 'nothing else'}"
            )
        needed = [key for key, default in accepted.items() if default is ... and key not in data]
        if needed:
            raise ValueError(f"{needed[0]!r} is missing, which flow = {flow!r} needs")
        return {**{key: one for key, one in accepted.items() if one is not ...}, **data}


class Forcing(Table):
    """``[forcing]``: what drives a field; without this table nothing does.

    Attributes
    ----------
    kind : str
        A name of `slipstream.accepted.FORCINGS`: random modes, a pattern that does not change, or a
        function of position and time.
    field : str
        The field that is forced.
    amplitude : float
        Largest force along x of "taylor-green"; factor of A, B and C of "abc", whose largest force
        is sqrt(6) of it where these are 1; root mean square of a component of "random" (of the two
        in the plane if the grid has one point along an axis).
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
        Time after which "random" draws another pattern; 0 for a constant one.
    injection : float or None
        Energy injected per time; the force's strength follows from it.
    """

    kind: Annotated[str, one_of(FORCINGS)]
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
    def _agree(self) -> Self:
        if (self.formula is not None) != (self.kind == "formula"):
            raise ValueError("'formula' goes with kind = \"formula\", and only with that")
        for name in sorted(self.model_fields_set - {"kind", "field", "injection"}):
            # Cases that a run has written have all keys, with what they are by default.
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if name not in FORCING_KEYS[self.kind] and not is_default:
                raise ValueError(
                    f"{name!r} does not belong to kind = {self.kind!r}; accepted with it: field,"
                    f" injection, {', '.join(FORCING_KEYS[self.kind])}"
                )
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
    integrator : str
        Runge-Kutta method, a name of `slipstream.accepted.INTEGRATORS`.
    """

    step: Positive | None = None
    cfl: Annotated[float, Field(gt=0, le=2)] | None = None
    max_step: Positive | None = None
    integrator: Annotated[str, one_of(INTEGRATORS)] = "rk4"

    @model_validator(mode="after")
    def _one_way_to_step(self) -> Self:
        if (self.step is None) == (self.cfl is None):
            given = "neither" if self.step is None else "both"
            raise ValueError(
                f"exactly one of 'step' (fixed) and 'cfl' (adaptive) is needed, {given} given"
            )
        if self.max_step is not None and self.cfl is None:
            raise ValueError("'max_step' bounds an adaptive step: it goes with 'cfl', not 'step'")
        return self


class SpectralStreaming(Table):
    """``run.streaming``: how fields on the host stream; results do not depend on it.

    Attributes
    ----------
    tiles : int or None
        Number of tiles into which a pass cuts a rank's fields; by default as few as memory allows.
    tiles_per_exchange : int or None
        Number of tiles of planes between two exchanges; by default there are four exchanges.
    streams : int
        0 for a pipeline of copies in, work and copies out; 1 to 16 for streams that do all three.
    copies : str
        How tiles cross the bus: a name of `slipstream.accepted.COPIES`.
    devices : int
        How many GPUs of its node a rank streams through.
    update : str
        Where modes are advanced: with their tile on the "device", or by the cores of the "host".
    resident : bool
        Whether columns stay on the device, as far as memory allows. None do where a rank has
        several devices, or modes are advanced on the host.
    """

    tiles: Annotated[int, Field(ge=1)] | None = None
    tiles_per_exchange: Annotated[int, Field(ge=1)] | None = None
    streams: Annotated[int, Field(ge=0, le=MAX_STREAMS)] = 0
    copies: Annotated[str, one_of(COPIES)] = "memcpy2D"
    devices: Annotated[int, Field(ge=1)] = 1
    update: Annotated[str, one_of(UPDATES)] = "device"
    resident: bool = True


class SpectralRun(Run):
    """``[run]`` of the spectral family.

    Attributes
    ----------
    residency : {"device", "host", "auto"}
        Where the fields are: on the device, or on the host, from which they stream through it;
        "auto" takes the device if they fit there.
    memory : int, str or None
        What each rank may take of each of its devices, if the fields are on the host: bytes, or
        text such as "8 GiB"; by default its share of what is free.
    streaming : SpectralStreaming or None
        How fields on the host stream.
    schedule : str
        Whether communication hides behind computation: a name of `slipstream.accepted.SCHEDULES`,
        all of which give identical bits.
    transport : str
        How ranks exchange data: "auto", or a name of `slipstream.accepted.TRANSPORTS`.
    """

    schedule: Annotated[str, one_of(SCHEDULES)] = "overlap"
    transport: Annotated[str, one_of(TRANSPORTS, auto=True)] = "auto"
    residency: Annotated[str, one_of(RESIDENCIES, auto=True)] = "device"
    memory: int | str | None = None
    streaming: SpectralStreaming | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _is_a_size(cls, memory: Any) -> Any:
        try:
            if memory is not None:
                bytes_of(memory if isinstance(memory, int | str) else "")
        except InputError as error:
            raise ValueError(str(error)) from None
        return memory

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        for name in ("memory", "streaming"):
            if self.residency == "device" and getattr(self, name) is not None:
                raise ValueError(f'\'{name}\' goes with residency "host" or "auto"')
        if self.residency != "device" and self.transport in GPU_TRANSPORTS:
            others = ", ".join(name for name in TRANSPORTS if name not in GPU_TRANSPORTS)
            raise ValueError(
                f"transport {self.transport!r} exchanges between GPUs; with residency "
                f"{self.residency!r} accepted: auto, {others}"
            )
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
    cospectra : tuple
        Pairs of names or expressions, of which co-spectra are written with the spectra.
    """

    spectra_interval: Positive
    transfer_interval: Positive | None = None
    anisotropic_interval: Positive | None = None
    structure_interval: Positive | None = None
    pdf_interval: Positive | None = None
    cospectra: Annotated[Any, BeforeValidator(as_tuples)] = ()

    @field_validator("cospectra")
    @classmethod
    def _in_pairs(cls, cospectra: Any) -> Any:
        is_list = isinstance(cospectra, tuple)
        if not is_list or not all(
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(t, str) for t in pair)
            for pair in cospectra
        ):
            raise ValueError("accepted: a list of pairs, each a list of two names or expressions")
        return cospectra


class Numerics(Table):
    """``[numerics]``: how the equations are discretised.

    Attributes
    ----------
    precision : str
        Floating-point type of the fields, a name of `slipstream.accepted.PRECISIONS`.
    dealiasing : str
        Which modes are discarded so that products do not alias: a name of
        `slipstream.accepted.DEALIASINGS`.
    integrating_factor : bool
        Whether the viscous term is integrated exactly.
    """

    precision: Precision = "float64"
    dealiasing: Annotated[str, one_of(DEALIASINGS)] = "2/3"
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

    def with_own_code(self, data: dict[str, Any], source: str) -> dict[str, Any]:
        equation = data.get("equation")
        theirs = equation.get("model", "hd") if isinstance(equation, dict) else "hd"
        own = self.equation.model
        if not isinstance(theirs, str) or theirs in MODELS or theirs == own:
            return data
        # The file may have moved, but is called the same, and so is the function; a function of a
        # Python program may have been defined again.
        if Path(own).name.partition("#")[0] != Path(theirs).name.partition("#")[0]:
            raise InputError(
                f"{source} is of model {shown(theirs)}, this case of {shown(own)}; a model of a "
                "Python file is imported only if equation.model of this case names it; to take "
                "over fields alone: initial.flow = 'file'"
            )
        return {**data, "equation": {**data["equation"], "model": own}}

    def __reduce__(self) -> tuple[Any, ...]:
        """Let ranks send cases to each other, though classes are made for models."""
        return _again, (self.model_dump(exclude_unset=True),)

    @property
    def points(self) -> int:
        """Number of grid points that one time step updates."""
        return math.prod(self.grid.points_xyz)

    @property
    def most_ranks(self) -> int:
        """How many ranks can have planes along z, or modes of some wavenumbers along y."""
        return max(self.grid.points_xyz[1:])

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


def _case_of_model(name: str) -> type[SpectralCase]:
    # SymPy takes a while to import, for which other families need not wait.
    from slipstream.equations import models

    return _case_of_function(models.find(name))


@functools.cache
def _case_of_function(function: Callable[..., Any]) -> type[SpectralCase]:
    from slipstream.equations import models

    keys: dict[str, Any] = models.parameters_of(function)
    equation = create_model("Equation", __base__=Equation, **keys)
    return create_model("SpectralCase", __base__=SpectralCase, equation=(equation, ...))


def _again(data: dict[str, Any]) -> Case:
    return SpectralCase.suited_to(data).model_validate(data)
