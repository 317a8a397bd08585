"""The table ``[image]`` of the ``lattice`` family: a file or a sample, and what is made of it.

Numbers per axis are given in the order x, y, z, and all lengths but the voxel's own in voxels.
"""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from slipstream.case.common_tables import Positive, Table, as_tuple

Axis = Literal["x", "y", "z"]

# Keys of each sample, and their defaults; None for those that have none and need not be given.
_REQUIRED = object()
SAMPLE_KEYS: dict[str, dict[str, Any]] = {
    "channel": {"axis": _REQUIRED},
    "duct": {"axis": _REQUIRED},
    "spheres": {"lattice": "simple", "solid_fraction": None, "radius": None},
    "random-pack": {"radius": _REQUIRED, "solid_fraction": _REQUIRED, "seed": 0},
    "sandstone": {"radius": _REQUIRED, "porosity": 0.13, "seed": 0},
}
_FILE_KEYS = ("pore", "shape", "dtype", "byte_order", "offset", "dataset")
# Formats by suffix: those that tell all of themselves but for `pore` and the keys named here.
SELF_DESCRIBING: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys((".tif", ".tiff"), ("TIFF", ())),
    ".npy": ("NumPy", ()),
    **dict.fromkeys((".h5", ".hdf5", ".nxs"), ("HDF5", ("dataset",))),
    ".zarr": ("Zarr", ("dataset",)),
}
# Keys that say nothing of anything else: a sample's shape is not that of a file.
KEYS_OF_SAMPLES = ("shape", *dict.fromkeys(key for keys in SAMPLE_KEYS.values() for key in keys))
KEYS_OF_FILES = tuple(key for key in _FILE_KEYS if key != "shape")
_OF_ALL = ("voxel_size", "crop", "mirror", "buffer", "walls", "isolated")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_tuples(value: Any) -> Any:
    """Let lists of lists pass as the tuples that frozen settings need."""
    return tuple(as_tuple(one) for one in value) if isinstance(value, list | tuple) else value


def _format_of(path: Any) -> tuple[str, tuple[str, ...]] | None:
    """Return name and own keys of a file's format; None if it is raw, or unknown."""
    return SELF_DESCRIBING.get(PurePath(path).suffix.lower()) if isinstance(path, str) else None


def _keys_of_file(path: Any) -> dict[str, Any]:
    """Return the keys that say something of a file."""
    found = _format_of(path)
    return dict.fromkeys(_FILE_KEYS if found is None else ("pore", *found[1]))


def _foreign(data: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Return the keys given that are of some source, but not of this one."""
    of_sources = (*_FILE_KEYS, *KEYS_OF_SAMPLES)
    return [key for key in data if key in of_sources and key not in own]


def _listed(names: list[str]) -> str:
    """Return names for people: 'a', 'b' and 'c'."""
    quoted = [repr(name) for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if names[1:] else quoted)


def _remove(foreign: list[str], whose: str, own: dict[str, Any], path: Any) -> str:
    """Return what to do with keys that say nothing of a source: all of them at once."""
    text = f"{_listed(foreign)} {'do' if foreign[1:] else 'does'} not belong to {whose}: remove"
    text += " them" if foreign[1:] else " it"
    found = _format_of(path)
    if found is not None and "shape" in foreign:
        text += f", a {found[0]} file tells its own shape"
    return f"{text}; accepted with it: {', '.join(own)}"


class Image(Table):
    """``[image]``: the pores. Keys that do not belong to a file, or to the sample, are refused.

    Attributes
    ----------
    path : str or None
        A voxel image: raw values, TIFF, NumPy, HDF5 or Zarr; exactly one of `path` and `sample` is
        given. Relative to the working directory.
    pore : int, tuple of int or None
        Which values are pore; all but 0 by default.
    dtype, byte_order, offset : str, str and int, or None
        Of the values of a raw file, and how many bytes precede them.
    dataset : str or None
        Which array of an HDF5 file or a Zarr group.
    sample : str or None
        A synthetic sample.
    shape : tuple of 3 int or None
        Number of voxels along x, y and z, of raw files and samples.
    axis, lattice, radius, solid_fraction, porosity, seed
        Of samples; see `slipstream.lattice.SAMPLES`.
    voxel_size : float
        Edge of a voxel in metres; with 1, lengths stay in voxels.
    crop : tuple of 3 (int, int), or None
        First voxel, and the one after the last, along x, y and z.
    mirror : tuple of str
        Axes along which the mirror image of the sample follows it.
    buffer : int
        Layers of pore at both ends of the flow's axis.
    walls : tuple of str
        Axes whose faces are walls; the others are periodic.
    isolated : {"remove", "keep"}
        What becomes of pores that no flow passes.
    """

    path: Annotated[str, Field(min_length=1)] | None = None
    pore: Annotated[Any, BeforeValidator(as_tuple)] = None
    dtype: str | None = None
    byte_order: Literal["little", "big"] | None = None
    offset: Annotated[int, Field(ge=0)] | None = None
    dataset: str | None = None
    sample: Literal["channel", "duct", "spheres", "random-pack", "sandstone"] | None = None
    shape: Annotated[Any, BeforeValidator(as_tuple)] = None
    axis: Axis | None = None
    lattice: Literal["simple", "body-centred", "face-centred"] | None = None
    radius: Positive | None = None
    solid_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    porosity: Annotated[float, Field(gt=0, lt=1)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    voxel_size: Positive = 1.0
    crop: Annotated[Any, BeforeValidator(_as_tuples)] = None
    mirror: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple)] = ()
    buffer: Annotated[int, Field(ge=0)] = 0
    walls: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple)] = ()
    isolated: Literal["remove", "keep"] = "remove"

    @model_validator(mode="before")
    @classmethod
    def _only_the_sources_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        path, sample = data.get("path"), data.get("sample")
        if (path is None) == (sample is None):
            which = "neither given" if path is None else "both given"
            if path is not None:
                rest = _foreign(data, _keys_of_file(path))
                which += f"; for the image, remove {_listed(['sample', *rest])}"
            raise ValueError(
                f"exactly one of 'path' (a voxel image) and 'sample' ({', '.join(SAMPLE_KEYS)}) is"
                f" needed, {which}"
            )
        if sample is not None and sample not in SAMPLE_KEYS:
            return data
        own = _keys_of_file(path) if sample is None else {"shape": _REQUIRED}
        own |= SAMPLE_KEYS.get(sample, {})
        whose = f"path = {path!r}" if sample is None else f"sample = {sample!r}"
        foreign = _foreign(data, own)
        if foreign:
            raise ValueError(_remove(foreign, whose, own, path))
        missing = [key for key, value in own.items() if value is _REQUIRED and key not in data]
        if missing:
            raise ValueError(f"{whose} needs {' and '.join(map(repr, missing))}")
        return {**{k: v for k, v in own.items() if v not in (None, _REQUIRED)}, **data}

    @field_validator("pore")
    @classmethod
    def _whole_numbers(cls, pore: Any) -> Any:
        values = pore if isinstance(pore, tuple) else (pore,)
        if pore is not None and not (values and all(map(_is_whole, values))):
            raise ValueError(f"accepted: a whole number, or a list of them, not {pore!r}")
        return pore

    @field_validator("shape")
    @classmethod
    def _three_whole_and_positive(cls, shape: Any) -> Any:
        is_shape = isinstance(shape, tuple) and len(shape) == 3 and all(map(_is_whole, shape))
        if shape is not None and not (is_shape and min(shape) >= 1):
            given = list(shape) if isinstance(shape, tuple) else shape
            raise ValueError(
                f"accepted: three whole numbers for x, y and z, each at least 1, not {given!r}"
            )
        return shape

    @field_validator("crop")
    @classmethod
    def _three_ranges(cls, crop: Any) -> Any:
        fits = isinstance(crop, tuple) and len(crop) == 3
        fits = fits and all(
            isinstance(one, tuple) and len(one) == 2 and all(map(_is_whole, one)) for one in crop
        )
        if crop is not None and not (fits and all(0 <= low < high for low, high in crop)):
            raise ValueError(
                "accepted: [[x0, x1], [y0, y1], [z0, z1]], first voxel and the one after the last,"
                f" not {crop!r}"
            )
        return crop

    @property
    def in_metres(self) -> bool:
        """Whether the size of voxels is known."""
        return self.voxel_size != 1

    @property
    def sample_parameters(self) -> dict[str, Any]:
        """What the sample takes besides its shape."""
        keys = SAMPLE_KEYS[self.sample]
        given = {key: getattr(self, key) for key in keys}
        return {key: value for key, value in given.items() if value is not None}
