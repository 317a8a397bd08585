"""Damaged voxel images, through the reader and through the command line's own entry.

Whatever a file holds, the command ends with status 0, where the damage is none, or with status 2
and one line, and has not allocated what only a header claims. Some run with the tests; many by

    python tests/support/image_fuzzing.py --images 500
"""

import argparse
import contextlib
import functools
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import tifffile
import typer
import zarr

from slipstream import cli
from slipstream.engine.decomposition import whole
from slipstream.engine.errors import InputError
from slipstream.files.voxel_images import open_image

SHAPE = (4, 6, 5)
RAW = {"shape": SHAPE, "dtype": "uint8"}
# Bytes that a run of such an image may take in Python, kernels' sources and libraries included.
MOST_BYTES = 64 << 20
# Seconds of processor time that a refusal may take, where memory is traced too; and of all.
REFUSAL, ENDLESS = 5.0, 400
CASE = """
solver = "lattice"
[image]
path = "{path}"
{keys}
[time]
end = 2
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
[run]
device = "cpu"
[output]
pictures = false
checkpoint = false
"""


def voxels():
    values = np.zeros(SHAPE, np.uint8)
    values[:, 1:4, 1:4] = 1
    return values


def write_tiff(path, values, **options):
    tifffile.imwrite(path, values, photometric="minisblack", **options)


def write_hdf5(path, values, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=values, **options)


def write_zarr(path, values):
    shutil.rmtree(path, ignore_errors=True)
    array = zarr.create_array(store=path, shape=values.shape, dtype=values.dtype, chunks="auto")
    array[...] = values


def write_slices(path, values):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for number, plane in enumerate(values):
        write_tiff(path / f"slice_{number}.tif", plane)


WRITERS = {
    "slices": write_slices,
    "raw": lambda path, values: np.asarray(values).tofile(path),
    "npy": lambda path, values: np.save(path, values, allow_pickle=True),
    "tif": write_tiff,
    "tiff": lambda path, values: write_tiff(path, values, compression="zlib"),
    "h5": write_hdf5,
    "hdf5": lambda path, values: write_hdf5(path, values, chunks=True, compression="gzip"),
    "zarr": write_zarr,
}
ODD_ARRAYS = [
    lambda: np.ones(7, np.uint8),
    lambda: np.ones((2, 3), np.uint8),
    lambda: np.ones((1, 2, 3, 2, 1), np.uint8),
    lambda: np.empty((0, 4, 4), np.uint8),
    lambda: np.uint8(3),
    lambda: voxels().astype(complex),
    lambda: np.full(SHAPE, "rock"),
    lambda: np.full(SHAPE, None),
    lambda: np.where(voxels(), np.nan, 0.0),
    lambda: np.where(voxels(), np.inf, -np.inf),
    lambda: np.arange(voxels().size, dtype=np.int16).reshape(SHAPE),
    lambda: np.zeros(SHAPE, [("a", "u1"), ("b", "f4")]),
    lambda: np.zeros(SHAPE, "M8[s]"),
    lambda: np.zeros(SHAPE, np.float32),
    lambda: np.ones(SHAPE, bool),
]
TEXTS = [b"", b"\n", b"rock\n" * 30, b"\x00" * 500, b"\xff\xfe" * 9, b"\x93NUMPY", b"II*\x00", b"{"]


def huge(path, random_):
    """Write a file of a few bytes whose header promises many voxels."""
    size = random_.choice([3000, 10**5, 2**31, 2**62])
    if path.suffix == ".npy":
        header = {"descr": "|u1", "fortran_order": False, "shape": (size,) * 3}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.write(b"\x01" * 99)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            shape = (min(size, 2**20),) * 3
            file.create_dataset("data", shape, "u1", chunks=(8, 8, 8), fillvalue=1)
    elif path.suffix == ".zarr":
        zarr.create_array(store=path, shape=(size,) * 3, dtype="u1", chunks=(8, 8, 8), fill_value=1)
    else:
        flipped(path, random_, 40)


def flipped(path, random_, count):
    """Change some bytes of a file, or of one in a folder."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    file = random_.choice(files)
    content = bytearray(file.read_bytes())
    for _ in range(min(count, len(content))):
        content[random_.randrange(len(content))] = random_.choice(
            (0, 1, 255, random_.randrange(256))
        )
    file.write_bytes(content)


def special(path, random_):
    """Put something into the place of a file that is none, or that leads elsewhere."""
    kind = random_.choice(("pipe", "link", "loop", "device"))
    if kind == "link" and random_.random() < 0.5:
        path.rename(path.with_name("moved"))
        path.symlink_to(path.with_name("moved"))
        return
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path, "device": "/dev/zero"}.get(kind, "/etc/passwd"))


def described(path, random_):
    """Change one thing that zarr's description of an array says."""
    said = json.loads(path.read_text())
    places = list(places_in(said))
    holder, key = random_.choice(places)
    if random_.random() < 0.15:
        del holder[key]
    elif random_.random() < 0.2:
        other, there = random_.choice(places)
        holder[key] = other[there]
    else:
        holder[key] = random_.choice(SAID)
    with contextlib.suppress(ValueError):  # where it has become a part of itself
        path.write_text(json.dumps(said))


def places_in(said):
    """Yield (holder, key) of all that a description says."""
    for key, value in list(said.items() if isinstance(said, dict) else enumerate(said)):
        yield said, key
        if isinstance(value, dict | list):
            yield from places_in(value)


SAID = [
    None, True, 0, -1, 1, 2, 3, 2**31, 2**63, 2**200, 1.5, "", "uint8", "float64", "string", "NaN",
    "numpy.datetime64", "gzip", "zstd", "blosc", "vlen-utf8", "numcodecs.pickle", "bytes",
    "default", "regular", "array", "group", "v2", "/", "../..", "\x1b[2J", "x" * 500, [], {},
    [0, 0, 0], [1, 1, 1], [2**40] * 3, [4, 6, 5], {"name": "gzip", "configuration": {"level": 99}},
    {"name": "struct", "configuration": {"fields": []}}, [{"name": "bytes"}, {"name": "bytes"}],
    {"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1]}}, 10**400,
]  # fmt: skip


def damage(path, random_):
    """Damage an image in one of many ways; return which."""
    kinds = ("cut", "flip", "odd", "text", "huge", "missing", "folder", "longer", "special")
    kind = random_.choice((*kinds, *("described",) * (3 * (path.suffix == ".zarr"))))
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    if kind == "cut":
        file = random_.choice(files)
        os.truncate(file, random_.randrange(max(1, file.stat().st_size)))
    elif kind == "flip":
        flipped(path, random_, random_.choice((1, 3, 20)))
    elif kind == "odd":
        with contextlib.suppress(Exception):  # not every format can hold every array
            WRITERS[path.suffix[1:]](path, random_.choice(ODD_ARRAYS)())
    elif kind == "text":
        random_.choice(files).write_bytes(random_.choice(TEXTS))
    elif kind == "special":
        special(random_.choice(files), random_)
    elif kind == "described":
        described(path / "zarr.json", random_)
    elif kind == "longer":
        with random_.choice(files).open("ab") as file:
            file.write(random_.randbytes(random_.randrange(1, 99)))
    else:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if kind == "folder":
            path.mkdir()
            (path / "notes.txt").write_text("rock")
        elif kind == "huge":
            if path.suffix not in (".npy", ".h5", ".hdf5", ".zarr"):
                WRITERS[path.suffix[1:]](path, voxels())
            huge(path, random_)
    return kind


def keys_of(suffix, random_):
    """Return the keys of a case for an image, which may be wrong too."""
    if suffix != "raw":
        return {"dataset": "data"} if suffix in ("h5", "hdf5") and random_.random() < 0.3 else {}
    keys = {"shape": list(SHAPE[::-1]), "dtype": "uint8"}
    if random_.random() < 0.3:
        keys["dtype"] = random_.choice(("float64", "bool", "int16", "complex64", "rock", "U3"))
    if random_.random() < 0.3:
        keys["shape"] = random_.choice(([5, 6, 5], [1, 1, 120], [10**7, 10**7, 10**7]))
    if random_.random() < 0.2:
        keys["offset"] = random_.choice((1, 4, 2**40))
    return keys


def command(folder, path, keys):
    """Run a case of an image; return the status, the message, and the bytes that it took."""
    lines = "\n".join(f"{name} = {value!r}" for name, value in keys.items())
    (folder / "case.toml").write_text(CASE.format(path=path, keys=lines))
    printed, status = io.StringIO(), None
    tracemalloc.start()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(
                ["run", str(folder / "case.toml"), "--out", str(folder / "out"), "--overwrite"]
            )
        except SystemExit as end:
            status = end.code
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return status, printed.getvalue(), taken


def read(path, keys):
    """Read an image; return nothing, or the error in one line."""
    given = {name: tuple(reversed(v)) if name == "shape" else v for name, v in keys.items()}
    try:
        image = open_image(path, **given)
        if np.prod(image.shape, dtype=float) < 1e6:
            image.read(whole(image.shape))
            image.check_values()
    except InputError as error:
        return str(error)
    return None


@functools.cache
def warm_up():
    """Run a whole image: the first run measures, in large arrays, and its results are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "whole.npy")
        np.save(path, voxels())
        command(Path(folder), path, {})


def check(seed, folder):
    """Damage an image, and look what becomes of it; return the damage, status and seconds."""
    warm_up()
    signal.alarm(ENDLESS)  # ends the process
    random_ = random.Random(seed)
    suffix = random_.choice(list(WRITERS))
    path = folder / f"{seed}.{suffix}"
    WRITERS[suffix](path, voxels())
    kind, keys = damage(path, random_), keys_of(suffix, random_)
    message = read(path, keys)
    if message is not None and ("\n" in message or not message):
        raise AssertionError(f"image {seed} ({suffix}, {kind}): the reader tells {message!r}")
    began = time.process_time()
    status, text, peak_bytes = command(folder, path, keys)
    seconds = time.process_time() - began
    one_line = text.startswith("slipstream: error: ") and text.count("\n") == 1
    fine = status == 0 if message is None and status != 2 else status == 2 and one_line
    if not fine or peak_bytes > MOST_BYTES:
        raise AssertionError(
            f"image {seed} ({suffix}, {kind}, {keys}): status {status}, {peak_bytes >> 20} MiB, "
            f"{text!r}; the reader tells {message!r}"
        )
    signal.alarm(0)
    return kind, status, seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts, slowest, failed = Counter(), 0.0, 0
    cli.app = typer.main.get_command(cli.app)  # once, not for each image
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.seed, asked.seed + asked.images):
            try:
                kind, status, seconds = check(seed, Path(folder))
            except AssertionError as error:
                failed += 1
                print(error)
                continue
            counts[kind, status] += 1
            slowest = max(slowest, seconds if status else 0.0)
            if status == 2 and seconds > REFUSAL:
                failed += 1
                print(f"image {seed} ({kind}): refused after {seconds:.1f} s")
    print(dict(counts), f"slowest refusal {slowest:.2f} s of processor time, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
