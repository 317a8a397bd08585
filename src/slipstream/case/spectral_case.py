"""The tables of the ``spectral`` family: equations, turbulence above all, in periodic boxes.

Sizes and lengths are given in the order x, y, z; arrays in memory are [z, y, x]. All
quantities are non-dimensional.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from slipstream.case.common_tables import (
    Case,
    ExchangingRun,
    Grid,
    Initial,
    MemorySize,
    Output,
    Time,
)
from slipstream.case.named_tables import Body, ParticleSet, PassiveScalar, check_distinct
from slipstream.case.output_tables import DensitiesOutput
from slipstream.case.table import (
    Key,
    Positive,
    Precision,
    Such,
    Table,
    Unchecked,
    as_meaning,
    as_three,
    as_tuple,
    as_tuples,
    check_belongs,
    check_positive,
    meanings_of_parameters,
    one_of,
    three,
)
from slipstream.engine.accepted import (
    ALL_LINEAR,
    COPIES,
    DEALIASINGS,
    DECOMPOSITIONS,
    EXACT_TERMS,
    FORCING_KEYS,
    FORCINGS,
    GPU_TRANSPORTS,
    INITIAL_FLOWS,
    INTEGRATORS,
    MAGNETIC_FIELDS,
    MAX_STREAMS,
    MODELS,
    PLANES,
    RESIDENCIES,
    TRANSPORTS,
    UPDATES,
    WIRES,
    listed,
)
from slipstream.engine.errors import InputError, folder_names
from slipstream.engine.text import shown

# The keys of each flow and their defaults; `...` is none.
FLOW_KEYS: dict[str, dict[str, Any]] = {
    "taylor-green": {"amplitude": 1.0, "wavenumber": 1, "magnetic": "none"},
    "abc": {"amplitude": 1.0, "wavenumber": 1, "coefficients": (1.0, 1.0, 1.0)},
    "random": {"amplitude": 1.0, "seed": 0, "peak_wavenumber": 4.0},
    "orszag-tang": {"amplitude": 1.0},
    "orszag-tang-3d": {"amplitude": 1.0},
    "lamb-dipole": {"amplitude": 1.0, "radius": None},
    "quantum-taylor-green": {"amplitude": 1.0},
    "quantum-abc": {"amplitude": 1.0, "wavenumber": 1, "coefficients": (1.0, 1.0, 1.0)},
    "solitons": {"speed": 0.5},
    "vortex-ring": {"radius": None},
    "trefoil": {"radius": None},
    "cinquefoil": {"radius": None},
    "wave": {"wavevector": ..., "amplitude": 1.0, "branch": 0},
    "file": {"path": ..., "time": None},
    "formula": {"fields": {}},
}
# The forced shells of wavenumbers, except of linear forcing.
_SHELLS = (1, 2)

_MULTIPLE_OF_PI = re.compile(
    r"\s*(?P<factor>[0-9]+(\.[0-9]*)?|\.[0-9]+)?\s*\*?\s*pi\s*(/\s*(?P<divisor>[0-9.]+))?\s*"
)
# The Courant number of adaptive steps.
COURANT_NUMBER = 0.8
_PLANE = {"axis": "z", "position": 1.0}
# Initial flows that walls accept; None is the state of another run.
_WALL_FLOWS = (None, "taylor-green", "random", "file", "formula")
# The key whose phase shift walls refuse, and its values that they accept.
_UNSHIFTED = ("numerics.dealiasing", "'2/3', '2/3 sphere', '1/2' and 'none'")


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
    """``[grid]``: the box, periodic unless there are walls, and its points."""

    length: Unchecked[float | str | tuple[float | str, float | str, float | str]] = Key(
        "2 pi",
        "length of the box (non-dimensional): a number, a multiple of pi as text, or [x, y, z]",
    )

    walls: Literal["z"] | None = Key(
        None,
        "the axis that ends at walls, impermeable and free of friction, instead of a period;"
        " points are then in the middles of cells",
        example="z",
    )
    zero_at_walls: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Key(
        (),
        "scalars that are 0 at the walls (others are insulated there); vectors whose components"
        " along the walls are 0 there, instead of the normal one. Fields whose equations allow"
        " nothing else need not be named",
        example=["buoyancy"],
    )

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
    """``[equation]``: the model; its parameters are keys too."""

    model: Annotated[str, Such(MODELS)] = Key(
        "hd",
        'the equations, or "FILE.py:FUNCTION" for your own; their parameters are keys, which'
        " `slipstream explain THIS-FILE` lists",
    )

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the model."""
        return {key: value for key, value in self if key != "model"}


def model_in(equation: Mapping[str, Any]) -> Any:
    """Return the model of a table ``[equation]`` that has not been validated."""
    return equation.get("model", Equation.model_fields["model"].default)


class SpectralInitial(Initial):
    """``[initial]``: the state at the start: a flow, or the state of an earlier run.

    Fields that the flow does not set are zero. Keys of other flows are refused.
    """

    flow: Annotated[str, one_of(INITIAL_FLOWS)] | None = Key(
        None, "initial flow, unless `restart` is given", example="taylor-green"
    )
    amplitude: float | None = Key(
        None,
        'largest velocity along x of "taylor-green"; factor of A, B and C of "abc" and'
        ' "quantum-abc"; of "random": root'
        " mean square of a component, so that the energy is 3/2 of its square (in a plane its"
        ' square); of "wave": root mean square of all components together, so that the energy is'
        " half its square; of"
        ' "lamb-dipole": its speed along x',
        example=1.0,
    )
    wavenumber: Annotated[int, Field(gt=0)] | None = Key(
        None,
        'of "taylor-green", "abc" and "quantum-abc": number of waves along each axis',
        example=1,
    )
    magnetic: Annotated[str, one_of(MAGNETIC_FIELDS)] | None = Key(
        None,
        'of "taylor-green" where the model is "mhd": magnetic field, with the energy of the'
        " velocity",
        example="none",
    )
    radius: Positive | None = Key(
        None,
        'of "lamb-dipole", "vortex-ring", "trefoil" and "cinquefoil": its radius (default: an'
        " eighth of the shorter side; of rings and knots a sixth of the shortest)",
        example=0.5,
    )
    coefficients: Annotated[tuple[float, float, float], BeforeValidator(as_three)] | None = Key(
        None, 'of "abc" and "quantum-abc": A, B and C', example=[1, 1, 1]
    )
    seed: Annotated[int, Field(ge=0)] | None = Key(
        None, 'of "random": the same seed gives the same flow on any number of ranks', example=0
    )
    peak_wavenumber: Positive | None = Key(
        None, 'of "random": where its spectrum is largest', example=4.0
    )
    fields: dict[str, Annotated[Any, BeforeValidator(as_tuple)]] | None = Key(
        None,
        'of "formula": by field, a formula of x, y and z, or three for a vector',
        example={"velocity": ["sin(y)", "0", "0"], "buoyancy": "0.1*cos(z)"},
    )
    speed: Annotated[float, Field(gt=-1, lt=1)] | None = Key(
        None, 'of "solitons": speed of the first, relative to the speed of sound', example=0.5
    )
    wavevector: Annotated[tuple[int, int, int], BeforeValidator(as_three)] | None = Key(
        None, 'of "wave": number of waves along x, y and z', example=[1, 0, 2]
    )
    branch: Annotated[int, Field(ge=0)] | None = Key(
        None, 'of "wave": which one, from 0 for the highest frequency', example=0
    )
    path: Annotated[str, Field(min_length=1)] | None = Key(
        None,
        'of "file": a run\'s folder, zarr folder, HDF5 or .npz file, with arrays velocity_x, ... at'
        " the points of this grid, or at more or fewer in the same proportions",
        example="runs/earlier",
    )
    time: Annotated[int, Field(ge=0)] | None = Key(
        None, 'of "file": which snapshot, from 0 (default: the last)', example=0
    )

    @model_validator(mode="before")
    @classmethod
    def _only_the_flows_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        flow, other_keys = data.get("flow"), set(data) - {"flow", "restart"}
        if (flow is None) == (data.get("restart") is None):
            raise ValueError(
                f"exactly one of 'flow' ({', '.join(INITIAL_FLOWS)}) and 'restart' (an earlier"
                f" run's output folder) is needed, {'neither' if flow is None else 'both'} given"
            )
        if flow is not None and flow not in tuple(INITIAL_FLOWS):  # a list has no hash
            return data
        accepted = FLOW_KEYS[flow] if flow is not None else {}
        for key in sorted(other_keys & set(cls.model_fields) - set(accepted)):
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
    """``[forcing]``: what drives a field; forces of several tables ``[[forcing]]`` add up."""

    kind: Annotated[str, one_of(FORCINGS)] = Key(..., "what the force is", example="random")
    field: str = Key("velocity", "the field that is forced")
    amplitude: float = Key(
        1.0,
        'largest force along x of "taylor-green"; factor of A, B and C of "abc", whose largest'
        ' force is sqrt(6) of it where these are 1; of "random": root mean square of a component'
        " (of the two in the plane if the grid has one point along an axis); of"
        ' "ornstein-uhlenbeck": the same on average over time; without effect where injection sets'
        " the strength",
    )
    wavenumber: Annotated[int, Field(gt=0)] = Key(
        1, 'of "taylor-green" and "abc": number of waves along each axis'
    )
    coefficients: Annotated[tuple[float, float, float], BeforeValidator(as_three)] = Key(
        (1.0,) * 3, 'of "abc": A, B and C'
    )
    formula: Unchecked[str | tuple[str, ...] | None] = Key(
        None,
        'of "formula": of x, y, z and the time t, for each component',
        example=["sin(z)", "0", "0"],
    )
    shells: Annotated[tuple[int, int] | None, BeforeValidator(as_tuple)] = Key(
        None,
        f"first and last shell of wavenumbers that are forced (default: {list(_SHELLS)}, and all of"
        ' them for "linear")',
        example=list(_SHELLS),
    )
    seed: Annotated[int, Field(ge=0)] = Key(
        0,
        'of "random" and "ornstein-uhlenbeck": another seed, another force; each of several tables'
        " has its own numbers",
    )
    correlation_time: Annotated[float, Field(ge=0)] = Key(
        0.0,
        'of "random": time after which the pattern is another one, 0 for a constant one; of'
        ' "ornstein-uhlenbeck": integral correlation time, more than 0',
    )
    helicity: Annotated[float, Field(ge=-1, le=1)] = Key(
        0.0,
        'of "random" and "ornstein-uhlenbeck": helicity of each mode, relative to the largest that'
        " it can have: 1 or -1 for waves of one sign",
    )
    velocity: Annotated[tuple[float, float, float] | None, BeforeValidator(as_three)] = Key(
        None, 'of "mean-flow": the mean velocity, which each step ends with', example=[1, 0, 0]
    )
    rate: Positive | None = Key(
        None,
        'of "linear": the force is this rate times the field, so that it grows as exp(rate t)'
        " without other terms; either this or injection",
        example=0.1,
    )
    energy: Annotated[Unchecked[tuple[float, ...] | None], BeforeValidator(as_tuple)] = Key(
        None,
        'of "constant-energy": energy of each shell, from the first to the last (default: what it'
        " has at the start of each step)",
        example=[0.1, 0.05],
    )
    injection: Annotated[Unchecked[float | tuple[float, ...] | None], BeforeValidator(as_tuple)] = (
        Key(
            None,
            "energy injected per time, from which the strength of the force follows. Of"
            ' "linear": at every substage, to round-off; also for each component, as in'
            " [0.05, 0.05, 0]. Of others: at the beginning of each step, to first order in its"
            " length",
            example=0.1,
        )
    )

    @field_validator("injection", "energy", mode="after")
    @classmethod
    def _numbers(cls, value: Any, info: Any) -> Any:
        """Refuse values that are no power, or no energy."""
        several = value if isinstance(value, tuple) else (value,)
        is_number = all(
            type(number) in (int, float) and math.isfinite(number) for number in several
        )
        if value is None:
            return None
        if info.field_name == "energy":
            if not (isinstance(value, tuple) and is_number and all(number > 0 for number in value)):
                raise ValueError(
                    f"must be a list of numbers greater than 0, one for each shell, not"
                    f" {shown(value)}"
                )
            return tuple(map(float, value))
        if not is_number:
            raise ValueError(f"must be a number, or one for each component, not {shown(value)}")
        if not isinstance(value, tuple):
            if value <= 0:
                raise ValueError(f"must be greater than 0, not {shown(value)}")
            return float(value)
        if min(value, default=0) < 0 or not any(value):
            raise ValueError(
                f"must be numbers of at least 0, not all of them 0, not {shown(list(value))}"
            )
        return tuple(map(float, value))

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.formula is not None) != (self.kind == "formula"):
            raise ValueError(
                "'formula' goes with kind = \"formula\", and only with that; use both or neither"
            )
        if self.kind == "mean-flow" and self.velocity is None:
            raise ValueError("kind = 'mean-flow' needs a 'velocity'")
        accepted = ("field", *FORCING_KEYS[self.kind])
        check_belongs(self, "kind", accepted, sorted(self.model_fields_set - {"kind"}))
        if self.shells is not None and not 1 <= self.shells[0] <= self.shells[1]:
            raise ValueError(
                "'shells' are the first, at least 1, and the last; use for example [1, 2]"
            )
        if self.kind == "linear" and (self.rate is None) == (self.injection is None):
            raise ValueError("kind = 'linear' needs either 'rate' or 'injection'")
        if self.kind == "ornstein-uhlenbeck" and not self.correlation_time:
            raise ValueError("kind = 'ornstein-uhlenbeck' needs a 'correlation_time' more than 0")
        if self.kind != "linear" and isinstance(self.injection, tuple):
            raise ValueError(
                f"'injection' of kind = {self.kind!r} is one number; one for each component goes"
                " with kind = 'linear'"
            )
        low, high = self.forced_shells
        if self.energy is not None and len(self.energy) != high - low + 1:
            raise ValueError(
                f"'energy' has {len(self.energy)} numbers; accepted: {high - low + 1}, one for each"
                " of 'shells'"
            )
        return self

    @property
    def forced_shells(self) -> tuple[int, int]:
        """The first and the last shell that are forced, of kinds that have some."""
        return self.shells or _SHELLS

    @property
    def power(self) -> float | None:
        """Energy injected per time where it is given, of all components."""
        return sum(self.injection) if isinstance(self.injection, tuple) else self.injection


class SpectralTime(Time):
    """``[time]``: how far to go, and in which steps."""

    step: Positive | None = Key(
        None, "fixed time step (non-dimensional), instead of cfl", example=0.01
    )
    cfl: Annotated[float, Field(gt=0, le=2)] | None = Key(
        None,
        f"Courant number of an adaptive time step (default: {COURANT_NUMBER}, without step)",
        example=COURANT_NUMBER,
    )
    max_step: Positive | None = Key(
        None, "with cfl: the step never exceeds this (default: no bound)", example=0.1
    )
    integrator: Annotated[str, one_of(INTEGRATORS)] = Key("rk4", "Runge-Kutta method")

    @model_validator(mode="before")
    @classmethod
    def _adaptive_by_default(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("step") is None and data.get("cfl") is None:
            return {**data, "cfl": COURANT_NUMBER}
        return data

    @model_validator(mode="after")
    def _one_way_to_step(self) -> Self:
        if self.step is not None and self.cfl is not None:
            raise ValueError(
                "exactly one of 'step' (fixed) and 'cfl' (adaptive) is needed, both given;"
                " use one of them"
            )
        if self.max_step is not None and self.cfl is None:
            raise ValueError(
                "'max_step' bounds an adaptive step: it goes with 'cfl', not 'step'; use 'cfl'"
            )
        return self


class SpectralStreaming(Table):
    """``run.streaming``: how fields on the host stream; results do not depend on it."""

    tiles: Annotated[int, Field(ge=1)] | None = Key(
        None,
        "number of tiles into which a pass cuts a rank's planes or columns (default: as few as"
        " memory allows, of about 128 MiB, or more where rows would be short)",
        example=16,
    )
    tiles_per_exchange: Annotated[int, Field(ge=1)] | None = Key(
        None,
        "number of tiles of planes that are sent together, between ranks (default: a quarter of"
        " all)",
        example=4,
    )
    streams: Annotated[int, Field(ge=0, le=MAX_STREAMS)] = Key(
        0,
        "0 for a pipeline of copies in, work and copies out; else the number of streams that do all"
        " three, as in GHOST",
    )
    copies: Annotated[str, one_of(COPIES)] = Key("memcpy2D", "how tiles cross the bus")
    devices: Annotated[int, Field(ge=1)] = Key(
        1, "number of GPUs of its node that a rank streams through, which take tiles in turn"
    )
    update: Annotated[str, one_of(UPDATES)] = Key("device", "where modes are advanced")
    resident: bool = Key(
        True,
        "whether columns stay on the device, of as many ky as memory allows, and do not cross the"
        ' bus; none do with several devices, or with update = "host"',
    )


def _folders(value: Any) -> Any:
    """Return one folder, or several, as a tuple."""
    try:
        return None if value is None else folder_names(value)
    except InputError:
        raise ValueError(f"accepted: a folder, or a list of folders, not {shown(value)}") from None


class SpectralRun(ExchangingRun):
    """``[run]``: where and in which order the work is done."""

    residency: Annotated[str, one_of(RESIDENCIES, auto=True)] = Key(
        "device", 'where the fields are; "auto": on the host if they do not fit on the device'
    )
    decomposition: Annotated[str, one_of(DECOMPOSITIONS, auto=True)] = Key(
        "auto",
        'how ranks divide space; "auto": slabs if there are as many planes, but on several nodes'
        " of many ranks pencils if blocks would be small",
    )
    grid: Unchecked[tuple[int, int] | None] = Key(
        None,
        "pencils: number of ranks along y and z (default: the most even)",
        example=[2, 4],
    )
    memory: MemorySize = Key(
        None,
        "limit of memory for each rank on each of its devices, with fields on the host or on disk:"
        " bytes, or text (default: its share of the free memory)",
        example="8 GiB",
    )
    scratch: Annotated[Unchecked[tuple[str, ...] | None], BeforeValidator(_folders)] = Key(
        None,
        'folders for files of fields with residency = "disk": one, or several that have a part of'
        " each field, on different drives (default: that of temporary files)",
        example=["/scratch"],
    )
    streaming: SpectralStreaming | None = Key(
        None, "how fields on the host stream", example={"devices": 2}
    )

    @field_validator("grid")
    @classmethod
    def _two_whole_and_positive(cls, grid: Any) -> Any:
        return check_positive(grid, "yz")

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.grid is not None and self.decomposition != "pencil":
            raise ValueError(
                "'grid' goes with decomposition \"pencil\"; unset it by --set run.grid="
            )
        for name in ("memory", "streaming"):
            if self.residency == "device" and getattr(self, name) is not None:
                raise ValueError(
                    f'\'{name}\' goes with residency "host", "disk" or "auto"; '
                    f"unset it by --set run.{name}="
                )
        if self.residency != "disk" and self.scratch is not None:
            raise ValueError(
                "'scratch' goes with residency \"disk\"; unset it by --set run.scratch="
            )
        if self.residency != "device" and self.transport in GPU_TRANSPORTS:
            usable = ", ".join(name for name in TRANSPORTS if name not in GPU_TRANSPORTS)
            raise ValueError(
                f"transport {self.transport!r} exchanges between GPUs; with residency "
                f"{self.residency!r} accepted: auto, {usable}"
            )
        return self


class SpectralOutput(Output):
    """``[output]``: contents and intervals of the output."""

    pictures: bool = Key(True, "draw energy, spectrum and vorticity at the end")
    spectra_interval: Positive = Key(..., "time between spectra", example=0.5)
    transfer_interval: Positive | None = Key(
        None, "time between energy transfer and flux (default: not written)", example=1.0
    )
    anisotropic_interval: Positive | None = Key(
        None,
        "time between spectra of wavenumbers across and along z (default: not written)",
        example=1.0,
    )
    correlation_interval: Positive | None = Key(
        None, "time between two-point correlations (default: not written)", example=1.0
    )
    structure_interval: Positive | None = Key(
        None, "time between structure functions (default: not written)", example=1.0
    )
    pdf_interval: Positive | None = Key(
        None, "time between probability densities (default: not written)", example=1.0
    )
    densities: Annotated[tuple[DensitiesOutput, ...], BeforeValidator(as_tuple)] = Key(
        (), "densities of one expression or two over chosen bins, and conditional means"
    )
    cospectra: Annotated[Unchecked[tuple[tuple[str, str], ...]], BeforeValidator(as_tuples)] = Key(
        (),
        "pairs of names or expressions, whose co-spectra are written with the spectra",
        example=[["velocity", "vorticity"]],
    )

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
    """``[numerics]``: how the equations are discretised."""

    precision: Precision = Key("float64", "precision of the fields")
    dealiasing: Annotated[str, one_of(DEALIASINGS)] = Key(
        "2/3", "which modes are kept, so that products do not alias"
    )
    integrating_factor: bool = Key(True, "integrate the viscous term exactly")
    linear: Annotated[str, one_of(EXACT_TERMS)] = Key(
        "decay", "which linear terms are integrated exactly"
    )
    plane: Annotated[str, one_of(PLANES)] = Key(
        "2D3C", "which components vectors have where the grid has one point along an axis"
    )
    wire: Annotated[str, one_of({"none": "their own precision", **WIRES})] = Key(
        "none",
        "precision in which data of double precision travel between ranks; the column wire_error"
        " has the loss",
    )

    @model_validator(mode="after")
    def _all_is_exact(self) -> Self:
        if self.linear == "all" and not self.integrating_factor:
            raise ValueError(
                "'linear' = 'all' integrates damping exactly too; accepted with it:"
                " integrating_factor = true"
            )
        return self

    @model_validator(mode="after")
    def _wire_is_narrower(self) -> Self:
        if self.wire != "none" and self.precision != "float64":
            raise ValueError(
                f"'wire' = {self.wire!r} narrows double precision; accepted with precision ="
                f" {self.precision!r}: 'none'"
            )
        return self


def _as_tables(value: Any) -> Any:
    """Return a table, or a list of tables, as a tuple."""
    return () if value is None else as_tuple([value] if isinstance(value, dict) else value)


class SpectralCase(Case):
    """A case of the ``spectral`` family: turbulence, or other equations, in a periodic box."""

    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        **Case.displaces,
        "time.step": ("time.cfl", "time.max_step"),
        "time.cfl": ("time.step",),
        "initial.flow": ("initial.restart",),
        "initial.restart": tuple(
            f"initial.{key}" for key in SpectralInitial.model_fields if key != "restart"
        ),
        # A run continues where its fields were not before.
        "run.residency=device": ("run.memory", "run.scratch", "run.streaming"),
        "run.residency=host": ("run.scratch",),
        "run.residency=auto": ("run.scratch",),
    }
    occasions: ClassVar[dict[str, int]] = {**Case.occasions, "spectra_interval": 20}
    one_or_more: ClassVar[frozenset[str]] = frozenset({"scalars", "forcing", "particles", "bodies"})
    examples: ClassVar[dict[str, Any]] = {
        "output.fields": [{"of": "vorticity", "interval": 0.1, "plane": _PLANE}],
        "output.scalars": [{"of": "dot(velocity, vorticity)", "reduce": "rms"}],
        "output.averages": [{"of": "velocity", "interval": 0.1, "since": 2.0, "profile": "z"}],
        "output.densities": [{"of": ["q_criterion", "r_invariant"], "range": [[-9, 9], [-9, 9]]}],
        "output.movies": [{"of": "vorticity_magnitude", "interval": 0.1, "plane": _PLANE}],
    }

    solver: Literal["spectral"] = Key(..., "solver family")
    grid: SpectralGrid
    equation: Equation
    scalars: Annotated[tuple[PassiveScalar, ...], BeforeValidator(_as_tables)] = Key(
        (), "passive scalars that the flow carries along"
    )
    initial: SpectralInitial
    forcing: Annotated[tuple[Forcing, ...], BeforeValidator(_as_tables)] = ()
    particles: Annotated[tuple[ParticleSet, ...], BeforeValidator(_as_tables)] = Key(
        (), "sets of particles that the flow carries"
    )
    bodies: Annotated[tuple[Body, ...], BeforeValidator(_as_tables)] = Key(
        (), "solid bodies in the box"
    )
    time: SpectralTime
    numerics: Numerics = Field(default_factory=Numerics)
    run: SpectralRun = Field(default_factory=SpectralRun)
    output: SpectralOutput

    @classmethod
    def suited_to(cls, data: dict[str, Any]) -> type[Case]:
        """Return the class whose equation has the parameters of the model that is asked for."""
        equation = data.get("equation")
        name = model_in(equation if isinstance(equation, dict) else {})
        if not isinstance(name, str):
            return cls
        # SymPy takes a while to import, for which other families need not wait.
        from slipstream.equations import models

        return _case_of_function(models.find(name))

    @field_validator("scalars", "particles", "bodies")
    @classmethod
    def _have_names(cls, tables: Any, info: ValidationInfo) -> Any:
        check_distinct(tables, "sets" if info.field_name == "particles" else str(info.field_name))
        return tables

    @model_validator(mode="after")
    def _bodies_are_on_the_device(self) -> Self:
        if self.bodies and self.run.residency != "device":
            raise ValueError(
                f"run.residency = {self.run.residency!r} has no bodies; accepted with [[bodies]]:"
                " 'device'"
            )
        held = [one for one in self.forcing if one.kind == "mean-flow"]
        if held and not self.bodies:
            raise ValueError(
                "forcing.kind = 'mean-flow' goes with [[bodies]]: without, an initial mean flow"
                " stays; use bodies, or leave out this forcing"
            )
        if len(held) > 1:
            raise ValueError("forcing.kind = 'mean-flow' is there twice; accepted: once")
        return self

    @model_validator(mode="after")
    def _suits_walls(self) -> Self:
        if self.grid.walls is None:
            if self.grid.zero_at_walls:
                raise ValueError("grid.zero_at_walls goes with grid.walls; accepted: walls = 'z'")
            return self
        flow, points = self.initial.flow, self.grid.points_xyz[2]
        is_helical = any(one.kind == "abc" for one in self.forcing)
        statistics = self.output.correlation_interval, self.output.structure_interval
        refused: list[tuple[Any, str, str]] = [
            (points < 4 and points, "grid.points along z", "4 and more"),
            (self.numerics.dealiasing == "phase-shift" and "phase-shift", *_UNSHIFTED),
            (flow not in _WALL_FLOWS and flow, "initial.flow", listed(filter(None, _WALL_FLOWS))),
            (is_helical and "abc", "forcing.kind", "all others"),
            (self.particles and self.particles[0].name, "particles", "none"),
            (statistics[0], "output.correlation_interval", "none"),
            (statistics[1], "output.structure_interval", "none"),
        ]
        for value, key, accepted in refused:
            if value:
                raise ValueError(f"{key}: {value!r} with grid.walls; accepted with it: {accepted}")
        return self

    @property
    def path_kinds(self) -> tuple[str, ...]:
        return tuple(one.store for one in self.particles)

    def interval(self, kind: str) -> float | None:
        own = {one.store: one.interval for one in self.particles}
        return own[kind] if kind in own else super().interval(kind)

    @model_validator(mode="after")
    def _wire_is_between_devices(self) -> Self:
        if self.numerics.wire != "none" and self.run.residency != "device":
            raise ValueError(
                f"numerics.wire = {self.numerics.wire!r} with run.residency ="
                f" {self.run.residency!r}; accepted with it: 'none'"
            )
        return self

    @model_validator(mode="after")
    def _factor_has_effect(self) -> Self:
        if self.time.integrator in ALL_LINEAR and not self.numerics.integrating_factor:
            raise ValueError(
                f"numerics.integrating_factor: time.integrator = {self.time.integrator!r} does"
                " not use it; accepted with it: true"
            )
        return self

    def with_own_code(self, data: dict[str, Any], source: str) -> dict[str, Any]:
        equation = data.get("equation")
        stored = model_in(equation if isinstance(equation, dict) else {})
        case_model = self.equation.model
        if not isinstance(stored, str) or stored in MODELS or stored == case_model:
            return data
        # The file may have moved, but is called the same, and so is the function; a function of a
        # Python program may have been defined again.
        if Path(case_model).name.partition("#")[0] != Path(stored).name.partition("#")[0]:
            raise InputError(
                f"{source} is of model {shown(stored)}, this case of {shown(case_model)};"
                " a model of a Python file is imported only if equation.model of this case"
                " names it; to take over fields alone: initial.flow = 'file'"
            )
        return {**data, "equation": {**data["equation"], "model": case_model}}

    def __reduce__(self) -> tuple[Any, ...]:
        """Make cases picklable, so that ranks can send them, though classes are made for models."""
        return _rebuild_case, (self.model_dump(exclude_unset=True),)

    @property
    def points(self) -> int:
        """Number of grid points that one time step updates."""
        return math.prod(self.grid.points_xyz)

    @property
    def most_ranks(self) -> int:
        """Largest number of ranks that can have planes along z, or modes of wavenumbers along y."""
        return max(self.grid.points_xyz[1:])

    @property
    def fixed_step(self) -> float | None:
        """The time step (non-dimensional) where it is always the same."""
        return self.time.step

    @property
    def stepping(self) -> str:
        """The choice of the time step, for people."""
        time = self.time
        if time.step is not None:
            return super().stepping
        bound = f", at most {time.max_step:g}" if time.max_step is not None else ""
        return f"adaptive step, Courant number {time.cfl:g}{bound}"


@functools.cache
def _case_of_function(function: Callable[..., Any]) -> type[SpectralCase]:
    from slipstream.equations import models

    texts = meanings_of_parameters(function)
    keys: dict[str, Any] = {
        name: (kind, Key(default, as_meaning(texts.get(name) or "parameter of the model")))
        for name, (kind, default) in models.parameters_of(function).items()
    }
    equation = create_model("Equation", __base__=Equation, **keys)
    return create_model("SpectralCase", __base__=SpectralCase, equation=(equation, ...))


def _rebuild_case(data: dict[str, Any]) -> Case:
    return SpectralCase.suited_to(data).model_validate(data)
