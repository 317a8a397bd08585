"""Cosine and sine transforms on the CPU by FFTW, planned like its Fourier transforms."""

from __future__ import annotations

import ctypes

import numpy as np

from slipstream.device import fftw
from slipstream.device.device_interface import Operation
from slipstream.device.host_calls import HostCall
from slipstream.errors import InputError

# FFTW's api/fftw3.h: REDFT00, REDFT10, REDFT01 and REDFT11, then the same of RODFT.
_KINDS = {
    "dct1": 3,
    "dct3": 4,
    "dct2": 5,
    "dct4": 6,
    "dst1": 7,
    "dst3": 8,
    "dst2": 9,
    "dst4": 10,
}
_ESTIMATE = 1 << 6

_plans: dict[tuple, ctypes.c_void_p] = {}


def plan(source: np.ndarray, target: np.ndarray, axis: int, kind: str, threads: int) -> Operation:
    """Return the planned transform ``source -> target``; see `Device.cosine_transform`."""
    prefix = fftw.PREFIXES[source.dtype.char]
    execute = getattr(fftw.fftw_library(), f"{prefix}_execute_r2r")
    made = _plan_of(source, target, axis, kind, threads)
    begins = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data)
    return HostCall(execute, [made, *begins], (source, target))


def _plan_of(
    source: np.ndarray, target: np.ndarray, axis: int, kind: str, threads: int
) -> ctypes.c_void_p:
    """Return FFTW's plan, made on first use and kept; it serves all arrays of the same geometry."""
    in_place = source.ctypes.data == target.ctypes.data
    key = (
        *((a.dtype.char, a.shape, a.strides, a.ctypes.data % 64) for a in (source, target)),
        (axis, kind, threads, in_place),
    )
    with fftw.planner:
        if key not in _plans:
            with fftw.without_wisdom(fftw.PREFIXES[source.dtype.char]):
                address = _make(source, target, axis, kind, threads)
            if not address:
                raise InputError(f"FFTW has no {kind} of an array of shape {source.shape}")
            _plans[key] = ctypes.c_void_p(address)
        return _plans[key]


def _make(source: np.ndarray, target: np.ndarray, axis: int, kind: str, threads: int) -> int | None:
    dimensions = [
        fftw.Dimension(n, s // source.itemsize, t // target.itemsize)
        for n, s, t in zip(source.shape, source.strides, target.strides, strict=True)
    ]
    inner, outer = [dimensions[axis]], dimensions[:axis] + dimensions[axis + 1 :]
    prefix, library = fftw.PREFIXES[source.dtype.char], fftw.fftw_library()
    getattr(library, f"{prefix}_plan_with_nthreads")(threads)
    make = getattr(library, f"{prefix}_plan_guru64_r2r")
    make.restype = ctypes.c_void_p
    return make(
        1,
        (fftw.Dimension * 1)(*inner),
        len(outer),
        (fftw.Dimension * len(outer))(*outer),
        ctypes.c_void_p(source.ctypes.data),
        ctypes.c_void_p(target.ctypes.data),
        (ctypes.c_int * 1)(_KINDS[kind]),
        ctypes.c_uint(_ESTIMATE),
    )
