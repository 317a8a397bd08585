"""Vector calculus in a periodic box in plain NumPy: what equations mean, without any lowering.

Fields are their values at the points: arrays of shape (z, y, x), (3, z, y, x) for vectors and
(3, 3, z, y, x) for tensors, whose derivatives are taken one by one through complex transforms. The
operators have the names and the conventions of `slipstream.equations`, so a formula can be written
once and given to both; nothing else is shared.
"""

import numpy as np

AXES = (-3, -2, -1)


class Calculus:
    """Operators on fields of a box of some points (z, y, x) and lengths (x, y, z)."""

    x_hat, y_hat, z_hat = np.eye(3).reshape(3, 3, 1, 1, 1)

    def __init__(self, shape, lengths_xyz=(2 * np.pi,) * 3):
        self.shape = tuple(shape)
        self.integers = [np.rint(np.fft.fftfreq(n) * n) for n in shape]
        scaled = [
            2 * np.pi / length * m
            for m, length in zip(self.integers, lengths_xyz[::-1], strict=True)
        ]
        z, y, x = np.meshgrid(*scaled, indexing="ij")
        self.k = np.stack([x, y, z])
        self.square = (self.k**2).sum(axis=0)

    def modes(self, field):
        """Return Fourier coefficients: those of sum_k modes(k) exp(i k . x)."""
        whole = np.broadcast_to(field, (*np.shape(field)[:-3], *self.shape))
        return np.fft.fftn(whole, axes=AXES, norm="forward")

    def points(self, modes):
        return np.fft.ifftn(modes, axes=AXES, norm="forward").real

    def without_gradient(self, vector_modes):
        along = (self.k * vector_modes).sum(axis=0) / np.where(self.square > 0, self.square, 1)
        return vector_modes - self.k * along

    def random(self, rng, largest=1, components=3, solenoidal=True):
        """Return a random field of all modes with integers up to `largest` along each axis."""
        lead = () if components == 1 else (components,)
        modes = self.modes(rng.standard_normal((*lead, *self.shape)))
        for axis, integers in zip(AXES, self.integers, strict=True):
            inside = np.abs(integers) <= largest
            modes *= inside.reshape(-1, *[1] * (-axis - 1))
        modes *= np.sqrt(np.prod(self.shape))
        return self.points(self.without_gradient(modes) if solenoidal else modes)

    # -- operators ---------------------------------------------------------------------------

    def _along(self, field, axis):
        return self.points(1j * self.k[axis] * self.modes(field))

    def grad(self, field):
        return np.stack([self._along(field, axis) for axis in range(3)])

    def div(self, field):
        return sum(self._along(field[axis], axis) for axis in range(3))

    def curl(self, field):
        d = self.grad(field)
        return np.stack([d[1, 2] - d[2, 1], d[2, 0] - d[0, 2], d[0, 1] - d[1, 0]])

    def laplacian(self, field, power=1):
        return self.points((-self.square) ** power * self.modes(field))

    def dot(self, first, second):
        return sum(first[i] * second[i] for i in range(3))

    def cross(self, first, second):
        return np.stack(
            np.broadcast_arrays(
                first[1] * second[2] - first[2] * second[1],
                first[2] * second[0] - first[0] * second[2],
                first[0] * second[1] - first[1] * second[0],
            )
        )

    def outer(self, first, second):
        return first[:, None] * second[None, :]

    def abs2(self, field):
        return field**2 if np.ndim(field) == 3 else (field**2).sum(axis=0)
