"""Pictures drawn by another process, which loads its libraries while the run continues.

As a script it is that process: it waits for work, and then draws each picture in a copy of itself,
all at the same time. It ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from slipstream.engine.errors import RunError
from slipstream.engine.stop_signals import signals_held

if TYPE_CHECKING:
    from slipstream.engine.fields import Spectra
    from slipstream.show.run_pictures import Picture

# A function of this package that returns pictures to be drawn, and its arguments.
Request = tuple[str, dict[str, Any]]
# The name of a picture and of its file, and SVG if requested; all pictures, and the failures.
Drawn = tuple[str, str, str]
Answer = tuple[list[Drawn], list[Any]]
PICTURES = "slipstream.show.run_pictures:run_pictures"
SCALARS = "slipstream.show.run_pictures:scalar_pictures"
STATISTICS = "slipstream.show.statistics_pictures:statistics_pictures"
DENSITIES = "slipstream.show.statistics_pictures:density_pictures"

# Spectra in one picture, at most.
_MOST_SPECTRA = 6


def shown_spectra(spectra: Spectra) -> Spectra:
    """Return the spectra that pictures show: the last and some earlier ones."""
    last, gaps = len(spectra) - 1, _MOST_SPECTRA - 1
    numbers = sorted({round(last * number / gaps) for number in range(_MOST_SPECTRA)})
    return [spectra[number] for number in numbers] if last >= 0 else []


class PictureProcess:
    """Draws pictures in another process, which ends with the context."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the run, which draws the pictures of what it has written.
            start_new_session=True,
        )
        self._thread = ThreadPoolExecutor(1)
        self._answer: Future[Answer] | None = None
        # Pictures for a page, as SVG by name, once they are finished.
        self.plots: dict[str, str] = {}
        with contextlib.suppress(BrokenPipeError):  # told when it is to draw
            self._send([os.path.abspath(one) for one in sys.path])

    def __enter__(self) -> PictureProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with signals_held:
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)  # with the copies of it that draw
            self._thread.shutdown()
            with contextlib.suppress(BrokenPipeError), self._process:  # a message may be half sent
                pass

    def begin(
        self, folder: str | Path, requests: Sequence[Request], for_page: bool = False
    ) -> None:
        """Start drawing pictures into a folder, and for a page; `finish` waits for them."""
        # The other process, too, reaches a folder by it that this one holds open.
        path = os.path.abspath(str(folder).replace("/proc/self/", f"/proc/{os.getpid()}/", 1))
        self._folder, self._folder_there = Path(folder), path
        wanted = path, list(requests), for_page
        # A thread, since the process takes nothing before it has loaded.
        with signals_held:
            self._answer = self._thread.submit(self._exchange, wanted)

    def finish(self) -> list[Path]:
        """Wait until all pictures are drawn, and return their paths.

        Raises
        ------
        OSError
            If a picture cannot be written.
        RunError
            If one cannot be drawn.
        """
        from slipstream.engine.processes import result_of
        from slipstream.files.durable_files import named

        if self._answer is None:
            return []
        drawn, failures = result_of(self._answer)
        for failure in failures:
            if isinstance(failure, tuple):
                number, reason, file = failure
                there, here = self._folder_there, named(self._folder)
                raise OSError(number, reason, str(file).replace(there, here, 1))
            raise RunError(f"a picture could not be drawn: {failure}")
        self.plots = {name: svg for name, _, svg in drawn if svg}
        return [self._folder / file for _, file, _ in drawn]

    def _exchange(self, wanted: tuple[str, list[Request], bool]) -> Answer:
        answers: Any = self._process.stdout
        try:
            self._send(wanted)
            answer: Answer = pickle.load(answers)
            return answer
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise RunError(
                f"the process that draws pictures ended with status {self._process.wait()};"
                " output.pictures=false does without"
            ) from error

    def _send(self, what: object) -> None:
        requests: Any = self._process.stdin
        pickle.dump(what, requests)
        requests.flush()


def _serve() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get among the answers
    try:
        sys.path[:] = pickle.load(requests)
        os.chdir("/")  # Matplotlib would read a matplotlibrc of the current folder
        _load()
        pictures = _drawing(*pickle.load(requests))
    except EOFError:
        os._exit(0)
    pickle.dump(_draw_all(pictures), answers)
    answers.flush()


def _load() -> None:
    """Load what draws, and draw something of each kind, before copies are made."""
    import matplotlib.backends.backend_svg

    from slipstream.show import statistics_pictures
    from slipstream.show.run_pictures import draw_nothing

    del matplotlib, statistics_pictures
    draw_nothing()


def _drawing(
    folder: str | Path, requests: Sequence[Request], for_page: bool
) -> list[Callable[[], Drawn]]:
    """Return a function for each requested picture that draws it."""
    drawing: list[Callable[[], Drawn]] = []
    for function, arguments in requests:
        module, _, name = function.partition(":")
        pictures: list[Picture] = getattr(import_module(module), name)(**arguments)
        drawing += [partial(_draw, picture, folder, for_page) for picture in pictures]
    return drawing


def _draw(picture: Picture, folder: str | Path, for_page: bool) -> Drawn:
    path, svg = picture.write_both(folder, for_page)
    return picture.name, path.name, svg


def _draw_all(pictures: Sequence[Callable[[], Drawn]]) -> Answer:
    """Draw all, each in a copy of this process; return the pictures and the errors."""
    copies = []
    for picture in pictures:
        reader, writer = os.pipe()
        number = os.fork()
        if number == 0:
            with os.fdopen(writer, "wb") as file:
                pickle.dump(_attempt(picture), file)
            os._exit(0)
        os.close(writer)
        copies.append((number, reader))
    drawn, failures = [], []
    for number, reader in copies:
        with os.fdopen(reader, "rb") as file:
            try:
                picture_drawn, failure = pickle.load(file)
            except EOFError:
                picture_drawn, failure = None, "its process was killed"
        os.waitpid(number, 0)
        if picture_drawn is None:
            failures.append(failure)
        else:
            drawn.append(picture_drawn)
    return drawn, failures


def _attempt(picture: Callable[[], Drawn]) -> tuple[Drawn | None, Any]:
    try:
        return picture(), None
    except OSError as error:
        return None, (error.errno, error.strerror, error.filename)
    except Exception as error:
        if os.environ.get("SLIPSTREAM_TRACEBACK") == "1":
            traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    _serve()
