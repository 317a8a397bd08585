"""Operations built on a plan's transforms: wavenumbers, derivatives, products and adjoints.

Arrays are this rank's parts, on the host or on the device; operations broadcast over the fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box
from slipstream.engine.errors import InputError, is_finite, whole_number
from slipstream.engine.fft.fft_arguments import Arguments, half_waves, places

if TYPE_CHECKING:
    from slipstream.engine.fft.distributed_fft import DistributedFFT


def wavenumbers(
    arguments: Arguments, box: Box, lengths: float | Sequence[float] | None
) -> list[np.ndarray]:
    """Return the wavenumbers of a box of modes along each of the transformed axes."""
    result, sizes = [], _lengths(arguments, lengths)
    for axis, kind, length in zip(arguments.axes, arguments.kinds, sizes, strict=True):
        modes = arguments.modes[axis]
        numbers = modes.wavenumbers() if kind == "fft" else half_waves(kind, modes.size)
        if length is not None:
            numbers = numbers * ((2 if kind == "fft" else 1) * np.pi / length)
        result.append(_along(numbers, axis, box))
    return result


def points(
    arguments: Arguments, box: Box, lengths: float | Sequence[float] | None
) -> list[np.ndarray]:
    """Return the coordinates of a box of points along each of the transformed axes."""
    result, sizes = [], _lengths(arguments, lengths)
    for axis, kind, length in zip(arguments.axes, arguments.kinds, sizes, strict=True):
        if length is None:
            length = 2 * math.pi if kind == "fft" else math.pi
        result.append(_along(length * places(kind, arguments.shape[axis]), axis, box))
    return result


def derivative(
    fft: DistributedFFT,
    u_hat: Array,
    axis: int,
    order: int,
    lengths: float | Sequence[float] | None,
) -> npt.NDArray[Any]:
    """Return the modes of a derivative."""
    a, count = fft.arguments, len(fft.arguments.shape)
    if not isinstance(axis, int | np.integer) or axis not in {
        n for x in a.axes for n in (x, x - count)
    }:
        raise InputError(f"axis {axis!r}; accepted: one of the transformed axes, {a.axes}")
    axis = int(axis) % count
    order, place = whole_number("order", order, 0), a.axes.index(axis)
    kind, modes = a.kinds[place], a.modes[axis]
    (k,) = wavenumbers(a, fft.output_box, lengths)[place : place + 1]
    if kind != "fft":
        if order % 2:
            raise InputError(
                f"order {order} along axis {axis}, whose transform is {kind}; accepted: even "
                "orders, since odd ones turn cosines into sines"
            )
        return _scaled(fft, u_hat, (-1) ** (order // 2) * np.asarray(k, float) ** order)
    factor = (1j * k) ** order
    if order % 2 and modes.has_nyquist:
        # The Nyquist mode lacks a partner of opposite sign.
        number = _along(modes.wavenumbers(), axis, fft.output_box)
        factor = np.where(2 * abs(number) == modes.size, 0, factor)
    return _scaled(fft, u_hat, factor.real if order % 2 == 0 else factor)


def product(fft: DistributedFFT, *modes: Array) -> npt.NDArray[Any]:
    """Return the modes of the product of some fields at the points."""
    if not modes:
        raise InputError("product of no fields; accepted: one or more arrays of modes")
    result = fft.backward(modes[0])
    for one in modes[1:]:
        result = result * fft.backward(one)
    return fft.forward(result)


def convolution(fft: DistributedFFT, u: Array, v: Array) -> npt.NDArray[Any]:
    """Return the periodic convolution of two fields along the transformed axes."""
    a = fft.arguments
    if set(a.kinds) != {"fft"}:
        raise InputError(f"convolution by {', '.join(a.kinds)}; accepted: plans of 'fft' only")
    forward, backward = a.factors
    summed = math.prod(a.shape[axis] for axis in a.axes)
    modes = fft.forward(u) * fft.forward(v)
    modes *= 1 / (forward * forward * backward * summed)
    return fft.backward(modes)


def forward_adjoint(fft: DistributedFFT, u_hat: Array) -> npt.NDArray[Any]:
    """Return the adjoint of the forward transform, applied to modes."""
    forward, backward = fft.arguments.factors
    points_weight, modes_weight = _weights(fft)
    inner = _scaled(fft, u_hat, 1 / modes_weight)
    return _scaled(fft, fft.backward(inner), points_weight * (forward / backward))


def backward_adjoint(fft: DistributedFFT, u: Array) -> npt.NDArray[Any]:
    """Return the adjoint of the backward transform, applied to points."""
    forward, backward = fft.arguments.factors
    points_weight, modes_weight = _weights(fft)
    inner = _scaled(fft, u, 1 / points_weight)
    return _scaled(fft, fft.forward(inner), modes_weight * (backward / forward))


def _weights(fft: DistributedFFT) -> tuple[np.ndarray, np.ndarray]:
    """Return weights v of points and w of modes such that ``F^H = v B (1 / w)``.

    F and B are the transforms without normalisation. For real points, most stored modes stand for
    two; cosine sums count values at an edge once, and all others twice.
    """
    a = fft.arguments
    weights = [np.ones((1,) * len(a.shape)) for _ in range(2)]
    for axis, kind in zip(a.axes, a.kinds, strict=True):
        n, count = a.shape[axis], a.modes[axis].count
        of_points, of_modes = np.ones(n), np.ones(count)
        if axis == a.half_axis:
            k = a.modes[axis].wavenumbers()
            of_modes = np.where((k == 0) | (2 * k == n), 1.0, 2.0)
        elif a.norm != "ortho":
            edge = 0 if kind.startswith("dct") else -1
            if kind == "dct1":
                of_points[[0, -1]] = of_modes[[0, -1]] = 0.5
            elif kind in ("dct2", "dst2"):
                of_modes[edge] = 0.5
            elif kind in ("dct3", "dst3"):
                of_points[edge] = 0.5
        weights[0] = weights[0] * _along(of_points, axis, fft.input_box)
        weights[1] = weights[1] * _along(of_modes, axis, fft.output_box)
    return weights[0], weights[1]


def _along(values: np.ndarray, axis: int, box: Box) -> np.ndarray:
    """Return a box's part of values along an axis, shaped to be broadcast over its arrays."""
    part = values[box.start[axis] : box.stop[axis]]
    return part.reshape([-1 if a == axis else 1 for a in range(len(box.start))])


def _lengths(
    arguments: Arguments, lengths: float | Sequence[float] | None
) -> Sequence[float | None]:
    count = len(arguments.axes)
    if lengths is None:
        return [None] * count
    is_one = not isinstance(lengths, str) and not np.iterable(lengths)
    per_axis: list[Any] = [lengths] * count if is_one else list(lengths)  # type: ignore[arg-type]
    if len(per_axis) != count or not all(is_finite(one) and one > 0 for one in per_axis):
        raise InputError(
            f"lengths {lengths!r}; accepted: a positive number, or one for each of the {count} "
            "axes that are transformed"
        )
    return per_axis


def _scaled(fft: DistributedFFT, array: Array, factor: np.ndarray) -> npt.NDArray[Any]:
    """Return an array times factors, on its own device and in its own precision."""
    wanted = np.zeros(0, array.dtype).real.dtype
    if factor.dtype.kind == "c":
        wanted = np.result_type(wanted, np.complex64)
    if not isinstance(array, np.ndarray):
        factor = fft.device.array_module.asarray(factor)
    scaled: npt.NDArray[Any] = array * factor.astype(wanted)
    return scaled
