"""What a case's ``[image]`` table stands for: a file or a sample, and the domain made of it.

Messages about it name the keys of the case, and have numbers per axis in its order: x, y, z.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slipstream.case.lattice_case import Image
from slipstream.errors import InputError
from slipstream.io.voxel_images import open_image
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.sample_registry import make_sample
from slipstream.report.console import quantity

_FILE_OPTIONS = ("pore", "dtype", "byte_order", "offset", "dataset")
# Three numbers, in the order of arrays, as they stand in messages.
_TRIPLE = re.compile(r"\((\d+), (\d+), (\d+)\)")


def open_domain(image: Image, axis: str, comm: Any) -> Domain:
    """Return the domain that an ``[image]`` table describes. Collective.

    Parameters
    ----------
    image : Image
        The table.
    axis : {"x", "y", "z"}
        Along which the fluid shall flow; layers of pore are normal to it.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Raises
    ------
    InputError
        If there is no such image, or it does not suit the table; on all ranks alike.
    """
    with in_case_order():
        source = _open_source(image, comm)
        crop = image.crop and image.crop[::-1]
        _check_crop(image.crop, source.shape)
        return Domain(source, crop, image.mirror, image.buffer, axis)


def _open_source(image: Image, comm: Any) -> Any:
    """Return the file, or the sample."""
    shape = image.shape and tuple(reversed(image.shape))
    if image.sample is not None:
        return make_sample(image.sample, shape, **image.sample_parameters)
    given = {name: getattr(image, name) for name in _FILE_OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    return open_image(Path(image.path), shape=shape, comm=comm, **options)


def _check_crop(crop: Any, shape: Sequence[int]) -> None:
    if crop is None:
        return
    for axis, (low, high), size in zip("xyz", crop, reversed(shape), strict=True):
        if high > size:
            raise InputError(
                f"image.crop: [{low}, {high}] along {axis} is beyond the image's {size} voxels"
                f" there; accepted: up to {size}"
            )


@contextlib.contextmanager
def in_case_order() -> Iterator[None]:
    """Turn messages about images and samples into such as suit their tables in cases."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"\b(sample|domain)\.", "image.", str(error))
        text = _TRIPLE.sub(r"[\3, \2, \1]", text)
        text = text.replace("along z, y and x", "along x, y and z")
        raise InputError(text) from error


def image_text(image: Image, domain: Domain) -> str:
    """Return what the image is, for people."""
    name = image.path if image.sample is None else f"{image.sample} (synthetic)"
    edge = "" if image.voxel_size == 1 else f" of {quantity(image.voxel_size, 'm')}"
    text = f"{name}: {' x '.join(map(str, reversed(domain.shape)))} voxels (x, y, z){edge}"
    if image.mirror:
        text += f", mirrored along {' and '.join(image.mirror)}"
    if image.buffer:
        text += f", {image.buffer} layers of pore at both ends"
    if image.walls:
        text += f", walls along {' and '.join(image.walls)}"
    return text
