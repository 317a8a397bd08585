"""``slipstream plot``: pictures and movies of the present contents of a run's folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import matplotlib
import numpy as np

from slipstream.engine.accepted import (
    LARGEST_MOVIE,
    MOVIE_FORMATS,
    PICTURE_FORMATS,
    SMALLEST_MOVIE,
    listed,
)
from slipstream.engine.errors import InputError
from slipstream.engine.fields import PlaneChoice
from slipstream.engine.text import counted, one_line, shortened, shown
from slipstream.files.durable_files import errors_name
from slipstream.show.field_planes import (
    ColourScale,
    FieldPlane,
    colour_scale,
    composed_plane,
    gather_plane,
)
from slipstream.show.figure_style import plane_figure
from slipstream.show.movies import Movie, check_movie
from slipstream.show.report_command import comparison_picture, runs_by_name
from slipstream.show.run_pictures import (
    Picture,
    SpectrumWishes,
    axis_labels,
    first_spectrum,
    spectrum_figure,
)
from slipstream.show.solver_texts import ShownSimulation
from slipstream.show.stored_run import StoredRun, average_of_spectrum

_AXES = ("x", "y", "z")
_LONGEST_FOLDER = 100


@dataclass(frozen=True)
class PlaneWishes:
    """The requested planes; whatever is not requested is empty."""

    axis: str = ""
    position: float | None = None
    time: float | None = None
    limits: tuple[float, float] | None = None
    colours: str = ""

    @classmethod
    def of_options(
        cls, plane: str | None, time: float | None, limits: str | None, colours: str | None
    ) -> PlaneWishes:
        """Return the wishes from options, after checking these."""
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
        """Whether nothing is requested."""
        return self == PlaneWishes()

    def scale(self, plane: FieldPlane, brightest: float) -> ColourScale:
        """Return the colours of a plane."""
        if self.limits is not None:
            return ColourScale.between(*self.limits, self.colours)
        return colour_scale(plane.values, brightest, self.colours)


def _plane(text: str | None) -> tuple[str, float | None]:
    """Return the axis and the position of a plane, such as ``z=0.5``."""
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


def plot(
    folder: Path,
    out: Path,
    *,
    field: str | None = None,
    wishes: PlaneWishes | None = None,
    format: str | None = None,
    movie: bool = False,
    size: int | None = None,
    spectrum: SpectrumWishes | None = None,
    tell: Callable[[str], None] = lambda text: None,
    recompute: Callable[[float], ShownSimulation] | None = None,
) -> list[Path]:
    """Draw the requested pictures, or all that a run draws at its end, and return the paths.

    The folder is only read, and the run may be under way. Files in `out` of the same names are
    replaced. A `field` is drawn at the time of the `wishes`, or as a `movie` of all snapshots whose
    longer side has `size` pixels. `recompute` returns the simulation at a time without a snapshot;
    without it the nearest snapshot is drawn, and `tell` is called with a line.
    """
    wishes = wishes or PlaneWishes()
    with StoredRun(folder).drawn() as run:
        format = format or ("gif" if movie else "png")
        accepted = MOVIE_FORMATS if movie else PICTURE_FORMATS
        if format not in accepted:
            kind = "movies" if movie else "pictures"
            raise InputError(f"--format: {shown(format)}; accepted for {kind}: {listed(accepted)}")
        if size is not None:
            if not movie:
                raise InputError("--size is of movies: give --movie with it")
            if not SMALLEST_MOVIE <= size <= LARGEST_MOVIE:
                raise InputError(
                    f"--size: {size}; accepted: {SMALLEST_MOVIE} to {LARGEST_MOVIE} pixels"
                )
        if spectrum is not None:
            if field is not None or movie or not wishes.is_empty:
                raise InputError(
                    "--spectrum, --compensate, --average and --since are of spectra: without"
                    " --field, --plane, --time, --range, --colormap and --movie"
                )
            pictures = [_spectrum_picture(run, spectrum, tell)]
        elif field is None and not movie and wishes.is_empty:
            pictures = run.pictures()
            if not pictures:
                raise InputError(f"{folder}: there is nothing to draw yet")
        elif movie:
            if wishes.time is not None:
                raise InputError("--time and --movie exclude each other: a movie has all snapshots")
            choices = [run.choice_of(name) for name in _fields(run, field)]
            check_movie(format, "--format")
            _make(out)
            return [_movie(run, choice, wishes, out, format, size) for choice in choices]
        else:
            pictures = _plane_pictures(run, field, wishes, tell, recompute)
        return _write(pictures, out, format)


def plot_together(
    folders: Sequence[Path],
    out: Path,
    *,
    spectrum: SpectrumWishes | None = None,
    format: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Draw several runs in one figure, as wide as a column of a journal; return its path."""
    format = format or "pdf"
    if format not in PICTURE_FORMATS:
        raise InputError(f"--format: {shown(format)}; accepted here: {listed(PICTURE_FORMATS)}")
    runs = runs_by_name(folders)
    picture = comparison_picture(runs, spectrum or SpectrumWishes(), tell)
    return _write([picture], out, format)


def spectrum_wishes(
    name: str | None, power: str | None, is_average: bool, since: float | None
) -> SpectrumWishes | None:
    """Return the wishes for a spectrum from options; None without any."""
    if since is not None and not (is_average and math.isfinite(since)):
        raise InputError("--since: goes with --average; accepted: a time")
    try:
        by = Fraction(power or 0).limit_denominator(1000)
        if abs(by) > 100:
            raise ValueError
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"--compensate: {shown(power)}; accepted: a power of the wavenumber, such as 5/3"
        ) from None
    if name is None and power is None and not is_average:
        return None
    return SpectrumWishes(name or "", by, is_average, since)


def _fields(run: StoredRun, field: str | None) -> list[str]:
    if field is not None:
        return [field]
    names = [one.field for one in run.choice.planes]
    if not names or not len(run.times):
        raise InputError(f"{run.path}: there are no snapshots of fields yet")
    return names


def _spectrum_picture(
    run: StoredRun, wishes: SpectrumWishes, tell: Callable[[str], None]
) -> Picture:
    spectra = run.spectra
    if not len(spectra):
        raise InputError(f"{run.path}: there are no spectra yet")
    there = spectra[-1][1]
    if wishes.name and wishes.name not in there:
        raise InputError(
            f"--spectrum: there is no {shown(wishes.name)}; there are: {', '.join(there)}"
        )
    wishes = replace(wishes, name=wishes.name or str(first_spectrum(spectra, run.choice)))
    labels = axis_labels({}, run.choice)
    average = None
    if wishes.is_average:
        average = average_of_spectrum(run.folder, wishes.name, wishes.since, tell)
    kind = f"{'_average' * wishes.is_average}{'_compensated' * bool(wishes.power)}"
    return Picture(
        f"{wishes.name}{kind}",
        lambda: spectrum_figure(run.title, spectra, labels, run.choice, wishes, average),
    )


def _plane_pictures(
    run: StoredRun,
    field: str | None,
    wishes: PlaneWishes,
    tell: Callable[[str], None],
    recompute: Callable[[float], ShownSimulation] | None,
) -> list[Picture]:
    """Return the pictures of planes at one time, of a snapshot or of a state computed again."""
    time = wishes.time
    is_stored = time is None
    if time is not None and len(run.times):
        nearest = float(run.times[run.snapshot(time)])
        is_stored = abs(nearest - time) <= 1e-6 * max(abs(nearest), abs(time))
    if not is_stored and recompute is not None:
        drawn = _recompute_planes(run, field, wishes, recompute)
    else:
        choices = [run.choice_of(name) for name in _fields(run, field)]
        where = run.snapshot(time), wishes.axis, wishes.position
        drawn = [(choice, run.plane(choice, *where)) for choice in choices]
        if not is_stored:
            times, drawn_time = run.times, drawn[0][1].time
            text = f"--time {time:g}: no snapshot of that time; drawn is the nearest, of"
            text += f" t = {drawn_time:.6g}"
            neighbours = [*times[times < drawn_time][-1:], *times[times > drawn_time][:1]]
            if neighbours:
                near = " and ".join(
                    f"t = {float(time_of_snapshot):.6g}" for time_of_snapshot in neighbours
                )
                text += f" (next to it: {near})"
            tell(text)
    return [_picture(run, *choice_and_plane, wishes) for choice_and_plane in drawn]


def _recompute_planes(
    run: StoredRun,
    field: str | None,
    wishes: PlaneWishes,
    recompute: Callable[[float], ShownSimulation],
) -> list[tuple[PlaneChoice, FieldPlane]]:
    """Return planes of a state that is computed again."""
    assert wishes.time is not None
    if field is not None and len(run.times):
        run.choice_of(field)  # a wrong name is refused before anything is computed
    try:
        simulation = recompute(wishes.time)
    except InputError as error:
        text = f"--time {wishes.time:g}: no snapshot of that time, and {error.text()}"
        if len(run.times):
            near = float(run.times[run.snapshot(wishes.time)])
            text += f"; --nearest draws the nearest snapshot, of t = {near:.6g}"
        raise InputError(text) from error
    fields = {one.name: one for one in simulation.fields()}
    names = [one.field for one in simulation.pictures().planes] if field is None else [field]
    choices = [run.choice_of(name, list(fields)) for name in names]

    def plane(choice: PlaneChoice) -> FieldPlane:
        def plane_of(name: str, where: float | None) -> FieldPlane:
            how = wishes.axis or choice.normal, choice.is_central, where
            gathered = gather_plane(fields[name], None, simulation.time, *how)
            assert gathered is not None  # a single process has all of it
            return gathered

        return composed_plane(choice, plane_of, wishes.position)

    return [(choice, plane(choice)) for choice in choices]


def _picture(
    run: StoredRun, choice: PlaneChoice, plane: FieldPlane, wishes: PlaneWishes
) -> Picture:
    scale = wishes.scale(plane, choice.brightest)
    composed = {choice.field: f"magnitude of {choice.field}"} if choice.components else {}
    labels = composed | axis_labels({}, run.choice)
    if wishes.axis or wishes.position is not None:
        choice = PlaneChoice(choice.field, choice.file)
    name = choice.file.removesuffix(".png")
    return Picture(name, lambda: plane_figure(plane, run.title, labels, choice, scale))


def _movie(
    run: StoredRun,
    choice: PlaneChoice,
    wishes: PlaneWishes,
    out: Path,
    format: str,
    size: int | None,
) -> Path:
    numbers = run.last_snapshots
    count = len(numbers)
    if count < 2:
        raise InputError(
            f"--movie: {run.path} has {counted(count, 'snapshot')} of fields;"
            " output.fields_interval has a run write more"
        )
    last = run.plane(choice, numbers[-1], wishes.axis, wishes.position)
    # The same plane at all times, chosen in the last snapshot.
    axis = last.normal_name
    position = last.position if axis else None

    def plane(number: int) -> FieldPlane:
        return run.plane(choice, number, axis, position) if number != numbers[-1] else last

    scales = [wishes.scale(plane(number), choice.brightest) for number in numbers]
    low, high = min(one.low for one in scales), max(one.high for one in scales)
    if wishes.limits is None and any(one.low < 0 < one.high for one in scales):
        low, high = min(low, -high), max(high, -low)
    path = out / f"{choice.file.removesuffix('.png')}.{format}"
    made = Movie(
        path,
        kind=format,
        limits=(low, high),
        label=choice.field,
        plane=last,
        size=size,
        colours=wishes.colours,
    )
    try:
        for number in numbers:
            shown_plane = plane(number)
            made.add(np.ma.filled(shown_plane.values.astype(float), np.nan), shown_plane.time)
    finally:
        made.close()
    return path


def _write(pictures: Sequence[Picture], out: Path, format: str) -> list[Path]:
    _make(out)
    with errors_name(out):
        return [picture.write(out, format) for picture in pictures]


def _make(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: {out} is a file; accepted: a folder")
    with errors_name(out):
        out.mkdir(parents=True, exist_ok=True)


def usual_folder(*runs: Path) -> Path:
    """Return the default folder for pictures of runs: never one of their own folders."""
    names = [one_line(run.absolute().name) or "run" for run in runs]
    return Path("plots") / shortened("-".join(names), _LONGEST_FOLDER).replace("…", "_")
