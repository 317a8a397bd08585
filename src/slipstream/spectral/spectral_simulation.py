"""The simulation of a case by a pseudospectral method: its state and its recorded step."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.case import Case, SpectralCase
from slipstream.engine.accepted import MODELS
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import (
    collectively,
    greatest,
    largest,
    on_every_rank,
    sum_over_ranks,
)
from slipstream.engine.device import Device
from slipstream.engine.device.array_kernels import add_boxes, digest_kernel, empty_sums, total_of
from slipstream.engine.device_memory import ranks_per_device
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import RankPlace
from slipstream.engine.fields import (
    Fact,
    Field,
    Layout,
    PictureChoice,
    PilotFindings,
    PointValues,
    grid_field,
    places_of,
)
from slipstream.engine.schedule import CommittedStep, StepGraph, Timeline, commit
from slipstream.equations.fourier_forms import AXES
from slipstream.runs.simulation_base import Simulation
from slipstream.spectral import cfl
from slipstream.spectral.bodies import Bodies, bytes_of_bodies, check_bodies
from slipstream.spectral.cfl import LinearOperator
from slipstream.spectral.energy_budget import budget_kernels, budgets_of, component_sums
from slipstream.spectral.fields_at_points import (
    PointReader,
    PointWriter,
    check_coefficients,
    finite_variances,
    fit,
    set_coefficients,
    set_values,
    sum_of_squares,
)
from slipstream.spectral.flow_diagnostics import FlowDiagnostics, drawn_curls
from slipstream.spectral.followed_parameters import (
    FollowedParameters,
    bytes_of_averages,
    check_followed,
    cutoff_warnings,
)
from slipstream.spectral.forcing import Forcing, check_forcing
from slipstream.spectral.formula_parser import judge_loss
from slipstream.spectral.initial_flows import INITIAL_FLOWS, InitialFlow, InitialScalars
from slipstream.spectral.kept_modes import alias_warnings
from slipstream.spectral.memory_placement import fields_written_together, place, row_bytes
from slipstream.spectral.particles import Particles, bytes_of_particles, check_particles
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case, with_decomposition
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.sheared_frame import advance_frame, check_sheared, periods_after
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, key_of
from slipstream.spectral.spectrum import (
    curl_kernel,
    keep_sphere,
    make_real,
    spectrum_kernels,
    variances,
    vorticity,
)

# Modules that few simulations need are imported where they are used.
if TYPE_CHECKING:
    from slipstream.spectral.statistics import JointDensity

# The number of steps after which conjugate modes are made equal again, if linear terms make them
# grow.
_SYMMETRY_INTERVAL = 8
# The share of the energy that a sheared grid may drop without a warning.
_DROPPED = 1e-3
# The remedy where all fields are at rest.
_SOMETHING = "give an initial flow (initial) or a forcing, or set fields"
# What a copy needs in addition to the state.
_REMEMBERED = (
    "_is_measured",
    "_measured_at",
    "_rate",
    "_looked_at",
    "_largest_courant",
    "_dropped_by_shear",
)


class SpectralSimulation(Simulation):
    """A pseudospectral simulation of any model in a periodic box."""

    case: SpectralCase
    flow: SpectralStep
    needs_earlier = frozenset({"budget_residual", "work"})
    lasting = "energy", "enstrophy", "dissipation"

    @collectively
    def __init__(
        self, case: SpectralCase, comm: Comm = None, device: str | Device = "auto"
    ) -> None:
        super().__init__(case, comm, device)
        device = self.device
        of_node = RankPlace.of(comm).ranks_of_node
        if comm is not None:  # nodes may have different numbers of ranks: take the first
            of_node = comm.bcast(of_node, root=0)
        self._rank_place = RankPlace(self.rank, self.ranks, of_node)
        stated = self._stated(case, device)
        self.problem, self._fields = stated.problem, stated.fields
        self._forces, self._sources = stated.forces, stated.sources
        budgets = ["", *budgets_of(self.problem.model)]
        needed = {prefix + name for prefix in budgets[1:] for name in ("residual", "work")}
        if self.problem.held:  # the power of forces of constant energy is known after the step
            needed |= {f"{prefix}injection" for prefix in budgets}
        self.needs_earlier = self.needs_earlier | needed
        self.bodies: Bodies | None = None
        self.forcing: Forcing | None = None
        self._results = FlowDiagnostics(self)
        self._linear = LinearOperator(self.problem)
        self._followed: FollowedParameters | None = None
        cfl.check_step(case.time, self.problem, self._linear)
        self._initial: InitialFlow | None = None
        if case.initial.flow is not None:
            flow_of = INITIAL_FLOWS[case.initial.flow]
            self._initial = flow_of(self.problem, case.initial, self._fields)
        degree = self.problem.model.degree
        # The functions of shipped models are documented.
        is_known = math.isinf(degree) and case.equation.model in MODELS
        self._early_warnings = [
            *([] if is_known else alias_warnings(case.numerics.dealiasing, degree)),
            *check_forcing(case.forcing, self.problem, self._forces, self._sources),
            *check_coefficients(self.problem),
            *cutoff_warnings(self.problem),
        ]
        self._scalars = InitialScalars(self.problem, case.scalars, self._fields)
        self._early_warnings += self._scalars.warnings
        check_particles(case.particles, self.problem)
        self._early_warnings += check_bodies(case, self.problem)
        check_sheared(case, self.problem)
        self.placement = place(self.problem, case.run, device, comm)
        check_followed(self.problem, self.placement)
        self.device = self.placement.home
        self.transport = self.placement.transport
        self.schedule = case.run.schedule
        self._sharing = largest(comm, ranks_per_device(comm, device))
        # The number of steps of one size that are queued on a GPU before the host checks the
        # result.
        self._steps_under_way = 32 if device.kind != "cpu" else 1

    def _stated(self, case: SpectralCase, device: Device) -> StatedProblem:
        """Return this rank's problem for a case."""
        row = row_bytes(case.run, device)
        divided = with_decomposition(case, self._rank_place, device.processor)
        return problem_of_case(divided, self.rank, self.ranks, row)

    # -- before the run ----------------------------------------------------------------------

    def facts(self) -> dict[str, Fact]:
        """Return the equations, the discretisation, and the place of the fields. Collective."""
        case, problem = self.case, self.problem
        parameters = {name: value for name, value in case.equation.parameters.items() if value}
        kept = [modes.count for modes in reversed(problem.geometry.modes)]
        transforms = problem.model.transforms * problem.method.substages
        transforms += problem.model.averages.transforms if problem.model.averages else 0
        return {
            "equation": Fact(case.equation.model, parameters=parameters),
            "grid": Fact(
                case.grid.points_xyz, lengths=case.grid.lengths_xyz, walls=case.grid.walls
            ),
            "modes": Fact(kept, dealiasing=case.numerics.dealiasing),
            "precision": Fact(
                case.numerics.precision,
                wire=case.numerics.wire if self.transport != "none" else "none",
            ),
            "integrator": Fact(problem.method.name, transforms=transforms),
            **super().facts(),
            "ranks": Fact(self.ranks, to_a_device=self._sharing),
            **self._decomposition(),
            "schedule": Fact(self.schedule),
            **(self.placement.columns(self.flow.passes) if self._is_allocated else {}),
        }

    def _decomposition(self) -> dict[str, Fact]:
        grid = self.problem.geometry.grid
        if self.ranks == 1:
            return {}
        # As the case has it: ranks along y and z.
        along = None if grid is None else grid[::-1]
        return {"decomposition": Fact("slab" if grid is None else "pencil", grid=along)}

    def _device_facts(self) -> dict[str, Fact]:
        return self.placement.facts()

    @property
    def rank_dependence(self) -> str:
        """Why the bits of the state depend on the number of ranks; empty if they do not."""
        if self.problem.wire is not None:
            return "exchanged data are rounded"
        for number, settings in enumerate(self.case.forcing):
            key = key_of("forcing", self.case.forcing, number)
            if settings.injection is not None:
                return f"the force follows from a sum over ranks ({key}.injection)"
            if settings.kind == "constant-energy":
                return f"the force follows from a sum over ranks ({key}.kind)"
        follows = list(self.problem.model.follows)
        return f"{follows[0]} follows from a sum over ranks" if follows else ""

    @property
    def output_is_copied(self) -> bool:
        """Whether fields are on a GPU, from which they are copied for output."""
        return self.device.kind != "cpu"

    def memory(self) -> list[tuple[Device, int]]:
        """Return the memory that the ranks of one device need for fields, in bytes. Collective."""
        particles = bytes_of_particles(self.case.particles, self.problem)
        bodies = bytes_of_bodies(self.case.bodies, self.problem)
        averages = bytes_of_averages(self.problem, self.placement)
        beside = particles + bodies + averages
        taken = ranks_per_device(self.comm, self.placement.home) * beside
        return [(self.placement.home, self.placement.memory() + taken)]

    def _allocate(self) -> None:
        """Allocate the fields and record the step. Collective."""
        self._transport = self.placement.make_transport()
        self._check_memory()
        self.flow = SpectralStep(
            self.problem, self.device, self._transport, self.placement.passes()
        )
        self._follow_state()
        self.bodies = self._made_bodies()
        self._particles = None
        if self.case.particles:
            transport = self.placement.transport_of_all(self._transport)
            self._particles = Particles(self.case.particles, self.flow, transport, self.comm)
        else:
            self._record()

    def _follow_state(self) -> None:
        """Make what finds the parameters that follow the state, if there are any. Collective."""
        self._followed, self._has_followed = None, False
        if self.problem.model.follows:
            own = self.flow, self._transport, self.schedule, self.comm
            self._followed = FollowedParameters(*own)

    def _follow(self) -> None:
        """Update parameters that follow the state, unless they are current. Collective."""
        if self._followed is None or self._has_followed:
            return
        self.flow.follow(self._followed.find())
        self._has_followed = True
        if self.problem.model.linear_follows:
            self._linear = LinearOperator(self.problem)

    def _made_bodies(self) -> Bodies | None:
        """Make the bodies of the case, and note their columns. Collective."""
        if not self.case.bodies:
            return None
        bodies = Bodies(self.case.bodies, self.case.forcing, self.flow, self.comm)
        self.needs_earlier = self.needs_earlier | {
            "injection",
            *(f"{name}_injection" for name in bodies.fields()),
            *bodies.labels(),
        }
        return bodies

    def _record(self) -> None:
        """Record the step."""
        self._readers: dict[tuple[int, int], PointReader] = {}
        self._writers: dict[tuple[int, int], PointWriter] = {}
        flow, self._steps = self.flow, {}
        self._goes_ahead = flow.goes_ahead
        for odd in (False, True)[: 1 + self.problem.dealiasing.is_shifted]:
            parts = (
                flow.record_parts(odd) if self.problem.is_staged else [flow.record_step(is_odd=odd)]
            )
            self._steps[False, odd] = self._steps[True, odd] = [self._commit(one) for one in parts]
            if self._goes_ahead:
                step = flow.record_step(begins=False, is_odd=odd)
                self._steps[True, odd] = [self._commit(step)]
        # Kernels needed after the step are compiled while those of the step are.
        for kernel in (*spectrum_kernels(self.flow), *budget_kernels(self.flow)):
            kernel.begin()
        curl_kernel(self.flow).begin()
        digest_kernel(self.flow.device, self.problem.complex_dtype).begin()

    def _initialise(self) -> None:
        """Set the initial flow, or read the checkpoint of a restart."""
        self._results = FlowDiagnostics(self)
        self._results.begin()
        self._rate, self._looked_at = 0.0, -1
        self._largest_courant, self._measured_at = (0.0, self.time), self.time
        self.flow.tilt, self._dropped_by_shear = 0.0, 0.0
        warnings, initial = self._early_warnings + self._results.forecast(), self._initial
        warnings += self._force()
        if self.restart is not None:
            warnings += self._continue_from(self.restart)
        elif initial is not None:
            warnings += initial.warnings + initial.set(self.flow, self.comm)
            warnings += self._scalars.set(self.flow, self.comm, self._fields)
        keep_sphere(self.flow, self.flow.state)
        set_coefficients(self.flow)
        if self._particles is not None:
            if self.restored is None:
                self._particles.begin()
            else:
                warnings += self._particles.read(self.restored)
            self._record()  # with their memory, which is known only now
        self._warnings += warnings
        self._is_measured = self._has_followed = False
        self._follow()

    def _continue_from(self, folder: str) -> list[str]:
        """Read the state of an earlier run; return warnings. Collective."""
        from slipstream.files.checkpoint import BUDGET
        from slipstream.files.run_folder import open_earlier_run
        from slipstream.spectral.restart_state import (
            lacking_fields,
            read_state,
            read_tilt,
            superfluous,
        )

        flow, device, problem, initial = self.flow, self.device, self.problem, self._initial
        checkpoint, earlier = open_earlier_run(self.resumed or folder, self.case, self.comm)
        self.restored = checkpoint
        lacking = lacking_fields(checkpoint, self._fields, problem)
        flow.tilt = on_every_rank(
            self.comm, lambda: read_tilt(checkpoint, problem, bool(initial and lacking))
        )
        warnings = [*checkpoint.warnings]
        scalars = self._scalars.among(lacking)
        how = "as 0" if initial is None else f"with initial.flow = {self.case.initial.flow!r}"
        for field in [field for field in lacking if field not in scalars]:
            warnings.append(f"{folder} has no {field.name}: it begins {how}")
        for field in scalars:
            warnings.append(f"{folder} has no {field.name}: it begins as scalars.initial says")
        for name in superfluous(checkpoint, problem):
            warnings.append(f"{folder} has {name}, which is dropped: the model has none")
        if initial is not None and lacking:
            warnings += initial.warnings + initial.set(flow, self.comm)
        warnings += self._scalars.set(flow, self.comm, lacking)
        # Fields that the checkpoint has; modes that it lacks are 0.
        state = flow.state
        modes, kept = flow.modes_of(state), scalars if initial is None else lacking

        def put(component: int, where: tuple[slice, ...], values: np.ndarray) -> None:
            values = np.asarray(values, modes.dtype)  # a state may have another precision
            device.run(device.copy(modes[component][where], values))
            device.synchronize()  # before the values are gone

        def read() -> float | None:
            for field in [field for field in self._fields if field not in kept]:
                device.run(device.fill(state[field.first : field.first + field.size], 0))
            return read_state(checkpoint, earlier, folder, self.case, problem, put)

        stored = on_every_rank(self.comm, read)
        self.step, self.time = checkpoint.step, checkpoint.time
        if self.comm is not None:
            stored = sum(filter(None, self.comm.allgather(stored)))
        if stored:  # a coarser grid drops a share of the variance
            whole = flow.modes_of(flow.read_state())[: len(problem.model.unknowns)]
            remaining = variances(flow, whole, self.comm).sum()
            what = f"initial.restart: {folder} has modes that this grid cannot hold"
            warnings += judge_loss((stored - remaining) / stored, what, "use more points")

        def go_on() -> list[str]:
            if BUDGET in checkpoint.arrays:
                checkpoint.check_array(BUDGET, "f", 2)
                self._results.read_budget(checkpoint.read(BUDGET))
            return self.forcing.begin(self.step, checkpoint, folder) if self.forcing else []

        return warnings + on_every_rank(self.comm, go_on)

    def _force(self) -> list[str]:
        """Set the forces of the case and of the model; return warnings. Collective."""
        self.forcing = None
        if not (self.problem.forced or self.problem.held):
            return []
        self.forcing = Forcing(self.case.forcing, self.flow, self.comm, self._forces, self._sources)
        return self.forcing.warnings

    # -- stepping ----------------------------------------------------------------------------

    def step_size(self) -> float:
        """Return the next time step, fixed or from the Courant number. Collective."""
        time = self.case.time
        if not self._is_measured:
            # A step measures the velocity at its start: after the state was set, measure it now.
            self._check_dropped()
            self._follow()
            self.placement.run(self._commit(cfl.record_courant(self.flow)))
            self._is_measured, self._measured_at = True, self.time
            self._look()
            self._warnings += self._nothing_happens()
        elif time.step is not None and self.step % self._steps_under_way:
            return time.step
        elif self._looked_at != self.step:
            self._look()
        if math.isnan(self._rate):
            return math.nan
        if time.step is not None:
            return time.step
        assert time.cfl is not None  # a case has one of both
        step = time.cfl / self._rate if self._rate > 0 else math.inf
        return min(step, time.max_step or math.inf)

    def _check_dropped(self) -> None:
        """Refuse nonzero values of components without an equation. Collective."""
        dropped = self.problem.model.dropped
        if not dropped:
            return
        squares = sum_over_ranks(self.comm, component_sums(self.flow))[0]
        for component in dropped:
            if squares[component] > 1e-24 * squares.sum():
                name = self.problem.model.components[component]
                raise InputError(
                    f"numerics.plane: '2D2C', but {name} is not 0; accepted: fields in the plane,"
                    " or '2D3C'"
                )

    def _nothing_happens(self) -> list[str]:
        """Return the warning that all fields are zero and stay so. Collective."""
        moves = self._rate > self._linear.explicit_rate or math.isnan(self._rate)
        if moves or self.forcing or self.bodies or any(self.problem.uniform):
            return []
        squares = sum_over_ranks(self.comm, component_sums(self.flow))
        if squares[0, : len(self.problem.model.unknowns)].any():
            return []
        return ["all fields are 0 and no force drives them: they stay 0; " + _SOMETHING]

    def is_finite(self) -> bool:
        """Return whether the modes were finite at the end of the last step. Collective."""
        if not self._is_measured:  # fields that are set are finite
            return True
        if self._looked_at != self.step:
            self._look()
        return not math.isnan(self._rate)

    def _look(self) -> None:
        """Read the results of the last step. Collective.

        The rate is the Courant number over the step, plus the largest frequency of the model's
        waves, or the largest decay rate if decay is not integrated exactly; not-a-number if
        something is not finite.
        """
        rate = greatest(self.comm, cfl.courant_rate(self.flow)) + self._linear.explicit_rate
        self._rate = rate if math.isfinite(rate) else math.nan
        self._looked_at = self.step
        time = self.case.time
        if time.step is None or math.isnan(self._rate):
            self.courant = None
            return
        self.courant, most = self.courant_of(time.step), self._largest_courant[0]
        warned = cfl.warned_courant(self.problem)
        if most <= warned:
            self._warnings += cfl.too_large(self.courant, warned, time, self._measured_at)
        if self.courant > most:
            self._largest_courant = self.courant, self._measured_at

    def courant_of(self, step_size: float) -> float:
        """Return the Courant number of a step of this size, from the last measurement."""
        return step_size * self._rate if self._rate else 0.0

    @property
    def _lanes(self) -> int:
        """The number of lanes that work on a step in parallel."""
        return self.placement.lanes

    def _advance(self, step_size: float, profile: bool) -> Timeline | None:
        """Take one time step."""
        forcing, is_staged = self.forcing, self.problem.is_staged
        self._follow()
        factors = forcing.prepare(self.time, step_size) if forcing else None
        self.flow.set_step_size(step_size, factors)
        if self._particles is not None:
            self._particles.set_step_size(step_size)
        if self.bodies is not None:
            self.bodies.set_step(self.time, step_size)
        is_odd = self.problem.dealiasing.is_shifted and self.step % 2 == 1
        steps = self._steps[self.flow.is_ahead, is_odd]
        for substage, step in enumerate(steps):
            if forcing and is_staged:
                forcing.before(substage)
            self.placement.run(step, profile)
        if self._particles is not None and self._particles.after_step():
            self._record()
        works, of_bodies = {}, None
        if forcing:
            works = forcing.after(self.step, step_size)
            self._warnings += forcing.new_warnings()
        if self.bodies is not None:
            of_bodies = self.bodies.work()
            self._warnings += self.bodies.new_warnings()
        self._results.add_work(works, of_bodies)
        self.flow.is_ahead, self._has_followed = self._goes_ahead, False
        self._measured_at = self.time
        if self.problem.is_sheared:
            self._warnings += self._advance_frame(step_size)
        self.step += 1
        self.time += step_size
        if self._linear.grows and self.step % _SYMMETRY_INTERVAL == 0:
            make_real(self.flow, self.flow.state, self.comm, self.problem.signs)
        self._follow()
        timelines = [step.timeline for step in steps]
        return Timeline.merged(timelines, forget=True) if profile else None

    def _advance_frame(self, step_size: float) -> list[str]:
        """Tilt the frame of the modes by the shear; warn once of dropped energy. Collective."""
        flow, energies = self.flow, np.zeros(2)
        periods = periods_after(flow, step_size)
        if periods:
            energies[0] = component_sums(flow)[0].sum()
        advance_frame(flow, step_size, self.comm)
        if not periods:
            return []
        keep_sphere(flow, flow.state)
        energies[1] = component_sums(flow)[0].sum()
        before, after = sum_over_ranks(self.comm, energies)
        share = float(1 - after / before) if before > 0 else 0.0
        told = max(self._dropped_by_shear, _DROPPED)
        self._dropped_by_shear = max(self._dropped_by_shear, share)
        if not share > told:
            return []
        return [
            f"grid.points: {100 * share:.3g} % of the energy is dropped at t ="
            f" {self.time + step_size:.4g}, in modes that the sheared grid does not keep; use more"
            " points"
        ]

    def _take_settings(self, before: Case) -> None:
        """Change parameters, forces or time steps. Collective."""
        case, comm = self.case, self.comm

        def stated() -> tuple[StatedProblem, LinearOperator, list[str]]:
            new = self._stated(case, self.placement.device)
            problem, own = new.problem, self.problem
            if problem.model.components != own.model.components:
                raise InputError(
                    "this changes the fields of the model; make a new simulation for it"
                )
            check_sheared(case, problem)
            if self.flow.tilt and not problem.is_sheared:
                raise InputError(
                    "equation.shear: 0, but the frame of the modes is tilted; accepted: another"
                    " rate"
                )
            linear = LinearOperator(problem)
            cfl.check_step(case.time, problem, linear)
            warnings = [
                *check_forcing(case.forcing, problem, new.forces, new.sources),
                *check_coefficients(problem),
                *cutoff_warnings(problem),
            ]
            return new, linear, warnings

        now, linear, warnings = on_every_rank(comm, stated)
        assert isinstance(before, SpectralCase)
        stated_by = [(one.equation, one.scalars, one.forcing) for one in (case, before)]
        if stated_by[0] == stated_by[1]:
            self._linear = linear
            return
        problem, kept = now.problem, self.forcing.kept() if self.forcing else None
        if problem.steps_like(self.problem):
            self.flow.restate(problem)
        else:
            self._replace_step(problem)
        if self.bodies is not None:
            self.bodies.restate(self.case.forcing)
        self.problem, self._linear, self._fields = problem, linear, now.fields
        self._forces, self._sources = now.forces, now.sources
        self._follow_state()
        set_coefficients(self.flow)
        self._warnings += warnings + self._results.forecast() + self._force()
        if self.forcing:
            self.forcing.begin(self.step, None, None)
            self.forcing.go_on(kept or {"drawn": {}})
        self._follow()

    def _replace_step(self, problem: SpectralProblem) -> None:
        """Record the step of equations with other terms, and keep the state. Collective."""
        former = self.placement
        self.placement = place(problem, self.case.run, former.device, self.comm)
        try:
            check_followed(problem, self.placement)
            self._check_memory()
            home, passes = self.placement.home, self.placement.passes()
            transport = self.placement.make_transport()
            step = SpectralStep(problem, home, transport, passes)
            step.succeed(self.flow)
            self.flow, self._transport = step, transport
        except Exception:
            self.placement = former
            raise
        self.device = self.placement.home
        if self._particles is not None:
            transport = self.placement.transport_of_all(self._transport)
            self._particles.attach(self.flow, transport)
        self.bodies = self._made_bodies()
        self._record()

    # -- fields, between steps ---------------------------------------------------------------

    @property
    def parts(self) -> list[FieldParts]:
        """The fields, with their places in the state."""
        return self._fields

    def read_points(self, part: slice) -> Array:
        """Return components of the state at this rank's points, in a new array. Collective."""
        fields = self.flow.read_state()[part]
        shape = len(fields), *self.problem.geometry.physical_box.shape
        values = self.device.empty(shape, self.problem.real_dtype)
        if (part.start, part.stop) not in self._readers:
            reader = PointReader(self.flow, fields, self.problem.signs[part])
            self._readers[part.start, part.stop] = reader
        self._readers[part.start, part.stop].read(self.flow, values)
        return values

    def set_points(self, part: slice, values: Array, key: str) -> list[str]:
        """Set components of the state from values at points; return warnings of losses. Collective.

        Refused values leave the state unchanged.
        """
        if (part.start, part.stop) not in self._writers:
            target, signs = self.flow.stage[part], self.problem.signs[part]
            self._writers[part.start, part.stop] = PointWriter(self.flow, target, signs)
        writer = self._writers[part.start, part.stop]
        warnings = set_values(self.flow, values, key, self.comm, part.start, writer)
        self._note_fields()
        return warnings

    def read_modes(self, part: slice) -> Array:
        """Return the Fourier coefficients of components of the state, without copying them."""
        self.device.synchronize()
        return self.flow.modes_of(self.flow.read_state()[part])

    def set_modes(self, part: slice, modes: Array, key: str) -> list[str]:
        """Set components of the state from Fourier coefficients; see `set_points`."""
        target = self.flow.stage[part]
        target[...] = 0  # the padding of rows too
        self.device.run(self.device.copy(self.flow.modes_of(target), modes))
        warnings = self._made_real(target, part.start, key)
        warnings += fit(self.flow, target, part.start, key, self.comm)
        self.device.run(self.device.copy(self.flow.state[part], target))
        self._note_fields()
        return warnings

    def _made_real(self, fields: Array, first: int, key: str) -> list[str]:
        """Project components on those of real fields; return warnings of losses. Collective."""
        waves = finite_variances(self.flow, fields, first, key, self.comm)
        signs = self.problem.signs[first : first + len(fields)]
        warnings, (lost, means) = [], make_real(self.flow, fields, self.comm, signs)
        unknowns = self.problem.model.unknowns[first : first + len(fields)]
        for value, whole, part in zip(unknowns, waves + means, lost, strict=True):
            if not math.isfinite(whole):
                raise InputError(f"{key}: the mean of {value} is not a finite number")
            what = (
                f"{key}: {value} does not describe a real field: modes of -k on kx = 0 are not"
                " the conjugates of those of k"
            )
            warnings += judge_loss(part / whole if whole > 0 else 0.0, what, "set both")
        return warnings

    def recall(self, diagnostics: Mapping[str, float]) -> None:
        """Take the last diagnostics of the same run, for the budget of the next ones."""
        self._results.recall(diagnostics)

    def kept(self) -> dict[str, Any]:
        """Return the state, and everything else that later steps depend on."""
        kept = {**super().kept(), "fields": self.flow.kept(), "remembered": self._remembered()}
        if self._particles is not None:
            kept["particles"] = self._particles.kept()
        if self.bodies is not None:
            kept["bodies"] = self.bodies.kept()
        return kept

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned, perhaps in another simulation of the same case."""
        super().restore(kept)
        self.note_change()
        self.flow.restore(kept["fields"])
        self._recall_all(kept["remembered"])
        if self._particles is not None and self._particles.restore(kept["particles"]):
            self._record()
        if self.bodies is not None:
            self.bodies.restore(kept["bodies"])
        self._follow()

    @property
    def particles(self) -> Particles:
        """The particles that the flow advects."""
        if self._particles is None:
            raise InputError("particles: the case has none; give [[particles]], or particles=")
        return self._particles

    def place_particles(self, name: str, places: Any) -> None:
        """Restart the particles of a set at places [particle, 3]. Collective."""
        particles = self.particles.set_of(name)

        def checked() -> np.ndarray:
            return places_of(f"particles[{name!r}].positions", places, particles.settings.number)

        values = on_every_rank(self.comm, checked)
        # Of the fields, nothing has changed.
        super().note_change()
        if self.particles.set_places(particles, values):
            self._record()

    def paths(self, kind: str) -> Iterator[Field]:
        yield from self.particles.sample(kind.removeprefix("particles_"), self.time)

    def _remembered(self) -> dict[str, Any]:
        """Return the results of steps and diagnostics that later ones depend on."""
        return {
            **{name: copy.copy(getattr(self, name)) for name in _REMEMBERED},
            "tilt": self.flow.tilt,
            "forcing": self.forcing.kept() if self.forcing else None,
            "results": self._results.kept(),
        }

    def _recall_all(self, remembered: Mapping[str, Any]) -> None:
        for name in _REMEMBERED:
            setattr(self, name, remembered[name])
        self.flow.tilt = remembered["tilt"]
        if self.forcing and remembered["forcing"] is not None:
            self.forcing.restore(remembered["forcing"])
        self._results.restore(remembered["results"])

    def _note_fields(self) -> None:
        """Note that fields were set; at the start, particles begin with them. Collective."""
        self.note_change()
        if self._particles is not None:
            # Velocities along their paths jump. Where settings change, they do not.
            self._particles.forget_steps()
            if self.step == 0:
                self._particles.take_velocities()
        self._follow()

    def note_change(self) -> None:
        """Note that the state, or a setting, was changed."""
        super().note_change()
        self._is_measured = self._has_followed = False
        # Earlier energies and the past work of forces do not apply to the new state.
        self._results.forget_energies()
        if self.forcing:
            self.forcing.forget_work()
        if self.bodies is not None:
            self.bodies.forget()

    # -- results -----------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return box means; see `labels_of`."""
        self._follow()
        return self._results.diagnostics()

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the energy spectrum, which sums to the energy, and spectra of several fields."""
        return self._results.spectra()

    def labels(self) -> dict[str, str]:
        """Return the long names of diagnostics and spectra."""
        return self._results.labels()

    def pictures(self) -> PictureChoice:
        """Return the pictures to draw at the end."""
        return self._results.pictures()

    def indicators(self) -> dict[str, Fact]:
        """Return the resolution of the smallest eddies, by the last diagnostics."""
        return self._results.indicators()

    def pilot_findings(self, first_step: float, target: float, seconds: float) -> PilotFindings:
        """Return the findings of a pilot run. Collective."""
        from slipstream.spectral.pilot_run import pilot_findings

        return pilot_findings(self, first_step, target, seconds)

    def findings(self, seconds: float, steps: int) -> dict[str, Fact]:
        """Return the last scales, the Courant number of fixed steps, and the resolution."""
        facts = self._results.findings()
        if self.courant is not None:
            most, time = self._largest_courant
            limit, method = cfl.stable_courant(self.problem), self.problem.method.name
            facts["largest Courant number"] = Fact(most, time=time, limit=limit, method=method)
        return facts

    def check_resolution(self) -> None:
        """Warn once if the smallest eddies are not resolved; no diagnostics change. Collective."""
        self._results.check_resolution()

    @property
    def given_injection(self) -> float | None:
        """The power of all forces of the flow, if it is given."""
        return self._results.given_injection

    def wire_error(self) -> float:
        """Return the error of exchanges in the last step. Collective."""
        self.device.synchronize()
        return self._transport.relative_error(self.comm) if self._transport else 0.0

    def statistics(self, kind: str) -> Iterator[Field]:
        """Yield one kind of `STATISTICS` of the state, made in the memory of the stage."""
        from slipstream.spectral.statistics import STATISTICS

        if self.problem.mirror is not None and kind in ("correlation", "structure"):
            raise InputError(f"statistics: {kind!r} with grid.walls; accepted: transfer, pdf")
        return STATISTICS[kind](self.flow, self._fields, self.comm)

    def fields(self) -> Iterator[Field]:
        """Yield all fields at the points, |psi|^2 of complex ones, and curls of `drawn_curls`."""
        unknowns, state = self.problem.model.unknowns, self.flow.state
        points, flat = self._each_points(state[: len(unknowns)]), self._results.flat_axis
        signs = self.problem.signs
        for value in unknowns:
            along = "" if value.component is None else f" along {AXES[value.component]}"
            # No name and no zip may hold the values while the next are made.
            yield self._field(str(value), next(points), value.field + along)
        for name, first in self.problem.model.complexes:
            density = sum_of_squares(self.flow, state[first : first + 2], signs[first : first + 2])
            yield self._field(f"{name}_density", density, f"|{name}|^2")
            del density
        for name, field in drawn_curls(self._fields).items():
            text = name.replace("_", " ")
            curl = vorticity(self.flow, field.first)
            of_curl = [-sign for sign in signs[field.first : field.first + 3]]
            if flat:
                axis = AXES.index(flat)
                across = self._points_of(curl[axis : axis + 1], of_curl[axis : axis + 1])[0]
                yield self._field(f"{name}_{flat}", across, f"{text} across the plane")
                del across
                curl = vorticity(self.flow, field.first)  # its memory has been reused since
            magnitude = sum_of_squares(self.flow, curl, of_curl)
            np.sqrt(magnitude, out=magnitude)
            yield self._field(f"{name}_magnitude", magnitude, f"{text} magnitude")
            del magnitude

    def layout(self) -> Layout:
        """Return where the points are."""
        geometry = self.problem.geometry
        lines = dict(zip("zyx", self.problem.point_lines, strict=True))
        boxes = tuple(geometry.physical_boxes)
        walls = self.case.grid.walls
        return Layout(geometry.shape, boxes, lines, walls=walls, slide=self._slide)

    def _slide(self) -> float:
        """Return the shift along x, by the shear, of the periodic images along y."""
        return self.flow.tilt * self.problem.lengths[1]

    def density(
        self, of: Sequence[Any], means: Sequence[Any], bins: Sequence[int], where: str
    ) -> JointDensity:
        """Return the object that computes a probability density and conditional means."""
        from slipstream.spectral.statistics import JointDensity

        return JointDensity(self, of, means, bins, where)

    def point_values(self, of: Any, where: str) -> PointValues:
        """Return the evaluator of a name, or of an expression in the language of equations."""
        from slipstream.spectral.evaluation import ExpressionValues

        return ExpressionValues(self, of, where)

    def checkpoint(self) -> Iterator[Field]:
        """Yield the Fourier coefficients of the state."""
        state = self.flow.modes_of(self.device.to_host(self.flow.read_state()))
        from slipstream.files.checkpoint import BUDGET, TILT

        geometry = self.problem.geometry
        for value, modes in zip(self.problem.model.unknowns, state, strict=False):
            name = str(value).replace("_", " ")
            yield Field(
                name=f"{value}_hat",
                dims=("kz", "ky", "kx"),
                shape=geometry.spectral_shape,
                offset=geometry.spectral_box.start,
                data=modes,
                attributes={"long_name": f"Fourier coefficients of {name}"},
            )
        if self.problem.is_sheared:
            yield Field(
                name=TILT,
                dims=("frame",),
                shape=(1,),
                offset=(0,),
                data=np.full(int(self.rank == 0), self.flow.tilt),
                attributes={"long_name": "wavenumbers along y are reduced by this times kx"},
            )
        budget = self._results.budget_state()
        if budget is not None:
            yield Field(
                name=BUDGET,
                dims=("budget", "number"),
                shape=budget.shape,
                offset=(0, 0),
                data=budget[: len(budget) * (self.rank == 0)],
                attributes={"long_name": "work of forces, and two rows before, by energy budget"},
            )
        if self._particles is not None:
            yield from self._particles.checkpoint()
        if self.forcing:
            yield from self.forcing.fields()

    def _digest_sum(self) -> np.ndarray:
        geometry, flow = self.problem.geometry, self.flow
        state, sums = flow.read_state(), empty_sums(flow.device)
        box = geometry.spectral_box
        fields = state[: len(self.problem.model.unknowns)]
        flow.device.synchronize()
        add_boxes(flow.device, fields, sums, box.shape[2], box.start, geometry.spectral_shape)
        if self._particles is not None:
            self._particles.add_to_digest(
                sums, 2 * len(fields) * math.prod(geometry.spectral_shape)
            )
        return total_of(flow.device, sums)

    def _each_points(self, spectral: Any) -> Iterator[np.ndarray]:
        """Yield spectral fields at this rank's grid points; some are transformed together."""
        together = fields_written_together(self.problem)
        for low in range(0, len(spectral), together):
            signs = self.problem.signs[low : low + together]
            yield from self._points_of(spectral[low : low + together], signs)

    def _points_of(self, spectral: Any, signs: Sequence[int]) -> np.ndarray:
        """Return spectral fields at this rank's grid points, on the host."""
        shape = len(spectral), *self.problem.geometry.physical_box.shape
        empty: Any = self.device.empty if self.placement.on_disk else np.empty
        values: np.ndarray = empty(shape, self.problem.real_dtype)
        PointReader(self.flow, spectral, signs).read(self.flow, values)
        return values

    def _field(self, name: str, values: np.ndarray, long_name: str) -> Field:
        geometry = self.problem.geometry
        start, lines = geometry.physical_box.start, self.problem.point_lines
        return grid_field(name, long_name, values, start, lines)

    def _commit(self, graph: StepGraph) -> CommittedStep:
        return commit(graph, self.case.run.schedule)
