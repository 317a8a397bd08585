"""An independent solver of the same equations: plain NumPy, complex transforms, rotational form.

It shares nothing with Slipstream but the mathematics: the non-linear term is u x curl(u), not
div(u u); all modes of a complex transform are kept in one array; nothing is fused.
"""

import numpy as np

AXES = (1, 2, 3)

# Full tableaus: midpoint rule, Heun's third-order method, the classical method.
TABLEAUS = {
    "rk2": ([[], [1 / 2]], [0, 1]),
    "rk3": ([[], [1 / 3], [0, 2 / 3]], [1 / 4, 0, 3 / 4]),
    "rk4": ([[], [1 / 2], [0, 1 / 2], [0, 0, 1]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
}


class NumpySolver:
    """Advances a velocity u, v, w given at the points (3, z, y, x) of a periodic box."""

    def __init__(self, velocity, lengths_xyz, viscosity):
        shape = velocity.shape[1:]
        integers = [np.rint(np.fft.fftfreq(n) * n) for n in shape]
        scaled = [2 * np.pi / length * m for length, m in zip(lengths_xyz[::-1], integers)]  # noqa: B905
        z, y, x = np.meshgrid(*scaled, indexing="ij")
        self.k = np.stack([x, y, z])
        self.square = (self.k**2).sum(axis=0)
        inside = [np.abs(m) <= (n - 1) // 3 for m, n in zip(integers, shape)]  # noqa: B905
        self.mask = np.logical_and.outer(np.logical_and.outer(inside[0], inside[1]), inside[2])
        self.viscosity = viscosity
        self.modes = np.fft.fftn(velocity, axes=AXES) * self.mask

    def nonlinear(self, modes):
        u = np.fft.ifftn(modes, axes=AXES).real
        vorticity = np.fft.ifftn(1j * np.cross(self.k, modes, axis=0), axes=AXES).real
        force = np.fft.fftn(np.cross(u, vorticity, axis=0), axes=AXES) * self.mask
        along = (self.k * force).sum(axis=0) / np.where(self.square > 0, self.square, 1)
        return force - self.k * along

    def advance(self, steps, step, integrator, integrating_factor):
        """Advance by the method applied to exp(nu k^2 t) u, or to u itself."""
        tableau, weights = TABLEAUS[integrator]
        rate = self.viscosity * self.square
        for _ in range(steps):
            slopes = []
            for row in tableau:
                factor = np.exp(-rate * sum(row) * step) if integrating_factor else 1.0
                stage = self.modes + step * sum(a * s for a, s in zip(row, slopes))  # noqa: B905
                slope = self.nonlinear(factor * stage) / factor
                slopes.append(slope if integrating_factor else slope - rate * stage)
            factor = np.exp(-rate * step) if integrating_factor else 1.0
            total = sum(b * s for b, s in zip(weights, slopes, strict=True))
            self.modes = factor * (self.modes + step * total)
        return self

    def velocity(self):
        return np.fft.ifftn(self.modes, axes=AXES).real
