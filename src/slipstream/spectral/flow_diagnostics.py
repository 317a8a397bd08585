"""Diagnostics of a state: means over the box, spectra, labels, pictures, and resolution."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.case.output_tables import plain_name
from slipstream.engine.array_types import Array
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.errors import InputError
from slipstream.engine.fields import UNRESOLVED, Fact, PictureChoice, PlaneChoice, has_died
from slipstream.engine.text import below
from slipstream.equations import Lowered
from slipstream.equations.fourier_forms import AXES
from slipstream.spectral.energy_budget import (
    LARGE,
    SMALL,
    EnergyBudget,
    VectorSums,
    budgets_of,
    component_sums,
    kolmogorov_length,
    vector_sums,
)
from slipstream.spectral.forcing import forced_fields, is_stepped, powers_of_linear_forces
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, key_of, vectors_of
from slipstream.spectral.spectrum import box_means, energy_spectrum

if TYPE_CHECKING:
    from slipstream.spectral.evaluation import Evaluation
    from slipstream.spectral.runge_kutta_step import SpectralStep
    from slipstream.spectral.spectral_simulation import SpectralSimulation


_LABELS = {
    "energy": "energy, mean of half the squares of all fields (non-dimensional)",
    "dissipation": "dissipation rate, at which linear terms that damp take energy away",
    "enstrophy": "enstrophy, mean of w.w/2, w = curl {} (non-dimensional)",
    "helicity": "helicity, mean of {}.w (non-dimensional)",
    "divergence": "root mean square of div {} (non-dimensional)",
    "work": "energy that forces and bodies have added since the row before; not a number in the "
    "first row",
    "budget_residual": "residual of the energy budget since the row before, "
    "(dE/dt + losses - gains) / dissipation; an error where products conserve energy; "
    "not a number in the first row",
    "wire_error": "error that the data of the last step got between ranks, relative to their size, "
    "the largest of all exchanges",
    "energy_spectrum": "energy spectrum, sums to the energy (non-dimensional)",
}
# Labels of fields with their own budgets.
_OWN_BUDGET = {
    "dissipation": "rate at which linear terms that damp take energy of {} away",
    "driving": "rate at which linear terms that amplify add energy to {}",
    "injection": "power of forces on {}",
    "work": "energy that forces have added to {} since the row before",
    "residual": "residual of the budget of {}, as budget_residual for the energy",
}
# The endings of the columns and the spectrum of a scalar.
OF_SCALARS = ("energy", "spectrum", "production", *_OWN_BUDGET)
# Labels of scales, for any flow, and by whether it is two-dimensional.
_ALL_SCALES = {
    "turnover_time": "turnover time of the large eddies, integral scale over rms velocity",
    "taylor_reynolds": "Taylor-scale Reynolds number, rms velocity times Taylor scale over "
    "viscosity",
}
_SCALES = {
    False: {
        "rms_velocity": "root mean square u' of a velocity component, without the mean",
        "integral_scale": "longitudinal integral scale L, pi/(2 u'^2) times the sum over modes of "
        "their energy over k",
        "taylor_scale": "transverse Taylor scale, u' sqrt(15 viscosity / eps), "
        "eps = 2 viscosity enstrophy",
        "kolmogorov_scale": "Kolmogorov length (viscosity^3 / eps)^(1/4), eps = 2 viscosity "
        "enstrophy",
        "kolmogorov_time": "Kolmogorov time sqrt(viscosity / eps), eps = 2 viscosity enstrophy",
        "kmax_eta": "resolution, largest wavenumber that is kept along every axis times Kolmogorov "
        "length; 1 and more resolves",
    },
    True: {
        "rms_velocity": "root mean square u' of a velocity component in the plane, without the "
        "mean",
        "integral_scale": "longitudinal integral scale L in two dimensions, 2/u'^2 times the sum "
        "over modes of their energy over k",
        "taylor_scale": "transverse Taylor scale in two dimensions, u' sqrt(8 viscosity / eps), "
        "eps = 2 viscosity enstrophy",
        "kraichnan_scale": "Kraichnan length (viscosity^3 / chi)^(1/6), chi = 2 viscosity "
        "palinstrophy",
        "kraichnan_time": "Kraichnan time chi^(-1/3), chi = 2 viscosity palinstrophy",
        "kmax_eta": "resolution in two dimensions, largest wavenumber that is kept along both axes "
        "times Kraichnan length; 1 and more resolves",
    },
}
# Pictures of more fields than these show their energies as one.
_MOST_PARTS = 4
_KINDS = {"velocity": "kinetic"}
# The scales among the results of a run, with their names there.
_SHOWN_SCALES = {"turnover_time": "turnover time", "taylor_reynolds": "Taylor Reynolds number"}
# The remedy where the smallest eddies are not resolved.
_FINER = "use more grid.points, or a larger equation.viscosity"
# The state of diagnostics that a copy needs.
_REMEMBERED = "_budget", "_scales", "_least_resolved", "_largest_wire_error", "_energies"


def labels_of(
    fields: list[FieldParts],
    model: Lowered,
    is_forced: bool,
    has_driving: bool,
    is_plane: bool = False,
) -> dict[str, str]:
    """Return the long names of the diagnostics and spectra of a model."""
    labels = {name: text for name, text in _LABELS.items() if "{}" not in text}
    labels |= _ALL_SCALES | _SCALES[is_plane]
    if is_forced:
        labels["injection"] = "power of forces, mean of force times field"
    if has_driving:
        labels["driving"] = "rate at which linear terms that amplify add energy"
    if len(fields) > 1:
        labels["energy"] += f": {_sum_of_squares([f for f in fields if f.first < model.active])}"
        for field in fields:
            labels[f"{field.name}_energy"] = f"mean of half the square of {field.name}"
            labels[f"{field.name}_spectrum"] = f"spectrum of {field.name}, sums to its energy"
    for prefix, gains in budgets_of(model).items():
        name = prefix.removesuffix("_")
        labels |= {prefix + own: text.format(name) for own, text in _OWN_BUDGET.items()}
        for gain in gains:
            labels[gain] = f"rate at which {name} gains energy from other fields"
        if name in model.passive:
            labels[f"{prefix}energy"] = f"mean of half the square of {name}"
            for gain in gains:
                labels[gain] = f"rate at which the mean gradient adds to {prefix}energy"
    for name, gaining in model.gains.items():
        if not gaining:
            labels[name] = "rate at which the energy as a whole gains from outside"
    for name in model.losses:
        labels[name] = "rate at which products take energy away, a part of the dissipation"
    for name in model.plane_vectors:
        labels[f"{name}_spectrum"] = f"spectrum of {name}, sums to half its mean square"
    for prefix, field in vectors_of(fields):
        for name in ("enstrophy", "helicity", "divergence"):
            labels[prefix + name] = _LABELS[name].format(field.name)
        if field.is_magnetic:
            del labels[prefix + "helicity"]
            labels["current_helicity"] = f"current helicity, mean of {field.name}.curl {field.name}"
            labels["magnetic_helicity"] = (
                f"magnetic helicity, mean of a.{field.name}, curl a = {field.name} less its mean"
            )
    return labels


def _sum_of_squares(fields: list[FieldParts]) -> str:
    """Return the sum of squares in the energy, so that nobody takes it for the velocity's alone."""
    names = [field.name for field in fields]
    shown = names if len(names) < 6 else [*names[:4], "...", names[-1]]
    return f"({' + '.join(name if name == '...' else f'{name}^2' for name in shown)})/2"


def pictures_of(
    fields: list[FieldParts],
    densities: list[str],
    means: list[str],
    cospectra: list[str],
    plane_vectors: list[str],
    flat: str = "",
    cutoff: float = 0.0,
    passive: Sequence[str] = (),
    forces: Sequence[str] = (),
) -> PictureChoice:
    """Return the pictures of a run: curls, the density of a complex field, or a scalar."""
    vectors = [field for field in fields if field.is_vector]
    # The two parts of a wave function are drawn as one: its phase turns one into the other.
    parts = fields if 1 < len(fields) <= _MOST_PARTS and not densities else []
    active = [field for field in fields if field.name not in passive]
    if len(active) == 1:  # the energy of the only field is the energy of all
        parts = [field for field in parts if field not in active]
    energies = ("energy", *(f"{field.name}_energy" for field in parts))
    has_energy = bool(vectors) or not means
    own_spectra = [f"{name}_spectrum" for name in plane_vectors] or [
        "energy_spectrum",
        *(f"{field.name}_spectrum" for field in parts),
    ]
    curves = (energies, ("dissipation", "injection", "driving"), tuple(forces))
    return PictureChoice(
        curves=curves if has_energy else tuple((name,) for name in means[:3]),
        curves_file="energy.png",
        peak="dissipation" if has_energy else "",
        planes=_planes(fields, densities, flat, len(plane_vectors)),
        spectra=(*own_spectra, *cospectra),
        cutoff=cutoff,
        # A wave function has no inertial range.
        may_have_inertial_range=bool(vectors or plane_vectors) and not densities,
        # Long names suit files; an axis needs few words.
        short_labels={
            "energy": r"energy of all fields $E$"
            if len(active) > 1 and not parts
            else r"energy $E$"
            if parts or not vectors
            else ("kinetic energy\n" if forces else "kinetic energy ")
            + r"$\langle u^2 \rangle / 2$",
            "dissipation": r"dissipation $\varepsilon$",
            own_spectra[0]: "energy per shell $E(k)$",
            "vorticity_magnitude": r"magnitude of vorticity $|\omega|$",
            "current_density_magnitude": r"magnitude of current density $|j|$",
            **{f"vorticity_{axis}": rf"vorticity $\omega_{axis}$" for axis in AXES},
            **{f"current_density_{axis}": rf"current density $j_{axis}$" for axis in AXES},
            **{name: rf"density $|{_symbol(name)}|^2$" for name in densities},
            **{name: name.replace("_", "\n") for name in means},
            **{f.name: f.name.replace("_", " ") for f in fields if not f.is_vector},
        },
        group_labels={
            "energy": "energy $E$",
            "dissipation": "power",
            **dict.fromkeys(forces[:1], "force"),
        },
        legend={
            "energy": "all fields"
            if len(active) > 1
            else _KINDS.get(active[0].name, active[0].name),
            "dissipation": r"dissipation $\varepsilon$",
            "injection": "injection",
            "driving": "driving",
            **{name: f"on {name.replace('_force_', ', along ')}" for name in forces},
            **{f"{field.name}_energy": _KINDS.get(field.name, field.name) for field in parts},
            **{f"{name}_spectrum": _KINDS.get(name, name) for name in plane_vectors},
            **{f"{field.name}_spectrum": _KINDS.get(field.name, field.name) for field in parts},
        },
    )


def drawn_curls(fields: list[FieldParts]) -> dict[str, FieldParts]:
    """Return the names of the curls that are written and drawn, with their vectors."""
    vectors = [field for field in fields if field.is_vector]
    magnetic = [field for field in vectors[1:] if field.is_magnetic]
    found = dict(zip(["vorticity"], vectors, strict=False))
    return found | dict(zip(["current_density"], magnetic, strict=False))


def _planes(
    fields: list[FieldParts], densities: list[str], flat: str, scalars: int
) -> tuple[PlaneChoice, ...]:
    """Return the planes to draw; curls of plane flows have one component."""
    curls = drawn_curls(fields)
    if not curls:
        names = [*densities[:1], *(field.name for field in fields)][: max(1, scalars)]
        remark = "plane of largest mean square"
        return tuple(
            PlaneChoice(name, f"{name}.png", remark, energy=_energy_of(name, fields))
            for name in names
        )
    remarks = {"vorticity": "plane of largest enstrophy"}
    return tuple(
        PlaneChoice(
            field=f"{name}_{flat or 'magnitude'}",
            file=f"{name.removesuffix('_density')}.png",
            remark=remarks.get(name, "plane of largest mean square"),
            # Otherwise a few intense filaments would leave everything else black.
            brightest=0.998,
            energy=_energy_of(field.name, fields),
        )
        for name, field in curls.items()
    )


def _energy_of(name: str, fields: Sequence[FieldParts]) -> str:
    """Return the column with the energy of a field, "" if there is none."""
    if name not in [field.name for field in fields]:
        return ""
    return f"{name}_energy" if len(fields) > 1 else "energy"


def _symbol(density: str) -> str:
    """Return the mathematical name of a complex field, from the name of its density."""
    name = density.removesuffix("_density")
    return rf"\{name}" if name in ("psi", "phi") else rf"\mathrm{{{name}}}"


class FlowDiagnostics:
    """Measures the state of a simulation, and remembers earlier measurements."""

    def __init__(self, simulation: SpectralSimulation) -> None:
        # A weak reference: the simulation owns this object.
        self._simulation: SpectralSimulation = weakref.proxy(simulation)
        self._comm = simulation.comm
        self._check_scalar_names()
        self._pairs = self._checked_pairs()

    @property
    def _problem(self) -> SpectralProblem:
        return self._simulation.problem

    @property
    def _flow(self) -> SpectralStep:
        return self._simulation.flow

    @property
    def _fields(self) -> list[FieldParts]:
        return self._simulation.parts

    @property
    def _forced(self) -> list[FieldParts]:
        """The field that each table of forcing drives."""
        tables = self._simulation.case.forcing
        return forced_fields(tables, self._fields, self._problem.model)

    # -- earlier measurements ---------------------------------------------------------------

    def begin(self) -> None:
        """Begin again, without earlier measurements."""
        self._scales: dict[str, float] = {}
        self._least_resolved = math.inf, 0.0
        self._largest_wire_error = 0.0
        self.forget_energies()

    def forget_energies(self) -> None:
        """Begin new budgets, since the state or the equations have changed."""
        bodies = self._simulation.bodies
        # The largest energy of each field that lives, by name.
        self._energies: dict[str, float] = {}
        # By the number of a table, for each step.
        self._names_of_forced = [field.name for field in self._forced]
        self._budget = EnergyBudget(
            self._fields,
            self._problem.model,
            self._viscosity_of_motion,
            self._flow.wavenumbers.largest,
            self._problem.has_driving,
            bool(self.flat_axis),
            () if bodies is None else bodies.fields(),
            self._stepped_fields(),
        )

    def _stepped_fields(self) -> set[str]:
        """Return the fields with forces that change from step to step, "" for bodies."""
        pairs = zip(self._names_of_forced, self._simulation.case.forcing, strict=True)
        found = {name for name, settings in pairs if is_stepped(settings)}
        return found if self._simulation.bodies is None else {*found, ""}

    def add_work(self, works: Mapping[int, float], of_bodies: float | None) -> None:
        """Add the work of a step: of forces by the number of their table, and of bodies."""
        if not works and of_bodies is None:
            return
        by_field = {"": of_bodies or 0.0}
        for number, work in works.items():
            name = self._names_of_forced[number]
            by_field[name] = by_field.get(name, 0.0) + work
        self._budget.add_work(by_field)

    def budget_state(self) -> np.ndarray | None:
        """Return what the next row of the same run needs of the rows and steps before, if any."""
        return self._budget.state()

    def read_budget(self, state: np.ndarray) -> None:
        """Continue with what `budget_state` returned."""
        self._budget.read(state)

    def recall(self, diagnostics: Mapping[str, float]) -> None:
        """Take the last diagnostics of the same run, for the budget of the next ones."""
        self._budget.recall(diagnostics)

    def kept(self) -> dict[str, Any]:
        """Return the state of the diagnostics, for `restore`."""
        return {name: copy.copy(getattr(self, name)) for name in _REMEMBERED}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned, perhaps in another simulation of the same case."""
        for name, value in kept.items():
            setattr(self, name, value)

    # -- means over the box ------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return box means; see `labels_of`."""
        unknowns = len(self._problem.model.unknowns)
        squares = sum_over_ranks(self._comm, component_sums(self._flow))[:, :unknowns]
        state, flat = self._flow.read_state(), self.flat_axis
        vectors = {
            field.name: self._vector_sums(state[field.first : field.first + 3])
            for field in self._fields
            if field.is_vector
        }
        means, motion = self._means(), None
        if (velocity := self._velocity) is not None:
            motion = vectors[velocity.name]
            if flat:
                modes = state[velocity.first : velocity.first + 3]
                motion = self._vector_sums(modes, AXES.index(flat))
        elif flat and (carried := self._plane_vectors.get("velocity")) is not None:
            modes = carried.stored_modes(slice(3))
            motion = self._vector_sums(modes, AXES.index(flat))
        (powers, steady), of_bodies = self._powers(squares), None
        columns: dict[str, float] = {}
        if (bodies := self._simulation.bodies) is not None:
            columns, of_bodies, held = bodies.measured()
            if powers is not None and velocity is not None:
                powers = {**powers, velocity.name: powers.get(velocity.name, 0.0) + held}
        gains = powers, steady, motion, of_bodies
        numbers = self._budget.update(self._simulation.time, squares, vectors, means, *gains)
        if self._problem.mirror is not None:
            # Between walls a flow and its mirror image have opposite helicities.
            numbers = {name: one for name, one in numbers.items() if not name.endswith("helicity")}
        names = (*LARGE, *SMALL[bool(self.flat_axis)])
        self._scales = {name: numbers[name] for name in names if name in numbers}
        self._note_resolution(numbers.get("kmax_eta", 0.0))
        self._note_deaths(numbers)
        if self._problem.wire is not None:
            numbers["wire_error"] = error = self._simulation.wire_error()
            self._largest_wire_error = max(error, self._largest_wire_error)
        return numbers | columns | means

    @property
    def _velocity(self) -> FieldParts | None:
        """The vector whose scales are those of turbulence, if there is one."""
        vectors = [field for field in self._fields if field.is_vector]
        if not vectors or (vectors[0].name != "velocity" and self._problem.viscosity is None):
            return None
        return vectors[0]

    @property
    def _viscosity_of_motion(self) -> float | None:
        problem = self._problem
        return problem.plane_viscosity if self._velocity is None else problem.viscosity

    def _vector_sums(self, vector: Array, across: int | None = None) -> VectorSums:
        """Return the sums over the modes of a vector, or of its part in a plane. Collective."""
        own = vector_sums(self._flow, vector, across)
        return VectorSums(*sum_over_ranks(self._comm, own).tolist())

    def _means(self) -> dict[str, float]:
        """Return the means over the box that the model defines. Collective."""
        followed = {name: self._problem.parameters[name] for name in self._problem.model.follows}
        if not self._problem.model.means:
            return followed
        from slipstream.spectral.evaluation import mean_over_box

        names = self._problem.model.means
        means = {name: mean_over_box(self._flow, name, self._comm) for name in names}
        return means | followed

    def forecast(self) -> list[str]:
        """Return the warning that the injection leads to eddies that the grid does not resolve."""
        injection, key, viscosity = *self._injected(), self._problem.viscosity
        if not injection or not viscosity or self.flat_axis:
            return []
        kmax_eta = self._flow.wavenumbers.largest * kolmogorov_length(viscosity, injection)
        if kmax_eta >= 1:
            return []
        return [
            f"{key}.injection: {injection:g} will make kmax_eta about "
            f"{below(kmax_eta, 1)}: below 1 {UNRESOLVED}; {_FINER}"
        ]

    def _injected(self) -> tuple[float, str]:
        """Return the given power of forces on the first vector, and the key of one of them."""
        total, key, tables = 0.0, "", self._simulation.case.forcing
        vector = next((field for field in self._fields if field.is_vector), None)
        for number, (settings, field) in enumerate(zip(tables, self._forced, strict=True)):
            if settings.power is not None and field == vector:
                total, key = total + settings.power, key_of("forcing", tables, number)
        return total, key

    @property
    def given_injection(self) -> float | None:
        """The power of all forces of the flow, if it is given."""
        powers = [settings.power for settings in self._simulation.case.forcing]
        return self._injected()[0] or None if powers and None not in powers else None

    def _note_resolution(self, kmax_eta: float) -> None:
        """Remember the resolution of the smallest eddies, 0 if there are none. Warn once."""
        time = self._simulation.time
        if 0 < kmax_eta < self._least_resolved[0]:
            if kmax_eta < 1 <= self._least_resolved[0]:
                text = f"kmax_eta is {below(kmax_eta, 1)} at t = {time:.4g}: below 1 {UNRESOLVED}"
                self._simulation.warn([f"{text}; {_FINER}"])
            self._least_resolved = kmax_eta, time

    def _note_deaths(self, numbers: Mapping[str, float]) -> None:
        """Remember the largest energy of each field; warn once of a field that has decayed."""
        for name in [field.name for field in self._fields]:
            energy, largest = numbers[_energy_of(name, self._fields)], self._energies.get(name, 0.0)
            if has_died(energy, largest):
                text = (
                    f"{name} has decayed to round-off: at t = {self._simulation.time:.4g} its root"
                    f" mean square is {math.sqrt(max(0.0, energy) / largest):.1e} of what it was,"
                    " and it is not drawn; use an initial state, or parameters, with which it lives"
                )
                self._simulation.warn([text])
                largest = math.nan  # which nothing is compared with again
            self._energies[name] = energy if energy > largest else largest

    def check_resolution(self) -> None:
        """Warn once if the smallest eddies are not resolved; no diagnostics change. Collective."""
        if self._viscosity_of_motion:
            budget = copy.copy(self._budget)
            self.diagnostics()
            self._budget = budget

    def indicators(self) -> dict[str, Fact]:
        """Return the resolution of the smallest eddies, by the last diagnostics."""
        return {"kmax_eta": Fact(self._scales.get("kmax_eta", 0.0))}

    def findings(self) -> dict[str, Fact]:
        """Return the last scales, the resolution, and the error of exchanges."""
        facts = {}
        for name, title in _SHOWN_SCALES.items():
            if self._scales.get(name):
                facts[title] = Fact(self._scales[name], "", **self._scales)
        if self._problem.wire is not None:
            facts["largest wire error"] = Fact(self._largest_wire_error, wire=self._problem.wire)
        least, time = self._least_resolved
        if least < 1:
            facts["least kmax_eta"] = Fact(least, time=time)
        return facts

    def _powers(self, squares: np.ndarray) -> tuple[dict[str, float] | None, dict[str, float]]:
        """Return the powers of forces by field, "" for the model's own; None without any.

        The second powers are of forces that follow from the flow and the time alone. The powers of
        linear forces are moved out of the driving rates in `squares`.
        """
        if not self._is_forced:
            return None, {}
        simulation, uniform = self._simulation, self._problem.uniform
        tables = simulation.case.forcing
        fields = self._forced
        powers = dict.fromkeys(("", *(field.name for field in fields)), 0.0)
        steady = dict(powers)
        by_table: dict[int | None, float] = {}
        if simulation.forcing:
            simulation.forcing.measure(simulation.time)
            by_table |= simulation.forcing.powers
        if self._problem.written is not None:
            by_table |= powers_of_linear_forces(tables, self._flow, fields, squares, self._comm)
        for number, power in by_table.items():
            name = "" if number is None else fields[number].name
            powers[name] += power
            if number is None or not is_stepped(tables[number]):
                steady[name] += power
        if any(uniform):
            modes = self._flow.modes_of(self._flow.read_state())
            power = float(np.dot(uniform, box_means(self._flow, modes, self._comm)))
            powers[""] += power
            steady[""] += power
        return powers, steady

    @property
    def _is_forced(self) -> bool:
        """Whether the flow has any force, even one of amplitude 0."""
        forced = bool(self._problem.forced) or any(self._problem.uniform)
        return bool(self._simulation.case.forcing) or forced

    def labels(self) -> dict[str, str]:
        """Return the long names of diagnostics and spectra."""
        means = {name: f"mean of {name}" for name in self._problem.model.means}
        means |= {name: f"{name}, as it follows the state" for name in self._problem.model.follows}
        pairs = {
            name: f"co-spectrum of {first} and {second}, sums to the mean of their product"
            for name, (first, second, _) in self._pairs.items()
        }
        model, problem = self._problem.model, self._problem
        driven = self._is_forced, problem.has_driving
        found = means | labels_of(self._fields, model, *driven, bool(self.flat_axis)) | pairs
        bodies = self._simulation.bodies
        return found if bodies is None else found | bodies.labels()

    def pictures(self) -> PictureChoice:
        """Return the pictures to draw at the end."""
        model = self._problem.model
        densities = [f"{name}_density" for name, _ in model.complexes]
        means = list(model.means)
        cutoff = Wavenumbers(
            self._problem.geometry, self._problem.lengths, self._problem.is_sheared
        ).largest
        pairs, carried = list(self._pairs), list(model.plane_vectors)
        drawn = self._fields, densities, means, pairs, carried
        bodies = self._simulation.bodies
        forces = [] if bodies is None else bodies.drawn_forces()
        choice = pictures_of(*drawn, self.flat_axis, cutoff, model.passive, forces)
        written = self._problem.written or model
        return replace(choice, balances_energy=written.balances_energy)

    @property
    def flat_axis(self) -> str:
        """The axis that a plane flow does not depend on, "" for other flows."""
        points = self._simulation.case.grid.points_xyz
        flat = [axis for axis, n in zip(AXES, points, strict=True) if n == 1]
        return flat[0] if len(flat) == 1 else ""

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the energy spectrum, which sums to the energy, and spectra of several fields."""
        ranges = {"energy_spectrum": (0, self._problem.model.active)}
        if len(self._fields) > 1:
            for field in self._fields:
                ranges[f"{field.name}_spectrum"] = field.first, field.size
        waves = self._flow.wavenumbers
        shells = waves.unit * np.arange(waves.shell_count)
        energies = {
            name: (shells, energy_spectrum(self._flow, *components, self._comm))
            for name, components in ranges.items()
        }
        energies |= {
            f"{name}_spectrum": (shells, vector.spectrum(self._comm))
            for name, vector in self._plane_vectors.items()
        }
        return energies | {
            name: (shells, first.cospectrum(second, self._comm, self._simulation.time))
            for name, (first, second) in self._cospectra.items()
        }

    @cached_property
    def _plane_vectors(self) -> dict[str, Evaluation]:
        """The vectors that follow from scalars in a plane, by name."""
        if not self._problem.model.plane_vectors:
            return {}
        from slipstream.spectral.evaluation import Evaluation

        return {name: Evaluation(self._flow, name) for name in self._problem.model.plane_vectors}

    @cached_property
    def _cospectra(self) -> dict[str, tuple[Evaluation, Evaluation]]:
        """The pairs of the requested co-spectra, by name."""
        if not self._pairs:
            return {}
        from slipstream.spectral.evaluation import Evaluation

        return {
            name: (Evaluation(self._flow, first, key), Evaluation(self._flow, second, key))
            for name, (first, second, key) in self._pairs.items()
        }

    def _check_scalar_names(self) -> None:
        """Refuse scalars whose name, columns or spectra are taken."""
        scalars = self._simulation.case.scalars
        if not scalars:
            return
        from slipstream.spectral.expressions import names_of_language

        model, scalar_names = self._problem.model, {scalar.name for scalar in scalars}
        other_fields = [field for field in self._fields if field.name not in scalar_names]
        gains = {mean: name for mean, name in model.gains.items() if name not in scalar_names}
        flow = replace(model, passive=(), gains=gains)
        columns = {*labels_of(other_fields, flow, True, True, bool(self.flat_axis)), "time", "step"}
        columns |= {*model.follows}
        columns |= {name for name in model.means if name not in model.gains or name in gains}
        columns |= {
            f"{field.name}_{ending}" for field in other_fields for ending in ("energy", "spectrum")
        }
        reserved = {*columns, *self._problem.parameters, *names_of_language(model)}
        reserved |= {
            str(unknown) for unknown in model.unknowns if unknown.field not in scalar_names
        }
        for number, name in enumerate(scalar.name for scalar in scalars):
            if name in reserved or columns & {f"{name}_{ending}" for ending in OF_SCALARS}:
                key = key_of("scalars", scalars, number)
                raise InputError(
                    f"{key}.name: {name!r} is taken, by a coordinate, function, quantity, parameter"
                    " or column of this model; accepted: another name"
                )

    def _checked_pairs(self) -> dict[str, tuple[str, str, str]]:
        """Return the requested co-spectra by name: two expressions of a kind, and their key."""
        pairs = {}
        for number, (first, second) in enumerate(self._simulation.case.output.cospectra, 1):
            from slipstream.spectral.expressions import quantity_of

            key = f"output.cospectra[{number}]"
            kinds = [quantity_of(text, self._problem, key).kind for text in (first, second)]
            if kinds[0] != kinds[1]:
                raise InputError(
                    f"{key}: {first!r} is {kinds[0]}, {second!r} is {kinds[1]}; accepted: two of a"
                    " kind"
                )
            name = f"{plain_name(first)}_{plain_name(second)}_cospectrum"
            pairs[name] = first, second, key
        return pairs
