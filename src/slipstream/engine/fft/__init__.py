"""Distributed fast Fourier transforms: local transforms, exchanges and truncation.

`DistributedFFT` is the plan that users call. For slabs it uses the `SlabEngine`, with which the
spectral solvers record their steps. Arrays on the host are transformed tile by tile: see
`streamed_transform`. `redistribute`, `section` and `with_halo` need no plan.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.engine.fft.line_transforms import ColumnPass
from slipstream.engine.fft.plane_transforms import (
    PlanePass,
    PlaneTask,
    PointOperation,
    PointProduct,
)
from slipstream.engine.fft.slab_layout import PencilGeometry, PlaneGeometry, SlabGeometry
from slipstream.engine.fft.transform_parts import Modes, truncate

if TYPE_CHECKING:
    from slipstream.engine.fft.distributed_arrays import redistribute, section, with_halo
    from slipstream.engine.fft.distributed_fft import DistributedFFT
    from slipstream.engine.fft.user_arrays import PendingTransform
    from slipstream.engine.outofcore.memory_budget import Streaming

# Imported on use: solvers need no plans, and transforms no halos.
_MODULE_OF = {
    "DistributedFFT": "slipstream.engine.fft.distributed_fft",
    "PendingTransform": "slipstream.engine.fft.user_arrays",
    "Streaming": "slipstream.engine.outofcore.memory_budget",
    **dict.fromkeys(
        ("redistribute", "section", "with_halo"), "slipstream.engine.fft.distributed_arrays"
    ),
}

__all__ = [
    "ColumnPass",
    "DistributedFFT",
    "Modes",
    "PencilGeometry",
    "PendingTransform",
    "PlaneGeometry",
    "PlanePass",
    "PlaneTask",
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
