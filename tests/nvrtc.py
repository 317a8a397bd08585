"""NVRTC from its wheel: compiles for GPUs on machines that have none."""

import ctypes
from importlib.metadata import files


class CompilationError(Exception):
    """The compiler's log."""


class Nvrtc:
    """The compiler library of the ``nvidia-cuda-nvrtc`` package."""

    def __init__(self):
        (path,) = (entry for entry in files("nvidia-cuda-nvrtc") if entry.match("libnvrtc.so.*"))
        self._library = ctypes.CDLL(str(path.locate()))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def compile(self, text, architecture, options=()):
        """Return the binary of `text` for a GPU such as ``"sm_90"``.

        Raises
        ------
        CompilationError
            If the text is wrong.
        """
        program = ctypes.c_void_p()
        create = self._library.nvrtcCreateProgram
        self._check(create(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
        try:
            everything = (*options, f"--gpu-architecture={architecture}")
            arguments = [option.encode() for option in everything]
            array = (ctypes.c_char_p * len(arguments))(*arguments)
            if self._library.nvrtcCompileProgram(program, len(arguments), array):
                raise CompilationError(self._output(program, "ProgramLog").decode())
            return self._output(program, "CUBIN")
        finally:
            self._check(self._library.nvrtcDestroyProgram(ctypes.byref(program)))

    def _output(self, program, kind):
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        content = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{kind}")(program, content))
        return content.raw

    def _check(self, status):
        if status:
            raise RuntimeError(self._library.nvrtcGetErrorString(status).decode())
