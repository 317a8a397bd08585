"""What happens to the modes of a state between steps: sums, curls, projections.

A part of `SpectralStep`, in a module of its own. Everything runs where the fields are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.device import RowLaunch


class ModeOperations:
    """What `SpectralStep` can do with the modes that a rank holds."""

    def modes_of(self, array: Any) -> Any:
        """Return the kept modes of a spectral array, without the padding of its rows."""
        return array[..., : self.problem.geometry.spectral_shape[2]]

    def vector_sums(self, first: int) -> np.ndarray:
        """Return this rank's share of what a vector sums to.

        Parameters
        ----------
        first : int
            Component with which the vector begins.

        Returns
        -------
        numpy.ndarray
            Energy, enstrophy, helicity and squared divergence.
        """
        nz, ny, _ = self.problem.geometry.stored_shape
        sums = self.device.zeros((nz * ny, 4), np.float64)
        self._run_over_rows(
            "flow_sums", self.read_state()[first : first + 3], self._here.table, sums
        )
        return self.device.to_host(sums).sum(axis=0)

    def energies(self) -> np.ndarray:
        """Return this rank's share of what components are squared, and of how these squares decay.

        Returns
        -------
        numpy.ndarray, shape (2, components)
            Mean squares, and the rates at which viscosity and diffusion lessen them.
        """
        nz, ny, _ = self.problem.geometry.stored_shape
        sums = self.device.zeros((nz * ny, 2 * self.problem.size), np.float64)
        self._run_over_rows(
            "component_sums",
            self.read_state(),
            self._here.table,
            self._here.numbers,
            sums,
        )
        return self.device.to_host(sums).sum(axis=0).reshape(2, -1)

    def vorticity(self, first: int = 0) -> Any:
        """Return the Fourier coefficients of a vector's curl, in memory of the stage."""
        part = slice(first, first + 3)
        self._run_over_rows("curl", self.read_state()[part], self.stage[part], self._here.table)
        return self.stage[part]

    def make_solenoidal(self, vector: Any) -> None:
        """Take away the gradient part of a vector, shape (3, kz, ky of this rank, row)."""
        self._run_over_rows("make_solenoidal", vector, self._here.table)

    def keep_sphere(self, fields: Any) -> None:
        """Set modes of spectral fields to 0 that lie outside of the sphere, if one is kept."""
        if self.problem.dealiasing.is_spherical:
            waves, module = self.wavenumbers, self.device.array_module
            x, y, z = (
                self.device.array(axis**2 * over)
                for axis, over in zip(
                    (waves.x, waves.y, waves.z), self.problem.over_radii, strict=True
                )
            )
            outside = z[:, None, None] + y[:, None] + x >= 1
            for component in self.modes_of(fields):
                module.copyto(component, 0, where=outside)

    def _run_over_rows(self, name: str, *arrays: Any) -> None:
        """Run a kernel that takes every row of the state."""
        (nz, ny, row), nx = (
            self.problem.geometry.stored_shape,
            self.problem.geometry.spectral_shape[2],
        )
        if nz * ny:
            launch = RowLaunch(nz * ny, nx, reduces=True)
            field = nz * ny * row
            kernel = self._kernel(name, "mode_sums.hpp")
            self.device.run(kernel.bind(launch, *arrays, nz, ny, nx, row, field))

    def normalise(self, fields: Any) -> None:
        """Divide by the number of points, which the forward transform leaves out."""
        points = math.prod(self.problem.geometry.shape)

        def scale(stream: Any) -> None:
            fields[...] *= fields.dtype.type(1.0 / points)

        self.device.run(scale)
