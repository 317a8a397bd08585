"""Runge-Kutta methods that one fused kernel can advance.

In every method here a substage reads only the one before (its tableau has a single sub-diagonal),
so a step needs the state at its start, one stage and, if substages before the last have weight, a
running total: two or three copies of the fields.

With the integrating factor, linear decay at rate r is exact: the method acts on exp(r t) u. Between
substages this needs exp(-r step c) for the nodes c, which are multiples of ``1/divisions``: one
table of exp(-r step / divisions) and integer powers of it serve all substages.

All linear terms, matrices that may couple components and turn phases, are integrated exactly in
the same way by their exponentials. Methods of exponential time differencing take other functions of
these matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

# A function of the matrix A of linear terms: a sum of weight * phi_number(fraction * step * A), of
# which phi_0 is the exponential.
Phi = tuple[float, int, float]  # fraction of the step, number, weight
Propagator = tuple[Phi, ...]


@dataclass(frozen=True)
class SubstagePropagators:
    """What a substage multiplies by functions of the linear terms; None stands for no change."""

    start_to_stage: Propagator | None = None
    rate_to_stage: Propagator | None = None
    start_to_result: Propagator | None = None
    rate_to_result: Propagator | None = None
    carry_rate: Propagator | None = None  # the start of a later stage, beside start_to_result
    begins_carried: bool = False

    @property
    def all(self) -> tuple[Propagator, ...]:
        """Those that are needed."""
        every = (
            self.start_to_stage,
            self.rate_to_stage,
            self.start_to_result,
            self.rate_to_result,
            self.carry_rate,
        )
        return tuple(one for one in every if one is not None)


@dataclass(frozen=True)
class RungeKutta:
    """A method, given by its tableau."""

    name: str
    order: int
    divisions: int  # all nodes are multiples of 1/divisions of the step
    nodes: tuple[int, ...]  # of each substage, in divisions
    feeds: tuple[float, ...]  # the sub-diagonal: weight of substage s in the state of s + 1
    weights: tuple[float, ...]  # of each substage in the result
    # Of exponential time differencing; feeds and weights then multiply what propagators give.
    exponential: tuple[SubstagePropagators, ...] = ()

    @property
    def substages(self) -> int:
        """Number of evaluations of the right-hand side per step."""
        return len(self.nodes)

    def propagators(self, substage: int) -> SubstagePropagators:
        """Return what integrates all linear terms exactly: by their exponential between nodes."""
        if self.exponential:
            return self.exponential[substage]
        last = substage + 1 == self.substages
        node, end = self.nodes[substage], self.divisions
        after = end if last else self.nodes[substage + 1]
        return SubstagePropagators(
            self._between(0, after),
            self._between(node, after),
            self._between(0, end),
            self._between(node, end),
        )

    def _between(self, node: int, other: int) -> Propagator | None:
        return ((((other - node) / self.divisions), 0, 1.0),) if other != node else None

    @property
    def carries(self) -> bool:
        """Whether the start of a later stage is kept."""
        return any(one.begins_carried for one in self.exponential)

    @property
    def has_total(self) -> bool:
        """Whether a substage before the last has weight, so that a running total is kept."""
        return any(self.weights[:-1])


_WHOLE, _HALF = ((1.0, 0, 1.0),), ((0.5, 0, 1.0),)
_TO_HALF, _TWICE = ((0.5, 1, 1.0),), ((1.0, 2, 2.0), (1.0, 3, -4.0))

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
        # Those of Jameson, Schmidt and Turkel (AIAA 81-1259), as in GHOST: they need two copies of
        # the fields, are as stable as methods of their number of substages, and are of that order
        # for linear equations, of the second for others.
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
                    ((1.0, 1, 1.0), (0.5, 1, -1.0)),
                ),
                SubstagePropagators(_HALF, _TO_HALF, rate_to_result=_TWICE),
                SubstagePropagators(
                    rate_to_stage=_TO_HALF, rate_to_result=_TWICE, begins_carried=True
                ),
                SubstagePropagators(rate_to_result=((1.0, 2, -1.0), (1.0, 3, 4.0))),
            ),
        ),
    )
}
