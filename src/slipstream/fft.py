"""Distributed fast Fourier transforms: the public names of `slipstream.engine.fft`.

`DistributedFFT` is the plan; `redistribute`, `section`, `truncate` and `with_halo` need none. Boxes
and grids of ranks are from `slipstream.engine.decomposition`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.engine.decomposition import Box, grid_boxes, whole
    from slipstream.engine.fft import (
        DistributedFFT,
        PendingTransform,
        Streaming,
        redistribute,
        section,
        truncate,
        with_halo,
    )

__all__ = [
    "Box",
    "DistributedFFT",
    "PendingTransform",
    "Streaming",
    "grid_boxes",
    "redistribute",
    "section",
    "truncate",
    "whole",
    "with_halo",
]
_GEOMETRY = ("Box", "grid_boxes", "whole")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = "decomposition" if name in _GEOMETRY else "fft"
    return getattr(import_module(f"slipstream.engine.{part}"), name)
