"""The transforms that are measured: what is asked for, and a plan with arrays that come again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft import DistributedFFT

# The first calls with some arrays prepare for them.
_WARM_UP = 2


@dataclass(frozen=True)
class TransformRequest:
    """What to measure; see `slipstream.fft.DistributedFFT` for all but the last two.

    Attributes
    ----------
    shape : tuple of int
        Physical shape, in the order of the arrays.
    dtype, layout, order, transport, tune : str
        Arguments of the plan.
    truncation : None, str or tuple of int
        Which modes to keep.
    wire : str or None
        Precision of what travels.
    fields : int
        Number of fields.
    repetitions : int
        Timed runs of each transform.
    plain : bool
        Whether to time what others take, too.
    """

    shape: tuple[int, int, int]
    dtype: str = "float64"
    layout: str = "slab"
    order: str = "transposed"
    truncation: str | tuple[int, ...] | None = None
    transport: str = "auto"
    tune: str = "off"
    wire: str | None = None
    fields: int = 1
    repetitions: int = 15
    plain: bool = True

    def plan(self, device: Device, comm: Any, **changes: Any) -> DistributedFFT:
        """Make the plan, with some arguments changed. Collective."""
        names = ("layout", "order", "truncation", "transport", "tune", "wire", "fields")
        arguments = {name: getattr(self, name) for name in names} | changes
        return DistributedFFT(self.shape, self.dtype, comm=comm, device=device, **arguments)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return a shape from ``N`` or three comma-separated numbers in the order of the arrays.

    Raises
    ------
    InputError
        If it is neither.
    """
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    sizes = 3 * sizes if len(sizes) == 1 else sizes
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(
            f"--n {text!r} is no shape; accepted: points along each axis, one number or three "
            "with commas between, in the order of the arrays (z,y,x)"
        )
    return tuple(sizes)


def parse_truncation(text: str) -> str | tuple[int, ...] | None:
    """Return a truncation from ``none``, a name, or the largest wavenumber of each axis.

    Raises
    ------
    InputError
        If it is none of these.
    """
    if text in ("none", "2/3", "nyquist"):
        return None if text == "none" else text
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"--truncation {text!r} is unknown; accepted: none, 2/3, nyquist, or the largest "
            "wavenumber along each axis with commas between, in the order of the arrays (z,y,x)"
        )
    return tuple(map(int, parts))


def operations(shape: Sequence[int], dtype: Any, fields: int = 1) -> float:
    """Return the customary number of operations of a transform: 5 M log2 M, half if real.

    Parameters
    ----------
    shape : sequence of int
        Physical shape, of M points in all.
    dtype : dtype
        Physical type.
    fields : int
        Number of fields.
    """
    points = math.prod(shape)
    half = 0.5 if np.dtype(dtype).kind == "f" else 1.0
    return 5.0 * points * math.log2(points) * half * fields


class FixedTransforms:
    """A plan with arrays that come again in every call. Collective, like its methods.

    Parameters
    ----------
    plan : DistributedFFT
        What to call.
    """

    def __init__(self, plan: DistributedFFT) -> None:
        self.plan = plan
        self.points, self.modes, self.back = (
            plan.empty_input(),
            plan.empty_output(),
            plan.empty_input(),
        )
        _fill(plan, self.points)
        for _ in range(_WARM_UP):
            self.forward()
            self.backward()

    def forward(self) -> None:
        """Transform points to modes."""
        self.plan.forward(self.points, out=self.modes)

    def backward(self) -> None:
        """Transform modes to other points."""
        self.plan.backward(self.modes, out=self.back)

    def error(self, comm: Any) -> float:
        """Return the relative error, root mean square, of a transform there and back again."""
        modes = self.plan.forward(self.back)
        module = self.plan.device.array_module
        squares = np.zeros(2)
        for mine, exact in zip(modes, self.modes, strict=True):
            for place, array in enumerate((mine - exact, exact)):
                squares[place] += float(module.sum(module.abs(array) ** 2, dtype="float64"))
        if comm is not None:
            squares = sum(comm.allgather(squares))
        return float(math.sqrt(squares[0] / squares[1])) if squares[1] else 0.0


def _fill(plan: DistributedFFT, points: Any) -> None:
    """Fill an input with random numbers that depend on the position only, not on the ranks."""
    part, dtype, device = plan.input_box, plan.arguments.dtype, plan.device
    _, ny, nx = plan.shape
    batch = points.reshape(plan.arguments.fields, *part.shape)
    for field in range(plan.arguments.fields):
        for plane in range(part.shape[0]):
            generator = np.random.default_rng((field, part.start[0] + plane))
            values = generator.random((ny, nx)) - 0.5
            if dtype.kind == "c":
                values = values + 1j * (generator.random((ny, nx)) - 0.5)
            mine = np.ascontiguousarray(values[part.slices()[1:]].astype(dtype))
            device.run(device.copy(batch[field, plane], mine))
