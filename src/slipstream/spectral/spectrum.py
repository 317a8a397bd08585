"""Operators on Fourier coefficients, and sums over bins of modes, such as the energy spectrum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.device import Kernel, RowLaunch
from slipstream.engine.device.array_kernels import group_sums, row_sum_kernel
from slipstream.spectral.formula_parser import judge_loss
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts

_NUMBERS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class Bins:
    """How modes are assigned to `count` bins: `number` is the BIN of ``binned_modes.hpp``."""

    number: str
    count: int
    # The constants a, b and c in it.
    a: float = 1.0
    b: float = 1.0
    c: float = 1.0


_SHELL = "rint(sqrt(z * z + (y * y + x * x)) / a)"
_NO_MEAN = Bins("z * z + (y * y + x * x) > 0", 2)


def energy_spectrum(flow: SpectralStep, first: int, size: int, comm: Comm) -> np.ndarray:
    """Return the shell-summed energy spectrum of some components of the state. Collective."""
    modes = flow.modes_of(flow.read_state()[first : first + size])
    return sums_in_shells(flow, modes, modes, comm) / 2


def box_means(flow: SpectralStep, modes: Array, comm: Comm) -> np.ndarray:
    """Return the mean over the box of each component in `modes`. Collective."""
    means = np.zeros(len(modes))
    if modes.size and not any(flow.problem.geometry.spectral_box.start):
        means[:] = flow.device.to_host(modes[:, 0, 0, 0]).real
    return sum_over_ranks(comm, means)


def variances(flow: SpectralStep, modes: Array, comm: Comm) -> np.ndarray:
    """Return the variance over the box of each of some components. Collective."""
    each = [modes[place : place + 1] for place in range(len(modes))]
    return _sums_of_pairs(flow, [(one, one) for one in each], _NO_MEAN, comm)[:, 1]


def sums_in_shells(flow: SpectralStep, first: Array, second: Array, comm: Comm) -> np.ndarray:
    """Return sums over shells of modes of the real part of conj(first) . second. Collective."""
    waves = flow.wavenumbers
    return sums_in_bins(flow, first, second, Bins(_SHELL, waves.shell_count, waves.unit), comm)


def by_field(
    parts: Sequence[FieldParts], active: int, sums: Callable[[int, int], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the sum over the `active` fields as "energy", and each of several fields by name."""
    each = {part.name: sums(part.first, part.size) for part in parts}
    own = (each[part.name] for part in parts if part.first < active)
    yield "energy", sum(own, np.zeros(()))
    if len(each) > 1:
        yield from each.items()


def sums_in_bins(
    flow: SpectralStep, first: Array, second: Array, bins: Bins, comm: Comm
) -> np.ndarray:
    """Return sums over bins of modes of the real part of conj(first) . second. Collective.

    Both have the shape (components, kz, ky of this rank, kx); both signs of kx are counted.
    """
    sums: np.ndarray = _sums_of_pairs(flow, [(first, second)], bins, comm)[0]
    return sums


def _sums_of_pairs(
    flow: SpectralStep, pairs: Sequence[tuple[Array, Array]], bins: Bins, comm: Comm
) -> np.ndarray:
    """Return the sums over bins of each pair, as `sums_in_bins`; the host waits once."""
    device, (z, y, x) = flow.device, flow.wave_axes
    kernel, submit = _kernel_of_bins(flow, bins.number), device.default_stream.submit
    numbers_of_plane = y.size * max(x.size, bins.count)
    planes = max(1, _NUMBERS_AT_A_TIME // max(1, numbers_of_plane))
    totals: list[tuple[int, Array]] = []
    for low in range(0, len(z) if x.size * y.size else 0, planes):
        part = slice(low, low + planes)
        for number, (first, second) in enumerate(pairs):
            table = device.empty((len(z[part]) * y.size, bins.count), np.float64)
            submit(device.fill(table, 0))
            add = kernel.bind(
                RowLaunch(len(z[part]), y.size),
                first[:, part],
                second[:, part],
                *(z[part], y, x, table, bins.count),
                *(len(first), len(z[part]), y.size, x.size),
                *_modes_apart(first),
                *_modes_apart(second),
                *(bins.a, bins.b, bins.c, flow.wavenumbers.tilt),
            )
            submit(add)
            flow.weigh_rows(table, part.start * y.size)
            totals.append((number, group_sums(device, table)))
    sums = np.zeros((len(pairs), bins.count))
    for number, groups in totals:
        sums[number] += device.to_host(groups).sum(axis=0)
    return sum_over_ranks(comm, sums)


def spectrum_kernels(flow: SpectralStep) -> tuple[Kernel, ...]:
    """Return the kernels of spectra, and of `variances`."""
    of_bins = (_kernel_of_bins(flow, number) for number in (_SHELL, _NO_MEAN.number))
    return *of_bins, row_sum_kernel(flow.device)


def _kernel_of_bins(flow: SpectralStep, number: str) -> Kernel:
    return flow.device.kernel("binned_modes.hpp", "binned_rows", REAL=flow.real, BIN=number)


def _modes_apart(modes: Array) -> list[int]:
    """Return the strides, in modes, from one field, plane and row to the next."""
    return [stride // modes.itemsize for stride in modes.strides[:3]]


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

    Pure gradients, which would lose everything, are refused.
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

    Both halves of the plane kx = 0 are stored. Rounding makes them differ, and where linear terms
    make modes grow, the difference grows too, since products do not see it.
    """
    state = flow.modes_of(fields)
    flow.device.synchronize()
    box = flow.problem.geometry.spectral_box
    # Among ranks with the same ky, the first has kx = 0.
    local = flow.device.to_host(state[..., : int(box.start[2] == 0)])
    parts = [local] if comm is None else comm.allgather(local)
    plane = np.concatenate([part for part in parts if part.shape[3]], axis=2)[..., 0]
    opposite = [(-np.arange(n)) % n for n in plane.shape[1:]]
    before = plane
    if signs:
        mirrored = np.array(signs)[:, None, None] * plane[:, :, opposite[1]]
    else:
        mirrored = plane[:, opposite[0][:, None], opposite[1]]
    plane = (plane + mirrored.conj()) / 2
    for place in np.flatnonzero(np.array(signs) < 0):  # sine series have no mean
        state[place, :1] = 0
        plane[place, :1] = 0
    start = box.start[1]
    if local.size:
        state[..., 0] = flow.device.array(plane[:, :, start : start + local.shape[2]])
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.square(np.abs((before - plane).astype(complex))).sum(axis=(1, 2))
        means = np.square(np.abs(before[:, 0, 0].astype(complex)))
    return lost, means
