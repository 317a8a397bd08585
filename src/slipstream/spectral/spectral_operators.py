"""Operators on Fourier coefficients: curl, solenoidal projection, and truncation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.device import Kernel
from slipstream.spectral.formula_checks import judge_loss
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectrum import variances


def curl_kernel(flow: SpectralStep) -> Kernel:
    """Return the kernel of `vorticity`."""
    return flow.device.kernel("vorticity.hpp", "curl", REAL=flow.real)


def vorticity(flow: SpectralStep, first: int = 0) -> Array:
    """Return the curl of the vector that begins at component `first`, in memory of the stage."""
    part = slice(first, first + 3)
    kernel = curl_kernel(flow)
    flow.run_over_rows(kernel, flow.read_state()[part], flow.stage[part], flow.tables.wavenumbers)
    return flow.stage[part]


def make_solenoidal(flow: SpectralStep, vector: Array) -> None:
    """Remove the gradient part of a vector, shape (3, kz, ky of this rank, row)."""
    kernel = flow.device.kernel("projection.hpp", "make_solenoidal", REAL=flow.real)
    flow.run_over_rows(kernel, vector, flow.tables.wavenumbers)


def remove_gradients(
    flow: SpectralStep,
    vectors: Sequence[Array],
    what: str,
    comm: Comm,
    before: float | None = None,
) -> list[str]:
    """Make vectors solenoidal; return the warning of their total loss. Collective.

    Pure gradients, which would lose everything, are refused. `before` is the sum of variances, if
    known.
    """

    def total() -> float:
        each = (variances(flow, flow.modes_of(vector), comm).sum() for vector in vectors)
        return float(sum(each))

    before = total() if before is None else before
    for vector in vectors:
        make_solenoidal(flow, vector)
    after = total()
    return judge_loss(
        (before - after) / before if before > 0 else 0.0,
        f"{what} has a divergence, and its gradient part is removed",
        "use a vector without divergence",
    )


def keep_sphere(flow: SpectralStep, fields: Array) -> None:
    """Set modes to 0 that lie outside of the sphere, if dealiasing keeps only that."""
    if not flow.problem.dealiasing.is_spherical:
        return
    waves, module = flow.wavenumbers, flow.device.array_module
    axes = zip((waves.x, waves.y, waves.z), flow.problem.over_radii, strict=True)
    x, y, z = (flow.device.array(axis**2 * over) for axis, over in axes)
    outside = z[:, None, None] + y[:, None] + x >= 1
    for component in flow.modes_of(fields):
        module.copyto(component, 0, where=outside)


def make_real(
    flow: SpectralStep, fields: Array, comm: Comm, signs: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Project spectral fields on those of real fields, u(-k) = conj(u(k)). Collective.

    Between walls, where -kz is not stored, even fields have the sign 1 and odd ones -1. Returns the
    loss of each field's mean square, and the square of the mean before.

    Both halves of the plane kx = 0 are stored, and only what they have in common reaches physical
    space. Rounding makes them differ, and where a linear term makes modes grow, the difference
    grows with them, which no product counteracts.
    """
    state = flow.modes_of(fields)
    flow.device.synchronize()
    box = flow.problem.geometry.spectral_box
    # Among ranks with the same ky, the first has kx = 0.
    mine = flow.device.to_host(state[..., : int(box.start[2] == 0)])
    parts = [mine] if comm is None else comm.allgather(mine)
    plane = np.concatenate([part for part in parts if part.shape[3]], axis=2)[..., 0]
    opposite = [(-np.arange(n)) % n for n in plane.shape[1:]]
    given = plane
    if signs:
        mirrored = np.array(signs)[:, None, None] * plane[:, :, opposite[1]]
    else:
        mirrored = plane[:, opposite[0][:, None], opposite[1]]
    plane = (plane + mirrored.conj()) / 2
    for place in np.flatnonzero(np.array(signs) < 0):  # sine series have no mean
        state[place, :1] = 0
        plane[place, :1] = 0
    start = box.start[1]
    if mine.size:
        state[..., 0] = flow.device.array(plane[:, :, start : start + mine.shape[2]])
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.square(np.abs((given - plane).astype(complex))).sum(axis=(1, 2))
        means = np.square(np.abs(given[:, 0, 0].astype(complex)))
    return lost, means
