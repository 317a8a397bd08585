"""``[[output.fields]]``, ``scalars``, ``averages``, ``densities``, ``movies``: chosen output.

Checks here need no simulation; those of names, expressions and places do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from slipstream.case.table import (
    Key,
    Positive,
    Table,
    Unchecked,
    as_tuple,
    as_tuples,
    is_number,
    is_whole,
    one_of,
    three,
)
from slipstream.engine.accepted import (
    LARGEST_MOVIE,
    MOVIE_FORMATS,
    OUTPUT_ENDINGS,
    OUTPUT_FORMATS,
    OUTPUT_PRECISIONS,
    REDUCTIONS,
    SMALLEST_MOVIE,
)
from slipstream.engine.errors import InputError

AXES = ("x", "y", "z")
# Bins of a variable.
MOST_BINS = 1000
# Names that a file or an array may have.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, tuple) and len(value) == count and all(map(is_number, value))


def plain_name(expression: str) -> str:
    """Return an expression as a name of arrays and files."""
    return re.sub(r"\W+", "_", expression, flags=re.ASCII).strip("_") or "expression"


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 100:
        raise ValueError(f"{what} {name!r}; accepted: letters, digits, '_', '.', '+' and '-'")


def _plain(name: str) -> str:
    _check_name(name, "is")
    return name


Axis = Annotated[str, one_of(AXES)]
PlainName = Annotated[str, AfterValidator(_plain)]
Times = Annotated[tuple[float, ...], BeforeValidator(as_tuple)]


class Plane(Table):
    """``plane = { axis, position }``: the plane of points that is nearest to a position."""

    axis: Axis = Key(..., "axis across which the plane lies", example="z")
    position: float = Key(..., "coordinate along that axis", example=1.0)


class Line(Table):
    """``line = { axis, position }``: the line of points that is nearest to a position."""

    axis: Axis = Key(..., "axis along which the line lies", example="x")
    position: Unchecked[tuple[float, float]] = Key(
        ..., "coordinates along the other two axes, in the order x, y, z", example=[1.0, 1.0]
    )

    @field_validator("position")
    @classmethod
    def _two_numbers(cls, position: Any) -> Any:
        if not _numbers(position, 2):
            raise ValueError("accepted: a list of two numbers, along the other two axes")
        return position


class Ranges(Table):
    """``box = { x, y, z }``: points within ranges of coordinates; an axis left out is whole."""

    x: Unchecked[tuple[float, float] | None] = Key(
        None, "first and last coordinate along x", example=[0.0, 1.0]
    )
    y: Unchecked[tuple[float, float] | None] = Key(
        None, "first and last coordinate along y", example=[0.0, 1.0]
    )
    z: Unchecked[tuple[float, float] | None] = Key(
        None, "first and last coordinate along z", example=[0.0, 1.0]
    )

    @field_validator("x", "y", "z")
    @classmethod
    def _two_in_order(cls, pair: Any) -> Any:
        if pair is not None and not (_numbers(pair, 2) and pair[0] <= pair[1]):
            raise ValueError("accepted: a list of two numbers, the first no larger than the second")
        return pair


class _Recurring(Table):
    """Output at an interval, or at listed times."""

    interval: Positive | None = Key(
        None, "time between outputs; the first is at the start of the run", example=0.1
    )
    times: Times | None = Key(None, "times of output, instead of an interval", example=[0.5, 1.25])

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.interval is not None and self.times is not None:
            raise ValueError("interval and times exclude each other; accepted: one of them")
        return self


def _name_expressions(expressions: Any) -> dict[str, str]:
    """Return expressions by the names of their arrays."""
    if isinstance(expressions, Mapping):
        return dict(expressions)
    return {
        plain_name(text): text
        for text in ([expressions] if isinstance(expressions, str) else expressions)
    }


class FieldsOutput(_Recurring):
    """``[[output.fields]]``: fields or expressions, of all points or some, into files.

    Without `interval` and `times` the last state is written.
    """

    of: Unchecked[str | tuple[str, ...] | dict[str, str]] = Key(
        ...,
        "names of fields or expressions; a table gives them by the names of their arrays",
        example=["vorticity"],
    )
    plane: Plane | None = Key(
        None,
        "only the plane of points across an axis that is nearest to a position",
        example={"axis": "z", "position": 1.0},
    )
    line: Line | None = Key(
        None,
        "only the line of points along an axis that is nearest to a position",
        example={"axis": "x", "position": [1.0, 1.0]},
    )
    points: Annotated[
        Unchecked[tuple[tuple[float, float, float], ...] | None], BeforeValidator(as_tuples)
    ] = Key(
        None,
        "only these places, each [x, y, z], by cubic interpolation (not vtk)",
        example=[[0.5, 1.0, 1.5]],
    )
    box: Ranges | None = Key(
        None,
        "only points in these ranges of coordinates; an axis left out is whole",
        example={"x": [0, 1], "z": [2, 3]},
    )
    stride: Unchecked[int | tuple[int, int, int]] = Key(
        1, "every n-th point along all axes or [x, y, z]; not with points"
    )
    precision: Annotated[str, one_of(OUTPUT_PRECISIONS)] | None = Key(
        None,
        "of numbers in files, float16 not in vtk (default: as in the simulation)",
        example="float32",
    )
    format: Annotated[str, one_of(OUTPUT_FORMATS)] | None = Key(
        None,
        "what kind of file (default: what the name of file ends with, or zarr)",
        example="zarr",
    )
    file: PlainName | None = Key(
        None,
        "name within the folder outputs of the run (default: made from the names)",
        example="slices.zarr",
    )

    @field_validator("of")
    @classmethod
    def _texts(cls, of: Any) -> Any:
        expressions = list(of.values()) if isinstance(of, Mapping) else of
        expressions = (expressions,) if isinstance(expressions, str) else expressions
        is_list = isinstance(expressions, list | tuple) and len(expressions) > 0
        if not is_list or not all(isinstance(text, str) and text.strip() for text in expressions):
            raise ValueError(
                "accepted: a name or expression as text, a list of these, or a table of them by the"
                " names of their arrays"
            )
        named = _name_expressions(of)
        if len(named) < len(expressions):
            raise ValueError("has two that are called the same; accepted: a table with other names")
        for name in named:
            _check_name(name, "name")
        return of

    @field_validator("points")
    @classmethod
    def _places(cls, points: Any) -> Any:
        is_list = points is None or (isinstance(points, tuple) and len(points) > 0)
        if not is_list or not all(_numbers(one, 3) for one in points or ()):
            raise ValueError("accepted: a list of places, each a list of three numbers x, y and z")
        return points

    @field_validator("stride")
    @classmethod
    def _whole(cls, stride: Any) -> Any:
        parts = three(stride)
        whole = all(is_whole(n) and n >= 1 for n in parts)
        if len(parts) != 3 or not whole:
            raise ValueError("accepted: a whole number of at least 1, or three for x, y and z")
        return stride

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = [key for key in ("plane", "line", "points", "box") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other; accepted: one of them")
        if self.points is not None and self.stride_xyz != (1, 1, 1):
            raise ValueError("points and stride exclude each other; accepted: one of them")
        kind, ending = self.kind, self.ending
        endings = OUTPUT_ENDINGS[kind]
        if ending and ending not in endings:
            raise ValueError(
                f"file {self.file!r} does not suit format {kind!r}; accepted: names that end with"
                f" {' or '.join(endings)}, or without ending"
            )
        if kind == "vtk" and self.precision == "float16":
            raise ValueError("precision 'float16' is none of vtk; accepted: float32, float64")
        if kind == "vtk" and self.points is not None:
            raise ValueError("points are not written as vtk; accepted formats: zarr, hdf5")
        return self

    @property
    def ending(self) -> str:
        """The ending of the file's name, if a format has it."""
        known = [one for endings in OUTPUT_ENDINGS.values() for one in endings]
        return next((one for one in known if (self.file or "").endswith(one)), "")

    @property
    def kind(self) -> str:
        """The format."""
        found = (kind for kind, endings in OUTPUT_ENDINGS.items() if self.ending in endings)
        return self.format or next(found, "zarr")

    @property
    def stem(self) -> str:
        """The file's name without its ending."""
        if self.file is not None:
            return self.file.removesuffix(self.ending)
        regions = ("plane", "line", "points", "box")
        region = [key for key in regions if getattr(self, key) is not None]
        return "-".join([*list(self.named)[:3], *region])

    @property
    def named(self) -> dict[str, str]:
        """Names and expressions, by the names of their arrays."""
        return _name_expressions(self.of)

    @property
    def stride_xyz(self) -> tuple[int, int, int]:
        """Strides along x, y and z."""
        x, y, z = three(self.stride)
        return x, y, z


class AveragesOutput(FieldsOutput):
    """``[[output.averages]]``: averages over time of fields or expressions, during the run.

    Mean, root mean square of the fluctuation and standard error of the mean are written at the end.
    States keep the sums, so that a run that continues adds to them.
    """

    interval: Positive = Key(..., "time between two samples", example=0.1)
    since: float | None = Key(
        None,
        "time at which the average begins: after the spin-up (default: with the run)",
        example=5.0,
    )
    batch: Positive | None = Key(
        None,
        "time of each of the batches from whose scatter the error comes: longer than some ten"
        " correlation times (default: a 16th of the time until the end)",
        example=1.0,
    )
    profile: Axis | None = Key(
        None,
        "only along this axis: each sample is the mean over the other two; not with plane, line,"
        " points, box and stride",
        example="z",
    )

    phases: Annotated[int, Field(ge=1, le=1000)] = Key(
        1,
        "phase averages of a flow with the period phases * interval: samples of the same phase"
        " are averaged together",
    )

    @model_validator(mode="after")
    def _suits_averages(self) -> Self:
        if self.times is not None:
            raise ValueError("averages have an interval, no times; use interval")
        if self.batch is not None and self.batch < 2 * self.period * (1 - 1e-9):
            what = "interval" if self.phases == 1 else "period, phases * interval,"
            raise ValueError(
                f"batch = {self.batch:g} is too short for interval = {self.interval:g}; accepted:"
                f" twice the {what} or more"
            )
        given = [key for key in ("plane", "line", "points", "box") if getattr(self, key)]
        if self.profile is not None and (given or self.stride_xyz != (1, 1, 1)):
            other = given[0] if given else "stride"
            raise ValueError(f"profile and {other} exclude each other; accepted: one of them")
        if self.precision == "float16":
            raise ValueError("precision 'float16' is none of averages; accepted: float32, float64")
        return self

    @property
    def stem(self) -> str:
        """The file's name without its ending."""
        if self.file is not None:
            return super().stem
        return f"{super().stem}{'-profile' if self.profile else ''}-average"

    @property
    def period(self) -> float:
        """Time between two samples of one average."""
        return self.phases * self.interval

    @property
    def identity(self) -> str:
        """The settings of an average, which must be the same for earlier sums to continue."""
        how = self.model_dump(mode="json", exclude={"precision", "format", "file", "interval"})
        if self.phases == 1:
            del how["phases"]
        return json.dumps(how, sort_keys=True)


class DensitiesOutput(_Recurring):
    """``[[output.densities]]``: the density of one expression or two, and conditional means.

    Without `interval` and `times` the density of the last state is written.
    """

    of: Unchecked[str | tuple[str, ...]] = Key(
        ...,
        "a real scalar, or two for a joint density: names of fields, or expressions",
        example=["q_criterion", "r_invariant"],
    )
    range: Annotated[Unchecked[tuple[tuple[float, float], ...]], BeforeValidator(as_tuples)] = Key(
        ...,
        "[low, high] of the bins, of two variables a list of two; what lies beyond is not counted",
        example=[[-10.0, 10.0], [-20.0, 20.0]],
    )
    bins: Unchecked[int | tuple[int, int]] = Key(
        100, "how many bins there are, or [first, second] of two variables"
    )
    means: Unchecked[str | tuple[str, ...]] = Key(
        (),
        "scalars whose means are written too: of the points in each bin",
        example=["abs2(strain)"],
    )
    file: PlainName | None = Key(
        None,
        "name of the zarr store within the folder outputs of the run (default: made from the"
        " names)",
        example="invariants.zarr",
    )

    @field_validator("of", "means")
    @classmethod
    def _texts(cls, given: Any) -> Any:
        several = (given,) if isinstance(given, str) else given
        is_list = isinstance(several, list | tuple)
        if not is_list or not all(isinstance(one, str) and one.strip() for one in several):
            raise ValueError("accepted: a name or expression as text, or a list of these")
        return tuple(several)

    @field_validator("range")
    @classmethod
    def _in_order(cls, ranges: Any) -> Any:
        pairs = (ranges,) if _numbers(ranges, 2) else ranges
        if not isinstance(pairs, tuple) or not all(
            _numbers(one, 2) and one[0] < one[1] for one in pairs
        ):
            raise ValueError(
                "accepted: a list of two numbers, the first less than the second, or two such lists"
            )
        return pairs

    @field_validator("bins")
    @classmethod
    def _whole(cls, bins: Any) -> Any:
        counts = tuple(bins) if isinstance(bins, list | tuple) else (bins,)
        is_whole = all(isinstance(n, int) and not isinstance(n, bool) for n in counts)
        if (
            len(counts) not in (1, 2)
            or not is_whole
            or not all(1 <= n <= MOST_BINS for n in counts)
        ):
            raise ValueError(f"accepted: a whole number from 1 to {MOST_BINS}, or two")
        return counts

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.of) not in (1, 2):
            raise ValueError(f"of has {len(self.of)} expressions; accepted: one or two")
        if len(self.range) != len(self.of):
            raise ValueError(
                f"range has {len(self.range)} pairs and of {len(self.of)} expressions; accepted:"
                " one pair for each"
            )
        if len(self.bins_each) != len(self.of):
            raise ValueError(f"bins are of {len(self.bins_each)} variables; accepted: one number")
        if self.file is not None and "." in self.file and not self.file.endswith(".zarr"):
            raise ValueError(f"file {self.file!r}; accepted: names that end with .zarr")
        return self

    @property
    def bins_each(self) -> tuple[int, ...]:
        """Number of bins of each variable."""
        given: Any = self.bins if isinstance(self.bins, tuple) else (self.bins,)
        return tuple(given) * (len(self.of) if len(given) == 1 else 1)

    @property
    def stem(self) -> str:
        """The file's name without its ending."""
        if self.file is not None:
            return self.file.removesuffix(".zarr")
        return "-".join([*map(plain_name, self.of), "density"])

    kind: ClassVar[str] = "zarr"


class ScalarsOutput(_Recurring):
    """``[[output.scalars]]``: an expression, reduced to a number.

    Without `interval` and `times` it is a column of ``diagnostics.csv``; else it has a file of its
    own, ``outputs/NAME.csv``.
    """

    of: Annotated[str, Field(min_length=1)] = Key(
        ...,
        "name of a field, or an expression; of vectors each component is reduced",
        example="dot(velocity, vorticity)",
    )
    reduce: Annotated[str, one_of(REDUCTIONS)] = Key("mean", "what becomes of all points")
    name: PlainName | None = Key(
        None, "name of the column (default: made from both)", example="helicity_rms"
    )

    @property
    def column(self) -> str:
        """Name of the column, but for the component."""
        return self.name or f"{plain_name(self.of)}_{self.reduce}"


class MovieOutput(Table):
    """``[[output.movies]]``: a plane of a scalar field or expression, frame by frame."""

    of: Annotated[str, Field(min_length=1)] = Key(
        ..., "name of a field, or an expression", example="vorticity_magnitude"
    )
    plane: Plane = Key(
        ...,
        "the plane of points across an axis that is nearest to a position",
        example={"axis": "z", "position": 1.0},
    )
    interval: Positive = Key(..., "time between two frames", example=0.1)
    format: Annotated[str, one_of(MOVIE_FORMATS)] | None = Key(
        None, "what kind of file (default: what the name of file ends with, or gif)", example="gif"
    )
    range: Unchecked[tuple[float, float] | None] = Key(
        None,
        "values of the first and the last colour (default: those of the first frames, symmetric"
        " about zero where values have both signs)",
        example=[0.0, 5.0],
    )
    frames_per_second: Annotated[float, Field(gt=0, le=50)] = Key(12.0, "how fast it is played")
    size: Annotated[int, Field(ge=SMALLEST_MOVIE, le=LARGEST_MOVIE)] | None = Key(
        None,
        "pixels of the longer side (default: as many as the plane has points, from 640 to 1080)",
        example=640,
    )
    file: PlainName | None = Key(
        None,
        "name within the folder outputs of the run (default: made from the expression)",
        example="vortices.gif",
    )

    @field_validator("range")
    @classmethod
    def _in_order(cls, pair: Any) -> Any:
        if pair is not None and not (_numbers(pair, 2) and pair[0] < pair[1]):
            raise ValueError("accepted: a list of two numbers, the first less than the second")
        return pair

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.file and self.format and self.ending and self.ending != f".{self.format}":
            raise ValueError(
                f"file {self.file!r} does not suit format {self.format!r}; accepted: names that end"
                f" with .{self.format}, or without ending"
            )
        return self

    @property
    def ending(self) -> str:
        """The ending of the file's name, if a format has it."""
        endings = (f".{kind}" for kind in MOVIE_FORMATS)
        return next((one for one in endings if (self.file or "").endswith(one)), "")

    @property
    def kind(self) -> str:
        """The format."""
        return self.format or self.ending.removeprefix(".") or "gif"

    @property
    def file_name(self) -> str:
        """Name of the file, with its ending."""
        stem = plain_name(self.of) if self.file is None else self.file.removesuffix(self.ending)
        return f"{stem}.{self.kind}"


def check_names(
    fields: Sequence[FieldsOutput],
    scalars: Sequence[ScalarsOutput],
    movies: Sequence[MovieOutput],
    averages: Sequence[AveragesOutput] = (),
    densities: Sequence[DensitiesOutput] = (),
) -> None:
    """Refuse two outputs that would be written into one file, or one column."""
    keys: dict[str, str] = {}
    named = [
        *((f"fields[{n}].file", settings.stem) for n, settings in enumerate(fields, 1)),
        *((f"averages[{n}].file", settings.stem) for n, settings in enumerate(averages, 1)),
        *((f"densities[{n}].file", settings.stem) for n, settings in enumerate(densities, 1)),
        *((f"movies[{n}].file", settings.file_name) for n, settings in enumerate(movies, 1)),
        *((f"scalars[{n}].name", settings.column) for n, settings in enumerate(scalars, 1)),
    ]
    for key, name in named:
        if name in keys:
            raise InputError(
                f"output.{key}: {name!r} is also output.{keys[name]}; use another name"
            )
        keys[name] = key
