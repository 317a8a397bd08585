"""``slipstream plot``: pictures, and movies, of what a run's folder has now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from slipstream.accepted import MOVIE_FORMATS, PICTURE_FORMATS, listed
from slipstream.errors import InputError
from slipstream.io.durable_files import errors_name
from slipstream.printable_text import one_line, shown
from slipstream.report.colour_scale import ColourScale, colour_scale
from slipstream.report.movies import Movie, check_movie
from slipstream.report.picture_choice import PlaneChoice
from slipstream.report.plane_gather import Plane
from slipstream.report.run_pictures import Picture, axis_labels, height_over_width, plane_figure
from slipstream.report.stored_run import StoredRun

_AXES = ("x", "y", "z")


@dataclass(frozen=True)
class PlaneWishes:
    """What is asked for of planes; what is not is empty."""

    axis: str = ""
    position: float | None = None
    time: float | None = None
    limits: tuple[float, float] | None = None
    colours: str = ""

    @classmethod
    def of_options(
        cls, plane: str | None, time: float | None, limits: str | None, colours: str | None
    ) -> PlaneWishes:
        """Return the wishes that options tell, which are judged."""
        if time is not None and not math.isfinite(time):
            raise InputError(f"--time: {time} is no time; accepted: a number")
        if colours is not None and colours not in matplotlib.colormaps:
            raise InputError(
                f"--colormap: there is no {shown(colours)}; accepted: a colour map of Matplotlib,"
                " such as viridis, inferno, RdBu_r"
            )
        return cls(*_plane(plane), time, _limits(limits), colours or "")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self == PlaneWishes()

    def scale(self, plane: Plane, brightest: float) -> ColourScale:
        """Return the colours of a plane."""
        if self.limits is not None:
            return ColourScale.between(*self.limits, self.colours)
        return colour_scale(plane.values, brightest, self.colours)


def plot(
    folder: Path,
    out: Path,
    *,
    field: str | None = None,
    wishes: PlaneWishes | None = None,
    format: str | None = None,
    movie: bool = False,
) -> list[Path]:
    """Draw what is asked for, or all that a run draws at its end, and return the paths.

    Parameters
    ----------
    folder : pathlib.Path
        The output folder of a run, which may be under way; it is only read.
    out : pathlib.Path
        Where files are written, made if need be; files of the same names are replaced.
    field : str, optional
        Of which a plane is drawn; by default the fields that the run itself draws.
    wishes : PlaneWishes, optional
        Which plane, when, and in which colours.
    format : str, optional
        A name of `slipstream.accepted.PICTURE_FORMATS`, or `MOVIE_FORMATS` for a movie.
    movie : bool
        Whether a plane is drawn at the times of all snapshots.

    Raises
    ------
    InputError
        If there is no such field, or nothing to draw yet.
    """
    run, wishes = StoredRun(folder), wishes or PlaneWishes()
    format = format or ("gif" if movie else "png")
    accepted = MOVIE_FORMATS if movie else PICTURE_FORMATS
    if format not in accepted:
        kind = "movies" if movie else "pictures"
        raise InputError(f"--format: {shown(format)}; accepted for {kind}: {listed(accepted)}")
    if field is None and not movie and wishes.is_empty:
        pictures = run.pictures()
        if not pictures:
            raise InputError(f"{folder}: there is nothing to draw yet")
        _make(out)
        return [_written(picture, out, format) for picture in pictures]
    choices = [run.choice_of(one) for one in _fields(run, field)]
    if movie:
        check_movie(format, "--format")
        _make(out)
        return [_movie(run, one, wishes, out, format) for one in choices]
    drawn = [(one, _wanted(run, one, wishes)) for one in choices]
    _make(out)
    return [_written(_picture(run, *one, wishes), out, format) for one in drawn]


def _fields(run: StoredRun, field: str | None) -> list[str]:
    if field is not None:
        return [field]
    names = [one.field for one in run.choice.planes]
    if not names or not len(run.times):
        raise InputError(f"{run.path}: there are no snapshots of fields yet")
    return names


def _wanted(run: StoredRun, choice: PlaneChoice, wishes: PlaneWishes) -> Plane:
    return run.plane(choice, run.snapshot(wishes.time), wishes.axis, wishes.position)


def _picture(run: StoredRun, choice: PlaneChoice, plane: Plane, wishes: PlaneWishes) -> Picture:
    scale = wishes.scale(plane, choice.brightest)
    composed = {choice.field: f"magnitude of {choice.field}"} if choice.components else {}
    labels = composed | axis_labels({}, run.choice)
    if wishes.axis or wishes.position is not None:
        choice = PlaneChoice(choice.field, choice.file)
    name = choice.file.removesuffix(".png")
    return Picture(name, lambda: plane_figure(plane, run.title, labels, choice, scale))


def _movie(
    run: StoredRun, choice: PlaneChoice, wishes: PlaneWishes, out: Path, format: str
) -> Path:
    count = len(run.times)
    if count < 2:
        raise InputError(
            f"--movie: {run.path} has {count} snapshot{'s' * (count != 1)} of fields;"
            " output.fields_interval has a run write more"
        )
    last = run.plane(choice, count - 1, wishes.axis, wishes.position)
    # The same plane at all times: that of the last snapshot.
    axis = last.normal_name
    position = last.position if axis else None

    def plane(number: int) -> Plane:
        return run.plane(choice, number, axis, position) if number < count - 1 else last

    scales = [wishes.scale(plane(number), choice.brightest) for number in range(count)]
    low, high = min(one.low for one in scales), max(one.high for one in scales)
    if wishes.limits is None and any(one.low < 0 < one.high for one in scales):
        low, high = min(low, -high), max(high, -low)
    path = out / f"{choice.file.removesuffix('.png')}.{format}"
    made = Movie(
        path,
        kind=format,
        limits=(low, high),
        label=choice.field,
        aspect=height_over_width(last),
        colours=wishes.colours,
    )
    try:
        for number in range(count):
            shown_plane = plane(number)
            made.add(np.ma.filled(shown_plane.values.astype(float), np.nan), shown_plane.time)
    finally:
        made.close()
    return path


def _written(picture: Picture, out: Path, format: str) -> Path:
    with errors_name(out):
        return picture.write(out, format)


def _make(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: {out} is a file; accepted: a folder")
    with errors_name(out):
        out.mkdir(parents=True, exist_ok=True)


def _plane(text: str | None) -> tuple[str, float | None]:
    """Return the axis and the position that a plane is asked for at, such as ``z=0.5``."""
    if text is None:
        return "", None
    axis, equals, place = text.partition("=")
    try:
        position = float(place) if equals else None
    except ValueError:
        position = math.nan
    if axis.strip() not in _AXES or (position is not None and not math.isfinite(position)):
        raise InputError(
            f"--plane: {shown(text)}; accepted: an axis and a position, such as z=0.5, or an axis"
        )
    return axis.strip(), position


def _limits(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"--range: {shown(text)}; accepted: the values of the first and the last colour, such"
            " as --range=-1,1"
        )
    return low, high


def usual_folder(run: Path) -> Path:
    """Return where pictures of a run are written by default: not into its own folder."""
    return Path("plots") / (one_line(run.absolute().name) or "run")
