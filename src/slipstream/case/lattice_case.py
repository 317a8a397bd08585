"""The tables of the ``lattice`` family: flow through the pores of voxel images.

Numbers per axis are given in the order x, y, z; arrays in memory are [z, y, x]. Forces, pressures
and times are in lattice units: voxels, time steps, and the density of the fluid at rest.
"""

from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from slipstream.accepted import (
    ENCODINGS,
    FORCES,
    IMAGE_FORMATS,
    LARGEST_VOXEL,
    LATTICE_PRECISIONS,
    PARTITIONS,
    POPULATION_LAYOUTS,
    PROPAGATIONS,
    SAMPLES,
    SCHEDULES,
    SITE_ORDERS,
    SPHERE_LATTICES,
    TRANSPORTS,
)
from slipstream.case.common_tables import (
    Case,
    Output,
    Run,
    Time,
)
from slipstream.case.table import (
    Positive,
    Table,
    as_tuple,
    one_of,
)

Axis = Literal["x", "y", "z"]
# Changes from which a steady flow is extrapolated: more would hardly help.
MOST_VECTORS = 30
# By precision: the least distance from the steady flow that can be asked for. Round-off, which adds
# up over the steps that a flow takes to settle, leaves none smaller.
LEAST_TOLERANCES = {"float64": 1e-12, "float32": 1e-6, "mixed": 1e-6}

# Keys of each sample, and their defaults; None for those that have none and need not be given.
_REQUIRED = object()
SAMPLE_KEYS: dict[str, dict[str, Any]] = {
    "channel": {"axis": _REQUIRED},
    "duct": {"axis": _REQUIRED},
    "spheres": {"lattice": "simple", "solid_fraction": None, "radius": None},
    "random-pack": {"radius": _REQUIRED, "solid_fraction": _REQUIRED, "seed": 0},
    "sandstone": {"radius": _REQUIRED, "porosity": 0.13, "seed": 0},
}
_PORE_KEYS = ("pore", "pore_below", "pore_above")
# The keys that each format takes besides these; files without `shape` tell it themselves.
FORMAT_KEYS: dict[str, tuple[str, ...]] = {
    "raw values": ("shape", "dtype", "byte_order", "offset"),
    "TIFF": (),
    "NumPy": (),
    "HDF5": ("dataset",),
    "Zarr": ("dataset",),
    "folder of TIFF slices": (),
}
_FILE_KEYS = (*_PORE_KEYS, *dict.fromkeys(key for keys in FORMAT_KEYS.values() for key in keys))
# Keys that apply to only one kind of image: a sample's shape is not that of a file.
KEYS_OF_SAMPLES = ("shape", *dict.fromkeys(key for keys in SAMPLE_KEYS.values() for key in keys))
KEYS_OF_FILES = tuple(key for key in _FILE_KEYS if key != "shape")


def _whole(value: Any) -> Any:
    """Let a whole number pass that is written with a decimal point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _even(number: int) -> int:
    if number % 2:
        raise ValueError(f"accepted: even numbers, as steps come in pairs, not {number}")
    return number


EvenSteps = Annotated[int, BeforeValidator(_whole), Field(gt=0), AfterValidator(_even)]


def _in_range(drive: float) -> float:
    low, high = FORCES
    if not low <= drive <= high:
        raise ValueError(f"accepted: {low:g} to {high:g}, in lattice units, not {drive:g}")
    return drive


Drive = Annotated[Positive, AfterValidator(_in_range)]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_tuples(value: Any) -> Any:
    """Let lists of lists pass as the tuples that frozen settings need."""
    return tuple(as_tuple(one) for one in value) if isinstance(value, list | tuple) else value


def _axes(value: Any) -> Any:
    """Let "xy" pass as ["x", "y"], as it does in Python."""
    return as_tuple(list(value) if isinstance(value, str) else value)


def _format_of(path: Any) -> str | None:
    """Return the format of a file; None if it is unknown."""
    if not isinstance(path, str):
        return None
    suffix = PurePath(path).suffix.lower()
    if path.endswith("/") and suffix != ".zarr":
        suffix = "/"
    return IMAGE_FORMATS.get(suffix)


def _keys_of_file(path: Any) -> dict[str, Any]:
    """Return the keys that apply to a file; all of them if its format is unknown."""
    found = _format_of(path)
    return dict.fromkeys(_FILE_KEYS if found is None else (*_PORE_KEYS, *FORMAT_KEYS[found]))


def _foreign(data: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Return the given keys that apply to other images but not to this one."""
    of_sources = (*_FILE_KEYS, *KEYS_OF_SAMPLES)
    return [key for key in data if key in of_sources and key not in own]


def _listed(names: list[str]) -> str:
    """Return names for people: 'a', 'b' and 'c'."""
    quoted = [repr(name) for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if names[1:] else quoted)


def _remove(foreign: list[str], whose: str, own: dict[str, Any], path: Any) -> str:
    """Return what to do with keys that do not apply to an image, in one message."""
    text = f"{_listed(foreign)} {'do' if foreign[1:] else 'does'} not belong to {whose}: remove"
    text += " them" if foreign[1:] else " it"
    found = _format_of(path)
    if found is not None and "shape" in foreign and "shape" not in own:
        what = found if found.startswith("folder") else f"{found} file"
        text += f", a {what} tells its own shape"
    return f"{text}; accepted with it: {', '.join(own)}"


class Image(Table):
    """``[image]``: the pores. Keys that do not belong to a file, or to the sample, are refused.

    Attributes
    ----------
    path : str or None
        A voxel image, whose suffix is one of `slipstream.accepted.IMAGE_FORMATS`, or a folder of
        TIFF slices; exactly one of `path` and `sample` is given. Relative to the working directory.
    pore : int, tuple of int or None
        Which values are pore, of segmented images; by default all but 0, if there is one other.
    pore_below, pore_above : float or None
        Thresholds, of grey images: below the one, or above the other, or between, is pore.
    dtype, byte_order, offset : str, str and int, or None
        Of the values of a raw file, and how many bytes precede them.
    dataset : str or None
        Which array of an HDF5 file or a Zarr group.
    sample : str or None
        A synthetic sample, a name of `slipstream.accepted.SAMPLES`.
    shape : tuple of 3 int or None
        Number of voxels along x, y and z, of raw files and samples.
    axis, lattice, radius, solid_fraction, porosity, seed
        Of samples; see `slipstream.lattice.SAMPLES`.
    voxel_size : float
        Edge of a voxel in metres, such as 2e-6; with 1, lengths stay in voxels.
    crop : tuple of 3 (int, int), or None
        First voxel, and the one after the last, along x, y and z.
    mirror : tuple of str
        Axes along which the sample is followed by its mirror image.
    buffer : int
        Layers of pore at both ends of the flow's axis.
    walls : tuple of str
        Axes whose faces are walls; the others are periodic.
    isolated : {"remove", "keep"}
        What becomes of pores through which nothing flows.
    """

    path: Annotated[str, Field(min_length=1)] | None = None
    pore: Annotated[Any, BeforeValidator(as_tuple)] = None
    pore_below: float | None = None
    pore_above: float | None = None
    dtype: str | None = None
    byte_order: Literal["little", "big"] | None = None
    offset: Annotated[int, Field(ge=0)] | None = None
    dataset: str | None = None
    sample: Annotated[str, one_of(SAMPLES)] | None = None
    shape: Annotated[Any, BeforeValidator(as_tuple)] = None
    axis: Axis | None = None
    lattice: Annotated[str, one_of(SPHERE_LATTICES)] | None = None
    radius: Positive | None = None
    solid_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    porosity: Annotated[float, Field(gt=0, lt=1)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    voxel_size: Positive = 1.0
    crop: Annotated[Any, BeforeValidator(_as_tuples)] = None
    mirror: Annotated[tuple[Axis, ...], BeforeValidator(_axes)] = ()
    buffer: Annotated[int, Field(ge=0)] = 0
    walls: Annotated[tuple[Axis, ...], BeforeValidator(_axes)] = ()
    isolated: Literal["remove", "keep"] = "remove"

    @model_validator(mode="before")
    @classmethod
    def _only_the_sources_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        path, sample = data.get("path"), data.get("sample")
        if (path is None) == (sample is None):
            which = "neither given" if path is None else "both given"
            if path is not None:
                rest = _foreign(data, _keys_of_file(path))
                which += f"; for the image, remove {_listed(['sample', *rest])}"
            raise ValueError(
                f"exactly one of 'path' (a voxel image) and 'sample' ({', '.join(SAMPLES)}) is"
                f" needed, {which}"
            )
        if sample is not None and sample not in tuple(SAMPLES):  # a list has no hash
            return data
        own = _keys_of_file(path) if sample is None else {"shape": _REQUIRED}
        own |= {} if sample is None else SAMPLE_KEYS[sample]
        whose = f"path = {path!r}" if sample is None else f"sample = {sample!r}"
        foreign = _foreign(data, own)
        if foreign:
            raise ValueError(_remove(foreign, whose, own, path))
        missing = [key for key, value in own.items() if value is _REQUIRED and key not in data]
        if missing:
            raise ValueError(f"{whose} needs {' and '.join(map(repr, missing))}")
        return {**{k: v for k, v in own.items() if v not in (None, _REQUIRED)}, **data}

    @field_validator("pore")
    @classmethod
    def _whole_numbers(cls, pore: Any) -> Any:
        values = pore if isinstance(pore, tuple) else (pore,)
        if pore is not None and not (values and all(map(_is_whole, values))):
            raise ValueError(f"accepted: a whole number, or a list of them, not {pore!r}")
        return pore

    @field_validator("voxel_size")
    @classmethod
    def _in_metres(cls, size: float) -> float:
        if not (size <= LARGEST_VOXEL or size == 1):
            raise ValueError(
                f"accepted: metres, at most {LARGEST_VOXEL}, such as 2e-6, or 1 for voxels, not"
                f" {size!r}"
            )
        return size

    @field_validator("shape")
    @classmethod
    def _three_whole_and_positive(cls, shape: Any) -> Any:
        is_shape = isinstance(shape, tuple) and len(shape) == 3 and all(map(_is_whole, shape))
        if shape is not None and not (is_shape and min(shape) >= 1):
            given = list(shape) if isinstance(shape, tuple) else shape
            raise ValueError(
                f"accepted: three whole numbers for x, y and z, each at least 1, not {given!r}"
            )
        return shape

    @field_validator("crop")
    @classmethod
    def _three_ranges(cls, crop: Any) -> Any:
        fits = isinstance(crop, tuple) and len(crop) == 3
        fits = fits and all(
            isinstance(one, tuple) and len(one) == 2 and all(map(_is_whole, one)) for one in crop
        )
        if crop is not None and not (fits and all(0 <= low < high for low, high in crop)):
            raise ValueError(
                "accepted: [[x0, x1], [y0, y1], [z0, z1]], first voxel and the one after the last,"
                f" not {crop!r}"
            )
        return crop

    @property
    def in_metres(self) -> bool:
        """Whether the size of voxels is known."""
        return self.voxel_size != 1

    @property
    def sample_parameters(self) -> dict[str, Any]:
        """What the sample takes besides its shape."""
        keys = SAMPLE_KEYS[self.sample] if self.sample is not None else {}
        given = {key: getattr(self, key) for key in keys}
        return {key: value for key, value in given.items() if value is not None}


class Flow(Table):
    """``[flow]``: the fluid, and what drives it.

    Attributes
    ----------
    axis : {"x", "y", "z", "all"}
        Axis along which it flows; "all" for the whole tensor, along x, y and z one after the other,
        which share the steps of the run.
    relaxation_time : float
        Relaxation time of the even populations, on which the permeability does not depend; the
        viscosity is (relaxation_time - 1/2) / 3.
    magic : float
        Magic parameter: (relaxation_time - 1/2) times the same of the odd populations.
    force : float or None
        Force per volume along the axis; 1e-5 unless `pressure_drop` is given.
    pressure_drop : float or None
        Difference of pressure between the two ends of the axis, instead of a force.
    inertia : bool
        Navier-Stokes instead of Stokes flow.
    viscosity, pressure_gradient : float or None
        Dynamic viscosity of the fluid in Pa s, and what drives it in Pa/m: output is then in SI
        units. Stokes flow is scaled to them, whatever drives it on the lattice.
    density : float or None
        Of the fluid in kg/m³. With inertia the three give the force on the lattice.
    """

    axis: Literal["x", "y", "z", "all"] = "z"
    relaxation_time: Annotated[float, Field(gt=0.5)] = 1.0
    magic: Positive = 3 / 16
    force: Drive | None = None
    pressure_drop: Drive | None = None
    inertia: bool = False
    viscosity: Positive | None = None
    pressure_gradient: Positive | None = None
    density: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_way_to_drive(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("inertia") is True and data.get("pressure_gradient") is not None:
            given = [key for key in ("force", "pressure_drop") if data.get(key) is not None]
            if given:
                raise ValueError(
                    f"remove {_listed(given)}: with inertia, viscosity, density and"
                    " pressure_gradient tell what drives the flow"
                )
            return data
        if data.get("force") is not None and data.get("pressure_drop") is not None:
            raise ValueError("give one of 'force' and 'pressure_drop', not both")
        if data.get("pressure_drop") is None:
            return {"force": 1e-5, **{k: v for k, v in data.items() if v is not None}}
        return data

    @model_validator(mode="after")
    def _a_whole_fluid(self) -> Self:
        given = {key: getattr(self, key) for key in ("viscosity", "pressure_gradient", "density")}
        names = [key for key, value in given.items() if value is not None]
        if names and (self.viscosity is None or self.pressure_gradient is None):
            raise ValueError(
                f"{_listed(names)} {'are' if names[1:] else 'is'} not enough for SI units;"
                " accepted: viscosity and pressure_gradient together"
            )
        if names and self.inertia and self.density is None:
            raise ValueError("density is needed for flow with inertia in SI units, as 1000.0")
        return self


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
        Time steps between two checks; an even number.
    vectors : int
        From how many of its last changes the steady flow is extrapolated, which takes a fraction of
        the time steps; 0 for none. Where memory is short there are fewer.
    """

    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    interval: EvenSteps = 100
    vectors: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=MOST_VECTORS)] = 10


class Numerics(Table):
    """``[numerics]``: how populations are stored.

    Attributes
    ----------
    precision : str
        Of storage and arithmetic: a name of `slipstream.accepted.LATTICE_PRECISIONS`; mixed stores
        float32 and computes with float64.
    propagation, layout, order, encoding : str
        See `slipstream.lattice.Storage`; "auto" for what is usual on CPUs, and for what is
        fastest on GPUs, which is measured. Fields do not depend on them, and sums over pores but
        for rounding. Names are in `PROPAGATIONS`, `POPULATION_LAYOUTS`, `SITE_ORDERS` and
        `ENCODINGS` of `slipstream.accepted`.
    """

    precision: Annotated[str, one_of(LATTICE_PRECISIONS)] = "float64"
    propagation: Annotated[str, one_of(PROPAGATIONS, auto=True)] = "auto"
    layout: Annotated[str, one_of(POPULATION_LAYOUTS, auto=True)] = "auto"
    order: Annotated[str, one_of(SITE_ORDERS, auto=True)] = "auto"
    encoding: Annotated[str, one_of(ENCODINGS, auto=True)] = "auto"

    @model_validator(mode="after")
    def _strips_have_one_layout(self) -> Self:
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
    partition : str
        Whether ranks have boxes with about as many pores each, or of about the same size: a name of
        `slipstream.accepted.PARTITIONS`.
    schedule : str
        Whether communication hides behind computation: a name of `slipstream.accepted.SCHEDULES`,
        all of which give identical bits.
    transport : str
        How ranks exchange populations: "auto", or a name of `slipstream.accepted.TRANSPORTS`.
    """

    partition: Annotated[str, one_of(PARTITIONS)] = "bisection"
    schedule: Annotated[str, one_of(SCHEDULES)] = "overlap"
    transport: Annotated[str, one_of(TRANSPORTS, auto=True)] = "auto"


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
        # Another image has voxels of another size.
        "image.sample": tuple(f"image.{key}" for key in (*KEYS_OF_SAMPLES, "voxel_size")),
        "image.path": tuple(f"image.{key}" for key in (*KEYS_OF_FILES, "voxel_size")),
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
        """Write diagnostics whenever convergence is checked, which has the permeability anyway."""
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
    def _tolerance_suits_the_precision(self) -> Self:
        precision, tolerance = self.numerics.precision, self.convergence.tolerance
        if 0 < tolerance < LEAST_TOLERANCES[precision]:
            raise ValueError(
                f"convergence.tolerance: {tolerance:g} is below the floor of round-off; accepted"
                f" with numerics.precision = {precision!r}: at least"
                f" {LEAST_TOLERANCES[precision]:g}, or 0 for never"
            )
        return self

    @model_validator(mode="after")
    def _flow_suits_the_image(self) -> Self:
        if self.flow.viscosity is not None and not self.image.in_metres:
            raise ValueError(
                "flow.viscosity: SI units need the edge of a voxel, image.voxel_size, in metres"
            )
        if self.flow.axis == "all" and self.image.walls:
            raise ValueError(
                f"image.walls: {list(self.image.walls)} closes an axis of flow.axis = 'all';"
                " accepted: none"
            )
        if self.flow.axis == "all" and self.image.buffer:
            raise ValueError(
                "image.buffer: layers are for one axis; accepted with flow.axis = 'all': 0"
            )
        if self.flow.axis in self.image.walls:
            others = [name for name in "xyz" if name != self.flow.axis]
            raise ValueError(
                f"image.walls: {list(self.image.walls)} closes flow.axis = {self.flow.axis!r};"
                f" accepted: any of {', '.join(others)}"
            )
        return self

    @property
    def points(self) -> None:
        """Unknown until the image has been read."""

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
