"""Runge-Kutta methods that one fused kernel can advance.

In every method here a substage reads only the previous (its tableau has a single sub-diagonal),
so a step needs the state at its start, one stage and, if substages before the last have weight, a
running total: two or three copies of the fields.

With the integrating factor, linear decay at rate r is exact: the method acts on exp(r t) u. Between
substages this needs exp(-r step c) for the nodes c, which are multiples of ``1/divisions``: one
table of exp(-r step / divisions) and integer powers of it serve all substages.

All linear terms, matrices that may couple components and turn phases, are integrated exactly in the
same way by their exponentials. Exponential time differencing uses other functions of these
matrices, and implicit-explicit methods use powers of their resolvent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A function of the matrix A of linear terms: a sum of weight * phi_number(fraction * step * A), of
# which phi_0 is the exponential, or of powers of G = 1 / (1 - fraction * step * A), numbered from
# RESOLVENT = G^0 on.
RESOLVENT = 4
Phi = tuple[float, int, float]  # fraction of the step, number, weight
Propagator = tuple[Phi, ...]


@dataclass(frozen=True)
class SubstagePropagators:
    """The functions of linear terms that a substage applies, by factor; None is the identity."""

    start_to_stage: Propagator | None = None
    rate_to_stage: Propagator | None = None
    start_to_result: Propagator | None = None
    rate_to_result: Propagator | None = None
    start_to_carried: Propagator | None = None  # the start of a later stage
    carry_rate: Propagator | None = None
    begins_carried: bool = False

    @property
    def all(self) -> tuple[Propagator, ...]:
        """The functions that are not None."""
        every = (
            self.start_to_stage,
            self.rate_to_stage,
            self.start_to_result,
            self.rate_to_result,
            self.start_to_carried,
            self.carry_rate,
        )
        return tuple(one for one in every if one is not None)


@dataclass(frozen=True)
class RungeKutta:
    """A method, given by its tableau."""

    name: str
    order: int
    divisions: int  # all nodes are multiples of 1/divisions of the step
    nodes: tuple[float, ...]  # by substage, in divisions
    feeds: tuple[float, ...]  # the sub-diagonal: weight of substage s in the state of s + 1
    weights: tuple[float, ...]  # of each substage in the result
    # For methods with their own functions of the linear terms; feeds and weights multiply their
    # results.
    functions: tuple[SubstagePropagators, ...] = ()

    @property
    def substages(self) -> int:
        """Number of evaluations of the right-hand side per step."""
        return len(self.nodes)

    def propagators(self, substage: int) -> SubstagePropagators:
        """Return the exponentials between nodes, which integrate linear terms exactly."""
        if self.functions:
            return self.functions[substage]
        last = substage + 1 == self.substages
        node, end = self.nodes[substage], self.divisions
        after = end if last else self.nodes[substage + 1]
        return SubstagePropagators(
            self._between(0, after),
            self._between(node, after),
            self._between(0, end),
            self._between(node, end),
        )

    @property
    def is_implicit(self) -> bool:
        """Whether linear terms are implicit: exact to the order of the method."""
        every = (phi for one in self.functions for function in one.all for phi in function)
        return any(number >= RESOLVENT for _, number, _ in every)

    def _between(self, node: float, other: float) -> Propagator | None:
        return ((((other - node) / self.divisions), 0, 1.0),) if other != node else None

    @property
    def carries(self) -> bool:
        """Whether the start of a later stage is kept."""
        return any(one.begins_carried for one in self.functions)

    @property
    def has_total(self) -> bool:
        """Whether a substage before the last has weight, so that a running total is kept."""
        return any(self.weights[:-1])


def _resolvents(diagonal: float, *weights: float) -> Propagator:
    """Return a sum of G^0, G^1, G^2 ..., G = 1 / (1 - diagonal * step * A)."""
    pairs = enumerate(weights, RESOLVENT)
    return tuple((diagonal, number, weight) for number, weight in pairs if weight)


def _ars222() -> RungeKutta:
    g = 1 - math.sqrt(0.5)
    first = 1 - 1 / (2 * g)  # the weight of the first rate
    resolvent = _resolvents(g, 0, 1)
    return RungeKutta(
        "ars222",
        2,
        1,
        (0, g),
        (g,),
        (1.0, 1 - first),
        (
            SubstagePropagators(
                resolvent,
                resolvent,
                _resolvents(g, 0, (2 * g - 1) / g, (1 - g) / g),
                _resolvents(g, 0, first - (1 - g), 1 - g),
            ),
            SubstagePropagators(rate_to_result=resolvent),
        ),
    )


def _ars233() -> RungeKutta:
    g = (3 + math.sqrt(3)) / 6
    rest = 1 - 2 * g  # the coefficient of the first stage's linear terms in the second
    resolvent, half = _resolvents(g, 0, 1), rest / (2 * g)
    return RungeKutta(
        "ars233",
        3,
        1,
        (0, g, 1 - g),
        (g, 2 * (1 - g)),
        (1.0, 1.0, 1 / 2),
        (
            SubstagePropagators(
                resolvent,
                resolvent,
                # 1 + (2 A G + rest (A G)^2) / 2, A G = (G - 1) / g
                _resolvents(g, 1 - 1 / g + half / g, 1 / g - 2 * half / g, half / g),
                _resolvents(g, 2 * half, -3 * half, half),
                _resolvents(g, 0, 1 - rest / g, rest / g),
                _resolvents(g, 0, g - 1 - rest, rest),
            ),
            SubstagePropagators(
                rate_to_stage=resolvent,
                rate_to_result=_resolvents(g, 1 / 2 - (1 - g) / g, (1 - g) / g),
                begins_carried=True,
            ),
            SubstagePropagators(),
        ),
    )


# Propagators of the exponential methods below: linear decay over the step, and over half of it.
_WHOLE = ((1.0, 0, 1.0),)
_HALF = ((0.5, 0, 1.0),)
# From a rate to the stage at half of the step.
_TO_HALF = ((0.5, 1, 1.0),)
# From the two rates there to the result.
_TWICE = ((1.0, 2, 2.0), (1.0, 3, -4.0))

METHODS = {
    method.name: method
    for method in (
        # The midpoint rule.
        RungeKutta("rk2", 2, 2, (0, 1), (1 / 2,), (0.0, 1.0)),
        # Heun's method, of second order.
        RungeKutta("heun", 2, 1, (0, 1), (1.0,), (1 / 2, 1 / 2)),
        # Heun's third-order method.
        RungeKutta("rk3", 3, 3, (0, 1, 2), (1 / 3, 2 / 3), (1 / 4, 0.0, 3 / 4)),
        # The classical method.
        RungeKutta("rk4", 4, 2, (0, 1, 1, 2), (1 / 2, 1 / 2, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
        # Methods of Jameson, Schmidt and Turkel (AIAA 81-1259), as in GHOST. They need two copies
        # of the fields. Their order is the number of substages for linear equations, as is their
        # stability, and 2 for others.
        RungeKutta("jst3", 2, 6, (0, 2, 3), (1 / 3, 1 / 2), (0.0, 0.0, 1.0)),
        RungeKutta("jst4", 2, 12, (0, 3, 4, 6), (1 / 4, 1 / 3, 1 / 2), (0.0, 0.0, 0.0, 1.0)),
        # Exponential time differencing, Cox and Matthews (J. Comput. Phys. 176, 430, 2002). In the
        # last stage of the second, the start and the first rate are kept together.
        RungeKutta(
            "etdrk2",
            2,
            1,
            (0, 1),
            (1.0,),
            (1.0, 1.0),
            (
                SubstagePropagators(
                    _WHOLE, ((1.0, 1, 1.0),), _WHOLE, ((1.0, 1, 1.0), (1.0, 2, -1.0))
                ),
                SubstagePropagators(rate_to_result=((1.0, 2, 1.0),)),
            ),
        ),
        RungeKutta(
            "etdrk4",
            4,
            2,
            (0, 1, 1, 2),
            (1 / 2, 1 / 2, 1.0),
            (1.0, 1.0, 1.0, 1.0),
            (
                SubstagePropagators(
                    _HALF,
                    _TO_HALF,
                    _WHOLE,
                    ((1.0, 1, 1.0), (1.0, 2, -3.0), (1.0, 3, 4.0)),
                    _WHOLE,
                    ((1.0, 1, 1.0), (0.5, 1, -1.0)),
                ),
                SubstagePropagators(_HALF, _TO_HALF, rate_to_result=_TWICE),
                SubstagePropagators(
                    rate_to_stage=_TO_HALF, rate_to_result=_TWICE, begins_carried=True
                ),
                SubstagePropagators(rate_to_result=((1.0, 2, -1.0), (1.0, 3, 4.0))),
            ),
        ),
        # Implicit-explicit methods of Ascher, Ruuth and Spiteri (Appl. Numer. Math. 25, 151, 1997),
        # (2, 2, 2) and (2, 3, 3). Stages are solved for: the factors of the start and of earlier
        # rates are sums of powers of the resolvent.
        _ars222(),
        _ars233(),
    )
}
