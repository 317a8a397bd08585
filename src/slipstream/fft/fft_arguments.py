"""What a distributed transform is asked for: checked, completed, and the same on all ranks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from slipstream.accepted import FFT_DTYPES, WIRES
from slipstream.argument_checks import name_among, whole_number
from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_of
from slipstream.collective import check_agreement, on_every_rank
from slipstream.decomposition import Box, grid_boxes, whole
from slipstream.decomposition import process_grid as best_grid
from slipstream.errors import InputError
from slipstream.exchange import TRANSPORTS
from slipstream.fft.layout_search import Stage, check_boxes, find_route, with_fields
from slipstream.fft.truncation import Modes, truncate
from slipstream.outofcore.streaming_options import DEFAULT, Streaming, checked_streaming
from slipstream.schedule import POLICIES

LAYOUTS = ("slab", "pencil", "root")
ORDERS = ("transposed", "natural")
TUNES = ("off", "quick", "full")
RESIDENCIES = ("device", "host", "auto")

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


@dataclass(frozen=True)
class Arguments:
    """What `DistributedFFT` is asked for, by the names of its parameters, and what follows from it.

    The boxes say which part of an array each rank has; `real`, whether physical arrays are.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fields: int
    layout: str
    order: str
    process_grid: tuple[int, ...] | None
    truncation: str | tuple[int, ...] | None
    input_boxes: tuple[Box, ...]
    output_boxes: tuple[Box, ...]
    transport: str
    workers: int | None
    wire: str | None
    tune: str
    schedule: str
    residency: str
    memory: int | None
    streaming: Streaming
    ranks: int
    modes: tuple[Modes, ...]
    complex_dtype: np.dtype
    spectral_shape: tuple[int, ...]
    real: bool

    def route(self, workers: int) -> list[Stage]:
        """Return the way of an array [field, ...axes] through a transform on so many ranks."""
        source, target = (
            with_fields(boxes, self.fields) for boxes in (self.input_boxes, self.output_boxes)
        )
        sizes = (self.fields, *self.shape)
        return find_route(sizes, self.modes, self.real, source, target, workers)


def agreed_arguments(comm: Comm, **asked: Any) -> Arguments:
    """Return the arguments of `DistributedFFT`, by name, as all ranks have them. Collective.

    All ranks raise `InputError` if those of one cannot be, or differ from those of another.
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
    dtype: Any,
    fields: int,
    layout: str,
    order: str,
    process_grid: Sequence[int] | None,
    input_boxes: Sequence[Box] | None,
    output_boxes: Sequence[Box] | None,
    truncation: str | Sequence[int] | None,
    transport: str,
    workers: int | None,
    wire: str | None,
    tune: str,
    schedule: str,
    residency: str,
    memory: int | str | None,
    streaming: Streaming | Mapping[str, Any] | None,
) -> Arguments:
    """Return the arguments of one rank, completed, or raise `InputError`."""
    for name, value, accepted in (
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
        workers = whole_number("workers", workers, 1, ranks)
    wide = kind.name in ("float64", "complex128")
    if wire is not None and not (wide and isinstance(wire, str) and wire in WIRES):
        raise InputError(
            f"wire {wire!r} for {kind.name}; accepted: None, and for float64 and complex128 also "
            f"{', '.join(WIRES)}"
        )
    for name, option in (("memory", memory), ("streaming", streaming)):
        if residency == "device" and option is not None:
            raise InputError(f"{name} is for residency 'host' and 'auto'; leave it out")
    real = kind.kind == "f"
    modes = truncate(sizes, truncation, real)
    spectral_shape = tuple(m.count for m in modes)
    grid = None
    if process_grid is not None:
        if layout != "pencil" or len(sizes) != 3:
            raise InputError("process_grid is for layout 'pencil' of three-dimensional arrays only")
        grid = _checked_grid(process_grid, ranks)
    boxes = []
    for what, given, extent, transposed in (
        ("input_boxes", input_boxes, sizes, False),
        ("output_boxes", output_boxes, spectral_shape, order == "transposed"),
    ):
        if given is not None:
            boxes.append(_checked_boxes(given, extent, ranks, what))
        elif layout == "root":
            boxes.append((whole(extent), *[whole((0,) * len(extent))] * (ranks - 1)))
        else:
            divided: tuple[int, ...] = (ranks,)
            if layout == "pencil" and len(sizes) == 3:
                divided = grid or best_grid(ranks, sizes[:2])
            # Of a single axis, there is no next one to be divided.
            first = int(transposed and len(sizes) > 1)
            rest = len(sizes) - first - len(divided)
            boxes.append(tuple(grid_boxes(extent, (*[1] * first, *divided, *[1] * rest))))
    return Arguments(
        sizes,
        kind,
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
        DEFAULT if streaming is None else checked_streaming(streaming),
        ranks,
        modes,
        np.dtype(_COMPLEX.get(kind.name, kind.name)),
        spectral_shape,
        real,
    )


def _checked_shape(shape: Any) -> tuple[int, ...]:
    is_sequence = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
    sizes = tuple(shape) if is_sequence or getattr(shape, "ndim", 0) == 1 else ()
    if not 1 <= len(sizes) <= 3:
        raise InputError(f"shape {shape}; accepted: one, two or three sizes of at least 1")
    return tuple(whole_number(f"shape {sizes}: a size", n, 1) for n in sizes)


def _checked_dtype(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is None or found.name not in FFT_DTYPES or not found.isnative:
        raise InputError(f"dtype {dtype!r}; accepted: {', '.join(FFT_DTYPES)}, in native order")
    return np.dtype(found.name)


def _checked_grid(grid: Any, ranks: int) -> tuple[int, int]:
    try:
        p, q = map(operator.index, grid)
    except (TypeError, ValueError):
        p = q = 0
    if min(p, q) < 1 or p * q != ranks:
        raise InputError(
            f"process_grid {grid}; accepted: two numbers whose product is the number of ranks, "
            f"{ranks}"
        )
    return p, q


def _checked_boxes(boxes: Any, shape: tuple[int, ...], ranks: int, what: str) -> tuple[Box, ...]:
    is_sequence = isinstance(boxes, Sequence) and not isinstance(boxes, str | bytes)
    if not is_sequence and getattr(boxes, "ndim", 0) == 0:
        raise InputError(f"{what} {boxes!r}; accepted: a sequence of one box for each rank")
    if len(boxes) != ranks:
        raise InputError(f"{what} has {len(boxes)} boxes; accepted: one for each of {ranks} ranks")
    corners = [(box.start, box.stop) if isinstance(box, Box) else box for box in boxes]
    try:
        made = tuple(Box(*(tuple(map(operator.index, end)) for end in pair)) for pair in corners)
    except (TypeError, ValueError) as error:
        message = f"{what}: {error}; accepted: Box, or pairs (start, stop), of whole numbers"
        raise InputError(message) from error
    if any(len(box.start) != len(shape) for box in made):
        raise InputError(f"{what}: a box has not {len(shape)} axes, as shape {shape} has")
    check_boxes(made, shape, what)
    return made
