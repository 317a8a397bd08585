"""A cache on disk of lowered models: the algebra of some takes seconds.

The key of a model is everything that its lowered form depends on: the model itself, the code of
this package, and the versions of SymPy and Python. Loading a file can run code, so files are in a
folder that only this user can write to (`private_cache.py`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import pickle
import sys
import time
from importlib import resources

import sympy

from slipstream.equations.flat_axes import FlatAxes
from slipstream.equations.lowering import Lowered, lower
from slipstream.equations.model_definition import Model
from slipstream.errors import RunError
from slipstream.private_cache import find, find_or_make

# The shortest time in seconds that is worth a file.
_WORTH_KEEPING = 0.1


def lower_once(model: Model, flat: FlatAxes) -> Lowered:
    """Return a lowered model of this package, from the disk if it has been lowered before.

    Users' models are not cached: they may depend on code that their text does not show.
    """
    name = f"{hashlib.sha256(_content(model, flat) + _code()).hexdigest()}.model"
    with contextlib.suppress(RunError, OSError):  # without a folder, nothing is kept
        kept = find(name)
        if kept is not None:
            result: Lowered = pickle.loads(kept)
            return result
    start = time.process_time()
    result = lower(model, flat)
    if time.process_time() - start > _WORTH_KEEPING:
        with contextlib.suppress(RunError, OSError):
            find_or_make(name, lambda folder: pickle.dumps(result, protocol=4))
    return result


def _content(model: Model, flat: FlatAxes) -> bytes:
    """Return bytes that are equal for equal models, whatever their expressions share."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written, protocol=4)
    pickler.fast = True  # each part in full, not as a reference to an earlier part
    pickler.dump((model, flat))
    return written.getvalue()


@functools.cache
def _code() -> bytes:
    """Return a checksum of the code that lowers models."""
    found = hashlib.sha256(f"{sympy.__version__} {sys.version}".encode())
    for entry in sorted(resources.files(__package__).iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".py"):
            found.update(entry.read_bytes())
    return found.digest()
