"""Diagnostics of a state: means over the box, spectra, labels, pictures, and resolution."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.array_types import Array
from slipstream.case.output_tables import plain_name
from slipstream.collective import sum_over_ranks
from slipstream.equations.fourier_forms import AXES
from slipstream.errors import InputError
from slipstream.printable_text import below
from slipstream.simulation.solver_values import UNRESOLVED, Fact, PictureChoice
from slipstream.spectral.diagnostic_labels import OF_SCALARS, labels_of, pictures_of
from slipstream.spectral.energy_budget import EnergyBudget, component_sums, vector_sums
from slipstream.spectral.forcing import forced_fields, key_of, powers_of_linear_forces
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem
from slipstream.spectral.spectrum import box_means, energy_spectrum
from slipstream.spectral.turbulence_scales import LARGE, SMALL, VectorSums, kolmogorov_length

# Modules that few runs need are imported where they are used.
if TYPE_CHECKING:
    from slipstream.spectral.evaluation import Evaluation
    from slipstream.spectral.runge_kutta_step import SpectralStep
    from slipstream.spectral.spectral_simulation import SpectralSimulation

# The scales among the results of a run, with their names there.
_SHOWN_SCALES = {"turnover_time": "turnover time", "taylor_reynolds": "Taylor Reynolds number"}
# The remedy where the smallest eddies are not resolved.
_FINER = "use more grid.points, or a larger equation.viscosity"
# The state of diagnostics that a copy needs.
_REMEMBERED = "_budget", "_scales", "_least_resolved", "_largest_wire_error"


class FlowDiagnostics:
    """Measures the state of a simulation, and remembers earlier measurements.

    Energy budgets compare a state with the last one that was measured.
    """

    def __init__(self, simulation: SpectralSimulation) -> None:
        # A weak reference: the simulation owns this object.
        self._simulation: SpectralSimulation = weakref.proxy(simulation)
        self._comm = simulation.comm
        self._check_scalar_names()
        self._check_cospectra()

    @property
    def _problem(self) -> SpectralProblem:
        return self._simulation.problem

    @property
    def _flow(self) -> SpectralStep:
        return self._simulation.flow

    @property
    def _fields(self) -> list[FieldParts]:
        return self._simulation.parts

    # -- earlier measurements----------------------------------------------------------------

    def begin(self) -> None:
        """Begin again, without earlier measurements."""
        self._scales: dict[str, float] = {}
        self._least_resolved = math.inf, 0.0
        self._largest_wire_error = 0.0
        self.forget_energies()

    def forget_energies(self) -> None:
        """Begin new budgets, since the state or the equations have changed."""
        bodies = self._simulation.bodies
        self._budget = EnergyBudget(
            self._fields,
            self._problem.model,
            self._viscosity_of_motion,
            self._flow.wavenumbers.largest,
            self._problem.has_driving,
            bool(self.flat_axis),
            () if bodies is None else bodies.fields(),
        )

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
                own = state[velocity.first : velocity.first + 3]
                motion = self._vector_sums(own, AXES.index(flat))
        elif flat and (carried := self._plane_vectors.get("velocity")) is not None:
            own = carried.stored_modes(slice(3))
            motion = self._vector_sums(own, AXES.index(flat))
        powers, of_bodies = self._powers(squares), None
        columns: dict[str, float] = {}
        if (bodies := self._simulation.bodies) is not None:
            columns, of_bodies, held = bodies.measured()
            if powers is not None and velocity is not None:
                powers = {**powers, velocity.name: powers.get(velocity.name, 0.0) + held}
        gains = powers, motion, of_bodies
        found = self._budget.update(self._simulation.time, squares, vectors, means, *gains)
        if self._problem.mirror is not None:
            # Between walls a flow and its mirror image have opposite helicities.
            found = {name: one for name, one in found.items() if not name.endswith("helicity")}
        names = (*LARGE, *SMALL[bool(self.flat_axis)])
        self._scales = {name: found[name] for name in names if name in found}
        self._note_resolution(found.get("kmax_eta", 0.0))
        if self._problem.wire is not None:
            found["wire_error"] = error = self._simulation.wire_error()
            self._largest_wire_error = max(error, self._largest_wire_error)
        return found | columns | means

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
        fields = forced_fields(tables, self._fields, self._problem.model)
        vector = next((field for field in self._fields if field.is_vector), None)
        for number, (settings, field) in enumerate(zip(tables, fields, strict=True)):
            if settings.power is not None and field == vector:
                total, key = total + settings.power, key_of(tables, number)
        return total, key

    @property
    def given_injection(self) -> float | None:
        """The power of all forces of the flow, if it is given."""
        is_given = [settings.power is not None for settings in self._simulation.case.forcing]
        return self._injected()[0] or None if is_given and all(is_given) else None

    def _note_resolution(self, kmax_eta: float) -> None:
        """Remember the resolution of the smallest eddies, 0 if there are none. Warn once."""
        time = self._simulation.time
        if 0 < kmax_eta < self._least_resolved[0]:
            if kmax_eta < 1 <= self._least_resolved[0]:
                text = f"kmax_eta is {below(kmax_eta, 1)} at t = {time:.4g}: below 1 {UNRESOLVED}"
                self._simulation.warn([f"{text}; {_FINER}"])
            self._least_resolved = kmax_eta, time

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
        found = {}
        for name, title in _SHOWN_SCALES.items():
            if self._scales.get(name):
                found[title] = Fact(self._scales[name], "", **self._scales)
        if self._problem.wire is not None:
            found["largest wire error"] = Fact(self._largest_wire_error, wire=self._problem.wire)
        least, time = self._least_resolved
        if least < 1:
            found["least kmax_eta"] = Fact(least, time=time)
        return found

    def _powers(self, squares: np.ndarray) -> dict[str, float] | None:
        """Return the powers of forces by field, "" for the model's own; None without any.

        The powers of linear forces are moved out of the driving rates in `squares`.
        """
        if not self._is_forced:
            return None
        simulation, uniform = self._simulation, self._problem.uniform
        tables = simulation.case.forcing
        fields = forced_fields(tables, self._fields, self._problem.model)
        powers = dict.fromkeys(("", *(field.name for field in fields)), 0.0)
        found: dict[int | None, float] = {}
        if simulation.forcing:
            simulation.forcing.measure(simulation.time)
            found |= simulation.forcing.powers
        if self._problem.written is not None:
            found |= powers_of_linear_forces(tables, self._flow, fields, squares, self._comm)
        for number, power in found.items():
            powers["" if number is None else fields[number].name] += power
        if any(uniform):
            modes = self._flow.modes_of(self._flow.read_state())
            powers[""] += float(np.dot(uniform, box_means(self._flow, modes, self._comm)))
        return powers

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
        return pictures_of(*drawn, self.flat_axis, cutoff, model.passive, forces)

    @property
    def flat_axis(self) -> str:
        """The axis that a plane flow does not depend on, "" for other flows."""
        points = self._simulation.case.grid.points_xyz
        flat = [axis for axis, n in zip(AXES, points, strict=True) if n == 1]
        return flat[0] if len(flat) == 1 else ""

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the energy spectrum, which sums to the energy, and spectra of several fields.

        Vectors that follow from scalars in a plane have spectra too.
        """
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

    @property
    def _pairs(self) -> dict[str, tuple[str, str, str]]:
        pairs = enumerate(self._simulation.case.output.cospectra, 1)
        return {
            f"{plain_name(first)}_{plain_name(second)}_cospectrum": (
                first,
                second,
                f"output.cospectra[{number}]",
            )
            for number, (first, second) in pairs
        }

    def _check_scalar_names(self) -> None:
        """Refuse scalars whose name, columns or spectra are taken."""
        scalars = self._simulation.case.scalars
        if not scalars:
            return
        from slipstream.spectral.expressions import names_of_language

        model, own = self._problem.model, {one.name for one in scalars}
        others = [field for field in self._fields if field.name not in own]
        gains = {mean: name for mean, name in model.gains.items() if name not in own}
        flow = replace(model, passive=(), gains=gains)
        columns = {*labels_of(others, flow, True, True, bool(self.flat_axis)), "time", "step"}
        columns |= {*model.follows}
        columns |= {name for name in model.means if name not in model.gains or name in gains}
        columns |= {f"{one.name}_{ending}" for one in others for ending in ("energy", "spectrum")}
        taken = {*columns, *self._problem.parameters, *names_of_language(model)}
        taken |= {str(one) for one in model.unknowns if one.field not in own}
        for number, name in enumerate(one.name for one in scalars):
            if name in taken or columns & {f"{name}_{ending}" for ending in OF_SCALARS}:
                key = "scalars" if len(scalars) == 1 else f"scalars[{number + 1}]"
                raise InputError(
                    f"{key}.name: {name!r} is taken, by a coordinate, function, quantity, parameter"
                    " or column of this model; accepted: another name"
                )

    def _check_cospectra(self) -> None:
        """Refuse co-spectra of unknown fields, or of two of different kinds."""
        if not self._pairs:
            return
        from slipstream.spectral.expressions import quantity_of

        for first, second, key in self._pairs.values():
            kinds = [quantity_of(one, self._problem, key).kind for one in (first, second)]
            if kinds[0] != kinds[1]:
                raise InputError(
                    f"{key}: {first!r} is {kinds[0]}, {second!r} is {kinds[1]}; accepted: two of a"
                    " kind"
                )
