"""The output folder: made for one run, and never emptied of what Slipstream did not write."""

import os
import shutil
from pathlib import Path

from slipstream.accepted import STATISTICS
from slipstream.errors import InputError
from slipstream.io.checkpoint import CHECKPOINTS_NAME
from slipstream.io.durable_files import make_folder

OUTPUT_NAMES = (
    "case.toml",
    "diagnostics.csv",
    "diagnostics.zarr",
    "spectra.zarr",
    *(f"{kind}.{ending}" for kind in STATISTICS for ending in ("zarr", "png")),
    "fields.zarr",
    CHECKPOINTS_NAME,
    # What earlier versions wrote.
    "checkpoint.zarr",
    "checkpoint.partial",
    "checkpoint.previous",
    "energy.png",
    "spectrum.png",
    "vorticity.png",
    "tracer.png",
    "error.png",
    "permeability.png",
    "speed.png",
    "flow.vti",
    "summary.png",
    "timeline.png",
    "timeline.json",
)


def check_folder(folder: str | Path, overwrite: bool, restart: str | None = None) -> Path:
    """Refuse a folder that a run may not write into, without changing anything.

    `restart` is what the run goes on from, which must not be replaced: a folder or a checkpoint.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"output folder {path} exists and is a file; choose another with --out")
    if restart is not None and Path(restart).resolve().is_relative_to(path.resolve()):
        raise InputError(
            f"output folder {path} holds the state to go on from (initial.restart); choose another"
            " with --out"
        )
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise InputError(
            f"output folder {path} exists and is not empty; choose another with --out, or add"
            " --overwrite"
        )
    existing = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not os.access(existing, os.W_OK):
        raise InputError(
            f"output folder {path} cannot be written: no permission in {existing}; choose another"
            " with --out"
        )
    return path


def prepare_folder(folder: str | Path) -> Path:
    """Make an output folder, on rank 0; of what is there, remove what Slipstream has written."""
    path = Path(folder)
    try:
        make_folder(path)
        for name in OUTPUT_NAMES:
            if (path / name).is_dir() and not (path / name).is_symlink():
                shutil.rmtree(path / name)
            else:
                (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"output folder {path} cannot be made: {error.strerror}") from error
    return path
