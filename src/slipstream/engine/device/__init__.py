"""Processors: buffers, streams, events, run-time compiled kernels and local transforms.

`open_device` returns a `Device`, whose contract is in `device_interface`; `cpu_device` and
`cuda_device` implement it.
"""

from slipstream.engine.device.cpu_device import HostDevice
from slipstream.engine.device.device_choice import (
    choose_gpus,
    cuda_device_count,
    current_gpu,
    open_device,
    open_devices,
    visible_gpus,
)
from slipstream.engine.device.device_interface import (
    REAL_NAMES,
    BlockLaunch,
    Device,
    Event,
    Kernel,
    Operation,
    RowLaunch,
    Scratch,
    Span,
    Stream,
    address_of,
    host_values,
)
from slipstream.engine.device.fft_lengths import fourier_factors, period
from slipstream.engine.device.lane_programs import HostCall, LaneNode

__all__ = [
    "REAL_NAMES",
    "BlockLaunch",
    "Device",
    "Event",
    "HostCall",
    "HostDevice",
    "Kernel",
    "LaneNode",
    "Operation",
    "RowLaunch",
    "Scratch",
    "Span",
    "Stream",
    "address_of",
    "choose_gpus",
    "current_gpu",
    "cuda_device_count",
    "fourier_factors",
    "host_values",
    "open_device",
    "open_devices",
    "period",
    "visible_gpus",
]
