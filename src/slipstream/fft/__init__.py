"""Distributed fast Fourier transforms: local transforms, exchanges and truncation.

`DistributedFFT` is the plan that users call. For slabs it uses the `SlabEngine`, with which the
spectral solvers record their steps. Arrays on the host are transformed tile by tile: see
`streamed_transform`. `redistribute`, `section` and `with_halo` need no plan.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.fft.column_transforms import ColumnPass
from slipstream.fft.plane_transforms import (
    PlanePass,
    PointOperation,
    PointProduct,
)
from slipstream.fft.slab_layout import PencilGeometry, PlaneGeometry, SlabGeometry
from slipstream.fft.truncation import Modes, truncate

if TYPE_CHECKING:
    from slipstream.fft.distributed_arrays import redistribute, section, with_halo
    from slipstream.fft.distributed_fft import DistributedFFT
    from slipstream.fft.pending_transforms import PendingTransform
    from slipstream.outofcore.streaming_options import Streaming

# Imported on use: solvers need no plans, and transforms no halos.
_MODULE_OF = {
    "DistributedFFT": "slipstream.fft.distributed_fft",
    "PendingTransform": "slipstream.fft.pending_transforms",
    "Streaming": "slipstream.outofcore.streaming_options",
    **dict.fromkeys(("redistribute", "section", "with_halo"), "slipstream.fft.distributed_arrays"),
}

__all__ = [
    "ColumnPass",
    "DistributedFFT",
    "Modes",
    "PencilGeometry",
    "PendingTransform",
    "PlaneGeometry",
    "PlanePass",
    "PointOperation",
    "PointProduct",
    "SlabGeometry",
    "Streaming",
    "redistribute",
    "section",
    "truncate",
    "with_halo",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
