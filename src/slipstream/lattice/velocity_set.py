"""The velocity set D3Q19, and the layout of its populations in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.engine import kernels
from slipstream.engine.device import REAL_NAMES
from slipstream.engine.errors import InputError, name_among

# The axes of arrays, in their order.
AXES = ("z", "y", "x")


def axes_of(name: str) -> list[int]:
    """Return the array axes of "x", "y", "z" or "all": for all, x first."""
    return [2, 1, 0] if name == "all" else [AXES.index(name)]


class VelocitySet:
    """The velocities of a lattice, voxels per step along z, y and x, and their weights.

    Direction 0 rests; 2k - 1 and 2k are opposite, and the first of such a pair never moves
    backwards along x. Among directions that lead to the same row, a direction without motion along
    x comes first. `weights` are given by the square of the speed.
    """

    def __init__(
        self,
        name: str,
        velocities: Sequence[tuple[int, int, int]],
        weights: Sequence[float],
        sound_speed_squared: float,
    ) -> None:
        self.name = name
        self.velocities = np.array(velocities)
        self.weights = np.array([weights[speed] for speed in (self.velocities**2).sum(axis=1)])
        self.sound_speed_squared = sound_speed_squared
        self.directions = len(self.velocities)
        # A site has a link for each direction but rest.
        self.links = self.directions - 1
        # The directions that lead to each row, the site's own row first.
        rows: dict[tuple[int, int], list[int]] = {}
        for direction, (z, y, _) in enumerate(velocities):
            rows.setdefault((z, y), []).append(direction)
        self._rows = list(rows.values())
        self.upstream_rows = len(self._rows) - 1
        self.constants = {"VELOCITY_SET": f'"{kernels.write(self._table())}"'}

    def opposite(self, direction: int) -> int:
        """Return the number of the opposite direction."""
        return ((direction - 1) ^ 1) + 1 if direction else 0

    def _table(self) -> str:
        """Return the table that kernels include; see ``velocity_set.hpp``."""
        start, position, size, row_of, middle = (np.zeros(self.directions, int) for _ in range(5))
        before = 0
        for number, row in enumerate(self._rows):
            still = [direction for direction in row if not self.velocities[direction][2]]
            start[row], position[row], size[row] = before, np.arange(len(row)), len(row)
            row_of[row], middle[row] = number - 1, still[0] if still else 0
            before += len(row)
        z, y, x = self.velocities.T
        integers = {
            "CX": x,
            "CY": y,
            "CZ": z,
            "ROW_START": start,
            "ROW_PLACE": position,
            "ROW_OF": row_of,
            "ROW_MIDDLE": middle,
        }
        lines = [
            f"// {self.name}, written by lattice/velocity_set.py.",
            f"constexpr int DIRECTIONS = {self.directions};",
            f"constexpr int UPSTREAM_ROWS = {self.upstream_rows};",
            *(
                f"constexpr int {key}[] = {{{', '.join(map(repr, values.tolist()))}}};"
                for key, values in integers.items()
            ),
            f"INLINE constexpr int row_size(int q) {{ return {_by_range(size)}; }}",
            f"INLINE constexpr double weight(int q) {{ return {_by_range(self.weights)}; }}",
        ]
        return "\n".join(lines) + "\n"


def _by_range(numbers: np.ndarray) -> str:
    """Return an expression for the number of direction q, in a form that compilers fold."""
    ends = np.flatnonzero(np.diff(numbers)) + 1
    *values, last = numbers[[0, *ends]].tolist()
    cases = [f"q < {end} ? {value!r} : " for end, value in zip(ends, values, strict=True)]
    return "".join(cases) + repr(last)


# Along z, y and x, in voxels per step.
_VELOCITIES = [
    (0, 0, 0),
    (0, 0, 1),
    (0, 0, -1),
    (0, 1, 0),
    (0, -1, 0),
    (1, 0, 0),
    (-1, 0, 0),
    (0, 1, 1),
    (0, -1, -1),
    (0, -1, 1),
    (0, 1, -1),
    (1, 0, 1),
    (-1, 0, -1),
    (-1, 0, 1),
    (1, 0, -1),
    (1, 1, 0),
    (-1, -1, 0),
    (-1, 1, 0),
    (1, -1, 0),
]

D3Q19 = VelocitySet(
    "D3Q19", _VELOCITIES, weights=(1 / 3, 1 / 18, 1 / 36), sound_speed_squared=1 / 3
)


@dataclass(frozen=True)
class Step:
    """A step, by its name in ``collide_and_stream.hpp``, and whether it needs links."""

    kernel_name: str
    needs_links: bool = True


@dataclass(frozen=True)
class Propagation:
    """The two steps of a pair, and how many arrays of populations they need."""

    steps: tuple[Step, Step]
    arrays: int


# How populations move from site to site in the two steps of a pair. With two lattices, a step reads
# its own sites of one array and stores to the sites downstream in the other.
TWO_LATTICE = Step("TWO_LATTICE")
# In the AA pattern (Bailey et al. 2009) there is one array: an even step stores outgoing
# populations at its own site, in the opposite direction.
AA_EVEN = Step("AA_EVEN", needs_links=False)
# An odd step reads from, and stores to, the neighbouring sites.
AA_ODD = Step("AA_ODD")
PROPAGATIONS = {
    "two-lattice": Propagation((TWO_LATTICE, TWO_LATTICE), arrays=2),
    "aa": Propagation((AA_EVEN, AA_ODD), arrays=1),
}


@dataclass(frozen=True)
class Encoding:
    """An encoding of links, and about how many bytes it takes per site."""

    kernel_name: str  # in ``link_encoding.hpp``
    bytes_per_link: float = 0.0
    bytes_per_row: float = 0.0  # for each row upstream
    bytes_beside: float = 0.0
    only_layout: str = ""  # the layout that it needs, on CPUs; if "", any layout and device will do

    def bytes_per_site(self, velocity_set: VelocitySet) -> float:
        """Return the bytes that the links of a site take."""
        rows = self.bytes_per_row * velocity_set.upstream_rows
        return self.bytes_beside + rows + self.bytes_per_link * velocity_set.links


@dataclass(frozen=True)
class Precision:
    """The type in which populations are stored, and the type of arithmetic."""

    stored: str
    real: str


# Their names in ``population_layout.hpp``.
LAYOUTS = {
    "stream": "STREAM",
    "collision": "COLLISION",
    "bundle": "BUNDLE",
    "vector-collision": "VECTOR_COLLISION",
    "vector-bundle": "VECTOR_BUNDLE",
}
# Rows of a tile along z and y.
_TILE = 8
# For rows at z and y, given in raster order: the index of the first row, the second and so on.
ORDERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "raster": lambda z, y: np.arange(z.size),
    "row-tiles": lambda z, y: np.lexsort((y, z, y // _TILE, z // _TILE)),
}
ENCODINGS = {
    "wide": Encoding("WIDE", bytes_per_link=4.0),
    "compact": Encoding("COMPACT", bytes_per_row=2.0, bytes_beside=4.25),
    # Made from wide links; steps that use them have their own kernel. The narrower the
    # vectors of the processor, the more strips there are: this is for vectors of 32 bytes.
    "strips": Encoding("WIDE", bytes_per_link=2.4, bytes_beside=4.0, only_layout="stream"),
}
PRECISIONS = {
    "float64": Precision("float64", "float64"),
    "float32": Precision("float32", "float32"),
    "mixed": Precision("float32", "float64"),
    "float16": Precision("float16", "float32"),
}
_STORED_NAMES = {**REAL_NAMES, "float16": "Half"}  # in ``stored_numbers.hpp``
# The choices that affect speed only.
TUNED = ("propagation", "layout", "order", "encoding")

# Sites that are advanced together.
SEGMENT = 16
# Of a GPU's cache: what a warp reads of a direction should lie in few of them.
_LINE_BYTES = 128
# Sites that share the bases of compact links.
BASE_BLOCK = 256


class _OfStorage:
    """What follows from the fields of a `Storage`, which are its arguments."""

    dtype: np.dtype
    real: np.dtype
    has_unit: bool
    group: int
    constants: dict[str, object]


@dataclass(frozen=True)
class Storage(_OfStorage):
    """How populations are stored.

    Attributes
    ----------
    propagation : {"aa", "two-lattice"}
        In place, with two alternating kinds of steps, or from one array to another.
    layout : {"stream", "collision", "bundle", "vector-collision", "vector-bundle"}
        Direction by direction; site by site; directions that lead to the same row of sites
        together; and the latter two for vectors of sites that fill 128 bytes.
    order : {"raster", "row-tiles"}
        Rows of sites one after the other, or in tiles of 8 by 8 rows.
    encoding : {"compact", "wide", "strips"}
        Of links: 20 bytes per site, or 72; or for vectors of sites, on a CPU and in layout "stream"
        only.
    precision : {"float64", "float32", "mixed", "float16"}
        Of storage and arithmetic; mixed stores float32 and computes with float64, float16 stores
        float16 and computes with float32.
    dtype, real : numpy.dtype
        Type in which populations are stored, and type of the arithmetic.
    has_unit : bool
        Whether the range of stored numbers is so small that they need a unit.
    group : int
        How many sites have their populations of a direction together, if not all.
    constants : dict
        Compile-time constants of kernels that read or write populations.

    Raises
    ------
    InputError
        If one is unknown.
    """

    propagation: str = "aa"
    layout: str = "stream"
    order: str = "raster"
    encoding: str = "compact"
    precision: str = "float64"

    def __post_init__(self) -> None:
        for name, accepted in (
            ("propagation", PROPAGATIONS),
            ("layout", LAYOUTS),
            ("order", ORDERS),
            ("encoding", ENCODINGS),
            ("precision", PRECISIONS),
        ):
            name_among(name, getattr(self, name), accepted)
        needed = ENCODINGS[self.encoding].only_layout
        if needed and self.layout != needed:
            raise InputError(
                f"encoding {self.encoding!r} needs layout {needed!r}, not {self.layout!r}; "
                "accepted with it: compact, wide"
            )
        dtype = np.dtype(PRECISIONS[self.precision].stored)
        real = np.dtype(PRECISIONS[self.precision].real)
        group = _LINE_BYTES // dtype.itemsize if self.layout.startswith("vector") else 1
        constants = {
            "LAYOUT": LAYOUTS[self.layout],
            "GROUP_SITES": group,
            "REAL": REAL_NAMES[real.name],
            "STORED": _STORED_NAMES[dtype.name],
            "STORED_BYTES": dtype.itemsize,
        }
        for name, value in (
            ("dtype", dtype),
            ("real", real),
            ("has_unit", dtype == np.float16),
            ("group", group),
            ("constants", constants),
        ):
            object.__setattr__(self, name, value)

    @property
    def choices(self) -> dict[str, str]:
        """The arguments that make this storage, by name."""
        return {name: getattr(self, name) for name in (*TUNED, "precision")}

    @property
    def values(self) -> np.dtype:
        """Type of populations in states and on the host, which has all stored numbers exactly."""
        return np.result_type(self.dtype, np.float32)

    def bytes_per_update(
        self, link_bytes: float, velocity_set: VelocitySet = D3Q19
    ) -> tuple[float, float]:
        """Return the bytes that the first and the second step of a pair must move, per site.

        Every population is read and written once, and `link_bytes` are read by steps with links.
        """
        populations = 2 * velocity_set.directions * self.dtype.itemsize
        first, second = (
            populations + (link_bytes if step.needs_links else 0)
            for step in PROPAGATIONS[self.propagation].steps
        )
        return first, second


# Constants of kernels that take no populations.
PLAIN_CONSTANTS = Storage().constants


def row_order(planes: int, rows: int, order: str) -> np.ndarray:
    """Return the indices of rows, ``z * rows + y``, in the order of their sites."""
    z, y = np.indices((planes, rows)).reshape(2, -1)
    return ORDERS[order](z, y)
