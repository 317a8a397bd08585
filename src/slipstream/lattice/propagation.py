"""Propagation: how populations move from site to site in the two steps of a pair.

With two lattices, a step reads its own sites of one array and stores to the sites downstream in the
other. In the AA pattern (Bailey et al. 2009) there is one array: an even step stores outgoing
populations at its own site, in the opposite direction; an odd step reads from, and stores to, the
neighbouring sites. The steps are in ``collide_and_stream.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step, by its name in kernels, and whether it needs links."""

    kernel_name: str
    needs_links: bool = True


@dataclass(frozen=True)
class Propagation:
    """The two steps of a pair, and how many arrays of populations they need."""

    steps: tuple[Step, Step]
    arrays: int


TWO_LATTICE, AA_EVEN, AA_ODD = (
    Step("TWO_LATTICE"),
    Step("AA_EVEN", needs_links=False),
    Step("AA_ODD"),
)
PROPAGATIONS = {
    "two-lattice": Propagation((TWO_LATTICE, TWO_LATTICE), arrays=2),
    "aa": Propagation((AA_EVEN, AA_ODD), arrays=1),
}
