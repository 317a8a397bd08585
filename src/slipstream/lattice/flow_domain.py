"""The simulated domain: a sample, cropped, mirrored, and put between layers of pore.

Flow through a periodic box needs a sample whose ends match. Mirror images achieve that for any
sample; layers of pore at both ends connect pores that do not meet. Each axis is mapped separately:
a box of the domain consists of at most two ranges of the sample per axis, one of them reversed.

`open_domain` makes the domain that a case's ``[image]`` table describes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case.lattice_case import Image
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.decomposition import Box, slabs, whole
from slipstream.engine.device import Device, HostDevice
from slipstream.engine.device_memory import ranks_per_device
from slipstream.engine.error_terms import CASES, KeyedError, KeyName, Terms, in_terms_of
from slipstream.engine.errors import InputError, three_counts
from slipstream.files.voxel_images import open_image
from slipstream.lattice.domain_decomposition import Subdomain, decompose
from slipstream.lattice.pore_step import check_size
from slipstream.lattice.samples import Sample, check_box, make_sample
from slipstream.lattice.storage_tuning import check_room
from slipstream.lattice.velocity_set import AXES

# Ranges of the domain and of the sample that correspond, and whether the latter runs backwards.
_Range = tuple[tuple[int, int], tuple[int, int], bool]
# Per voxel, while the image is redistributed: as read, as redistributed, and with a shell.
_BYTES_TO_READ = 3
# The keys of an image that say how its file is read.
_FILE_OPTIONS = ("pore", "pore_below", "pore_above", "dtype", "byte_order", "offset", "dataset")
# Planes from which the share of pores is estimated.
_SOME_PLANES = 8


class Domain:
    """A sample cropped, mirrored and put between layers of pore, which any box can be read of.

    `source` is anything with a ``shape`` and a ``read(box)``. `crop` has the first voxel, and the
    one after the last, along z, y and x; `mirror` names the axes along which the mirror image
    follows the sample; `buffer` is the number of layers of pore at each end of `buffer_axis`.
    `sample` is the box of the domain that is sample, mirror images included; `crop` is afterwards
    the box of the source that is used. Opposite faces are known to match along the axes that are
    `matching`: those of whole synthetic samples. `added` is the number of voxels in the layers of
    pore, and `sample_fraction` the fraction of the domain's length along `buffer_axis` that is
    sample. It `is_flat` if the source is a picture of two axes.
    """

    def __init__(
        self,
        source: Any,
        crop: Sequence[Sequence[int]] | None = None,
        mirror: Sequence[str] = (),
        buffer: int = 0,
        buffer_axis: str = "z",
    ) -> None:
        shape = three_counts(getattr(source, "shape", None))
        if shape is None or not callable(getattr(source, "read", None)):
            raise KeyedError(
                KeyName("image", "path"),
                f" is of type {type(source).__name__}; accepted: a path, an array, or an object "
                "with a shape of three axes and read(box)",
            )
        self._source = source
        self.is_flat = bool(getattr(source, "is_flat", False))
        self.crop = whole(shape) if crop is None else _used_box(crop, shape)
        self._mirrored = tuple(name in mirror for name in AXES)
        self._axis = AXES.index(buffer_axis)
        start = [buffer if axis == self._axis else 0 for axis in range(3)]
        sizes = [n * (1 + m) for n, m in zip(self.crop.shape, self._mirrored, strict=True)]
        self.sample = Box((0, 0, 0), tuple(sizes)).shifted(start)
        self.shape = tuple(b + a for a, b in zip(start, self.sample.stop, strict=True))
        is_sample = isinstance(source, Sample)
        used = zip(self.crop.shape, shape, strict=True)
        self.matching = tuple(is_sample and part == size for part, size in used)
        # Nothing is cut off, mirrored or added.
        self._is_plain = self.shape == shape == tuple(sizes)
        self.added = math.prod(self.shape) - self.sample.size
        self.sample_fraction = sizes[self._axis] / self.shape[self._axis]

    def check_values(self) -> None:
        """Refuse a source whose values do not say which are pore. Collective if its method is."""
        if hasattr(self._source, "check_values"):
            self._source.check_values()

    def pore_text(self, porosity: float) -> str:
        """Return which values count as pore, and their share of the sample.

        Collective if the source's method is.
        """
        text = self._source.pore_text() if hasattr(self._source, "pore_text") else "value 1"
        return f"{text} ({100 * porosity:.1f} %)"

    def read(self, box: Box) -> np.ndarray:
        """Return the uint8 mask of a box, 1 in pores; collective if the source's method is.

        A box that reaches beyond the domain is a ValueError.
        """
        check_box(box, self.shape)
        values: np.ndarray
        if self._is_plain and box.size:
            values = self._source.read(box)
            return values
        ranges = [self._ranges(box, axis) for axis in range(3)]
        needed = _bounds([[origin for _, origin, _ in along] for along in ranges])
        values = self._source.read(needed)
        if values.shape == box.shape and not any(flipped for *_, flipped in sum(ranges, [])):
            return values
        mask = np.ones(box.shape, np.uint8)
        for part in itertools.product(*ranges):
            to = tuple(slice(*target) for target, _, _ in part)
            mask[to] = values[
                tuple(
                    _read_slice(origin, first, flipped)
                    for (_, origin, flipped), first in zip(part, needed.start, strict=True)
                )
            ]
        return mask

    def _ranges(self, box: Box, axis: int) -> list[_Range]:
        """Return the ranges of a box along an axis that are sample, relative to the box."""
        first, size = self.sample.start[axis], self.crop.shape[axis]
        low, high = self.crop.start[axis], self.crop.stop[axis]
        ranges = []
        for start, flipped in ((first, False), (first + size, True))[: 1 + self._mirrored[axis]]:
            a, b = max(box.start[axis], start) - start, min(box.stop[axis] - start, size)
            if a < b:
                shift = start - box.start[axis]
                origin = (high - b, high - a) if flipped else (low + a, low + b)
                ranges.append(((a + shift, b + shift), origin, flipped))
        return ranges


def _bounds(ranges: Sequence[Sequence[tuple[int, int]]]) -> Box:
    """Return the box around ranges along each axis; an empty one if there are none along some."""
    if not all(ranges):
        return Box((0, 0, 0), (0, 0, 0))
    return Box(
        tuple(min(start for start, _ in along) for along in ranges),
        tuple(max(stop for _, stop in along) for along in ranges),
    )


def _read_slice(origin: tuple[int, int], first: int, flipped: bool) -> slice:
    """Return the slice, of an array that begins at `first`, for a range of the sample."""
    start, stop = origin[0] - first, origin[1] - first
    if not flipped:
        return slice(start, stop)
    return slice(stop - 1, start - 1 if start else None, -1)


def _used_box(crop: Sequence[Sequence[int]], shape: Sequence[int]) -> Box:
    """Return the box of a sample that is used."""
    ranges = [(low, high) for low, high in crop]
    # In the order of users.
    for axis, (low, high), size in zip("xyz", ranges[::-1], shape[::-1], strict=True):
        if high > size:
            raise KeyedError(
                KeyName("image", "crop"),
                f": [{low}, {high}] along {axis} is beyond the image's {size} voxels there;"
                f" accepted: up to {size}",
            )
    return Box(*(tuple(corner) for corner in zip(*ranges, strict=True)))


def open_domain(
    image: Image, axis: str, comm: Comm, in_memory: Any = None, terms: Terms = CASES
) -> Domain:
    """Return the domain that an ``[image]`` table describes, for flow along an axis. Collective.

    An image `in_memory`, or an object with a shape and ``read(box)``, replaces the file.
    """
    shape: Any = image.shape and tuple(reversed(image.shape))
    with in_terms_of(terms):
        source: Any
        if image.sample is not None:
            source = make_sample(image.sample, shape, **image.sample_parameters)
        elif hasattr(in_memory, "read"):
            source = in_memory
        else:
            keys = {name: getattr(image, name) for name in _FILE_OPTIONS}
            options = {name: value for name, value in keys.items() if value is not None}
            where = Path(image.path or "") if in_memory is None else in_memory
            source = open_image(where, shape=shape, comm=comm, **options)
        crop = image.crop and list(image.crop[::-1])
        return Domain(source, crop, image.mirror, image.buffer, axis)


def porosity_of_planes(domain: Domain) -> float:
    """Return the share of pores in some planes of a domain, all isolated ones included."""
    (depth, *plane), some = domain.shape, min(_SOME_PLANES, domain.shape[0])
    pores = 0
    for number in range(some):
        z = (2 * number + 1) * depth // (2 * some)
        pores += int(np.count_nonzero(domain.read(Box((z, 0, 0), (z + 1, *plane)))))
    return pores / (some * math.prod(plane))


def read_pores(
    domain: Domain,
    walls: Iterable[str],
    axes: Sequence[int],
    device: Device,
    comm: Comm,
    partition: str,
    isolated: str,
) -> Subdomain:
    """Read a domain and give every rank its subdomain, if that makes sense and fits. Collective.

    `walls` names the axes whose faces are walls, `axes` are those along which fluid shall flow. An
    InputError says, on all ranks, that memory does not suffice (before anything is read), that
    there is no pore, or that nothing resists the flow.
    """
    host = device if device.kind == "cpu" else HostDevice()
    voxels, sharing = math.prod(domain.shape), 1
    if comm is not None:
        voxels = slabs(domain.shape, 0, comm.size)[comm.rank].size
        sharing = ranks_per_device(comm, host)
    what = "reading this image, before any flow,"
    check_room(comm, host, sharing * _BYTES_TO_READ * voxels, what=what)
    periodic = [name not in walls for name in AXES]
    subdomain = decompose(domain, periodic, axes, partition, comm, isolated)
    found = subdomain.connectivity
    if all(periodic) and found.pores == found.voxels:
        raise InputError(
            "no voxel is solid and no face is a wall, so nothing resists the flow, which has no "
            "permeability; say which values are pore (pore = ...) or which faces are walls "
            "(walls = ...)"
        )
    sites = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))
    on_every_rank(comm, lambda: check_size(subdomain.box.shape[2], sites))
    return subdomain
