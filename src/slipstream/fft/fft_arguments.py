"""What a distributed transform is asked for: checked, completed, and the same on all ranks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from slipstream.accepted import FFT_DTYPES, WIRES
from slipstream.argument_checks import whole_number
from slipstream.collective import on_every_rank
from slipstream.decomposition import Box, grid_boxes, whole
from slipstream.decomposition import process_grid as best_grid
from slipstream.errors import InputError
from slipstream.fft.layout_search import check_boxes
from slipstream.fft.truncation import Modes, truncate

LAYOUTS = ("slab", "pencil", "root")
ORDERS = ("transposed", "natural")
TUNES = ("off", "quick", "full")

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


@dataclass(frozen=True)
class Arguments:
    """A transform, apart from how it is done; boxes say which part of an array each rank has."""

    shape: tuple[int, ...]
    dtype: np.dtype
    complex_dtype: np.dtype
    fields: int
    ranks: int
    modes: tuple[Modes, ...]
    input_boxes: tuple[Box, ...]
    output_boxes: tuple[Box, ...]
    wire: str | None

    @property
    def real(self) -> bool:
        """Whether physical arrays are real."""
        return self.dtype.kind == "f"

    @property
    def spectral_shape(self) -> tuple[int, ...]:
        """Global shape of the spectral array."""
        return tuple(modes.count for modes in self.modes)


def check_arguments(
    shape: Sequence[int],
    dtype: Any,
    ranks: int,
    fields: int,
    layout: str,
    order: str,
    process_grid: Sequence[int] | None,
    input_boxes: Sequence[Box] | None,
    output_boxes: Sequence[Box] | None,
    truncation: str | Sequence[int] | None,
    wire: str | None,
) -> Arguments:
    """Return the arguments of `DistributedFFT`, completed."""
    shape, dtype = _checked_shape(shape), _checked_dtype(dtype)
    fields = whole_number("fields", fields, 1)
    for name, value, accepted in (("layout", layout, LAYOUTS), ("order", order, ORDERS)):
        if value not in accepted:
            raise InputError(f"{name} {value!r}; accepted: {', '.join(accepted)}")
    if wire is not None and (wire not in WIRES or dtype.itemsize < 8 or dtype.name == "complex64"):
        raise InputError(
            f"wire {wire!r} for {dtype.name}; accepted: None, and for float64 and complex128 also "
            f"{', '.join(WIRES)}"
        )
    real = dtype.kind == "f"
    modes = truncate(shape, truncation, real)
    grids = _grids(layout, order, len(shape), ranks, shape, process_grid)
    spectral_shape = tuple(m.count for m in modes)
    boxes = []
    for what, given, grid, extent in (
        ("input_boxes", input_boxes, grids[0], shape),
        ("output_boxes", output_boxes, grids[1], spectral_shape),
    ):
        if given is not None:
            boxes.append(_checked_boxes(given, extent, ranks, what))
        elif layout == "root":
            none = Box((0,) * len(extent), (0,) * len(extent))
            boxes.append((whole(extent), *[none] * (ranks - 1)))
        else:
            boxes.append(tuple(grid_boxes(extent, grid)))
    complex_dtype = np.dtype(_COMPLEX.get(dtype.name, dtype.name))
    return Arguments(shape, dtype, complex_dtype, fields, ranks, modes, boxes[0], boxes[1], wire)


def _grids(
    layout: str,
    order: str,
    axes: int,
    ranks: int,
    shape: tuple[int, ...],
    given: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the process grids of the physical and of the spectral array."""
    if layout == "pencil" and axes == 3:
        p, q = _checked_grid(given, ranks) if given else best_grid(ranks, shape[:2])
        return (p, q, 1), ((1, p, q) if order == "transposed" else (p, q, 1))
    if given:
        raise InputError("process_grid is for layout 'pencil' of three-dimensional arrays only")
    before = (ranks, *[1] * (axes - 1))
    transposed = order == "transposed" and axes > 1
    return before, (1, ranks, *[1] * (axes - 2)) if transposed else before


def agree(comm: Any, make: Callable[[], Arguments], settings: dict[str, Any]) -> Arguments:
    """Return what `make` makes if all ranks ask for the same; refuse on all ranks. Collective."""
    arguments = on_every_rank(comm, make)
    if comm is None or comm.size == 1:
        return arguments
    mine = settings | {f.name: getattr(arguments, f.name) for f in fields(arguments)}
    # Representations are compared: they are short, and equal for equal arguments.
    everyone = comm.allgather({name: repr(value) for name, value in mine.items()})
    for rank, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                raise InputError(
                    f"ranks disagree on {name}: rank 0 has {_short(value)}, rank {rank} has "
                    f"{_short(theirs[name])}; all ranks must give the same"
                )
    return arguments


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else ()
    if not 1 <= len(sizes) <= 3:
        raise InputError(f"shape {shape}; accepted: one, two or three sizes of at least 1")
    return tuple(whole_number(f"shape {sizes}: a size", n, 1) for n in sizes)


def _checked_dtype(dtype: Any) -> np.dtype:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in FFT_DTYPES:
        raise InputError(f"dtype {name!r}; accepted: {', '.join(FFT_DTYPES)}")
    return np.dtype(name)


def _checked_grid(grid: Sequence[int], ranks: int) -> tuple[int, int]:
    try:
        p, q = (operator.index(n) for n in grid)
    except (TypeError, ValueError):
        p = q = 0
    if min(p, q) < 1 or p * q != ranks:
        raise InputError(
            f"process_grid {grid}; accepted: two numbers whose product is the number of ranks, "
            f"{ranks}"
        )
    return p, q


def _checked_boxes(
    boxes: Sequence[Box], shape: tuple[int, ...], ranks: int, what: str
) -> tuple[Box, ...]:
    if not isinstance(boxes, Sequence):
        raise InputError(f"{what} {boxes!r}; accepted: a sequence of one box for each rank")
    if len(boxes) != ranks:
        raise InputError(f"{what} has {len(boxes)} boxes; accepted: one for each of {ranks} ranks")
    try:
        made = tuple(box if isinstance(box, Box) else Box(*map(tuple, box)) for box in boxes)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: {error}; accepted: Box, or pairs (start, stop)") from error
    if any(len(box.start) != len(shape) for box in made):
        raise InputError(f"{what}: a box has not {len(shape)} axes, as shape {shape} has")
    check_boxes(made, shape, what)
    return made
