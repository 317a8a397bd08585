"""The tables of the ``lattice`` family: flow through the pores of voxel images.

Numbers per axis are given in the order x, y, z; arrays in memory are [z, y, x]. Forces, pressures
and times are in lattice units: voxels, time steps, and the density of the fluid at rest.
"""

from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from slipstream.case.common_tables import Case, ExchangingRun, Initial, MemorySize, Output, Time
from slipstream.case.table import (
    Key,
    Positive,
    Such,
    Table,
    Unchecked,
    as_tuple,
    as_tuples,
    check_positive,
    is_number,
    is_whole,
    one_of,
)
from slipstream.engine.accepted import (
    ENCODINGS,
    FORCES,
    IMAGE_FORMATS,
    LARGEST_VOXEL,
    LATTICE_PRECISIONS,
    PARTITIONS,
    POPULATION_LAYOUTS,
    PROPAGATIONS,
    SAMPLES,
    SITE_ORDERS,
    SPHERE_LATTICES,
)
from slipstream.engine.error_terms import KeyName, Refusal, keys_in_order
from slipstream.engine.text import shown

Axis = Literal["x", "y", "z"]
Range = tuple[int, int]
# Stands for the path of a file, where the image is an array in memory.
ARRAY = "an array in memory.npy"
# Changes from which a steady flow is extrapolated: more would hardly help.
MOST_VECTORS = 30
# The default force that drives a flow, in lattice units.
_FORCE = 1e-5
# Steps after which a flow that Python asks for ends at the latest; cases state their end.
MAX_STEPS = 200_000
# By precision: the least distance from the steady flow that can be asked for. Round-off, which adds
# up over the steps that a flow takes to settle, leaves none smaller.
LEAST_TOLERANCES = {"float64": 1e-12, "float32": 1e-6, "mixed": 1e-6, "float16": 1e-4}

# Keys of each sample, and their defaults; None for optional keys without a default.
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
# Keys that apply to only one kind of image: a sample has another shape than a file.
KEYS_OF_SAMPLES = ("shape", *dict.fromkeys(key for keys in SAMPLE_KEYS.values() for key in keys))
KEYS_OF_FILES = tuple(key for key in _FILE_KEYS if key != "shape")


def _whole(value: Any) -> Any:
    """Accept a whole number that is written with a decimal point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _even(number: int) -> int:
    if number % 2:
        raise ValueError(f"accepted: even numbers, as steps come in pairs, not {number}")
    return number


# Up to 2^53, as times are floating-point numbers.
EvenSteps = Annotated[int, BeforeValidator(_whole), Field(gt=0, le=1 << 53), AfterValidator(_even)]


def _in_range(drive: float) -> float:
    low, high = FORCES
    if not low <= drive <= high:
        raise ValueError(f"accepted: {low:g} to {high:g}, in lattice units, not {drive:g}")
    return drive


Drive = Annotated[Positive, AfterValidator(_in_range)]


_RelaxationTime = Annotated[float, Field(gt=0.5)]


def _metres(size: Any) -> Any:
    if not is_number(size) or not (size <= LARGEST_VOXEL or size == 1):
        raise ValueError(
            f"accepted: metres, more than 0 and at most {LARGEST_VOXEL}, such as 2e-6, or 1 for"
            f" voxels, not {shown(size)}"
        )
    return size


def _axes(value: Any) -> Any:
    """Accept "xy" for ["x", "y"], as Python does."""
    axes = as_tuple(list(value) if isinstance(value, str) else value)
    if isinstance(axes, tuple) and any(axes.count(one) > 1 for one in axes):
        raise ValueError(f"accepted: each axis once, not {list(axes)}")
    return axes


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


def _foreign_keys(data: dict[str, Any], applicable: dict[str, Any]) -> list[str]:
    """Return the given keys that apply to other images but not to this one."""
    of_sources = (*_FILE_KEYS, *KEYS_OF_SAMPLES)
    return [key for key in data if key in of_sources and key not in applicable]


def _list_names(names: list[str]) -> str:
    """Return names for people: 'a', 'b' and 'c'."""
    quoted = [repr(name) for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if names[1:] else quoted)


def _remove(foreign: list[str], whose: str, accepted: dict[str, Any], path: Any) -> str:
    """Return the remedy for keys that do not apply to an image, in one message."""
    text = f"{_list_names(foreign)} {'do' if foreign[1:] else 'does'} not belong to {whose}: remove"
    text += " them" if foreign[1:] else " it"
    found = _format_of(path)
    if found is not None and "shape" in foreign and "shape" not in accepted:
        what = found if found.startswith("folder") else f"{found} file"
        text += f", a {what} tells its own shape"
    return f"{text}; accepted with it: {', '.join(accepted)}"


class Image(Table):
    """``[image]``: the pores, of a synthetic sample or of an image.

    Keys that do not belong to the sample, or to the image, are refused.
    """

    sample: Annotated[str, one_of(SAMPLES)] | None = Key(
        None, "synthetic sample", example="sandstone"
    )
    path: Annotated[str, Field(min_length=1), Such(IMAGE_FORMATS)] | None = Key(
        None,
        "instead of a sample: a voxel image, relative to the working directory; the ending of its"
        " name gives the format",
        example="rock.tif",
    )
    shape: Unchecked[tuple[int, int, int] | None] = Key(
        None,
        "voxels along x, y and z, of samples and raw files; in these x varies fastest, then y",
        example=[64, 64, 64],
    )
    radius: Positive | None = Key(
        None,
        'radius of the grains of "sandstone", "random-pack" and "spheres", in voxels',
        example=8.0,
    )
    porosity: Annotated[float, Field(gt=0, lt=1)] | None = Key(
        None,
        f'of "sandstone" (default: {SAMPLE_KEYS["sandstone"]["porosity"]})',
        example=0.3,
    )
    solid_fraction: Annotated[float, Field(gt=0, lt=1)] | None = Key(
        None, 'of "random-pack", and of "spheres" instead of a radius', example=0.3
    )
    seed: Annotated[int, Field(ge=0)] | None = Key(
        None,
        'of "sandstone" and "random-pack": another seed, other places'
        f" (default: {SAMPLE_KEYS['sandstone']['seed']})",
        example=0,
    )
    lattice: Annotated[str, one_of(SPHERE_LATTICES)] | None = Key(
        None,
        f'of "spheres" (default: "{SAMPLE_KEYS["spheres"]["lattice"]}")',
        example="simple",
    )
    axis: Axis | None = Key(
        None, 'of "channel": normal of the walls; of "duct": its direction', example="z"
    )
    pore: Unchecked[int | tuple[int, ...] | None] = Key(
        None,
        "of segmented images: value of pores, or several, such as [0, 1] (default: all but 0, if"
        " that is one value)",
        example=0,
    )
    pore_below: float | None = Key(
        None, "of grey images: voxels darker than this are pore", example=120.0
    )
    pore_above: float | None = Key(
        None,
        "of grey images: voxels brighter than this are pore; with both, those between",
        example=80.0,
    )
    dataset: str | None = Key(
        None, "of HDF5 and zarr: name of the array, if there are several", example="data"
    )
    dtype: str | None = Key(None, "of raw values: their type", example="uint8")
    byte_order: Literal["little", "big"] | None = Key(
        None, "of raw values, if they have several bytes", example="little"
    )
    offset: Annotated[int, Field(ge=0)] | None = Key(
        None, "of raw values: bytes before the first one (default: 0)", example=0
    )
    voxel_size: Annotated[
        Positive,
        BeforeValidator(
            _metres,
            json_schema_input_type=Annotated[float, Field(gt=0, le=LARGEST_VOXEL)] | Literal[1],
        ),
    ] = Key(1.0, "edge of a voxel in metres, such as 2e-6; with 1, lengths stay in voxels")
    crop: Annotated[
        Unchecked[tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None],
        BeforeValidator(as_tuples),
    ] = Key(
        None,
        "part to use: first voxel, and last voxel plus one, along x, y and z",
        example=[[0, 64], [0, 64], [0, 32]],
    )
    mirror: Annotated[tuple[Axis, ...], BeforeValidator(_axes)] = Key(
        (), "axes along which the mirror image follows, so that opposite faces match", example=["z"]
    )
    buffer: Annotated[int, Field(ge=0)] = Key(0, "layers of pore at both ends of the flow's axis")
    walls: Annotated[tuple[Axis, ...], BeforeValidator(_axes)] = Key(
        (), "axes whose faces are walls; the others are periodic", example=["x", "y"]
    )
    isolated: Literal["remove", "keep"] = Key(
        "remove", "whether to remove pores through which nothing flows"
    )

    @model_validator(mode="before")
    @classmethod
    def _only_the_sources_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        path, sample = data.get("path"), data.get("sample")
        if (path is None) == (sample is None):
            which = "neither given" if path is None else "both given"
            if path is not None:
                rest = _foreign_keys(data, _keys_of_file(path))
                which += f"; for the image, remove {_list_names(['sample', *rest])}"
            raise ValueError(
                f"exactly one of 'path' (a voxel image) and 'sample' ({', '.join(SAMPLES)}) is"
                f" needed, {which}"
            )
        if sample is not None and sample not in tuple(SAMPLES):  # a list has no hash
            return data
        accepted = _keys_of_file(path) if sample is None else {"shape": _REQUIRED}
        accepted |= {} if sample is None else SAMPLE_KEYS[sample]
        whose = f"path = {path!r}" if sample is None else f"sample = {sample!r}"
        foreign = _foreign_keys(data, accepted)
        if foreign:
            raise ValueError(_remove(foreign, whose, accepted, path))
        missing = [key for key, value in accepted.items() if value is _REQUIRED and key not in data]
        if missing:
            raise ValueError(f"{whose} needs {' and '.join(map(repr, missing))}")
        return {**{k: v for k, v in accepted.items() if v not in (None, _REQUIRED)}, **data}

    @field_validator("pore")
    @classmethod
    def _whole_numbers(cls, pore: Any) -> Any:
        values = pore if isinstance(pore, tuple) else (pore,)
        if pore is not None and not (values and all(map(is_whole, values))):
            raise ValueError(f"accepted: a whole number, or a list of them, not {pore!r}")
        return pore

    @field_validator("shape")
    @classmethod
    def _three_whole_and_positive(cls, shape: Any) -> Any:
        return check_positive(shape, "xyz")

    @field_validator("crop")
    @classmethod
    def _three_ranges(cls, crop: Any) -> Any:
        fits = isinstance(crop, tuple) and len(crop) == 3
        fits = fits and all(
            isinstance(one, tuple) and len(one) == 2 and all(map(is_whole, one)) for one in crop
        )
        if crop is not None and not (fits and all(0 <= low < high for low, high in crop)):
            raise ValueError(
                "accepted: [[x0, x1], [y0, y1], [z0, z1]], first voxel and voxel after the last,"
                f" not {crop!r}"
            )
        return crop

    @property
    def in_metres(self) -> bool:
        """Whether the size of voxels is known."""
        return self.voxel_size != 1

    @property
    def sample_parameters(self) -> dict[str, Any]:
        """The parameters of the sample besides its shape."""
        keys = SAMPLE_KEYS[self.sample] if self.sample is not None else {}
        given = {key: getattr(self, key) for key in keys}
        return {key: value for key, value in given.items() if value is not None}


def _none_if_auto(value: Any) -> Any:
    return None if isinstance(value, str) and value == "auto" else value


class Flow(Table):
    """``[flow]``: the fluid, and what drives it."""

    axis: Literal["x", "y", "z", "all"] = Key(
        "z",
        'axis along which the fluid flows; "all": along each in turn, for the whole tensor, with a'
        " share of the steps each",
    )
    relaxation_time: Annotated[
        _RelaxationTime | None,
        BeforeValidator(
            _none_if_auto, json_schema_input_type=_RelaxationTime | Literal["auto"] | None
        ),
    ] = Key(
        None,
        "relaxation time of the even part of the populations, in time steps, which sets the"
        " viscosity to (relaxation_time - 0.5) / 3. The permeability does not depend on it, the"
        ' number of steps does. Default, or "auto": 1.25 to 1.5 by the width of pores for Stokes'
        " flow that is extrapolated, else 1; without vectors, 0.6 needs far fewer in narrow pores",
        example=1.0,
    )
    magic: Positive = Key(
        3 / 16,
        "magic parameter, (relaxation_time - 0.5) * (odd - 0.5), from which the relaxation time of"
        " the odd part follows; with 3/16, walls are half way between pore and solid",
    )
    force: Drive | None = Key(
        None,
        f"force per volume along the axis, in lattice units (default: {_FORCE:g}, without"
        " pressure_drop)",
        example=_FORCE,
    )
    pressure_drop: Drive | None = Key(
        None,
        "instead of a force: difference of pressure between both ends of the axis, in lattice"
        " units",
        example=1e-3,
    )
    inertia: bool = Key(
        False,
        "true for Navier-Stokes instead of Stokes flow; the permeability then depends on the drive",
    )
    viscosity: Positive | None = Key(
        None,
        "dynamic viscosity of the fluid in Pa s; with pressure_gradient, output is in SI units,"
        " which needs voxel_size. Stokes flow is scaled to these units",
        example=1e-3,
    )
    pressure_gradient: Positive | None = Key(
        None, "pressure gradient that drives the fluid, in Pa/m", example=1e4
    )
    density: Positive | None = Key(
        None,
        "density of the fluid in kg/m³, for its Reynolds number; with inertia, density, viscosity"
        " and pressure_gradient determine the force on the lattice, so give neither force nor"
        " pressure_drop",
        example=1000.0,
    )

    @model_validator(mode="before")
    @classmethod
    def _one_way_to_drive(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("inertia") is True and data.get("pressure_gradient") is not None:
            drives_set = [key for key in ("force", "pressure_drop") if data.get(key) is not None]
            if drives_set:
                raise Refusal(
                    *keys_in_order("flow", drives_set),
                    ": with inertia the fluid's viscosity, density and pressure_gradient determine"
                    f" the drive; remove {'them' if drives_set[1:] else 'it'}",
                )
            return data
        if data.get("force") is not None and data.get("pressure_drop") is not None:
            both = keys_in_order("flow", ("force", "pressure_drop"))
            raise Refusal(*both, ": both are given; use one of them")
        if data.get("pressure_drop") is None:
            drives = ("force", "pressure_drop")
            rest = {k: v for k, v in data.items() if k not in drives or v is not None}
            return {"force": _FORCE, **rest}
        return data

    @model_validator(mode="after")
    def _a_whole_fluid(self) -> Self:
        given = {key: getattr(self, key) for key in ("viscosity", "pressure_gradient", "density")}
        names = [key for key, value in given.items() if value is not None]
        if names and (self.viscosity is None or self.pressure_gradient is None):
            raise Refusal(
                *keys_in_order("flow", names),
                ": not enough for SI units; use viscosity (Pa s) and pressure_gradient (Pa/m)"
                " together",
            )
        if names and self.inertia and self.density is None:
            raise Refusal(
                KeyName("flow", "density"),
                ": flow with inertia depends on it; use kg/m³, as 1000.0",
            )
        return self


class LatticeTime(Time):
    """``[time]``: how far to go, in time steps."""

    end: EvenSteps = Key(
        ..., "time steps after which the run ends if it has not converged; even", example=20000
    )
    max_steps: EvenSteps | None = Key(
        None,
        "time steps of this run, not counting those of a run from whose state it starts; even",
        example=1000,
    )


class Convergence(Table):
    """``[convergence]``: when the flow counts as steady, which ends the run."""

    tolerance: Annotated[float, Field(ge=0, lt=1)] = Key(
        1e-3,
        "estimated relative distance to the permeability of the steady flow at which the run ends;"
        " 0: the run takes all its steps",
    )
    interval: EvenSteps = Key(
        100,
        "time steps between two rows of the time series, and between two checks of the permeability"
        " without convergence.vectors; even. With these each extrapolation is a check, at which the"
        " run can end",
    )
    vectors: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=MOST_VECTORS)] = Key(
        10,
        "number of changes from which the steady flow is extrapolated, which saves most time steps"
        " (fewer if memory is short); 0: none, to follow the flow in time",
    )
    coarse_start: bool = Key(
        False,
        "whether Stokes flow begins from that through voxels twice and four times as large; a"
        " restart begins from its state",
    )


class Numerics(Table):
    """``[numerics]``: how populations are stored.

    Fields do not depend on propagation, layout, order and encoding; sums over pores do, by rounding
    only. "auto" is the usual storage on CPUs, and on a GPU the fastest one that was measured.
    """

    precision: Annotated[str, one_of(LATTICE_PRECISIONS)] = Key(
        "float64", "precision of populations and arithmetic"
    )
    propagation: Annotated[str, one_of(PROPAGATIONS, auto=True)] = Key(
        "auto", "how populations move"
    )
    layout: Annotated[str, one_of(POPULATION_LAYOUTS, auto=True)] = Key(
        "auto", "order of populations in memory"
    )
    order: Annotated[str, one_of(SITE_ORDERS, auto=True)] = Key("auto", "order of pores in memory")
    encoding: Annotated[str, one_of(ENCODINGS, auto=True)] = Key(
        "auto", "how links between pores are stored"
    )

    @model_validator(mode="after")
    def _strips_have_one_layout(self) -> Self:
        if self.encoding == "strips" and self.layout not in ("auto", "stream"):
            raise ValueError(
                f"encoding 'strips' needs layout 'stream', not {self.layout!r}; accepted with it:"
                " auto, compact, wide"
            )
        return self


class LatticeRun(ExchangingRun):
    """``[run]``: where and in which order the work is done."""

    partition: Annotated[str, one_of(PARTITIONS)] = Key("bisection", "how ranks share the image")
    memory: MemorySize = Key(
        None,
        "limit of memory for each rank on its device, which the number of vectors keeps to: bytes,"
        " or text (default: half of the free memory for the vectors)",
        example="8 GiB",
    )


class LatticeOutput(Output):
    """``[output]``: contents and intervals, in time steps, of the output."""

    pictures: bool = Key(
        True, "draw the permeability against time, and the speed in a plane, at the end"
    )
    diagnostics_interval: Positive = Key(
        ...,
        "time steps between rows of the time series (default: those between checks of convergence)",
        example=100.0,
    )
    vtk: bool = Key(False, "write the last state as flow.vti too, for ParaView")


_PLANE = {"axis": "z", "position": 10.5}


class LatticeCase(Case):
    """A case of the ``lattice`` family: flow through the pores of a voxel image."""

    displaces: ClassVar[dict[str, tuple[str, ...]]] = {
        **Case.displaces,
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
    examples: ClassVar[dict[str, Any]] = {
        "output.fields_interval": 1000.0,
        "output.checkpoint_interval": 5000.0,
        "output.fields": [{"of": "velocity", "interval": 100, "plane": _PLANE}],
        "output.scalars": [{"of": "speed", "reduce": "rms"}],
        "output.averages": [{"of": "velocity", "interval": 100, "profile": "z"}],
        "output.movies": [{"of": "speed", "interval": 100, "plane": _PLANE}],
    }
    steps_at_once: ClassVar[int] = 2
    shortens_steps: ClassVar[bool] = False

    solver: Literal["lattice"] = Key(..., "solver family")
    image: Image
    flow: Flow = Field(default_factory=Flow)
    initial: Initial = Field(default_factory=Initial)
    time: LatticeTime
    convergence: Convergence = Field(default_factory=Convergence)
    numerics: Numerics = Field(default_factory=Numerics)
    run: LatticeRun = Field(default_factory=LatticeRun)
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
        # Without a usable interval, whose error is reported, any value will do.
        interval = interval if isinstance(interval, int | float) and interval > 0 else 1
        return {**data, "output": {"diagnostics_interval": float(interval), **output}}

    @model_validator(mode="after")
    def _tolerance_suits_the_precision(self) -> Self:
        precision, tolerance = self.numerics.precision, self.convergence.tolerance
        if 0 < tolerance < LEAST_TOLERANCES[precision]:
            raise Refusal(
                KeyName("convergence", "tolerance"),
                f": {tolerance:g} is below the floor of round-off; accepted with ",
                KeyName("numerics", "precision"),
                f" = {precision!r}: at least {LEAST_TOLERANCES[precision]:g}, or 0 for never",
            )
        return self

    @model_validator(mode="after")
    def _half_precision_is_measured(self) -> Self:
        """Refuse half precision where no extrapolation measures its error."""
        unmeasured = self.convergence.tolerance and not self.convergence.vectors
        if self.numerics.precision == "float16" and unmeasured:
            raise Refusal(
                KeyName("convergence", "vectors"),
                ": none measures the error of 'float16'; use at least 1, or another ",
                KeyName("numerics", "precision"),
            )
        return self

    @model_validator(mode="after")
    def _flow_suits_the_image(self) -> Self:
        if self.flow.viscosity is not None and not self.image.in_metres:
            raise Refusal(
                KeyName("flow", "viscosity"),
                ": SI units need the edge of a voxel; use ",
                KeyName("image", "voxel_size"),
                " in metres",
            )
        axis, walls = self.flow.axis, self.image.walls
        if walls and axis in ("all", *walls):
            raise Refusal(
                KeyName("image", "walls"),
                f": {''.join(walls)!r} closes ",
                KeyName("flow", "axis"),
                f" = {axis!r}; accepted: ",
                "none" if axis == "all" else f"any of {', '.join(sorted({*'xyz'} - {axis}))}",
            )
        if axis == "all" and self.image.buffer:
            raise Refusal(
                KeyName("image", "buffer"),
                ": layers are for one axis; accepted with ",
                KeyName("flow", "axis"),
                " = 'all': 0",
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
        """The choice of the time step, for people."""
        if not self.ends_early:
            return "in lattice steps"
        return f"in lattice steps, or when within {self.convergence.tolerance:g} of steady"
