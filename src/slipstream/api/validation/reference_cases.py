"""Reference cases of transforms, advection and the lattice; `spectral_cases` has the others.

A `ReferenceCase` yields `Finding`s: figures with their expected values and tolerances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slipstream.api.validation import reference_solutions as reference
from slipstream.case import make_case
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, sum_over_ranks
from slipstream.engine.device import Device
from slipstream.engine.fft import DistributedFFT
from slipstream.lattice import make_sample, permeability
from slipstream.runs import make_simulation


@dataclass(frozen=True)
class Finding:
    """A figure and its expected value; the same on all ranks.

    The error is relative, and absolute where zero is expected.
    """

    what: str
    source: str
    expected: float
    got: float
    tolerance: float

    @property
    def error(self) -> float:
        """The error of the figure."""
        return abs(self.got - self.expected) / (abs(self.expected) or 1.0)

    @property
    def is_within(self) -> bool:
        """Whether the error is within the tolerance; not if it is not a number."""
        return math.isfinite(self.error) and self.error <= self.tolerance


Run = Callable[[Device, Comm], Iterator[Finding]]


@dataclass(frozen=True)
class ReferenceCase:
    """The title of a case, and the collective function that runs it and yields its findings."""

    title: str
    run: Run


# -- advection: exact shifts, and second order -----------------------------------------------------


def errors_after(
    device: Device, comm: Comm, points: int, courant: Sequence[float], steps: int
) -> dict[str, float]:
    """Return the errors of a Gaussian after some steps of advection. Collective."""
    case = make_case(
        "advection",
        grid={"points": points},
        flow={"courant": list(courant)},
        initial={"width": 0.12},
        time={"end": 1e9},
    )
    simulation = make_simulation(case, comm, device)
    simulation.prepare()
    for _ in range(steps):
        simulation.advance(simulation.step_size())
    return simulation.diagnostics()


def exact_shift(device: Device, comm: Comm) -> Iterator[Finding]:
    """Advect a Gaussian by one spacing along every axis per step, which is exact."""
    errors = errors_after(device, comm, 32, (1.0, -1.0, 1.0), 20)
    source = "exact: a shift of the grid (Courant, Friedrichs and Lewy 1928)"
    what = "largest error after 20 steps of Courant number 1"
    yield Finding(what, source, 0.0, errors["error_max"], 1e-13)


def second_order(device: Device, comm: Comm) -> Iterator[Finding]:
    """Halve the spacing and the step: a quarter of the error remains."""
    coarse, fine = (
        errors_after(device, comm, points, (0.8, -0.6, 0.4), points // 4)["error_rms"]
        for points in (40, 80)
    )
    source = "Lax and Wendroff (1960), Comm. Pure Appl. Math. 13, 217"
    yield Finding("order of convergence", source, 2.0, math.log2(coarse / fine), 0.05)


ADVECTION = (
    ReferenceCase("exact shift", exact_shift),
    ReferenceCase("Gaussian advected obliquely", second_order),
)

# -- transforms: NumPy's modes, Parseval's theorem, the inverse ------------------------------------

SHAPE = (24, 30, 32)
_NUMPY = "NumPy's pocketfft, in double precision"
_PARSEVAL = "Parseval's theorem"


def check_against_numpy(
    device: Device, comm: Comm, dtype: str, layout: Literal["slab", "pencil"], tolerance: float
) -> Iterator[Finding]:
    """Compare modes of random numbers with NumPy's, their power, and the inverse transform."""
    values = np.random.default_rng(0).standard_normal((2, *SHAPE))
    is_real = dtype.startswith("float")
    whole = (values[0] if is_real else values[0] + 1j * values[1]).astype(dtype)
    exact = np.fft.rfftn(whole) if is_real else np.fft.fftn(whole)
    with DistributedFFT(SHAPE, dtype, comm=comm, device=device, layout=layout) as fft:
        own_part = np.ascontiguousarray(whole[fft.input_box.slices()])
        modes = fft.forward(own_part)
        back = np.asarray(device.to_host(fft.backward(modes)))
        modes = np.asarray(device.to_host(modes))
        expected = exact[fft.output_box.slices()]
        far = float(np.abs(modes - expected).max(initial=0.0))
        lost = float(np.abs(back - own_part).max(initial=0.0))
        counts = np.ones(SHAPE[2] // 2 + 1 if is_real else SHAPE[2])
        if is_real:
            counts[1 : SHAPE[2] // 2] = 2
        power = (
            np.abs(modes.astype(np.complex128)) ** 2 * counts[fft.output_box.slices()[2]]
        ).sum()
        total = float(sum_over_ranks(comm, np.array([power]))[0]) / whole.size
    off = largest(comm, far) / float(np.abs(exact).max())
    yield Finding("largest deviation of a mode", _NUMPY, 0.0, off, tolerance)
    squares = float((np.abs(whole.astype(np.complex128)) ** 2).sum())
    yield Finding("sum of squares of the modes", _PARSEVAL, squares, total, tolerance)
    yield Finding(
        "deviation after the inverse transform", _NUMPY, 0.0, largest(comm, lost), 4 * tolerance
    )


def real_double(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform real numbers of double precision, divided into slabs."""
    yield from check_against_numpy(device, comm, "float64", "slab", 1e-14)


def complex_double(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform complex numbers of double precision, divided into pencils."""
    yield from check_against_numpy(device, comm, "complex128", "pencil", 1e-14)


def real_single(device: Device, comm: Comm) -> Iterator[Finding]:
    """Transform real numbers of single precision, divided into slabs."""
    yield from check_against_numpy(device, comm, "float32", "slab", 2e-6)


FFT = (
    ReferenceCase("real transform of 24 x 30 x 32 points", real_double),
    ReferenceCase("complex transform, divided into pencils", complex_double),
    ReferenceCase("real transform in single precision", real_single),
)

# -- lattice: exact channels, series, literature, and inertia --------------------------------------


def channel(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare Poiseuille flow between plane walls with its exact permeability."""
    for width, magic, relaxation_time in ((10, 3 / 16, 1.0), (5, 1 / 8, 2.0)):
        sample = make_sample("channel", (4, width + 2, 3), axis="y")
        result = permeability(
            sample,
            axis="z",
            magic=magic,
            relaxation_time=relaxation_time,
            tolerance=1e-11,
            device=device,
            comm=comm,
        )
        # Two of the layers are solid.
        expected = reference.channel_permeability(width, magic) * width / (width + 2)
        what = f"permeability, {width} voxels wide, magic {magic:g}"
        yield Finding(what, reference.CHANNEL, expected, result.k_lattice, 1e-9)


def square_duct(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare flow through a square duct with its series, and the order of convergence."""
    errors = []
    for width in (8, 16):
        sample = make_sample("duct", (width + 2, width + 2, 4), axis="x")
        result = permeability(
            sample, axis="x", relaxation_time=2.0, tolerance=1e-7, device=device, comm=comm
        )
        measured = result.k_lattice * (width + 2) ** 2 / width**2
        expected = reference.square_duct_permeability(width)
        errors.append(measured / expected - 1)
    what = "permeability of the duct, 16 voxels wide"
    yield Finding(what, reference.DUCT, expected, measured, 5e-3)
    order = math.log2(errors[0] / errors[1])
    yield Finding("order of convergence with the voxels", reference.DUCT, 2.0, order, 0.05)


def cubic_spheres(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare flow through cubic lattices of spheres with the drag in the literature.

    Spheres are staircases of voxels, so pores of few voxels are too narrow: the tolerance grows
    with the solid fraction. The reference is for the solid fraction of the voxels, on which the
    permeability depends most.
    """
    size = 32
    for fraction, tolerance in ((0.027, 0.015), (0.216, 0.035)):
        sample = make_sample("spheres", (size,) * 3, lattice="simple", solid_fraction=fraction)
        result = permeability(
            sample, axis="x", relaxation_time=2.0, tolerance=1e-3, device=device, comm=comm
        )
        expected = reference.cubic_spheres_permeability(1 - result.porosity, size)
        what = f"permeability, {1 - result.porosity:.4f} solid"
        yield Finding(what, reference.CUBIC_SPHERES, expected, result.k_lattice, tolerance)


def inertial_loss(device: Device, comm: Comm) -> Iterator[Finding]:
    """Double the velocity: the loss of permeability by inertia grows with its square at first."""
    size = 16
    sample = make_sample("spheres", (size,) * 3, lattice="simple", solid_fraction=0.216)
    permeabilities = [
        permeability(
            sample,
            axis="x",
            relaxation_time=0.7,
            inertia=True,
            force=force,
            tolerance=1e-6,
            interval=100,
            device=device,
            comm=comm,
        ).k_lattice
        for force in (1e-7, 5e-5, 1e-4)
    ]
    lost = permeabilities[0] - np.array(permeabilities[1:])
    yield Finding(
        "exponent of the velocity in the loss of permeability",
        reference.INERTIA,
        reference.INERTIAL_LOSS_EXPONENT,
        math.log2(lost[1] / lost[0]),
        0.05,
    )


def storage_in_single_precision(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare the permeability with populations in single and in double precision."""
    sample = make_sample("spheres", (24,) * 3, lattice="body-centred", solid_fraction=0.5)
    permeabilities = [
        permeability(
            sample,
            relaxation_time=2.0,
            tolerance=1e-5,
            precision=precision,
            device=device,
            comm=comm,
        ).k_lattice
        for precision in ("float64", "mixed")
    ]
    source = "the same flow in double precision"
    yield Finding(
        "permeability of body-centred spheres", source, permeabilities[0], permeabilities[1], 1e-4
    )


LATTICE = (
    ReferenceCase("Poiseuille flow between plane walls", channel),
    ReferenceCase("flow through a square duct", square_duct),
    ReferenceCase("simple cubic lattice of spheres", cubic_spheres),
    ReferenceCase("inertia", inertial_loss),
    ReferenceCase("storage in single precision", storage_in_single_precision),
)
