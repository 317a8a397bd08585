"""Shards of small arrays: the limits of files and chunks, which else only large ones reach."""

import os

from slipstream.files import stored_arrays as stored_layout

# Of the environment: processes that are started, and import this, have small limits too.
ASKED_FOR = "SMALL_SHARDS"
_LIMITS = {
    "FEW_FILES": 2,
    "_MORE_FILES": 4,
    "MAXIMUM_CHUNK_BYTES": 1 << 10,
    "_SHARD_BYTES": 1 << 13,
    "_LARGEST_SHARD": 1 << 14,
    "_INNER_BYTES": 1 << 9,
    "_SMALL": 1 << 8,
    "_FEW": 1,
    "_LEAST_BYTES": 1 << 10,
}


def set_small_limits(patch=setattr):
    """Give arrays of some kilobytes shards; for good, unless `patch` knows how to undo it."""
    for name, value in _LIMITS.items():
        patch(stored_layout, name, value)


def set_if_asked_for(asked=False):
    """Set small limits here, and in processes that are started, if they were asked for."""
    if asked:
        os.environ[ASKED_FOR] = "1"
    if ASKED_FOR in os.environ:
        set_small_limits()
