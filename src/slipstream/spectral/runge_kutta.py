"""Runge-Kutta methods in the form that one fused kernel can advance.

Every method here feeds each substage from the one before only (its tableau has a single
sub-diagonal), so a step needs the state at its start, one stage and, where early substages carry
weight, a running total: two or three copies of the fields.

With the integrating factor, linear decay at rate r is exact: the method acts on exp(r t) u. Between
substages this needs exp(-r step c) for the nodes c, which are multiples of ``1/divisions``: one
table of exp(-r step / divisions) and integer powers of it serve all substages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RungeKutta:
    """A method given by its tableau.

    Attributes
    ----------
    name : str
        As in a case file.
    order : int
        Order of convergence.
    divisions : int
        All nodes are multiples of ``1/divisions`` of the step.
    nodes : tuple of int
        Node of each substage, in divisions.
    feeds : tuple of float
        The tableau's sub-diagonal: weight of substage s in the state of substage s + 1.
    weights : tuple of float
        Weight of each substage in the result.
    """

    name: str
    order: int
    divisions: int
    nodes: tuple[int, ...]
    feeds: tuple[float, ...]
    weights: tuple[float, ...]

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
        # Those of Jameson, Schmidt and Turkel (AIAA 81-1259), as in GHOST: of two copies of the
        # fields only, stable as their number of substages, of that order for linear equations
        # and of the second for others.
        RungeKutta("jst3", 2, 6, (0, 2, 3), (1 / 3, 1 / 2), (0.0, 0.0, 1.0)),
        RungeKutta("jst4", 2, 12, (0, 3, 4, 6), (1 / 4, 1 / 3, 1 / 2), (0.0, 0.0, 0.0, 1.0)),
    )
}
