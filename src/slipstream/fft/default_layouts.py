"""The default layouts of arrays, which need few exchanges."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.decomposition import grid_boxes, process_grid, whole
from slipstream.fft.layout_search import Boxes


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
        return _on_root(sizes, ranks), _on_root(spectral_shape, ranks)
    favoured = _favoured(sizes, ranks, axes, first)
    divided = favoured[: 2 if layout == "pencil" and len(sizes) > 2 else 1]
    if len(divided) == 2:
        parts = grid or process_grid(ranks, [sizes[axis] for axis in divided])
    else:
        parts = (ranks,)
    moved = divided if order == "natural" else _moved(divided, favoured, axes)
    return (
        _boxes(sizes, divided, parts),
        _boxes(spectral_shape, moved, parts),
    )


def _favoured(sizes: Sequence[int], ranks: int, axes: Sequence[int], first: int) -> tuple[int, ...]:
    """Return all axes, the best ones to divide first.

    An axis that is not transformed can be divided without an exchange, if it is long enough for all
    ranks; the axis that is transformed first should not be divided.
    """
    free = [axis for axis in range(len(sizes)) if axis not in axes]
    long = [axis for axis in free if sizes[axis] >= ranks]
    short = sorted(set(free) - set(long), key=lambda axis: -sizes[axis])
    later = [axis for axis in sorted(axes) if axis != first]
    rest = [first, *short] if later else [*short, first]
    return (*long, *later, *rest)


def _moved(
    divided: tuple[int, ...], favoured: tuple[int, ...], axes: Sequence[int]
) -> tuple[int, ...]:
    """Return the axes along which an array is divided after its transforms: the next ones."""
    stay = 0
    while stay < len(divided) and divided[stay] not in axes:
        stay += 1
    after = (*favoured[:stay], *favoured[stay + 1 :], *favoured[stay : stay + 1])
    return after[: len(divided)]


def _boxes(shape: Sequence[int], divided: Sequence[int], parts: Sequence[int]) -> Boxes:
    of = dict(zip(divided, parts, strict=True))
    return grid_boxes(shape, [of.get(axis, 1) for axis in range(len(shape))])


def _on_root(shape: Sequence[int], ranks: int) -> Boxes:
    return (whole(shape), *[whole((0,) * len(shape))] * (ranks - 1))
