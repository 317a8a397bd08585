"""Who sends to whom in an exchange benchmark, and messages of which sizes."""

from __future__ import annotations

import math

import numpy as np

from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.exchange import Block, ExchangePlan

PATTERNS = ("uni-directional", "bi-directional", "all-to-all")
SMALLEST, LARGEST = 1 << 12, 1 << 28
# Each message is so many times as large as the one before.
FACTOR = 4
ELEMENT = np.dtype("float64")


def message_sizes(smallest: int = SMALLEST, largest: int = LARGEST) -> list[int]:
    """Return the sizes to measure, in bytes: each the fourfold of the one before.

    Parameters
    ----------
    smallest, largest : int
        First size, and what none exceeds, in bytes.

    Raises
    ------
    InputError
        If these are no sizes of messages.
    """
    if smallest < ELEMENT.itemsize or smallest % ELEMENT.itemsize:
        raise InputError(
            f"the smallest message has {smallest} bytes; accepted: a multiple of {ELEMENT.itemsize}"
        )
    if largest < smallest:
        raise InputError(
            f"the largest message, {largest} bytes, is smaller than the smallest, {smallest} bytes"
        )
    count = int(math.log(largest / smallest, FACTOR) + 1e-9) + 1
    return [smallest * FACTOR**power for power in range(count)]


def senders_and_receivers(pattern: str, ranks: int) -> list[tuple[int, int]]:
    """Return who sends to whom in a pattern, as pairs of ranks."""
    if pattern == "uni-directional":
        return [(0, 1)]
    if pattern == "bi-directional":
        return [(0, 1), (1, 0)]
    return [(s, r) for s in range(ranks) for r in range(ranks) if s != r]


def pattern_plan(pattern: str, rank: int, ranks: int, elements: int) -> ExchangePlan:
    """Return one rank's plan of a pattern.

    Nobody sends to itself: this is about what leaves a rank.

    Parameters
    ----------
    pattern : str
        One of `PATTERNS`.
    rank, ranks : int
        The rank to plan for, and how many there are.
    elements : int
        Elements of every message.
    """
    pairs = senders_and_receivers(pattern, ranks)

    def blocks(own: int, other: int) -> tuple[Block, ...]:
        mine = [pair for pair in pairs if pair[own] == rank]
        starts = [(sender * ranks + receiver) * elements for sender, receiver in mine]
        return tuple(
            Block(pair[other], Box((start,), (start + elements,)), place * elements, elements)
            for place, (pair, start) in enumerate(zip(mine, starts, strict=True))
        )

    sends, receives = blocks(0, 1), blocks(1, 0)
    return ExchangePlan(rank, sends, receives, len(sends) * elements, len(receives) * elements)
