"""Reference cases of the spectral family: exact flows, waves, order and conservation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.api.validation import reference_solutions as reference
from slipstream.api.validation.reference_cases import Finding, ReferenceCase
from slipstream.case import make_case
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, sum_over_ranks
from slipstream.engine.device import Device
from slipstream.engine.fields import Field
from slipstream.runs import Simulation, make_simulation

NAVIER_STOKES = {"model": "hd"}
# All modes and all terms take part.
_RANDOM = {"flow": "random", "seed": 7, "peak_wavenumber": 3.0}


def start(
    device: Device,
    comm: Comm,
    points: int | Sequence[int],
    equation: Mapping[str, Any],
    initial: Mapping[str, Any],
    scalars: Sequence[Mapping[str, Any]] = (),
    box: Mapping[str, Any] | None = None,
    **numerics: Any,
) -> Simulation:
    """Return a simulation in its initial state. Collective."""
    case = make_case(
        "spectral",
        grid={"points": points, **(box or {})},
        equation=dict(equation),
        initial=dict(initial),
        scalars=list(scalars),
        numerics=numerics,
        time={"end": 1e9, "step": 1.0},
    )
    simulation = make_simulation(case, comm, device)
    simulation.prepare()
    return simulation


def advance(simulation: Simulation, steps: int, time: float) -> Simulation:
    """Advance by a time in steps of one size."""
    for _ in range(steps):
        simulation.advance(time / steps)
    return simulation


def fields_of(simulation: Simulation) -> dict[str, Field]:
    """Return this rank's part of all fields, by name, as copies. Collective."""
    return {
        field.name: Field(
            field.name,
            field.dims,
            field.shape,
            field.offset,
            np.array(field.data),
            field.coordinates,
        )
        for field in simulation.fields()
    }


def deviation(simulation: Simulation, expected: Mapping[str, Field], factor: float) -> float:
    """Return the deviation of fields from a multiple of others, relative to the largest value."""
    off = scale = 0.0
    for field in simulation.fields():
        values = factor * expected[field.name].data
        off = max(off, float(np.abs(field.data - values).max(initial=0.0)))
        scale = max(scale, float(np.abs(values).max(initial=0.0)))
    return largest(simulation.comm, off) / largest(simulation.comm, scale)


def largest_mode(simulation: Simulation, wavevector: Sequence[int], name: str) -> complex:
    """Return the Fourier coefficient of the field. Collective."""
    for field in simulation.fields():
        if field.name == name:
            phase = np.zeros(field.data.shape)
            for axis, along in enumerate("zyx"):
                coordinates = field.coordinates[along][field.region()[axis]]
                shape = [1, 1, 1]
                shape[axis] = coordinates.size
                phase += wavevector["xyz".index(along)] * coordinates.reshape(shape)
            amplitude = np.array((field.data * np.exp(-1j * phase)).sum())
            total = sum_over_ranks(simulation.comm, amplitude.reshape(1).view(np.float64))
            return complex(*total) / math.prod(field.shape)
    raise KeyError(name)


# -- exact flows -----------------------------------------------------------------------------------


def taylor_green_series(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare the growth of the enstrophy by vortex stretching with its power series."""
    viscosity, time = 0.01, 0.1
    equation = {**NAVIER_STOKES, "viscosity": viscosity}
    simulation = start(device, comm, 32, equation, {"flow": "taylor-green"})
    advance(simulation, 10, time)
    yield Finding(
        "enstrophy at t = 0.1",
        reference.TAYLOR_GREEN_ENSTROPHY,
        reference.taylor_green_enstrophy(time, viscosity),
        simulation.diagnostics()["enstrophy"],
        1e-8,
    )


def plane_taylor_green(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare vortices in a plane, which only decay, with their exact velocity."""
    viscosity, wavenumber, time = 0.05, 2, 1.0
    initial = {"flow": "taylor-green", "wavenumber": wavenumber}
    equation = {**NAVIER_STOKES, "viscosity": viscosity}
    simulation = start(device, comm, [24, 18, 1], equation, initial)
    before = fields_of(simulation)
    advance(simulation, 10, time)
    decay = reference.plane_taylor_green_decay(time, viscosity, wavenumber)
    yield Finding(
        "largest deviation of the velocity at t = 1",
        reference.TAYLOR_GREEN_PLANE,
        0.0,
        deviation(simulation, before, decay),
        1e-12,
    )


def beltrami_flow(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare an ABC flow with its exact velocity: the nonlinear term must be a gradient."""
    viscosity, time = 0.3, 1.0
    initial = {"flow": "abc", "coefficients": [1.0, 0.7, 0.43]}
    simulation = start(device, comm, 16, {**NAVIER_STOKES, "viscosity": viscosity}, initial)
    before, energy = fields_of(simulation), simulation.diagnostics()["energy"]
    advance(simulation, 10, time)
    decay = reference.beltrami_decay(time, viscosity)
    yield Finding(
        "energy at t = 1",
        reference.BELTRAMI,
        decay**2 * energy,
        simulation.diagnostics()["energy"],
        1e-12,
    )
    yield Finding(
        "largest deviation of the velocity",
        reference.BELTRAMI,
        0.0,
        deviation(simulation, before, decay),
        1e-12,
    )


def scalar_diffusion(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare a wave of an advected, diffusing scalar with the exact solution."""
    velocity, diffusivity, time, wavevector = (0.8, -0.5, 0.3), 0.05, 0.6, (1, 2, 0)
    scalars = [{"diffusivity": diffusivity}]
    fields = {"velocity": [str(one) for one in velocity], "scalar": "cos(x + 2*y)"}
    initial = {"flow": "formula", "fields": fields}
    equation = {**NAVIER_STOKES, "viscosity": 0.01}
    simulation = start(device, comm, 16, equation, initial, scalars=scalars)
    advance(simulation, 60, time)
    mode = 2 * largest_mode(simulation, wavevector, "scalar")
    squared = sum(k * k for k in wavevector)
    turned = -sum(k * u for k, u in zip(wavevector, velocity, strict=True)) * time
    source = "Crank (1975), The Mathematics of Diffusion, ch. 2: exact"
    decay = math.exp(-diffusivity * squared * time)
    yield Finding("amplitude at t = 0.6", source, decay, abs(mode), 1e-10)
    yield Finding("phase at t = 0.6", source, turned, math.atan2(mode.imag, mode.real), 1e-8)


def orszag_tang(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare the magnetic vortices of Orszag and Tang in a plane with another solver's."""
    equation = {"model": "mhd", "viscosity": 0.01, "resistivity": 0.01}
    simulation = start(device, comm, [128, 128, 1], equation, {"flow": "orszag-tang"})
    advance(simulation, 100, 1.0)
    values = simulation.diagnostics()
    for name, expected in reference.ORSZAG_TANG_AT_1.items():
        what = f"{name.replace('_', ' ')} at t = 1"
        yield Finding(what, reference.ORSZAG_TANG, expected, values[name], 1e-7)


# -- waves -----------------------------------------------------------------------------------------


def wave_frequency(
    device: Device,
    comm: Comm,
    *,
    points: int,
    equation: Mapping[str, Any],
    wavevector: tuple[int, int, int],
    field: str,
    expected: float,
    source: str,
    amplitude: float = 0.3,
    tolerance: float = 1e-7,
    **numerics: Any,
) -> Iterator[Finding]:
    """Compare the angular frequency of a wave, from the phases of its mode, with its dispersion."""
    initial = {"flow": "wave", "amplitude": amplitude, "wavevector": list(wavevector)}
    simulation = start(device, comm, points, equation, initial, **numerics)
    steps, step = 16, 0.005
    phases = []
    for _ in range(steps):
        phases.append(np.angle(largest_mode(simulation, wavevector, field)))
        advance(simulation, 1, step)
    slope = np.polyfit(step * np.arange(steps), np.unwrap(phases), 1)[0]
    what = f"angular frequency of wavevector ({', '.join(map(str, wavevector))})"
    yield Finding(what, source, expected, abs(float(slope)), tolerance)


def gravity_wave(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare an internal wave of a stratified fluid with its dispersion relation."""
    wavevector, frequency = (2, 0, 1), 2.0
    equation = {"model": "boussinesq", "viscosity": 0.0, "diffusivity": 0.0}
    yield from wave_frequency(
        device,
        comm,
        points=16,
        equation={**equation, "buoyancy_frequency": frequency},
        wavevector=wavevector,
        field="velocity_x",
        expected=reference.gravity_wave_frequency(wavevector, frequency),
        source=reference.GRAVITY_WAVES,
    )


def inertial_wave(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare a wave of a rotating fluid with its dispersion relation."""
    wavevector, rotation = (1, 2, 2), 1.5
    yield from wave_frequency(
        device,
        comm,
        points=16,
        equation={**NAVIER_STOKES, "viscosity": 0.0, "rotation": rotation},
        wavevector=wavevector,
        field="velocity_x",
        expected=reference.inertial_wave_frequency(wavevector, rotation),
        source=reference.INERTIAL_WAVES,
    )


def alfven_wave(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare a wave along a magnetic field with its dispersion relation."""
    wavevector, mean_field = (1, 1, 2), 1.7
    equation = {"model": "mhd", "viscosity": 0.0, "resistivity": 0.0}
    yield from wave_frequency(
        device,
        comm,
        points=16,
        equation={**equation, "mean_field": mean_field},
        wavevector=wavevector,
        field="magnetic_x",
        expected=reference.alfven_wave_frequency(wavevector, mean_field),
        source=reference.ALFVEN_WAVES,
    )


def sheared_wave(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare a wave that a mean shear turns, and so makes grow, with its exact solution."""
    wavevector, shear, viscosity, time = (1, 2, 1), 1.0, 0.01, 2.0
    wave = "cos(x + 2*y + z)"
    initial = {
        "flow": "formula",
        "fields": {"velocity": [f"{n}*{wave}" for n in (-0.1, 0.1, -0.1)]},
    }
    equation = {**NAVIER_STOKES, "viscosity": viscosity, "shear": shear}
    simulation = advance(start(device, comm, 12, equation, initial), 100, time)
    mode = largest_mode(simulation, (1, 0, 1), "velocity_y")
    yield Finding(
        "velocity along y of wavevector (1, 2, 1) when it is (1, 0, 1), over the first",
        reference.SHEARED_WAVES,
        reference.sheared_wave_growth(wavevector, shear, viscosity, time),
        2 * abs(mode) / 0.1,
        1e-7,
    )


def convection(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare the growth of rolls between free-slip walls with the linear theory."""
    rayleigh, width, steps = 675.0, 2 * math.sqrt(2), 20
    damping = rayleigh**-0.5
    equation = {"model": "rayleigh-benard", "viscosity": damping, "diffusivity": damping}
    rolls = {"buoyancy": f"1e-6*cos({2 * math.pi / width!r}*x)*sin(pi*z)"}
    initial = {"flow": "formula", "fields": rolls}
    box = {"length": [width, 1.0, 1.0], "walls": "z"}
    simulation = start(device, comm, (8, 1, 8), equation, initial, box=box, linear="all")
    before, after = (
        advance(simulation, steps, float(steps)).diagnostics()["energy"] for _ in range(2)
    )
    yield Finding(
        "growth rate at a Rayleigh number of 675",
        reference.CONVECTION,
        reference.convection_growth(rayleigh, width),
        math.log(after / before) / (2 * steps),
        1e-6,
    )


def bogoliubov_wave(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare a small wave of a quantum fluid with its dispersion relation."""
    wavevector, speed, length = (2, 1, 1), 1.5, 0.2
    yield from wave_frequency(
        device,
        comm,
        points=16,
        equation={"model": "gpe", "sound_speed": speed, "healing_length": length},
        wavevector=wavevector,
        field="psi_real",
        amplitude=1e-6,
        expected=reference.bogoliubov_frequency(wavevector, speed, length),
        source=reference.BOGOLIUBOV_WAVES,
        # Products of two waves are smaller by the amplitude.
        tolerance=1e-5,
        dealiasing="1/2",
    )


# -- order and conservation ------------------------------------------------------------------------


def order_of_the_integrator(device: Device, comm: Comm) -> Iterator[Finding]:
    """Halve the time step twice, and find the order from the differences of results."""

    def velocity(steps: int) -> dict[str, Field]:
        equation = {**NAVIER_STOKES, "viscosity": 0.02}
        return fields_of(advance(start(device, comm, 16, equation, _RANDOM), steps, 0.4))

    def distance(one: Mapping[str, Field], other: Mapping[str, Field]) -> float:
        squares = sum(float(((one[n].data - other[n].data) ** 2).sum()) for n in one)
        return math.sqrt(float(sum_over_ranks(comm, np.array([squares]))[0]))

    coarse, fine, finest = (velocity(steps) for steps in (16, 32, 64))
    yield Finding(
        "order of convergence of rk4",
        "Hairer, Norsett and Wanner (1993), Solving ODEs I, sect. II.1",
        4.0,
        math.log2(distance(coarse, fine) / distance(fine, finest)),
        0.05,
    )


def energy_budget(device: Device, comm: Comm) -> Iterator[Finding]:
    """Compare the loss of energy of a random flow with the viscous dissipation in that time."""
    equation = {**NAVIER_STOKES, "viscosity": 0.05}
    simulation = start(device, comm, 16, equation, _RANDOM)
    steps, step = 16, 0.005
    energies, rates = [], []
    for _ in range(steps + 1):
        found = simulation.diagnostics()
        energies.append(found["energy"])
        rates.append(found["dissipation"])
        advance(simulation, 1, step)
    # Simpson's rule: its error is far below the error of the budget.
    weights = np.array([1, *(4 if n % 2 else 2 for n in range(1, steps)), 1]) * step / 3
    yield Finding(
        "energy lost until t = 0.08, and dissipated",
        "Pope (2000), Turbulent Flows, sect. 5.3: energy budget",
        float(weights @ np.array(rates)),
        energies[0] - energies[-1],
        1e-7,
    )


CASES = (
    ReferenceCase("Taylor-Green vortex", taylor_green_series),
    ReferenceCase("Taylor-Green vortices in a plane", plane_taylor_green),
    ReferenceCase("Beltrami (ABC) flow", beltrami_flow),
    ReferenceCase("advected, diffusing scalar", scalar_diffusion),
    ReferenceCase("internal gravity wave", gravity_wave),
    ReferenceCase("inertial wave", inertial_wave),
    ReferenceCase("Alfven wave", alfven_wave),
    ReferenceCase("wave in a mean shear", sheared_wave),
    ReferenceCase("convection between walls", convection),
    ReferenceCase("Orszag-Tang vortex", orszag_tang),
    ReferenceCase("Bogoliubov wave", bogoliubov_wave),
    ReferenceCase("time integrator", order_of_the_integrator),
    ReferenceCase("energy budget", energy_budget),
)
