"""The arguments that `permeability` and `PorousFlow` share, as the case that they stand for.

The case's model validates them; what it refuses is worded in terms of the arguments. Numbers per
axis are along z, y and x in arguments, and along x, y and z in cases.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from pydantic import ValidationError

from slipstream.argument_checks import plain_value
from slipstream.case import LatticeCase, validate_case
from slipstream.case.declared_keys import argument_keys, key_at
from slipstream.case.keyword_options import TYPE_OF_FOLDERS, KeywordOptions
from slipstream.case.lattice_case import ARRAY, KEYS_OF_SAMPLES
from slipstream.case.validation_messages import explain
from slipstream.error_terms import ARGUMENTS, in_terms_of
from slipstream.errors import InputError
from slipstream.io.voxel_images import check_options
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.printable_text import shown

# The arguments that are keys of cases; samples are chosen by a table `image`.
KEYS = argument_keys(
    LatticeCase,
    [
        *("flow", "image", "convergence", "numerics.precision", "initial.restart"),
        *("run.partition", "run.schedule", "run.transport"),
    ],
    without=[f"image.{key}" for key in ("path", "sample", *KEYS_OF_SAMPLES) if key != "shape"],
)
_ALL_KEYS = {**KEYS, "max_steps": "time.end"}
# Arguments take more than the keys do, and numbers per axis in the order of arrays.
OPTIONS = KeywordOptions(
    LatticeCase,
    KEYS,
    {
        **TYPE_OF_FOLDERS,
        "dtype": ("Any", "dtype"),
        "mirror": ("bool | str | Sequence[str]", "bool, str or sequence of str"),
    },
    {
        "shape": "number of voxels along z, y and x, of raw values",
        "crop": "part to use: first voxel, and last voxel plus one, along z, y and x",
        "mirror": "axes along which the mirror image follows, so that opposite faces match, such as"
        ' "xy"; True for the axis of the flow',
    },
)
# What files may need, and arrays have; and the values that say no more than to leave it out.
_OF_FILES = ("shape", "dtype", "byte_order", "offset", "dataset")
_PLAIN_FILE = {"byte_order": "little", "offset": 0}
_PER_AXIS = {
    "crop": "first and last + 1 along three axes, z, y and x",
    "shape": "three whole numbers for z, y and x, each at least 1",
}


class ImageFlowOptions(TypedDict, total=False):
    """The arguments of `permeability` and `PorousFlow` that are keys of cases."""

    relaxation_time: float | None
    magic: float
    force: float | None
    pressure_drop: float | None
    inertia: bool
    viscosity: float | None
    pressure_gradient: float | None
    density: float | None
    shape: Sequence[int] | None
    pore: int | Sequence[int] | None
    pore_below: float | None
    pore_above: float | None
    dataset: str | None
    dtype: Any
    byte_order: str | None
    offset: int | None
    crop: Sequence[Sequence[int]] | None
    mirror: bool | str | Sequence[str]
    buffer: int
    walls: str | Sequence[str]
    isolated: str
    tolerance: float
    interval: int
    vectors: int
    coarse_start: bool
    precision: str
    partition: str
    schedule: str
    transport: str


class PorousFlowOptions(ImageFlowOptions, total=False):
    """The arguments of `PorousFlow` that are keys of cases."""

    axis: str
    voxel_size: float
    restart: str | Path | None


def case_of_arguments(
    image: Any, arguments: Mapping[str, Any], source: str, tables: Mapping[str, Any] | None = None
) -> tuple[LatticeCase, Any]:
    """Return the case that arguments stand for, and the image if that is not a file.

    Parameters
    ----------
    image : path, array, or anything with a shape and ``read(box)``
        The image; None if `tables` have it.
    arguments : mapping
        Arguments by name: some of `KEYS`, ``max_steps`` and ``storage``.
    source : str
        Who asks, for messages about `tables`.
    tables : mapping, optional
        Further tables of the case, whose keys take precedence.
    """
    defaults = {name: key_at(LatticeCase, key).default for name, key in KEYS.items()}
    arguments = {**defaults, **arguments}
    values = {name: _plain(arguments[name]) for name in _ALL_KEYS}
    for name in ("shape", "crop"):
        if isinstance(values[name], list | tuple):
            values[name] = values[name][::-1]
    along = ("x", "y", "z") if values["axis"] == "all" else (values["axis"],)
    values["mirror"] = mirrored_axes(arguments["mirror"], along) or None
    if isinstance(values["pore"], bool):
        values["pore"] = int(values["pore"])
    values["dtype"] = _dtype_name(arguments["dtype"])
    values["walls"] = values["walls"] or None
    for name, value in _PLAIN_FILE.items():
        values[name] = None if values[name] == value else values[name]
    found: defaultdict[str, Any] = defaultdict(dict)
    for name, key in _ALL_KEYS.items():
        is_default = values[name] is None and (
            key.startswith(("image.", "run.")) or key_at(LatticeCase, key).default is None
        )
        if not is_default:
            table, _, entry = key.partition(".")
            found[table][entry] = values[name]
    found["numerics"] |= _storage_keys(arguments["storage"])
    given = None
    if isinstance(image, str | os.PathLike):
        found["image"]["path"] = os.fspath(image)
    elif image is not None:
        given, found["image"]["path"] = image, ARRAY
        with in_terms_of(ARGUMENTS):
            check_options("an array", [name for name in _OF_FILES if name in found["image"]], ())
    for table, more in (tables or {}).items():
        found[table] = {**found[table], **more} if isinstance(more, Mapping) else more
    try:
        return validate_case({"solver": "lattice", **found}, source=source), given  # type: ignore[return-value]
    except InputError as failure:
        if isinstance(failure.__cause__, ValidationError):
            _refuse(failure.__cause__, arguments, tables or {})
        raise


def argument_values(case: LatticeCase) -> dict[str, Any]:
    """Return the values of a case by the arguments that stand for them."""
    return {
        name: functools.reduce(getattr, key.split("."), case) for name, key in _ALL_KEYS.items()
    }


def _plain(value: Any) -> Any:
    """Return numbers of NumPy and other libraries as Python's, and sequences as tuples."""
    if isinstance(value, range | set | frozenset):
        value = tuple(value)
    value = plain_value(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value


def mirrored_axes(mirror: Any, along: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the axes to mirror, where flow is along some."""
    if isinstance(mirror, bool | np.bool_):
        return tuple(along) if mirror else ()
    names = tuple(mirror) if isinstance(mirror, Iterable) else (mirror,)
    if not all(isinstance(name, str) and name in ("x", "y", "z") for name in names):
        raise InputError(
            f"mirror is {shown(mirror)}; accepted: any of x, y and z, True for the axis of the"
            " flow, or False"
        )
    return names


def _dtype_name(dtype: Any) -> str | None:
    """Return the name of a type of values; the order of its bytes is another argument."""
    try:
        kind = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise InputError(
            f"dtype is {shown(dtype)}; accepted: a type of numbers, such as 'uint8'"
        ) from None
    if kind is not None and not kind.isnative:
        raise InputError(f"dtype is {shown(dtype)}; byte_order gives the order of bytes")
    return None if kind is None else kind.name


def _storage_keys(storage: Any) -> dict[str, str]:
    """Return the keys of ``numerics`` that a storage stands for."""
    given = vars(storage) if isinstance(storage, Storage) else storage
    given = {} if given is None else given
    names = (*TUNED, "precision")
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InputError(
            f"storage is {storage!r}; accepted: a Storage, or a dict of {', '.join(names)}"
        )
    # What is unknown is refused by name.
    Storage(**{name: value for name, value in given.items() if value != "auto"})
    return dict(given)


def _refuse(
    error: ValidationError, arguments: Mapping[str, Any], tables: Mapping[str, Any]
) -> None:
    """Raise an error in terms of the arguments, unless a key of further tables is at fault."""
    with in_terms_of(ARGUMENTS):
        key, message = explain(LatticeCase, error)
    table, _, entry = key.partition("[")[0].partition(".")
    if entry not in tables.get(table, {}):
        if entry in _PER_AXIS:  # whose numbers the case has in another order
            message = f"{entry}: {shown(arguments[entry])}; accepted: {_PER_AXIS[entry]}"
        raise InputError(message) from error
