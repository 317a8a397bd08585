"""Functions of HIP that CuPy's build for ROCm lacks, called in the library that it has loaded.

Types and numbers are those of ``hip_runtime_api.h``. They have been called in a stand-in for the
library only, which checks their arguments, never on an AMD GPU.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from slipstream.device.nvrtc_processes import loaded_library
from slipstream.errors import RunError

LIBRARY = "libamdhip64.so"
_PORTABLE_AND_MAPPED = 0x1 | 0x2  # hipHostRegisterPortable, hipHostRegisterMapped
_RELAXED = 2  # hipStreamCaptureModeRelaxed: other threads may allocate during a capture
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipMemcpy2DAsync": (
        *(c_void_p, c_size_t, c_void_p, c_size_t),
        *(c_size_t, c_size_t, c_int, c_void_p),
    ),
    "hipHostRegister": (c_void_p, c_size_t, c_uint),
    "hipHostUnregister": (c_void_p,),
    "hipHostGetDevicePointer": (POINTER(c_void_p), c_void_p, c_uint),
    "hipHostGetFlags": (POINTER(c_uint), c_void_p),
    "hipStreamBeginCapture": (c_void_p, c_int),
    "hipStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "hipGraphInstantiate": (POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_char_p, c_size_t),
    "hipGraphDestroy": (c_void_p,),
    "hipGraphLaunch": (c_void_p, c_void_p),
    "hipGraphExecDestroy": (c_void_p,),
    "hipGetLastError": (),
}


class HipError(RunError):
    """HIP has refused a call."""


class HipRuntime:
    """The functions of a library, by default the one that this process has loaded."""

    def __init__(self, path: str | None = None) -> None:
        path = path or loaded_library((LIBRARY,))
        if path is None:
            raise RunError(f"CuPy has loaded no {LIBRARY}")
        library = ctypes.CDLL(path)
        self._functions: dict[str, Callable[..., int]] = {}
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int
            self._functions[name] = function
        self._text = library.hipGetErrorString
        self._text.argtypes, self._text.restype = (c_int,), c_char_p

    def _call(self, name: str, *arguments: Any) -> None:
        status = self._functions[name](*arguments)
        if status:
            self._functions["hipGetLastError"]()  # which would be found by the next call of CuPy
            raise HipError(f"{name}: {self._text(status).decode()} ({status})")

    def copy_rectangle(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        kind: int,
        stream: int,
    ) -> None:
        """Enqueue the copy of `height` rows of `width` bytes."""
        places = target, target_pitch, source, source_pitch
        self._call("hipMemcpy2DAsync", *places, width, height, kind, stream)

    def pin(self, address: int, size: int) -> bool:
        """Pin memory of this process; return False, not pinned, if GPUs reach it elsewhere."""
        self._call("hipHostRegister", address, size, _PORTABLE_AND_MAPPED)
        there = c_void_p()
        try:
            self._call("hipHostGetDevicePointer", byref(there), address, 0)
            if there.value == address:
                return True
        except HipError:
            self.unpin(address)
            raise
        self.unpin(address)
        return False

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        self._call("hipHostUnregister", address)

    def is_pinned(self, address: int) -> bool:
        """Return whether GPUs reach memory of the host at an address."""
        try:
            self._call("hipHostGetFlags", byref(c_uint()), address)
        except HipError:
            return False
        return True

    def begin_capture(self, stream: int) -> None:
        """Let a stream, and streams that wait for it, record what is submitted."""
        self._call("hipStreamBeginCapture", stream, _RELAXED)

    def end_capture(self, stream: int) -> HipGraph:
        """Return the recorded graph, ready to be launched."""
        graph = c_void_p()
        self._call("hipStreamEndCapture", stream, byref(graph))
        try:
            ready = c_void_p()
            self._call("hipGraphInstantiate", byref(ready), graph, None, None, 0)
        finally:
            self._call("hipGraphDestroy", graph)
        return HipGraph(self, ready.value or 0)

    def launch(self, graph: int, stream: int) -> None:
        """Enqueue all of a graph."""
        self._call("hipGraphLaunch", graph, stream)

    def destroy(self, graph: int) -> None:
        """Free a graph."""
        self._call("hipGraphExecDestroy", graph)


class HipGraph:
    """A graph that can be launched any number of times."""

    def __init__(self, runtime: HipRuntime, handle: int) -> None:
        self._runtime, self._handle = runtime, handle
        weakref.finalize(self, runtime.destroy, handle).atexit = False

    def launch(self, stream: int) -> None:
        """Enqueue all of it."""
        self._runtime.launch(self._handle, stream)
