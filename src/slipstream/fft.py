"""Distributed fast Fourier transforms: the public names of `slipstream.engine.fft`.

`DistributedFFT` is the plan; `redistribute`, `section` and `with_halo` need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.engine.fft import (
        DistributedFFT,
        PendingTransform,
        Streaming,
        redistribute,
        section,
        with_halo,
    )

__all__ = [
    "DistributedFFT",
    "PendingTransform",
    "Streaming",
    "redistribute",
    "section",
    "with_halo",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("slipstream.engine.fft"), name)
