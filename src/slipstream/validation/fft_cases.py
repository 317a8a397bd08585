"""Reference cases of the distributed FFT: NumPy's modes, Parseval's theorem, the inverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import largest, sum_over_ranks
from slipstream.device import Device
from slipstream.fft import DistributedFFT
from slipstream.validation.reference_case import Finding, ReferenceCase

SHAPE = (24, 30, 32)
_NUMPY = "NumPy's pocketfft, in double precision"
_PARSEVAL = "Parseval's theorem"


def check_against_numpy(
    device: Device, comm: Comm, dtype: str, layout: Literal["slab", "pencil"], tolerance: float
) -> Iterator[Finding]:
    """Compare modes of random numbers with NumPy's, their power, and the inverse transform."""
    values = np.random.default_rng(0).standard_normal((2, *SHAPE))
    is_real = dtype.startswith("float")
    whole = (values[0] if is_real else values[0] + 1j * values[1]).astype(dtype)
    exact = np.fft.rfftn(whole) if is_real else np.fft.fftn(whole)
    with DistributedFFT(SHAPE, dtype, comm=comm, device=device, layout=layout) as fft:
        mine = np.ascontiguousarray(whole[fft.input_box.slices()])
        modes = fft.forward(mine)
        back = np.asarray(device.to_host(fft.backward(modes)))
        modes = np.asarray(device.to_host(modes))
        expected = exact[fft.output_box.slices()]
        far = float(np.abs(modes - expected).max(initial=0.0))
        lost = float(np.abs(back - mine).max(initial=0.0))
        counts = np.ones(SHAPE[2] // 2 + 1 if is_real else SHAPE[2])
        if is_real:
            counts[1 : SHAPE[2] // 2] = 2
        power = (
            np.abs(modes.astype(np.complex128)) ** 2 * counts[fft.output_box.slices()[2]]
        ).sum()
        total = float(sum_over_ranks(comm, np.array([power]))[0]) / whole.size
    off = largest(comm, far) / float(np.abs(exact).max())
    yield Finding("largest deviation of a mode", _NUMPY, 0.0, off, tolerance)
    squares = float((np.abs(whole.astype(np.complex128)) ** 2).sum())
    yield Finding("sum of squares of the modes", _PARSEVAL, squares, total, tolerance)
    yield Finding(
        "deviation after the inverse transform", _NUMPY, 0.0, largest(comm, lost), 4 * tolerance
    )


def real_double(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform real numbers of double precision, divided into slabs."""
    yield from check_against_numpy(device, comm, "float64", "slab", 1e-14)


def complex_double(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform complex numbers of double precision, divided into pencils."""
    yield from check_against_numpy(device, comm, "complex128", "pencil", 1e-14)


def real_single(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform real numbers of single precision, divided into slabs."""
    yield from check_against_numpy(device, comm, "float32", "slab", 2e-6)


CASES = (
    ReferenceCase("real transform of 24 x 30 x 32 points", real_double),
    ReferenceCase("complex transform, divided into pencils", complex_double),
    ReferenceCase("real transform in single precision", real_single),
)
