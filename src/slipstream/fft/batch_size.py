"""How a pass is cut into batches: small enough for a cache, and as many for every lane."""

from __future__ import annotations


def balanced_batch(size: int, limit: int, lanes: int) -> int:
    """Return the length of batches of at most `limit` of which every lane gets as many."""
    rounds = -(-size // (limit * lanes))
    return -(-size // max(1, rounds * lanes))
