"""Kernels for GPUs: compiled at run time by NVRTC, loaded and launched through CuPy.

Compilation starts when a kernel is first bound, in the background (`nvrtc_processes.py`); its first
run waits for the binary.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from slipstream.device.array_addresses import address_of
from slipstream.device.device_interface import BlockLaunch, Kernel, Operation, RowLaunch, Stream
from slipstream.device.nvrtc_processes import OPTIONS, SideCompiler, loaded_library
from slipstream.errors import RunError

if TYPE_CHECKING:
    from slipstream.device.cuda_device import CudaDevice

_THREADS = 256
_MAXIMUM_BLOCKS = 1 << 30
# Bytes of shared memory that a block may have without asking for more.
_USUAL_SHARED = 48 * 1024
_MAXIMUM_ROWS = 65535  # along the second and third axis of a grid
# That have a row to themselves where a kernel reduces: ROW_THREADS of portability.hpp.
_ROW_THREADS = 32


class CudaKernel(Kernel):
    """A kernel of one GPU."""

    def __init__(self, device: CudaDevice, text: str, name: str) -> None:
        self._device, self._text, self._name = device, text, name

    def begin(self) -> None:
        _ = self._program

    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> Operation:
        program, values = self._program, tuple(_argument(value) for value in arguments)
        grid: tuple[int, ...]
        block: tuple[int, ...]
        if isinstance(launch, BlockLaunch):
            grid, block = (launch.blocks, launch.rows, launch.layers), (launch.threads,)
            shared = launch.shared_bytes
        else:
            grid, block = _row_grid(launch)
            shared = 0
        # Kernels continue with the rows, or blocks, that a smaller grid leaves.
        grid = (min(grid[0], _MAXIMUM_BLOCKS), *(min(n, _MAXIMUM_ROWS) for n in grid[1:]))
        if 0 in grid:
            return lambda stream: None
        program.want(self._name, shared)
        function = None

        def operation(stream: Stream, keep_alive: Any = arguments) -> None:
            nonlocal function
            if function is None:
                function = program.function(self._name)
            function(grid, block, values, shared_mem=shared)

        return operation

    @functools.cached_property
    def _program(self) -> _Program:
        return _program(self._text, self._device)


class _Program:
    """The compiled and loaded program of one source text, on one GPU."""

    def __init__(self, device: CudaDevice, text: str) -> None:
        self._context = device.context
        with self._context:
            self._binary = _compiler().submit(text, (*OPTIONS, f"-arch={device.architecture}"))
        # By kernel name: bytes of shared memory that a block may use.
        self._wanted: dict[str, int] = {}
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}

    def want(self, name: str, shared: int) -> None:
        """Note that a kernel will be launched with this much shared memory."""
        if shared > self._shared.get(name, -1):
            self._shared[name] = self._wanted[name] = shared
            _not_loaded.setdefault(self)

    def load(self) -> None:
        """Wait for the binary, and load the kernels that are wanted from it."""
        driver = cupy.cuda.driver
        try:
            module = self._module
        except Exception:
            # It fails for its own users, each time they launch it, and for nobody else.
            _not_loaded.pop(self, None)
            raise
        with self._context:  # each GPU has its own function
            while self._wanted:
                name, shared = next(iter(self._wanted.items()))
                if name not in self._functions:
                    self._functions[name] = module.get_function(name)
                if shared > _USUAL_SHARED:
                    limit = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    driver.funcSetAttribute(self._functions[name].ptr, limit, shared)
                del self._wanted[name]
        _not_loaded.pop(self, None)

    def function(self, name: str) -> Any:
        """Return a wanted kernel, ready to be launched."""
        if self._wanted:
            self.load()
        return self._functions[name]

    @functools.cached_property
    def _module(self) -> Any:
        module = cupy.cuda.function.Module()
        with self._context:
            module.load(self._binary.result())
        return module


_not_loaded: dict[_Program, None] = {}


def load_kernels() -> None:
    """Load all kernels that have been bound, which is impossible while a graph is captured."""
    for program in list(_not_loaded):
        program.load()


@functools.cache
def _program(text: str, device: CudaDevice) -> _Program:
    return _Program(device, text)


@functools.cache
def _compiler() -> SideCompiler:
    version = cupy.cuda.nvrtc.getVersion()  # which loads the library
    library = loaded_library("libnvrtc.so")
    if library is None:
        raise RunError("CuPy has loaded no NVRTC to compile kernels with")
    return SideCompiler(library, ".".join(map(str, version)))


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, np.ndarray):  # pinned memory, which the GPU reaches under its own address
        return np.int64(address_of(value))
    return np.int64(value) if isinstance(value, int) else value


def _row_grid(launch: RowLaunch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    across = min(_THREADS, max(_ROW_THREADS, 1 << max(0, launch.columns - 1).bit_length()))
    across = _ROW_THREADS if launch.reduces else across
    rows_per_block = _THREADS // across
    return (-(-launch.rows // rows_per_block),), (across, rows_per_block)
