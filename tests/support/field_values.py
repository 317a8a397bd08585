"""Fields at the points: what they are at first, as formulas, and what they have become."""

import numpy as np


def formulas(**fields):
    """Return the settings of an initial state; a vector is given as three formulas."""
    texts = {name: own if isinstance(own, str) else list(own) for name, own in fields.items()}
    return [
        "initial.flow=formula",
        "initial.fields={" + ", ".join(f"{k} = {v!r}" for k, v in texts.items()) + "}",
    ]


def values(simulation):
    """Return all fields of the state at the points, by name."""
    return {field.name: np.array(field.data) for field in simulation.fields()}


def coordinates(simulation):
    """Return x, y and z of the points, which broadcast together."""
    grid = simulation.case.grid
    axes = [
        length * np.arange(n) / n
        for n, length in zip(grid.points_xyz, grid.lengths_xyz, strict=True)
    ]
    return axes[0], axes[1][:, None], axes[2][:, None, None]


def largest_error(simulation, **expected):
    """Return the largest difference from what fields should be, by their names."""
    actual = values(simulation)
    return max(np.abs(actual[name] - value).max() for name, value in expected.items())
