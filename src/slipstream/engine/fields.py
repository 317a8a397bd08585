"""Fields and values that solvers hand out, to be stored, drawn and printed, without any wording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from slipstream.engine.accepted import REDUCTIONS
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.decomposition import Box
from slipstream.engine.device import host_values
from slipstream.engine.errors import InputError, finite_number
from slipstream.engine.text import shown

# What kmax_eta below 1 means, in all messages.
UNRESOLVED = "the smallest eddies are not resolved"
# The Mach number above which compressibility makes flow through pores inaccurate.
MACH_WARNING = 0.1
# Pores at most this many voxels wide have no parabola of velocity.
NARROW = 2
# The share of narrow pores above which a warning says so.
MANY_NARROW = 0.2
# The energy of a field, as a part of its largest, below which only round-off is left of the field.
_DEAD = 1e-14
# The names of the axes, in order.
AXES = ("z", "y", "x")
# How many places are interpolated together: each takes 64 points of every component.
_PLACES_AT_ONCE = 4096


@dataclass(frozen=True)
class Field:
    """A named global array, and the box of it that one rank holds.

    Attributes
    ----------
    name : str
        Name of the array in files, such as ``"velocity_x"``.
    dims : tuple of str
        Names of the dimensions, slowest first, such as ``("z", "y", "x")``.
    shape : tuple of int
        Shape of the global array.
    offset : tuple of int
        Global index of the first element of ``data``.
    data : numpy.ndarray
        This rank's box, of any real or complex dtype; it may be empty.
    coordinates : mapping of str to numpy.ndarray
        Global coordinate of each dimension, float64, one-dimensional. Dimensions may lack one.
    attributes : mapping of str to object
        Whatever describes the array; ``long_name`` and ``units`` are used by readers and plots.
    coordinate_unit : str
        Unit of all coordinates, such as ``"m"``; "1" where they are non-dimensional.

    Raises
    ------
    ValueError
        If dimensions, shape, offset and data do not agree.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    data: np.ndarray
    coordinates: Mapping[str, np.ndarray] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)
    coordinate_unit: str = "1"

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.offset) == self.data.ndim:
            raise ValueError(
                f"field {self.name!r}: dims {self.dims}, shape {self.shape}, offset {self.offset}"
                f" and {self.data.ndim}-dimensional data differ in length"
            )
        ends = [start + size for start, size in zip(self.offset, self.data.shape, strict=True)]
        if self.data.size and any(e > n for e, n in zip(ends, self.shape, strict=True)):
            raise ValueError(
                f"field {self.name!r}: data of shape {self.data.shape} at offset {self.offset}"
                f" reaches beyond the global shape {self.shape}"
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is None:
            return np.asarray(self.data, dtype=dtype)
        return np.array(self.data, dtype=dtype, copy=copy)

    def region(self) -> tuple[slice, ...]:
        """Return the slices of the global array that ``data`` fills."""
        return tuple(
            slice(start, start + size)
            for start, size in zip(self.offset, self.data.shape, strict=True)
        )

    def to_xarray(self) -> Any:
        """Return this rank's part as an `xarray.DataArray`, with its coordinates and attributes.

        Needs xarray, which is not installed with this package.
        """
        try:
            import xarray
        except ImportError:
            raise ImportError("to_xarray needs xarray: pip install xarray") from None
        region = dict(zip(self.dims, self.region(), strict=True))
        coordinates = {name: one[region[name]] for name, one in self.coordinates.items()}
        return xarray.DataArray(
            self.data, coordinates, self.dims, self.name, attrs=dict(self.attributes)
        )


def grid_field(
    name: str,
    long_name: str,
    values: np.ndarray,
    offset: tuple[int, ...],
    lines: Sequence[np.ndarray],
) -> Field:
    """Return a field at the points of a grid, given its lines; the order is z, y, x."""
    coordinates = dict(zip("zyx", lines, strict=True))
    attributes = {"long_name": long_name, "units": "1"}
    shape = tuple(line.size for line in lines)
    return Field(name, ("z", "y", "x"), shape, offset, values, coordinates, attributes)


# Each a time, and wavenumbers and values by name.
Spectra = Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]


class Fact:
    """A number, several, or a word that a solver gives, by a name that `report` has words for.

    `unit` is empty for numbers without one. Related facts have names: ``fact.get("time")``.
    """

    def __init__(self, value: Any, unit: str = "", **more: Any) -> None:
        self.value, self.unit, self.more = value, unit, more

    def get(self, name: str) -> Any:
        """Return a related fact or value by its name, or None."""
        return self.more.get(name)

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.more.items())
        return f"Fact({self.value!r}, {self.unit!r}{more})"


@dataclass(frozen=True)
class PlaneChoice:
    """A field, and the plane of it that is drawn."""

    # The field (dimensions z, y and x), and the file of its picture.
    field: str
    file: str
    # What distinguishes the plane: where the mean square is largest, unless `is_central`.
    remark: str = ""
    # Quantile of the values that has the last colour; 1 is the largest value.
    brightest: float = 1.0
    # The components if `field` is the magnitude of a vector; empty if it is a field itself.
    components: tuple[str, ...] = ()
    # A field that is 0 where there is nothing to draw, if any.
    mask: str = ""
    # Dimension normal to the plane; empty for the dimension with a single point, or the first.
    normal: str = ""
    is_central: bool = False
    # The diagnostic with the energy of the field, if it has one.
    energy: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields whose planes are needed."""
        return (*(self.components or (self.field,)), *((self.mask,) if self.mask else ()))


@dataclass(frozen=True)
class PictureChoice:
    """The pictures of the runs of a solver family."""

    # Diagnostics to draw against time: those of a panel together, panels one above the other.
    curves: tuple[tuple[str, ...], ...] = ()
    curves_file: str = "series.png"
    planes: tuple[PlaneChoice, ...] = ()
    # The spectrum that is drawn at several times, then the spectra of the last time.
    spectra: tuple[str, ...] = ("energy_spectrum",)
    # The largest wavenumber up to which all modes are kept: shells beyond it are not whole. 0 if
    # there is none.
    cutoff: float = 0.0
    # Whether spectra may have an inertial range, which a line of slope -5/3 is a guide to.
    may_have_inertial_range: bool = False
    # Whether a residual of the energy budget is an error, not what products add.
    balances_energy: bool = True
    # The diagnostic whose peak is marked, if any.
    peak: str = ""
    # Mathematical text for names whose long names are too long, and units other than 1.
    short_labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    # The same of panels with several curves, by the first of them.
    group_labels: Mapping[str, str] = field(default_factory=dict)
    # What tells curves of a panel, and spectra, apart.
    legend: Mapping[str, str] = field(default_factory=dict)
    time_label: str = "time $t$"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all diagnostics that are drawn."""
        return tuple(name for panel in self.curves for name in panel)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields whose planes are needed, each once."""
        return tuple(dict.fromkeys(name for plane in self.planes for name in plane.needed))


@dataclass
class PilotFindings:
    """The expectations of a family about a run before it begins, beyond its cost.

    Attributes
    ----------
    steps : float or None
        Expected number of steps; None where nothing better is known than the size of the first.
    source : str
        By what the number of steps is known, for people.
    facts : dict of str to Fact
        What else is expected.
    warnings : list of str
        What will be wrong.
    """

    steps: float | None = None
    source: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def has_died(energy: float, largest: float) -> bool:
    """Return whether a field has decayed to round-off, by its energy and the largest before."""
    return energy < _DEAD * largest


# ``take(values, plane)`` gets an array of the device, [component, z, y, x], with some planes of
# this rank; the first is its plane number `plane`.
Take = Callable[[Array, int], None]


@dataclass(frozen=True)
class Layout:
    """Where the points are: the box of each rank, and the coordinates along each axis.

    Points are those of a periodic grid, or the middles of cells. Along the axis `walls`, if there
    is one, the box ends at walls, half a spacing beyond the outermost points.
    """

    shape: tuple[int, int, int]
    boxes: tuple[Box, ...]
    coordinates: dict[str, np.ndarray]
    unit: str = "1"
    are_cells: bool = False
    walls: str | None = None
    # How far along x the values are shifted, at present, that are repeated beyond the end along y.
    slide: Callable[[], float] = field(default=float, compare=False)

    def spacing(self, axis: str) -> float:
        """Return the distance of points along an axis; 1 if there is one point only."""
        return spacing_of(self.coordinates[axis])

    def ends(self, axis: str) -> tuple[float, float]:
        """Return the ends of the box along an axis."""
        return ends_of(self.coordinates[axis], self.are_cells or axis == self.walls)

    def nearest(self, axis: str, position: float, key: str) -> int:
        """Return the index of the point nearest to a coordinate, or refuse one outside."""
        return nearest_point(self.coordinates[axis], self.ends(axis), position, axis, key)


def spacing_of(line: np.ndarray) -> float:
    """Return the distance of points along an axis; 1 if there is one point only."""
    return float(line[1] - line[0]) if len(line) > 1 else 1.0


def ends_of(line: np.ndarray, are_middles: bool) -> tuple[float, float]:
    """Return the ends of an axis, half a spacing beyond points in middles of cells."""
    spacing = spacing_of(line)
    shift = spacing / 2 if are_middles else 0.0
    return float(line[0]) - shift, float(line[-1]) + spacing - shift


def nearest_point(
    line: np.ndarray, ends: tuple[float, float], position: float, axis: str, key: str
) -> int:
    """Return the index of the point of an axis nearest to a coordinate, or refuse one outside."""
    position = finite_number(f"{key}: position", position)
    low, high = ends
    if len(line) > 1 and not low <= position <= high:
        raise InputError(
            f"{key}: position {position:g} along {axis} is outside; accepted: {low:g} to {high:g}"
        )
    return int(np.argmin(np.abs(line - position)))


class PointValues(ABC):
    """Values at the points, made again from the state whenever they are asked for.

    Attributes
    ----------
    suffixes : tuple of str
        What each component adds to a name: ("",) of a scalar, ("_x", "_y", "_z") of a vector; the
        real parts of a complex quantity come first.
    dtype : numpy.dtype
        Of values.
    long_name, unit : str
        For people; "1" where it is non-dimensional.
    """

    suffixes: tuple[str, ...]
    dtype: np.dtype
    long_name: str
    unit: str = "1"

    @abstractmethod
    def each_chunk(self, take: Take, components: slice) -> None:
        """Give the values of some components, some planes at a time. Collective.

        Chunks come in any order, perhaps from several threads.
        """

    @abstractmethod
    def reduce(self, how: str) -> np.ndarray:
        """Return one of `REDUCTIONS` by component, the same on all ranks. Collective."""


class PointDensity(Protocol):
    """The density of points over the values of expressions, and means of others."""

    def coordinates(self, ranges: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
        """Return the middles of bins within these ends, by variable."""

    def long_names(self) -> dict[str, str]:
        """Return the descriptions of the results, by name."""

    def fields(self, ranges: Sequence[Sequence[float]] | None) -> dict[str, Field]:
        """Return the results of the present state as fields, by name. Collective."""


class ArrayValues(PointValues):
    """Values whose parts ranks make as a whole.

    Parameters
    ----------
    read : callable
        ``read(component)`` returns this rank's part on the host; collective.
    """

    def __init__(
        self,
        read: Callable[[int], np.ndarray],
        suffixes: tuple[str, ...],
        dtype: Any,
        long_name: str,
        unit: str,
        layout: Layout,
        comm: Comm,
    ) -> None:
        self._read, self._layout, self._comm = read, layout, comm
        self.suffixes, self.dtype = suffixes, np.dtype(dtype)
        self.long_name, self.unit = long_name, unit

    def each_chunk(self, take: Take, components: slice) -> None:
        parts = [self._read(one) for one in range(len(self.suffixes))[components]]
        if parts[0].size:
            take(np.stack(parts), 0)

    def reduce(self, how: str) -> np.ndarray:
        return np.array([self._reduced(self._read(n), how) for n in range(len(self.suffixes))])

    def _reduced(self, part: np.ndarray, how: str) -> float:
        check_reduction(how, tuple(REDUCTIONS), "reduce", self.long_name)
        layout, rank = self._layout, 0 if self._comm is None else self._comm.rank
        rows = part.reshape(part.shape[0], -1).astype(np.float64, copy=False)
        # Plane by plane, so that the sum depends little on how planes are divided.
        value: Callable[[], np.ndarray] = {
            "mean": lambda: rows.sum(axis=1),
            "rms": lambda: np.square(rows).sum(axis=1),
            "max": lambda: rows.max(axis=1),
            "min": lambda: rows.min(axis=1),
        }[how]
        box = layout.boxes[rank]
        planes = np.zeros(layout.shape[0])
        if how in ("max", "min"):
            # Several ranks may have parts of one plane.
            extremes = value() if part.size else np.zeros(0)
            extreme = np.max if how == "max" else np.min
            worst = -np.inf if how == "max" else np.inf
            mine = float(extreme(extremes)) if extremes.size else worst
            op = np.maximum if how == "max" else np.minimum  # which keep not-a-number
            return mine if self._comm is None else float(self._comm.allreduce(mine, op=op))
        if part.size:
            planes[box.start[0] : box.stop[0]] = value()
        mean = float(sum_over_ranks(self._comm, planes).sum()) / float(np.prod(layout.shape))
        return float(np.sqrt(mean)) if how == "rms" else mean


def check_reduction(how: str, accepted: tuple[str, ...], where: str, what: str) -> None:
    """Refuse an unknown reduction, or one that does not suit the values."""
    if how not in accepted:
        raise InputError(f"{where}: {how!r} of {what}; accepted: {', '.join(accepted)}")


def on_host(values: Array) -> np.ndarray:
    """Return an array as NumPy's, in the order of the device's work, which this may be part of."""
    return host_values(values)


def places_of(name: str, values: Any, count: int | None = None) -> np.ndarray:
    """Return finite places (n, 3) as an array, or raise `InputError`; `count` of them if given."""
    accepted = f"accepted: ({'n' if count is None else count}, 3), finite x, y and z of each"
    try:
        places = np.asarray(values)
    except (TypeError, ValueError):  # of lists of different lengths
        places = np.empty(0, object)
    if places.dtype.kind not in "iuf" or isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} are {shown(values)}; {accepted}")
    if places.ndim != 2 or places.shape[1] != 3 or count not in (None, len(places)):
        raise InputError(f"{name} have shape {places.shape}; {accepted}")
    if not np.isfinite(places).all():
        raise InputError(f"{name} are not all finite; {accepted}")
    return places.astype(float)


def interpolated(parts: Array, places: np.ndarray, layout: Layout, box: Box) -> np.ndarray:
    """Return the share of a box in cubic interpolation at places (x, y, z), shape (n, fields).

    The parts may be on the device: only the points around the places are copied from there.
    """
    result = np.zeros((len(places), len(parts)), np.result_type(parts.dtype, np.float64))
    if not box.size or not len(places):
        return result
    indices, weights = [], []
    along_x = places[:, :1]
    for axis, name in enumerate(AXES):
        line, size = layout.coordinates[name], layout.shape[axis]
        along = places[:, 2 - axis] if axis < 2 else along_x
        near, factors = _find_nearest_four(line, size, along, name == layout.walls)
        if axis == 1 and (slide := layout.slide()):
            along_x = along_x - slide * (near // size)
        local = near % size - box.start[axis]
        is_inside = (local >= 0) & (local < box.shape[axis])
        indices.append(np.where(is_inside, local, 0))
        weights.append(np.where(is_inside, factors, 0.0))
    among = [factors.reshape(len(places), -1).any(axis=1) for factors in weights]
    inside = np.flatnonzero(np.logical_and.reduce(among))
    for first in range(0, len(inside), _PLACES_AT_ONCE):
        chosen = inside[first : first + _PLACES_AT_ONCE]
        k, j, i = (values[chosen] for values in indices)
        around = parts[:, k[:, :, None, None], j[:, None, :, None], i[:, None]]
        samples = on_host(around)
        samples = np.einsum("fn...i,n...i->fn...", samples, weights[2][chosen][:, None])
        for values in (weights[1], weights[0]):
            samples = np.einsum("fn...i,ni->fn...", samples, values[chosen])
        result[chosen] = samples.T
    return result


def _find_nearest_four(
    line: np.ndarray, size: int, places: np.ndarray, has_walls: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the points around each place on an axis, and their weights.

    Indices from `size` on are those of points that are repeated beyond the end. Next to a wall all
    four are on the same side of it.
    """
    if size == 1:
        return np.zeros((*places.shape, 1), int), np.ones((*places.shape, 1))
    position = (places - line[0]) / (line[1] - line[0])
    first = np.floor(position).astype(int)
    if has_walls:
        first = np.clip(first, 1, max(1, size - 3))
    s = (position - first)[..., None]
    # Lagrange's polynomials through the points at -1, 0, 1 and 2.
    factors = (
        -s * (s - 1) * (s - 2) / 6,
        (s + 1) * (s - 1) * (s - 2) / 2,
        -(s + 1) * s * (s - 2) / 2,
        (s + 1) * s * (s - 1) / 6,
    )
    return first[..., None] + np.arange(-1, 3), np.concatenate(factors, axis=-1)
