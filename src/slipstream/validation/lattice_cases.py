"""Reference cases of the lattice family: exact channels, series, literature, and inertia."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.lattice import make_sample, permeability
from slipstream.validation import reference_solutions as reference
from slipstream.validation.reference_case import Finding, ReferenceCase


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
        found = result.k_lattice * (width + 2) ** 2 / width**2
        expected = reference.square_duct_permeability(width)
        errors.append(found / expected - 1)
    what = "permeability of the duct, 16 voxels wide"
    yield Finding(what, reference.DUCT, expected, found, 5e-3)
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
    found = [
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
    lost = found[0] - np.array(found[1:])
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
    found = [
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
    yield Finding("permeability of body-centred spheres", source, found[0], found[1], 1e-4)


CASES = (
    ReferenceCase("Poiseuille flow between plane walls", channel),
    ReferenceCase("flow through a square duct", square_duct),
    ReferenceCase("simple cubic lattice of spheres", cubic_spheres),
    ReferenceCase("inertia", inertial_loss),
    ReferenceCase("storage in single precision", storage_in_single_precision),
)
