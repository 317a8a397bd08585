"""Movies of a plane, frame by frame: GIF by Pillow, MP4 by ffmpeg.

A GIF is complete after each frame, however the run ends. Its colours are from one map, chosen by
the first frames: from dark to bright, or to both sides of zero where values have both signs. Around
the plane are its axes, a bar of the colours with their values, and the time.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.errors import InputError, RunError
from slipstream.engine.text import one_line
from slipstream.files.durable_files import errors_name, named
from slipstream.show.field_planes import ColourScale, FieldPlane, colour_scale

# Frames that determine the colours.
_FIRST_FRAMES = 8
_COLOURS = 220
# Greys follow the colours in the palette, from black to white.
_GREYS = 32
# The number of points without a value.
_NOTHING = _COLOURS + 24
# Pixels of the longer side of a frame, at least and at most, where none are asked for.
_SMALLEST = 640
_LARGEST = 1080
# Pixels to the left, to the right, above and below the plane.
_MARGINS = (70, 112, 34, 54)
# Pixels of the width of the colour bar.
_BAR = 16
# Pixels between the plane and the bar.
_GAP = 12
# Dots per inch.
_DOTS = 100


def check_movie(kind: str, where: str) -> None:
    """Refuse a format that cannot be written here."""
    if kind == "mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{where}: 'mp4' needs ffmpeg, which is not found; accepted here: gif")


class Movie:
    """A movie to which frames are added; an existing file of its name is replaced."""

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        limits: Sequence[float] | None = None,
        frames_per_second: float = 12.0,
        label: str = "",
        plane: FieldPlane | None = None,
        size: int | None = None,
        colours: str = "",
    ) -> None:
        self.path = path
        self._label, self._plane, self._size = one_line(label, 60), plane, size
        self._canvas: _Canvas | None = None
        self._limits = None if limits is None else (float(limits[0]), float(limits[1]))
        self._file: _GifFile | _Mp4File
        make = _GifFile if kind == "gif" else _Mp4File
        self._file = make(path, frames_per_second)
        # Until the colours are settled.
        self._first: list[tuple[np.ndarray, float]] | None = [] if limits is None else None
        # Empty: chosen from the values.
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

    @property
    def scale(self) -> tuple[float, float, str] | None:
        """The values of the first and the last colour, and the map; None before any frame."""
        return None if self._limits is None or not self._map else (*self._limits, self._map)

    def _write(self, values: np.ndarray, time: float) -> None:
        low, high = self._limits or (0.0, 1.0)
        if not self._map:
            self._map = self._wanted_map or ColourScale.between(low, high).map_name
        if self._canvas is None or self._canvas.limits != (low, high):
            rows, columns = (np.arange(float(size)) for size in values.shape)
            numbered = FieldPlane("", values, "row", "column", rows, columns, "", 0.0, "", 0.0)
            plane = self._plane or numbered
            self._canvas = _Canvas(plane, values.shape, (low, high), self._label, self._size)
        scaled = (values.astype(float) - low) / (high - low) * (_COLOURS - 1)
        scaled = np.nan_to_num(scaled, nan=_NOTHING, posinf=_COLOURS - 1, neginf=0)
        known = np.clip(np.rint(scaled), 0, _COLOURS - 1)
        indices = np.where(np.isnan(values), _NOTHING, known).astype(np.uint8)
        self._file.add(self._canvas.frame(indices, f"t = {time:.4g}"), _palette(self._map))


class _Canvas:
    """The axes and the colour bar around the plane in each frame, drawn once.

    `size` are the pixels of the longer side.
    """

    def __init__(
        self,
        plane: FieldPlane,
        shape: tuple[int, ...],
        limits: tuple[float, float],
        label: str,
        size: int | None,
    ) -> None:
        from slipstream.show.figure_style import height_over_width, in_handy_unit

        self.limits = limits
        plane = in_handy_unit(plane)
        aspect = height_over_width(plane)
        size = size or min(max(*shape, _SMALLEST), _LARGEST)
        left, right, above, below = _MARGINS
        room = max(16, size - left - right), max(16, size - above - below)
        width = min(room[0], room[1] / aspect)
        # Even numbers of pixels, which codecs need.
        self._shape = max(2, round(width * aspect / 2) * 2), max(2, round(width / 2) * 2)
        self._corner = above, left
        whole = self._shape[0] + above + below, self._shape[1] + left + right
        self._frame = self._drawn(plane, limits, label, whole)
        bar = np.rint(np.linspace(_COLOURS - 1, 0, self._shape[0])).astype(np.uint8)
        start = left + self._shape[1] + _GAP
        self._frame[above : above + self._shape[0], start : start + _BAR] = bar[:, None]

    def _drawn(
        self, plane: FieldPlane, limits: tuple[float, float], label: str, whole: tuple[int, int]
    ) -> np.ndarray:
        """Return the greys of axes and of a bar that is still white."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from slipstream.show.figure_style import extent_of, in_our_style, label_axes

        rows, columns = whole
        (height, width), (above, left) = self._shape, self._corner
        bottom = (rows - above - height) / rows
        changes = {"font.size": 9, "axes.labelsize": 9, "axes.titlesize": 9}
        changes |= {"figure.constrained_layout.use": False, "figure.dpi": _DOTS}
        with in_our_style(changes):
            figure = Figure(figsize=(columns / _DOTS, rows / _DOTS), dpi=_DOTS)
            canvas = FigureCanvasAgg(figure)
            axes = figure.add_axes((left / columns, bottom, width / columns, height / rows))
            axes.set_xlim(extent_of(plane.columns))
            axes.set_ylim(extent_of(plane.rows))
            position = label_axes(axes, plane)
            start = (left + width + _GAP) / columns
            bar = figure.add_axes((start, bottom, _BAR / columns, height / rows))
            bar.set_ylim(limits)
            bar.yaxis.tick_right()
            bar.yaxis.set_label_position("right")
            bar.set_xticks([])
            bar.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
            bar.yaxis.get_offset_text().set_horizontalalignment("left")
            bar.set_ylabel(label, parse_math=False)
            for spine in (*axes.spines.values(), *bar.spines.values()):
                spine.set_visible(False)
            if plane.normal_name:
                where = f"${plane.normal_name}$ = {position}"
                axes.set_title(where, loc="right")
            drawn: Any = canvas  # whose methods have no types
            drawn.draw()
            pixels = np.asarray(drawn.buffer_rgba())[:rows, :columns, :3].astype(float)
        greys = np.rint(pixels.mean(axis=2) / 255 * (_GREYS - 1)).astype(np.uint8)
        numbers: np.ndarray = (_COLOURS + greys).astype(np.uint8)
        return numbers

    def frame(self, indices: np.ndarray, text: str) -> Any:
        """Return a picture of colours by their numbers, with a text above the plane."""
        from PIL import Image, ImageDraw

        plane = Image.fromarray(np.ascontiguousarray(indices[::-1]))
        # Numbers between those of colours are colours between them, but for greys.
        is_whole = bool((indices < _COLOURS).all())
        how = Image.Resampling.BILINEAR if is_whole else Image.Resampling.NEAREST
        (height, width), (above, left) = self._shape, self._corner
        words = Image.new("L", (width, above - 4), 255)
        ImageDraw.Draw(words).text((0, 11), text, 0, font=_font())
        greys = np.rint(np.asarray(words) / 255 * (_GREYS - 1)).astype(np.uint8)
        frame = self._frame.copy()
        # The position of the plane, which is at the right, stays.
        above_plane = frame[: above - 4, left : left + width]
        above_plane[...] = np.minimum(above_plane, _COLOURS + greys)
        frame[above : above + height, left : left + width] = plane.resize((width, height), how)
        return Image.fromarray(frame)


@functools.cache
def _font() -> Any:
    """Return the letters of Matplotlib's pictures."""
    import matplotlib
    from PIL import ImageFont

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), round(9 / 72 * _DOTS))


def _palette(name: str) -> np.ndarray:
    """Return the colours by their numbers."""
    import matplotlib

    colours = matplotlib.colormaps[name](np.linspace(0, 1, _COLOURS))[:, :3]
    greys = np.repeat(np.linspace(0, 1, _GREYS)[:, None], 3, axis=1)
    rest = np.ones((256 - _COLOURS - _GREYS, 3))
    numbers: np.ndarray = np.rint(255 * np.vstack([colours, greys, rest])).astype(np.uint8)
    return numbers


class _GifFile:
    """A GIF that is complete after each frame: a new frame replaces its trailer."""

    can_begin_anew = True
    _TRAILER = b";"
    _LOOP = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path = path
        # Hundredths of a second.
        self._pause = max(2, round(100 / frames_per_second))
        self._end = 0

    def begin(self) -> None:
        """Begin the file again."""
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
        """Do nothing: the file is complete."""


class _Mp4File:
    """An MP4 that ffmpeg writes from the frames that it receives."""

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
                [*command, os.path.abspath(named(self._path))],
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
        return RunError(f"{named(self._path)} cannot be written: ffmpeg ended with status {status}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        process.wait()
