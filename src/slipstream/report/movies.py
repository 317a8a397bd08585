"""Movies of a plane, frame by frame: GIF by Pillow, MP4 by ffmpeg.

A GIF is whole after each frame, whatever ends the run. Its colours are those of one map, chosen by
the first frames: from dark to bright, or to both sides of zero where values have both signs.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import InputError, RunError
from slipstream.io.durable_files import errors_name
from slipstream.printable_text import one_line
from slipstream.report.colour_scale import ColourScale, colour_scale

# Frames by which the colours are chosen.
_FIRST_FRAMES = 8
_COLOURS = 254  # and black and white
_BLACK, _WHITE = 254, 255
# Pixels of the longer side, at least and at most, and of the line of text.
_SMALLEST, _LARGEST, _TEXT_HEIGHT = 360, 1080, 16


def check_movie(kind: str, where: str) -> None:
    """Refuse a format that cannot be written here."""
    if kind == "mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{where}: 'mp4' needs ffmpeg, which is not found; accepted here: gif")


class Movie:
    """A movie that grows by a frame at a time; a file that has its name is replaced."""

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        limits: Sequence[float] | None = None,
        frames_per_second: float = 12.0,
        label: str = "",
        aspect: float = 1.0,
        colours: str = "",
    ) -> None:
        self.path = path
        self._label, self._aspect = one_line(label, 60), aspect
        self._limits = None if limits is None else (float(limits[0]), float(limits[1]))
        self._file: _GifFile | _Mp4File
        make = _GifFile if kind == "gif" else _Mp4File
        self._file = make(path, frames_per_second)
        # As long as the colours are not settled.
        self._first: list[tuple[np.ndarray, float]] | None = [] if limits is None else None
        # Empty: as the values want it.
        self._wanted_map, self._map = colours, ""

    def add(self, values: np.ndarray, time: float) -> None:
        """Add a frame, [row, column] from the bottom up."""
        if self._first is None:
            self._write(values, time)
            return
        self._first.append((values.copy(), time))
        scale = colour_scale(np.stack([one for one, _ in self._first]))
        self._limits, self._map = (scale.low, scale.high), self._wanted_map or scale.map_name
        is_settled = len(self._first) == _FIRST_FRAMES
        if self._file.can_begin_anew or is_settled:
            self._write_first()
        if is_settled:
            self._first = None

    def close(self) -> None:
        """Complete the file."""
        if self._first and not self._file.can_begin_anew:
            self._write_first()
        self._first = None
        self._file.close()

    def _write_first(self) -> None:
        self._file.begin()
        for values, time in self._first or ():
            self._write(values, time)

    def _write(self, values: np.ndarray, time: float) -> None:
        low, high = self._limits or (0.0, 1.0)
        if not self._map:
            self._map = self._wanted_map or ColourScale.between(low, high).map_name
        scaled = (values.astype(float) - low) / (high - low) * (_COLOURS - 1)
        scaled = np.nan_to_num(scaled, nan=_BLACK, posinf=_COLOURS - 1, neginf=0)
        known = np.clip(np.rint(scaled), 0, _COLOURS - 1)
        indices = np.where(np.isnan(values), _BLACK, known).astype(np.uint8)
        text = f"{self._label}  t = {time:.4g}  colours {low:.3g} to {high:.3g}"
        self._file.add(_picture(indices, text, self._aspect), _palette(self._map))


def _picture(indices: np.ndarray, text: str, aspect: float) -> Any:
    """Return a picture of colours by their numbers, with a line of text above."""
    from PIL import Image, ImageDraw

    rows, columns = indices.shape
    longest = min(max(rows, columns, _SMALLEST), _LARGEST)
    width = longest if aspect <= 1 else round(longest / aspect)
    height = round(width * aspect)
    # Even numbers of pixels, which codecs need.
    size = max(2, width - width % 2), max(2, height - height % 2)
    plane = Image.fromarray(np.ascontiguousarray(indices[::-1]))
    # Numbers between those of colours are colours between them, but for black.
    is_whole = bool((indices < _COLOURS).all())
    plane = plane.resize(size, Image.Resampling.BILINEAR if is_whole else Image.Resampling.NEAREST)
    whole = Image.new("L", (size[0], size[1] + _TEXT_HEIGHT), _WHITE)
    whole.paste(plane, (0, _TEXT_HEIGHT))
    ImageDraw.Draw(whole).text((3, 2), text.encode("latin-1", "replace").decode("latin-1"), _BLACK)
    return whole


def _palette(name: str) -> np.ndarray:
    """Return the colours by their numbers."""
    import matplotlib

    colours = matplotlib.colormaps[name](np.linspace(0, 1, _COLOURS))[:, :3]
    return np.vstack([np.rint(255 * colours), [[0, 0, 0], [255, 255, 255]]]).astype(np.uint8)


class _GifFile:
    """A GIF that is whole after each frame: a new frame takes the place of its trailer."""

    can_begin_anew = True
    _TRAILER = b";"
    _LOOP = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path = path
        # Hundredths of a second.
        self._pause = max(2, round(100 / frames_per_second))
        self._end = 0

    def begin(self) -> None:
        """Begin anew."""
        self._end = 0

    def add(self, picture: Any, palette: np.ndarray) -> None:
        """Add a picture of colours by their numbers."""
        picture = picture.convert("P") if picture.mode != "L" else picture
        picture.putpalette(palette.ravel().tolist())
        content = io.BytesIO()
        picture.save(content, "GIF", optimize=False, duration=10 * self._pause)
        data = content.getvalue()
        # Signature and size, colours if there are any, blocks of the picture, trailer.
        head = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
        blocks = data[head:] if self._end else data[:head] + self._LOOP + data[head:]
        how = "r+b" if self._end else "wb"
        with errors_name(self._path), open(self._path, how) as file:
            file.seek(self._end)
            file.write(blocks)
            file.flush()
            os.fsync(file.fileno())
        self._end += len(blocks) - len(self._TRAILER)

    def close(self) -> None:
        """Do nothing: the file is whole."""


class _Mp4File:
    """An MP4 that ffmpeg writes from what it is sent."""

    can_begin_anew = False

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path, self._rate = path, frames_per_second
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Do nothing: ffmpeg begins with the first picture."""

    def add(self, picture: Any, palette: np.ndarray) -> None:
        """Add a picture of colours by their numbers."""
        pixels = palette[np.asarray(picture)]
        if self._process is None:
            self._process = self._started(pixels.shape[1], pixels.shape[0])
        try:
            self._process.stdin.write(pixels.tobytes())  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except (BrokenPipeError, ValueError) as error:
            raise self._failure() from error

    def close(self) -> None:
        """Wait until ffmpeg has written all."""
        if self._process is not None and self._process.returncode is None:
            _end(self._process)
            if self._process.returncode != 0:
                raise self._failure()

    def _started(self, width: int, height: int) -> subprocess.Popen[bytes]:
        command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        command += ["-s", f"{width}x{height}", "-r", f"{self._rate:g}", "-i", "-"]
        command += ["-pix_fmt", "yuv420p", "-movflags", "+frag_keyframe+empty_moov"]
        with errors_name(self._path):
            process = subprocess.Popen(
                [*command, str(self._path.absolute())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the run, which ends the movie in order.
                start_new_session=True,
            )
        weakref.finalize(self, _end, process)
        return process

    def _failure(self) -> RunError:
        status = self._process.wait() if self._process else None
        return RunError(f"{self._path} cannot be written: ffmpeg ended with status {status}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        process.wait()
