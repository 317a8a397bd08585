"""The energy spectrum in shells of wavenumbers, and sums over other bins of modes.

Sums take a few planes of modes at a time, so that they need no more memory beside the state than
some arrays of four million numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.collective import sum_over_ranks
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts

_MODES_AT_A_TIME = 1 << 22

# ``bins(z, y, x, module)`` returns the number of each mode's bin, from wavenumbers that broadcast.
Bins = Callable[[Any, Any, Any, Any], Any]


def energy_spectrum(flow: SpectralStep, first: int, size: int, comm: Comm) -> np.ndarray:
    """Return the shell-summed energy spectrum of some components of the state. Collective."""
    modes = flow.modes_of(flow.read_state()[first : first + size])
    return sums_in_shells(flow, modes, modes, comm) / 2


def box_means(flow: SpectralStep, modes: Array, comm: Comm) -> np.ndarray:
    """Return the mean over the box of each of some components. Collective."""
    own = np.zeros(len(modes))
    if modes.size and not any(flow.problem.geometry.spectral_box.start):
        own[:] = flow.device.to_host(modes[:, 0, 0, 0]).real
    return sum_over_ranks(comm, own)


def variances(flow: SpectralStep, modes: Array, comm: Comm) -> np.ndarray:
    """Return the mean square distance from its mean of each of some components. Collective."""

    def is_no_mean(z: Any, y: Any, x: Any, module: Any) -> Any:
        return z**2 + (y**2 + x**2) > 0

    each = (modes[place : place + 1] for place in range(len(modes)))
    return np.array([sums_in_bins(flow, one, one, is_no_mean, 2, comm)[1] for one in each])


def sums_in_shells(flow: SpectralStep, first: Array, second: Array, comm: Comm) -> np.ndarray:
    """Return sums over shells of modes of the real part of conj(first) . second. Collective."""
    waves = flow.wavenumbers

    def shells(z: Any, y: Any, x: Any, module: Any) -> Any:
        return module.rint(module.sqrt(z**2 + (y**2 + x**2)) / waves.unit)

    return sums_in_bins(flow, first, second, shells, waves.shell_count, comm)


def by_field(
    parts: Sequence[FieldParts], sums: Callable[[int, int], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the sum over all fields, and those of each where there are several."""
    each = {part.name: sums(part.first, part.size) for part in parts}
    yield "energy", sum(each.values(), np.zeros(()))
    if len(each) > 1:
        yield from each.items()


def sums_in_bins(
    flow: SpectralStep, first: Any, second: Any, bins: Bins, count: int, comm: Comm
) -> np.ndarray:
    """Return sums over bins of modes of the real part of conj(first) . second. Collective.

    Both have the shape (components, kz, ky of this rank, kx); both signs of kx are counted.
    """
    device, waves = flow.device, flow.wavenumbers
    module, sums = device.array_module, device.zeros((count,), np.float64)
    z, y, x = (device.array(axis) for axis in (waves.z, waves.y, waves.x))
    z, y, weight = z[:, None, None], y[:, None], device.array(waves.multiplicity)
    plane = y.size * x.size
    planes = max(1, _MODES_AT_A_TIME // max(1, plane))
    for low in range(0, len(z) if plane else 0, planes):
        part = slice(low, low + planes)
        products = module.zeros(first[0, part].shape, np.float64)
        for one, other in zip(first[:, part], second[:, part], strict=True):
            products += one.real.astype(np.float64) * other.real
            products += one.imag.astype(np.float64) * other.imag
        products *= weight
        numbers = module.broadcast_to(bins(z[part], y, x, module), products.shape)
        sums += module.bincount(numbers.astype(np.int64).ravel(), products.ravel(), count)
    return sum_over_ranks(comm, device.to_host(sums))
