"""Statistics of modes: what energy lies, and what energy arrives, at which wavenumbers.

Both are sums over bins of modes, taken some planes of modes at a time, so that no more than a few
arrays of four million numbers are needed beside the state. The rates of the transfer are made in
memory of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.family import sum_over_ranks
from slipstream.field import Field
from slipstream.io.time_series import whole_field
from slipstream.spectral.energy_budget import FieldParts
from slipstream.spectral.nonlinear_term import nonlinear_term
from slipstream.spectral.time_step import SpectralStep

_MODES_AT_A_TIME = 1 << 22

# ``bins(z, y, x, module)`` returns the number of each mode's bin, from wavenumbers that broadcast.
Bins = Callable[[Any, Any, Any, Any], Any]


def energy_spectrum(flow: SpectralStep, first: int, size: int, comm: Any) -> np.ndarray:
    """Return the shell-summed energy spectrum of some components of the state. Collective.

    Returns
    -------
    numpy.ndarray
        Entry s is the energy of the modes with ``round(|k| / unit) == s``; on all ranks.
    """
    modes = flow.modes_of(flow.read_state()[first : first + size])
    return _sums_in_shells(flow, modes, modes, comm) / 2


def _sums_in_shells(flow: SpectralStep, first: Any, second: Any, comm: Any) -> np.ndarray:
    waves = flow.wavenumbers

    def shells(z: Any, y: Any, x: Any, module: Any) -> Any:
        return module.rint(module.sqrt(z**2 + (y**2 + x**2)) / waves.unit)

    return sums_in_bins(flow, first, second, shells, waves.shell_count, comm)


def transfer(flow: SpectralStep, parts: Sequence[FieldParts], comm: Any) -> Iterator[Field]:
    """Yield how much energy products bring to each shell, and carry beyond it. Collective.

    The transfer is the sum over a shell of Re(conj(u_hat) . N_hat), where N is what products add
    to the rate of the field u; the flux through a wavenumber is minus the sum of the transfer up to
    it. What an equation adds at all points alike belongs to neither.
    """
    waves = flow.wavenumbers
    rates = flow.modes_of(nonlinear_term(flow))
    state = flow.modes_of(flow.read_state())

    def sums(first: int, size: int) -> np.ndarray:
        part = slice(first, first + size)
        return _sums_in_shells(flow, state[part], rates[part], comm)

    axis = {"wavenumber": waves.unit * np.arange(waves.shell_count)}
    for name, values in _by_field(parts, sums):
        of = "energy" if name == "energy" else f"energy of {name}"
        yield whole_field(
            f"{name}_transfer",
            f"transfer of {of} to a shell by products (non-dimensional)",
            values,
            axis,
        )
        yield whole_field(
            f"{name}_flux",
            f"flux of {of} through a wavenumber to larger ones (non-dimensional)",
            -np.cumsum(values),
            axis,
        )


def anisotropic(flow: SpectralStep, parts: Sequence[FieldParts], comm: Any) -> Iterator[Field]:
    """Yield spectra of wavenumbers across z and along it, which sum to the energy. Collective."""
    waves, (length_z, *lengths), state = flow.wavenumbers, flow.problem.lengths, flow.read_state()
    modes_z, *modes = flow.problem.geometry.modes
    # An axis of one point has no wavenumber, however short it is.
    extended = [length for length, m in zip(lengths, modes, strict=True) if m.size > 1]
    across = 2 * math.pi / max(extended or lengths)
    along, levels = 2 * math.pi / length_z, modes_z.low
    largest = math.hypot(*(float(np.max(np.abs(axis))) for axis in waves.all_axes[1:]))
    shells = int(np.rint(largest / across)) + 1

    def bins(z: Any, y: Any, x: Any, module: Any) -> Any:
        shell = module.rint(module.sqrt(y**2 + x**2) / across)
        return shell * levels + module.rint(module.absolute(z) / along)

    def sums(first: int, size: int) -> np.ndarray:
        part = flow.modes_of(state[first : first + size])
        count = shells * levels
        return sums_in_bins(flow, part, part, bins, count, comm).reshape(shells, levels) / 2

    perpendicular = {"wavenumber_perpendicular": across * np.arange(shells)}
    parallel = {"wavenumber_parallel": along * np.arange(levels)}
    for name, values in _by_field(parts, sums):
        text = f"spectrum of {name} over wavenumbers"
        yield whole_field(
            f"{name}_spectrum",
            f"{text} across and along z, sums to its energy (non-dimensional)",
            values,
            perpendicular | parallel,
        )
        yield whole_field(
            f"{name}_spectrum_perpendicular",
            f"{text} across z, sums to its energy (non-dimensional)",
            values.sum(axis=1),
            perpendicular,
        )
        yield whole_field(
            f"{name}_spectrum_parallel",
            f"{text} along z, sums to its energy (non-dimensional)",
            values.sum(axis=0),
            parallel,
        )


def _by_field(
    parts: Sequence[FieldParts], sums: Callable[[int, int], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the sum over all fields, and those of each where there are several."""
    each = {part.name: sums(part.first, part.size) for part in parts}
    yield "energy", sum(each.values())
    if len(each) > 1:
        yield from each.items()


def sums_in_bins(
    flow: SpectralStep, first: Any, second: Any, bins: Bins, count: int, comm: Any
) -> np.ndarray:
    """Return sums over bins of modes of the real part of conj(first) . second. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose modes they are.
    first, second : array, shape (components, kz, ky of this rank, kx)
        Fourier coefficients; both signs of kx are counted.
    bins : callable
        Tells which bin a mode is in.
    count : int
        Number of bins.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Returns
    -------
    numpy.ndarray, shape (count,)
        The same on all ranks.
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
