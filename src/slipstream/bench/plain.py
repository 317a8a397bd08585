"""One three-dimensional real transform by the vendor's own plan: the yardstick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.device import Device


def plain_transforms(
    device: Device, shape: tuple[int, int, int], real_dtype: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the forward and the backward transform of one field, FFTW's or cuFFT's 3-D plan.

    Unpruned, of a single rank, on this device, with as many threads as kernels have.
    """
    complex_dtype = np.result_type(real_dtype, np.complex64)
    real = device.empty(shape, real_dtype)
    modes = device.empty((*shape[:2], shape[2] // 2 + 1), complex_dtype)
    make = _cufft if device.kind == "cuda" else _fftw
    forward, backward = make(device, real, modes)
    # Zeros would be flattered: they cost a GPU less power.
    values = np.random.default_rng(0).standard_normal(shape[1:])
    for plane in range(shape[0]):
        device.run(device.copy(real[plane], device.array(values, real_dtype)))
    return forward, backward


def _fftw(device: Any, real: np.ndarray, modes: np.ndarray):
    import pyfftw

    def plan(source: np.ndarray, target: np.ndarray, direction: str) -> Callable[[], None]:
        return pyfftw.FFTW(
            source, target, axes=(0, 1, 2), direction=direction, threads=device.threads,
            flags=("FFTW_MEASURE", "FFTW_DESTROY_INPUT"),
        ).execute  # fmt: skip

    return plan(real, modes, "FFTW_FORWARD"), plan(modes, real, "FFTW_BACKWARD")


def _cufft(device: Any, real: Any, modes: Any):
    from cupy.cuda import cufft
    from cupyx.scipy.fft import get_fft_plan

    axes = (0, 1, 2)
    with device.context:
        there = get_fft_plan(real, axes=axes, value_type="R2C")
        back = get_fft_plan(modes, shape=real.shape, axes=axes, value_type="C2R")
    return (
        lambda: device.run(lambda stream: there.fft(real, modes, cufft.CUFFT_FORWARD)),
        lambda: device.run(lambda stream: back.fft(modes, real, cufft.CUFFT_INVERSE)),
    )
