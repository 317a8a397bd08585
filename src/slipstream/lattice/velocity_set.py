"""Velocity sets: the directions in which populations move, and their weights.

A set is defined once, in Python; kernels include a table generated from it, whose file the constant
``VELOCITY_SET`` names (`VelocitySet.constants`, ``velocity_set.hpp``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream import kernels

# The axes of arrays, in their order.
AXES = ("z", "y", "x")


def axes_of(name: str) -> list[int]:
    """Return the array axes of "x", "y", "z" or "all": for all, x first."""
    return [2, 1, 0] if name == "all" else [AXES.index(name)]


class VelocitySet:
    """The velocities of a lattice, voxels per step along z, y and x, and their weights.

    Direction 0 rests; 2k - 1 and 2k are opposite, and the first of such a pair never moves
    backwards along x. Among directions that lead to the same row, the one without motion along x
    comes first. `weights` are given by the square of the speed.
    """

    def __init__(
        self,
        name: str,
        velocities: Sequence[tuple[int, int, int]],
        weights: Sequence[float],
        sound_speed_squared: float,
    ) -> None:
        self.name = name
        self.velocities = np.array(velocities)
        self.weights = np.array([weights[speed] for speed in (self.velocities**2).sum(axis=1)])
        self.sound_speed_squared = sound_speed_squared
        self.directions = len(self.velocities)
        # A site has a link for each direction but that of rest.
        self.links = self.directions - 1
        # The directions that lead to each row, the site's own row first.
        rows: dict[tuple[int, int], list[int]] = {}
        for direction, (z, y, _) in enumerate(velocities):
            rows.setdefault((z, y), []).append(direction)
        self._rows = list(rows.values())
        self.upstream_rows = len(self._rows) - 1
        self.constants = {"VELOCITY_SET": f'"{kernels.write(self._table())}"'}

    def opposite(self, direction: int) -> int:
        """Return the number of the opposite direction."""
        return ((direction - 1) ^ 1) + 1 if direction else 0

    def _table(self) -> str:
        """Return the table that kernels include; see ``velocity_set.hpp``."""
        start, place, size, row_of, middle = (np.zeros(self.directions, int) for _ in range(5))
        before = 0
        for number, row in enumerate(self._rows):
            still = [one for one in row if not self.velocities[one][2]]
            start[row], place[row], size[row] = before, np.arange(len(row)), len(row)
            row_of[row], middle[row] = number - 1, still[0] if still else 0
            before += len(row)
        z, y, x = self.velocities.T
        integers = {
            "CX": x,
            "CY": y,
            "CZ": z,
            "ROW_START": start,
            "ROW_PLACE": place,
            "ROW_OF": row_of,
            "ROW_MIDDLE": middle,
        }
        lines = [
            f"// {self.name}, written by lattice/velocity_set.py.",
            f"constexpr int DIRECTIONS = {self.directions};",
            f"constexpr int UPSTREAM_ROWS = {self.upstream_rows};",
            *(f"constexpr int {key}[] = {{{_listed(one)}}};" for key, one in integers.items()),
            f"INLINE constexpr int row_size(int q) {{ return {_by_range(size)}; }}",
            f"INLINE constexpr double weight(int q) {{ return {_by_range(self.weights)}; }}",
        ]
        return "\n".join(lines) + "\n"


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(map(repr, numbers.tolist()))


def _by_range(numbers: np.ndarray) -> str:
    """Return an expression for the number of direction q, in a form that compilers fold."""
    ends = np.flatnonzero(np.diff(numbers)) + 1
    *values, last = numbers[[0, *ends]].tolist()
    cases = [f"q < {end} ? {value!r} : " for end, value in zip(ends, values, strict=True)]
    return "".join(cases) + repr(last)
