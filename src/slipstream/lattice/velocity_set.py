"""Velocity sets: the directions in which populations move, their weights, and what follows.

A set is described once, in Python; kernels include a table made of it, which the constant
``VELOCITY_SET`` names (`VelocitySet.constants`, ``velocity_set.hpp``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream import kernels

# The axes of arrays, in their order.
AXES = ("z", "y", "x")


class VelocitySet:
    """The velocities of a lattice and their weights.

    Direction 0 rests; 2k - 1 and 2k are opposite, and the first of such a pair never moves
    backwards along x. Of the directions that lead to the same row, the one without motion along x
    comes first.

    Parameters
    ----------
    name : str
        What it is called, such as "D3Q19".
    velocities : sequence of (int, int, int)
        Voxels per step along z, y and x.
    weights : sequence of float
        Weight of each by the square of its speed.
    sound_speed_squared : float
        Square of the speed of sound, in voxels per step.
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
        # Of each site, all directions but that of rest have a link.
        self.links = self.directions - 1
        # The rows that directions lead to, the site's own one first.
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
        """Return what kernels include: see ``velocity_set.hpp``."""
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
    """Return an expression of q for the number of direction q, which compilers fold well."""
    ends = np.flatnonzero(np.diff(numbers)) + 1
    *values, last = numbers[[0, *ends]].tolist()
    cases = [f"q < {end} ? {value!r} : " for end, value in zip(ends, values, strict=True)]
    return "".join(cases) + repr(last)
