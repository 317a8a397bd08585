"""The arguments of a distributed transform, checked on all ranks, and its route of layouts."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from slipstream.engine.accepted import FFT_DTYPES, FFT_KINDS, NORMS, WIRES
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import check_agreement, on_every_rank
from slipstream.engine.decomposition import (
    Box,
    GridBoxes,
    checked_boxes,
    factorisations,
    grid_boxes,
    process_grid,
    whole,
)
from slipstream.engine.device import period
from slipstream.engine.errors import (
    InputError,
    bytes_of,
    folder_names,
    name_among,
    whole_number,
)
from slipstream.engine.exchange import TRANSPORTS, ExchangePlan
from slipstream.engine.fft.transform_parts import Modes, padded_sizes, truncate
from slipstream.engine.outofcore.memory_budget import DEFAULT, Streaming, checked_streaming
from slipstream.engine.schedule import POLICIES

# The boxes of a process grid follow from a formula, for any number of ranks.
Boxes = tuple[Box, ...] | GridBoxes

# Fields and three axes: arrays with more axes have too many grids to try them all.
_SEARCHED_AXES = 4
# The cost of a message in elements: a microsecond of a network.
_MESSAGE = 1024
# The most exchanges of a route: bricks to a pencil, two more pencils, and bricks again.
_MOST_EXCHANGES = 4
# The type of the inverse of a cosine or sine transform, by type.
_INVERSE_TYPE = {"1": "1", "2": "3", "3": "2", "4": "4"}
# Accepted layouts of a transform.
LAYOUTS = ("slab", "pencil", "root")
# Accepted orders of modes.
ORDERS = ("transposed", "natural")
# Accepted efforts of tuning.
TUNES = ("off", "quick", "full")
# Accepted residencies of arrays.
RESIDENCIES = ("device", "host", "disk", "auto")
# With the axis of fields, more axes than GPU libraries, and people, can handle.
_MOST_AXES = 8
# Complex types by real type.
_COMPLEX = {"float32": "complex64", "float64": "complex128"}


@dataclass(frozen=True)
class Stage:
    """A layout, and the axes that are transformed in it."""

    # One box per rank, before and after the transforms: along transformed axes in kept modes.
    before: Boxes
    after: Boxes
    # In the order in which they are transformed; 1 is the first after the fields.
    axes: tuple[int, ...]


def find_route(
    sizes: Sequence[int],
    modes: Sequence[Modes],
    real: bool,
    source: Boxes,
    target: Boxes,
    active: int,
    axes: Sequence[int] | None = None,
    half_axis: int | None = None,
    early: Sequence[int] = (),
) -> list[Stage]:
    """Return the stages with the fewest exchanges.

    `sizes` is the number of fields, then the physical shape. All axes are transformed, or those of
    `axes`. If arrays are `real`, the axis that makes them complex, the last one or `half_axis`, is
    transformed first; only those of `early` may come before it. Only the first `active` ranks
    transform. The first stage's `before` is `source`, the last one's `after` is `target`.
    """
    if real and half_axis is None:
        half_axis = len(sizes) - 1
    space = _Space(tuple(sizes), tuple(modes), half_axis if real else None, early, active)
    remaining = frozenset(range(1, len(sizes)) if axes is None else axes)
    # Idle ranks save exchanges, but that does not pay if all can work.
    for idle in (False, True):
        for exchanges in range(_MOST_EXCHANGES + 1):
            routes = _find_routes(space, source, target, remaining, exchanges, idle)
            if routes:
                return routes[0] if len(routes) == 1 else min(routes, key=_count_moved_elements)
    raise RuntimeError("no route was found, though one rank could transform everything")


@dataclass(frozen=True)
class _Space:
    """The index spaces of an array as axes are transformed one after the other."""

    sizes: tuple[int, ...]
    modes: tuple[Modes, ...]
    # The axis whose transform makes real arrays complex, and the axes that may precede it.
    half_axis: int | None
    early: Sequence[int]
    active: int

    def shape(self, remaining: frozenset[int]) -> tuple[int, ...]:
        """Return the global shape while some axes remain to be transformed."""
        return tuple(
            size if axis == 0 or axis in remaining else self.modes[axis - 1].count
            for axis, size in enumerate(self.sizes)
        )

    def possible(self, boxes: Boxes, remaining: frozenset[int]) -> tuple[int, ...]:
        """Return the axes that can be transformed in a layout, in order."""
        if isinstance(boxes, GridBoxes):
            if boxes.workers > self.active:
                return ()
            axes = [axis for axis in sorted(remaining, reverse=True) if boxes.is_whole(axis)]
        else:
            shape, filled = self.shape(remaining), [box for box in boxes if box.size]
            if any(box.size for box in boxes[self.active :]):
                return ()
            axes = [
                axis
                for axis in sorted(remaining, reverse=True)
                if all(box.shape[axis] == shape[axis] for box in filled)
            ]
        if self.half_axis in remaining:
            if self.half_axis not in axes:
                return tuple(axis for axis in axes if axis in self.early)
            axes.sort(key=lambda axis: axis != self.half_axis)
        return tuple(axes)

    def transformed(self, boxes: Boxes, axes: tuple[int, ...]) -> Boxes:
        """Return a layout after some axes have been transformed in it."""
        for axis in axes:
            kept = self.modes[axis - 1].count
            if isinstance(boxes, GridBoxes):
                boxes = boxes.with_extent(axis, kept)
                continue
            boxes = tuple(box.with_range(axis, 0, kept) if box.size else box for box in boxes)
        return boxes


def _find_routes(
    space: _Space,
    boxes: Boxes,
    target: Boxes,
    remaining: frozenset[int],
    exchanges: int,
    idle: bool,
) -> list[list[Stage]]:
    """Return all routes from a layout to the target with exactly `exchanges` exchanges."""
    axes = space.possible(boxes, remaining)
    stage = Stage(boxes, space.transformed(boxes, axes), axes)
    rest = remaining - set(axes)
    if exchanges == 0:
        return [[stage]] if not rest and _are_equal(stage.after, target) else []
    divides = isinstance(target, GridBoxes) and not all(map(target.is_whole, rest))
    if exchanges == 1 and divides:
        return []  # axes that are divided at the end cannot be transformed there
    layouts = (
        [_undo_last_transforms(space, target, rest)]
        if exchanges == 1
        else _list_grids(space, rest, len(boxes), idle)
    )
    return [
        [stage, *way]
        for layout in layouts
        for way in _find_routes(space, layout, target, rest, exchanges - 1, idle)
    ]


def _are_equal(boxes: Boxes, target: Boxes) -> bool:
    """Return whether boxes are equal; all empty boxes count as equal."""
    if isinstance(boxes, GridBoxes) and boxes.is_alike(target):
        return True
    return all(
        ours == theirs or not (ours.size or theirs.size)
        for ours, theirs in zip(boxes, target, strict=True)
    )


def _undo_last_transforms(space: _Space, target: Boxes, remaining: frozenset[int]) -> Boxes:
    """Return the target before its last transforms, along axes that it does not divide."""
    for axis in remaining:
        if isinstance(target, GridBoxes) and target.is_whole(axis):
            target = target.with_extent(axis, space.sizes[axis])
            continue
        target = tuple(
            box.with_range(axis, box.start[axis], max(box.start[axis], space.sizes[axis]))
            if box.size
            else box
            for box in target
        )
    return target


def _list_grids(space: _Space, remaining: frozenset[int], ranks: int, idle: bool) -> list[Boxes]:
    """Return the layouts over process grids in which some axis can be transformed.

    With `idle`, they include layouts that leave ranks without points.
    """
    shape, needed = space.shape(remaining), remaining
    if space.half_axis in remaining:
        needed = remaining.intersection({space.half_axis, *space.early})
    result: list[Boxes] = []
    for grid in _list_process_grids(space.active, len(shape)):
        if not any(grid[axis] == 1 for axis in needed):
            continue
        if not idle and any(parts > size for parts, size in zip(grid, shape, strict=True)):
            continue
        result.append(grid_boxes(shape, grid, ranks))
    return result


def _list_process_grids(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """Return the process grids to try; for arrays of many axes, slabs and pencils only."""
    if axes <= _SEARCHED_AXES:
        return factorisations(ranks, axes)
    grids = {
        tuple(parts.get(axis, 1) for axis in range(axes))
        for pair in itertools.combinations(range(axes), 2)
        for two in factorisations(ranks, 2)
        for parts in [dict(zip(pair, two, strict=True))]
    }
    return sorted(grids)


def _count_moved_elements(route: list[Stage]) -> int:
    """Return the elements that rank 0 sends, plus the cost of its messages in elements."""
    total = 0
    for first, second in itertools.pairwise(route):
        plan = ExchangePlan.redistribution(first.after, second.before, 0)
        total += plan.off_rank_elements() + _MESSAGE * len(plan.sends)
    return total


def with_fields(boxes: Sequence[Box], fields: int) -> Boxes:
    """Return boxes of an array with a leading axis of fields."""
    if isinstance(boxes, GridBoxes):
        return boxes.with_axis(fields)
    return tuple(Box((0, *box.start), (fields if box.size else 0, *box.stop)) for box in boxes)


def inverse_kind(kind: str) -> str:
    """Return the kind that inverts another one, up to a factor."""
    return kind if kind == "fft" else kind[:3] + _INVERSE_TYPE[kind[3]]


def half_waves(kind: str, n: int) -> np.ndarray:
    """Return the number of half waves of each mode of a cosine or sine transform."""
    first = {"dct1": 0, "dct2": 0, "dst1": 1, "dst2": 1}.get(kind)
    return np.arange(n) + 0.5 if first is None else np.arange(first, first + n)


def places(kind: str, n: int) -> np.ndarray:
    """Return the places of the points of an axis, as fractions of its length."""
    index = np.arange(n)
    if kind == "dct1":
        return index / (n - 1)
    if kind == "dst1":
        return (index + 1) / (n + 1)
    return {"fft": index, "dct3": index, "dst3": index + 1}.get(kind, index + 0.5) / n


def checked_kinds(kinds: str | Sequence[str], axes: Sequence[int]) -> tuple[str, ...]:
    """Return the kind of each axis of a transform, or raise `InputError`."""
    if isinstance(kinds, str):
        kinds = (kinds,) * len(axes)
    if not isinstance(kinds, Sequence) or len(kinds) != len(axes):
        raise InputError(
            f"kinds {kinds!r}; accepted: one name, or one for each of the {len(axes)} axes, of "
            f"{', '.join(FFT_KINDS)}"
        )
    return tuple(name_among("kinds", kind, FFT_KINDS) for kind in kinds)


def default_boxes(
    sizes: Sequence[int],
    spectral_shape: Sequence[int],
    ranks: int,
    layout: str,
    order: str,
    axes: Sequence[int],
    first: int,
    grid: tuple[int, ...] | None,
) -> tuple[Boxes, Boxes]:
    """Return the boxes of physical and of spectral arrays.

    Arrays are transformed along `axes`, first along `first`; `grid` is the process grid of pencils.
    """
    if layout == "root":
        return _put_on_root(sizes, ranks), _put_on_root(spectral_shape, ranks)
    # All axes, the best ones to divide first. An axis without a transform can be divided without an
    # exchange, if it is long enough for all ranks; the first one transformed should not be divided.
    free = [axis for axis in range(len(sizes)) if axis not in axes]
    long = [axis for axis in free if sizes[axis] >= ranks]
    short = sorted(set(free) - set(long), key=lambda axis: -sizes[axis])
    later = [axis for axis in sorted(axes) if axis != first]
    favoured = [*long, *later, *([first, *short] if later else [*short, first])]
    divided = favoured[: 2 if layout == "pencil" and len(sizes) > 2 else 1]
    parts: tuple[int, ...] = (ranks,)
    if len(divided) == 2:
        parts = grid or process_grid(ranks, [sizes[axis] for axis in divided])
    moved = divided
    if order != "natural":
        # After the transforms the next axes are divided, and the first one that was transformed is
        # not.
        stay = sum(1 for _ in itertools.takewhile(lambda axis: axis not in axes, divided))
        moved = [*favoured[:stay], *favoured[stay + 1 :], *favoured[stay : stay + 1]]
    return _boxes(sizes, divided, parts), _boxes(spectral_shape, moved[: len(divided)], parts)


def _boxes(shape: Sequence[int], divided: Sequence[int], parts: Sequence[int]) -> Boxes:
    by_axis = dict(zip(divided, parts, strict=True))
    return GridBoxes(shape, [by_axis.get(axis, 1) for axis in range(len(shape))])


def _put_on_root(shape: Sequence[int], ranks: int) -> Boxes:
    return (whole(shape), *[whole((0,) * len(shape))] * (ranks - 1))


@dataclass(frozen=True)
class Arguments:
    """The arguments of `DistributedFFT`, by name, and values derived from them.

    The boxes are the parts of the ranks; `real` is whether physical arrays are real.
    """

    # The shape of the points, including padding.
    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[int, ...]
    # One for each of `axes`.
    kinds: tuple[str, ...]
    norm: str
    padding: tuple[float, ...] | None
    fields: int
    layout: str
    order: str
    process_grid: tuple[int, ...] | None
    truncation: str | tuple[int, ...] | None
    input_boxes: Boxes
    output_boxes: Boxes
    transport: str
    workers: int | None
    wire: str | None
    tune: str
    schedule: str
    residency: str
    memory: int | None
    scratch: tuple[str, ...] | None
    streaming: Streaming
    ranks: int
    modes: tuple[Modes, ...]
    complex_dtype: np.dtype
    spectral_shape: tuple[int, ...]
    # The type of spectral arrays: real arrays have real modes if no axis is a Fourier axis.
    spectral_dtype: np.dtype
    real: bool
    # The axis whose Fourier transform makes real arrays complex; only half of its modes are stored.
    half_axis: int | None
    # The factors of the forward and of the backward transform.
    factors: tuple[float, float]

    @property
    def is_usual(self) -> bool:
        """Whether all axes are Fourier axes and the last is transformed first."""
        every = sorted(self.axes) == list(range(len(self.shape)))
        fourier = all(kind == "fft" for kind in self.kinds)
        return every and fourier and self.half_axis in (None, len(self.shape) - 1)

    @property
    def has_planes(self) -> bool:
        """Whether an engine that transforms planes of three axes may take it, on some ranks."""
        return len(self.shape) == 3 and self.is_usual

    def route(self, workers: int) -> list[Stage]:
        """Return the route of an array [field, ...axes] through a transform on `workers` ranks."""
        source, target = (
            with_fields(boxes, self.fields) for boxes in (self.input_boxes, self.output_boxes)
        )
        sizes = (self.fields, *self.shape)
        # Axes are counted with the axis of fields first.
        return find_route(
            sizes,
            self.modes,
            self.half_axis is not None,
            source,
            target,
            workers,
            [axis + 1 for axis in self.axes],
            None if self.half_axis is None else self.half_axis + 1,
            [a + 1 for a, kind in zip(self.axes, self.kinds, strict=True) if kind != "fft"],
        )


def agreed_arguments(comm: Comm, **asked: Any) -> Arguments:
    """Return the arguments of `DistributedFFT`, by name, the same on all ranks. Collective.

    All ranks raise `InputError` if the arguments of one are invalid, or differ between ranks.
    """
    ranks = 1 if comm is None else comm.size
    arguments = on_every_rank(comm, lambda: checked_arguments(ranks, **asked))
    if ranks == 1:
        return arguments
    check_agreement(comm, {one.name: getattr(arguments, one.name) for one in fields(arguments)})
    return arguments


def checked_arguments(
    ranks: int,
    *,
    shape: Sequence[int],
    dtype: Any = "float64",
    fields: int = 1,
    layout: str = "slab",
    order: str = "transposed",
    process_grid: Sequence[int] | None = None,
    input_boxes: Sequence[Box] | None = None,
    output_boxes: Sequence[Box] | None = None,
    truncation: str | Sequence[int] | None = None,
    transport: str = "auto",
    workers: int | None = None,
    wire: str | None = None,
    tune: str = "off",
    schedule: str = "overlap",
    residency: str = "device",
    memory: int | str | None = None,
    scratch: str | Sequence[str] | None = None,
    streaming: Streaming | Mapping[str, Any] | None = None,
    norm: str = "backward",
    axes: Sequence[int] | int | None = None,
    kinds: str | Sequence[str] = "fft",
    padding: float | str | Sequence[float] | None = None,
) -> Arguments:
    """Return the arguments of one rank, completed, or raise `InputError`."""
    for name, value, accepted in (
        ("norm", norm, NORMS),
        ("layout", layout, LAYOUTS),
        ("order", order, ORDERS),
        ("transport", transport, ("auto", *TRANSPORTS)),
        ("tune", tune, TUNES),
        ("schedule", schedule, POLICIES),
        ("residency", residency, RESIDENCIES),
    ):
        name_among(name, value, accepted)
    sizes = _checked_shape(shape)
    kind = _checked_dtype(dtype)
    fields = whole_number("fields", fields, 1)
    if workers is not None:
        if ranks == 1 and isinstance(workers, int) and workers > 1:
            raise InputError(
                f"workers is {workers!r}, ranks that transform; accepted on one rank: 1"
            )
        workers = whole_number("workers", workers, 1, ranks)
    wide = kind.name in ("float64", "complex128")
    if wire is not None and not (wide and isinstance(wire, str) and wire in WIRES):
        raise InputError(
            f"wire {wire!r} for {kind.name}; accepted: None, and for float64 and complex128 also "
            f"{', '.join(WIRES)}"
        )
    for name, option in (("memory", memory), ("streaming", streaming)):
        if residency == "device" and option is not None:
            raise InputError(f"{name} is for residency 'host', 'disk' and 'auto'; leave it out")
    if scratch is not None and residency != "disk":
        raise InputError("scratch is for residency 'disk'; leave it out")
    real = kind.kind == "f"
    chosen = _check_axes(axes, len(sizes))
    what_is_done = checked_kinds(kinds, chosen)
    fourier = [
        a for a, kind_of_axis in zip(chosen, what_is_done, strict=True) if kind_of_axis == "fft"
    ]
    half_axis = fourier[-1] if real and fourier else None
    unpadded, sizes, widths = sizes, *padded_sizes(sizes, fourier, padding)
    modes = _modes(unpadded, sizes, fourier, truncation, real, widths is not None)
    for axis, kind_of_axis in zip(chosen, what_is_done, strict=True):
        if kind_of_axis == "dct1" and sizes[axis] < 2:
            raise InputError(f"shape {sizes}: 'dct1' of axis {axis}; accepted: at least 2 points")
    periods = [
        [
            period(kind_of_axis, n[axis])
            for axis, kind_of_axis in zip(chosen, what_is_done, strict=True)
        ]
        for n in (unpadded, sizes)
    ]
    points, summed = map(math.prod, periods)
    share = {"backward": 1.0, "ortho": points**-0.5, "forward": 1.0 / points}[norm]
    factors = (points / summed * share, 1.0 / (points * share))
    spectral_shape = tuple(m.count for m in modes)
    complex_dtype = np.dtype(_COMPLEX.get(kind.name, kind.name))
    grid = None
    if process_grid is not None:
        if layout != "pencil" or len(sizes) < 3:
            raise InputError("process_grid is for layout 'pencil' of arrays of three or more axes")
        try:
            p, q = map(operator.index, process_grid)
        except (TypeError, ValueError):
            p = q = 0
        if min(p, q) < 1 or p * q != ranks:
            raise InputError(
                f"process_grid {process_grid}; accepted: two numbers whose product is the number "
                f"of ranks, {ranks}"
            )
        grid = p, q
    first = chosen[-1] if half_axis is None else half_axis
    usual = default_boxes(sizes, spectral_shape, ranks, layout, order, chosen, first, grid)
    boxes: list[Boxes] = []
    for what, asked_boxes, extent, default in (
        ("input_boxes", input_boxes, sizes, usual[0]),
        ("output_boxes", output_boxes, spectral_shape, usual[1]),
    ):
        if asked_boxes is None:
            boxes.append(default)
            continue
        asked = checked_boxes(asked_boxes, extent, ranks, what)
        boxes.append(default if asked == default else asked)
    return Arguments(
        sizes,
        kind,
        chosen,
        what_is_done,
        norm,
        widths,
        fields,
        layout,
        order,
        grid,
        truncation
        if truncation is None or isinstance(truncation, str)
        else tuple(map(int, truncation)),
        boxes[0],
        boxes[1],
        transport,
        workers,
        wire,
        tune,
        schedule,
        residency,
        None if memory is None else bytes_of(memory, "memory"),
        None if scratch is None else folder_names(scratch),
        DEFAULT if streaming is None else checked_streaming(streaming),
        ranks,
        modes,
        complex_dtype,
        spectral_shape,
        kind if real and half_axis is None else complex_dtype,
        real,
        half_axis,
        factors,
    )


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, int | np.integer) and not isinstance(shape, bool):
        shape = (shape,)
    is_sequence = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
    sizes = tuple(shape) if is_sequence or getattr(shape, "ndim", 0) == 1 else ()
    if not 1 <= len(sizes) <= _MOST_AXES:
        raise InputError(f"shape {shape}; accepted: one to {_MOST_AXES} sizes of at least 1")
    return tuple(whole_number(f"shape {sizes}: a size", n, 1) for n in sizes)


def _check_axes(axes: Sequence[int] | int | None, count: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(count))
    try:
        numbers = [operator.index(axis) for axis in (axes if np.iterable(axes) else [axes])]
    except TypeError:
        numbers = []
    checked = tuple(axis % count for axis in numbers if -count <= axis < count)
    if not numbers or len(set(checked)) < len(numbers):
        raise InputError(
            f"axes {axes!r}; accepted: None, or one or more of {-count} to {count - 1}, each axis "
            "once"
        )
    return checked


def _modes(
    unpadded: tuple[int, ...],
    sizes: tuple[int, ...],
    fourier: Sequence[int],
    truncation: str | Sequence[int] | None,
    real: bool,
    padded: bool,
) -> tuple[Modes, ...]:
    """Return the modes of every axis; all are kept along axes without a Fourier transform."""
    modes = [Modes(n, n, 0) for n in sizes]
    if not fourier:
        if truncation is not None:
            raise InputError(f"truncation {truncation!r}; accepted without Fourier axes: None")
        return tuple(modes)
    if padded and truncation is None:
        truncation = "nyquist"
    kept = truncate([unpadded[axis] for axis in fourier], truncation, real)
    for axis, one in zip(fourier, kept, strict=True):
        modes[axis] = Modes(sizes[axis], one.low, one.high)
    return tuple(modes)


def _checked_dtype(dtype: Any) -> np.dtype:
    try:
        checked: np.dtype | None = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        checked = None
    if checked is not None and checked.kind in "biu":
        return np.dtype(np.float64)
    if checked is None or checked.name not in FFT_DTYPES:
        raise InputError(f"dtype {dtype!r}; accepted: {', '.join(FFT_DTYPES)}")
    return np.dtype(checked.name)
