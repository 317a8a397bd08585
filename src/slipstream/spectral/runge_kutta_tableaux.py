"""Runge-Kutta methods that one fused kernel can advance.

In every method here a substage reads only the one before (its tableau has a single sub-diagonal),
so a step needs the state at its start, one stage and, if substages before the last have weight, a
running total: two or three copies of the fields.

With the integrating factor, linear decay at rate r is exact: the method acts on exp(r t) u. Between
substages this needs exp(-r step c) for the nodes c, which are multiples of ``1/divisions``: one
table of exp(-r step / divisions) and integer powers of it serve all substages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RungeKutta:
    """A method, given by its tableau."""

    name: str
    order: int
    divisions: int  # all nodes are multiples of 1/divisions of the step
    nodes: tuple[int, ...]  # of each substage, in divisions
    feeds: tuple[float, ...]  # the sub-diagonal: weight of substage s in the state of s + 1
    weights: tuple[float, ...]  # of each substage in the result

    @property
    def substages(self) -> int:
        """Number of evaluations of the right-hand side per step."""
        return len(self.nodes)

    @property
    def has_total(self) -> bool:
        """Whether a substage before the last has weight, so that a running total is kept."""
        return any(self.weights[:-1])


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
    )
}
