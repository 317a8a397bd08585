"""A lattice Boltzmann run of `slipstream run`: from a case to a flow, its results and its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import Case, LatticeCase
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import (
    collectively,
    largest,
    on_all_ranks,
    on_every_rank,
    on_first_rank,
    sum_over_ranks,
)
from slipstream.engine.decomposition import slabs
from slipstream.engine.device import Device
from slipstream.engine.device_memory import ranks_per_device
from slipstream.engine.error_terms import CASES, Terms, in_terms_of, spelled
from slipstream.engine.errors import InputError, bytes_of
from slipstream.engine.exchange import chosen_transport, make_transport
from slipstream.engine.fields import (
    ArrayValues,
    Fact,
    Field,
    Layout,
    PictureChoice,
    PilotFindings,
    PointValues,
)
from slipstream.engine.schedule import Timeline
from slipstream.engine.text import shown
from slipstream.files.checkpoint import Checkpoint
from slipstream.files.run_folder import open_earlier_run
from slipstream.lattice.acceleration import vectors_that_fit
from slipstream.lattice.coarse_start import begin_coarsely
from slipstream.lattice.convergence import DARCY, FlowSums, Steadiness, drive_of, resisted_force
from slipstream.lattice.domain_decomposition import Subdomain, no_path_text
from slipstream.lattice.flow_domain import Domain, open_domain, porosity_of_planes, read_pores
from slipstream.lattice.fluid import Units, fluid_of, physical_fluid_of, with_relaxation_time
from slipstream.lattice.lattice_checkpoint import (
    AXES_TABLE,
    AxisRecord,
    axes_table,
    check_same_image,
    rank_0_field,
    read_axes,
    read_numbers,
    read_state,
    state,
)
from slipstream.lattice.lattice_report import (
    RankLoad,
    flow_findings,
    half_precision_text,
    mirrored_tensor_text,
    narrow_doubt,
    narrow_fact,
    no_coarse_start_text,
    no_room_to_measure_text,
    permeability_fact,
    picture_doubt,
    pore_memory_fact,
    problem_facts,
    ranks_fact,
    resolution_doubt,
    round_off_text,
    speed_findings,
    steady_fact,
    unmatched_text,
    unmeasured_text,
)
from slipstream.lattice.percolation import Connectivity
from slipstream.lattice.permeability_result import (
    CONVERGED,
    INTERRUPTED,
    MOST_STEPS,
    NO_PATH,
    ROUND_OFF,
    AxisFlow,
    FlowFields,
)
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.pressure_blocks import begin_kernels
from slipstream.lattice.resolution import resolution_error
from slipstream.lattice.storage_tuning import (
    Share,
    check_room,
    measured_storage,
    memory_needed,
    memory_with_output,
    storage_candidates,
    storage_wishes,
    worth_a_try,
)
from slipstream.lattice.velocity_set import AXES, TUNED, Storage, axes_of
from slipstream.lattice.voxel_fields import (
    FIELDS,
    LABELS,
    FlowSnapshot,
    VoxelFields,
    describe_field,
    picture_choice,
    snapshot_size,
)
from slipstream.runs.simulation_base import Simulation

# Pairs of steps that are queued on a GPU, at most, before the host waits for it.
_PAIRS_UNDER_WAY = 16
_LOOKS = "look"
# How many times the free memory an estimate has to be to be believed.
_FAR_TOO_LARGE = 2.0


class LatticeSimulation(Simulation):
    """Flow through the pores of a voxel image; its steps come in pairs, its time counts them.

    Parameters
    ----------
    case, comm, device
        As of every `Simulation`.
    image : optional
        An image in memory, or an object with a shape and ``read(box)``, instead of the case's file.
    terms : Terms
        How errors of the image name its keys.
    keeps_fields : bool, optional
        Whether the fields of each axis are kept, or only sums; None if they are written.
    coarsening : int
        How many times larger the voxels are than those of the image that was asked for.
    """

    shortens_steps = False
    timed = "a pair of time steps"
    lasting = ("permeability_lattice",)

    case: LatticeCase
    domain: Domain
    subdomain: Subdomain
    found: Connectivity  # of the sample, without layers of pore before and behind it
    sites: int
    flow: PoreFlow

    @collectively
    def __init__(
        self,
        case: LatticeCase,
        comm: Comm = None,
        device: str | Device = "auto",
        *,
        image: Any = None,
        terms: Terms = CASES,
        keeps_fields: bool | None = None,
        coarsening: int = 1,
    ) -> None:
        super().__init__(case, comm, device)
        self.given_image, self.terms = image, terms
        self.keeps_fields, self.coarsening = keeps_fields, coarsening
        self.schedule = case.run.schedule
        self.transport = "none"
        if comm is not None:
            self.transport = chosen_transport(case.run.transport, comm, self.device)
        self._axes = axes_of(case.flow.axis)
        self._loads: list[RankLoad] = []
        # The candidates, or the chosen storage; and the seconds of the measured ones.
        self._storages = worth_a_try(storage_wishes(case.numerics), self.device.processor)
        self._tried: dict[Storage, float] = {}

    # -- before the run ----------------------------------------------------------------------

    def check_size(self) -> None:
        """Refuse an image whose pores, by those of some planes, are far too many. Collective."""
        case, device, axis = self.case, self.device, AXES[self._axes[0]]
        domain = open_domain(case.image, axis, self.comm, self.given_image, self.terms)
        with in_terms_of(self.terms):
            porosity = on_first_rank(self.comm, lambda: porosity_of_planes(domain))
        voxels = math.prod(domain.shape) // self.ranks
        share = Share(int(porosity * voxels), voxels, {})
        need = min(memory_needed(share, storage, device.processor) for storage in self._storages)
        need *= ranks_per_device(self.comm, device)
        # Pores that lead nowhere, which are removed, may be half of all.
        if need > _FAR_TOO_LARGE * device.memory_free():
            check_room(self.comm, device, need, case.numerics.precision)

    def _read_image(self) -> None:
        """Read and decompose the image, unless that has been done. Collective."""
        if self._loads:
            return
        case = self.case
        image, axes = case.image, self._axes
        if case.convergence.vectors and case.ends_early:
            begin_kernels(self.device)
        self.domain = open_domain(image, AXES[axes[0]], self.comm, self.given_image, self.terms)
        with in_terms_of(self.terms):
            self.subdomain = read_pores(
                self.domain,
                image.walls,
                axes,
                self.device,
                self.comm,
                case.run.partition,
                image.isolated,
            )
        self._given_case = case
        self.case = case = with_relaxation_time(case, self.subdomain.width)
        self.found = self.subdomain.connectivity
        if self.domain.added:
            self.found = self.found.without_layers(self.domain.added)
        crossing = {peer: len(ends) for peer, ends in self.subdomain.neighbours.items()}
        self._share = Share(
            int(np.count_nonzero(self.subdomain.own[1:-1, 1:-1, 1:-1])),
            self.subdomain.box.size,
            crossing,
            self.transport,
        )
        self._storages = storage_candidates(
            self._storages, self.device, self.comm, self._own_memory
        )
        load = RankLoad(self._share.sites, len(self.subdomain.neighbours), self.device.identity)
        self._loads = [load] if self.comm is None else self.comm.allgather(load)
        self.sites = sum(one.sites for one in self._loads)

    def _own_memory(self, storage: Storage) -> int:
        """Return the bytes that this rank needs on its device, output included."""
        share, processor = self._share, self.device.processor
        if self.keeps_fields is None:
            return memory_with_output(share, storage, processor)
        kept = self.keeps_fields and processor == "cpu"
        return memory_needed(share, storage, processor) + kept * snapshot_size(share.sites, storage)

    def memory(self) -> list[tuple[Device, int]]:
        """Return the bytes that the ranks of one device need on it, at most. Collective."""
        self._read_image()
        mine = self.device.identity, np.array([self._own_memory(one) for one in self._storages])
        everyone = [mine] if self.comm is None else self.comm.allgather(mine)
        here = sum(needs for identity, needs in everyone if identity == self.device.identity)
        return [(self.device, int(np.max(here)))]

    def facts(self) -> dict[str, Fact]:
        """Return facts of problem, pores and method. Collective: reads and analyses the image."""
        self._read_image()
        facts = super().facts()
        if len(self._storages) > 1:
            facts["memory per device"].more["is_most"] = True
        most = max(one.sites for one in self._loads)
        steady = steady_fact(self.case, self.domain.shape, most, self._storages[0])
        sharing = sum(one.device == self.device.identity for one in self._loads)
        facts["memory per device"].more["vectors"] = sharing * steady.get("bytes")
        faces = unmatched_text(self.subdomain)
        return {
            **problem_facts(self.case, self.domain, self.found),
            "steady flow": steady,
            "memory per pore": pore_memory_fact(
                self.case, self.domain.shape, most, self._storages[0]
            ),
            "narrow pores": narrow_fact(self.subdomain),
            **({"faces": Fact(faces)} if faces else {}),
            "storage": self._storage_fact(),
            **facts,
            "ranks": ranks_fact(self._loads),
            "schedule": Fact(self.schedule),
        }

    @property
    def rank_dependence(self) -> str:
        """Why the bits of the state depend on the number of ranks; empty if they do not."""
        if self.case.numerics.precision != "float64":
            return f"of {self.case.numerics.precision} they depend on ranks and storage"
        return ""

    @property
    def output_is_copied(self) -> bool:
        """Whether populations are on a GPU, from which fields are copied for output."""
        return self.device.kind != "cpu"

    @property
    def storage(self) -> Storage:
        """How populations are stored, once that has been chosen."""
        return self._storages[0]

    def _storage_fact(self) -> Fact:
        names = [getattr(self._storages[0], name) for name in TUNED]
        return Fact(names, candidates=len(self._storages), tried=len(self._tried))

    def _allocate(self) -> None:
        """Choose how to store populations, allocate them, and record the steps. Collective."""
        self._read_image()
        case = self.case
        transport = None
        if self.transport != "none":
            transport = make_transport(self.transport, self.comm, self.device)
        storage, self._tried = measured_storage(
            self._storages, self.subdomain, self.device, self.comm
        )
        self._storages = [storage]
        room = self._room_for_vectors(storage)
        self.flow = PoreFlow(
            self.subdomain,
            # Along all axes, as the tables of faces are made with the flow.
            fluid_of(case).along(self._axes[0], *drive_of(case, self.domain), self._axes),
            storage,
            self.device,
            transport,
            case.run.schedule,
        )
        wanted = case.convergence.vectors if case.ends_early else 0
        self._vectors = vectors_that_fit(wanted, self.flow, self.comm, room)
        if wanted and not self._vectors:
            plain = with_relaxation_time(self._given_case, self.subdomain.width, has_room=False)
            time = {"relaxation_time": plain.flow.relaxation_time}
            self.case = case.model_copy(update={"flow": case.flow.model_copy(update=time)})
        if storage.has_unit and wanted and not self._vectors:
            raise InputError(spelled(no_room_to_measure_text(), self.terms))

    def _room_for_vectors(self, storage: Storage) -> int | None:
        """Refuse a flow that does not fit; return what a limit of the case leaves. Collective."""
        ((device, need),) = self.memory()
        check_room(self.comm, device, need, self.case.numerics.precision)
        memory, need_of_rank = self.case.run.memory, self._own_memory(storage)
        if memory is None:
            return None
        limit, most = bytes_of(memory, "run.memory"), int(largest(self.comm, need_of_rank))
        if most > limit:
            raise InputError(
                f"run.memory: {memory!r} is less than the {most} bytes that a rank needs without"
                " vectors; accepted: at least that, a part of the image (image.crop), or more ranks"
            )
        return limit - need_of_rank

    def _initialise(self) -> None:
        """Set a fluid at rest, or the state of a checkpoint."""
        self._over: list[AxisRecord] = []
        self._follow(self._axes[0], began=0)
        folder = self.restart
        self._begin(is_new=folder is None)
        if len(self._axes) > 1 and self.case.image.mirror:
            self._warnings.append(mirrored_tensor_text(self.case.image.mirror))
        doubts = (
            no_path_text(self.found, self._axes),
            narrow_doubt(self.subdomain),
            picture_doubt(self.domain.is_flat, self.case.flow.axis),
        )
        self._warnings += [doubt for doubt in doubts if doubt]
        if self._storages[0].has_unit and not self.case.ends_early:
            self._warnings.append(spelled(unmeasured_text(), self.terms))
        if folder is not None:
            checkpoint, earlier = open_earlier_run(self.resumed or folder, self.case, self.comm)
            self.restored = checkpoint
            self._warnings += checkpoint.warnings
            on_every_rank(self.comm, lambda: self._restart_from(checkpoint, earlier, folder))
            self.end_axis(self._why_ended())

    def _begin(self, is_new: bool = True) -> None:
        """Begin the flow along this axis, from rest or from that through larger voxels."""
        self.flow.rest()
        wants = self.case.convergence.coarse_start and not self.case.flow.inertia
        if wants and is_new and self._vectors and not self.steadiness.is_blocked:
            with self.timer.measured("coarse start"):
                problem = begin_coarsely(self, self._axis)
            if problem and self.coarsening == 1:
                self._warnings.append(no_coarse_start_text(problem, AXES[self._axis]))

    def _follow(self, axis: int, began: int) -> None:
        """Drive the flow along an axis from step `began` on, until it is steady."""
        case, convergence = self.case, self.case.convergence
        self._axis, self._began = axis, began
        drive, fluid = drive_of(case, self.domain), physical_fluid_of(case)
        driven = fluid_of(case).along(axis, *drive)
        if self.flow.fluid != driven:
            self.flow.drive(driven)
        force = resisted_force(*drive, axis, self.domain)
        voxel_size = case.image.voxel_size
        units = Units(length=voxel_size if case.image.in_metres else None)
        if fluid is not None:
            units = fluid.units(driven.viscosity, force)
        self._units = units
        self._fields = VoxelFields(self.flow, self.comm, voxel_size, units)
        self.steadiness = Steadiness(
            self.flow,
            axis,
            force,
            convergence.tolerance,
            convergence.interval,
            self.comm,
            self._vectors,
            self.timer,
            # A flow that is followed in time may be far from steady.
            [one for one in range(3) if case.ends_early and not self.found.percolates[one]],
        )

    def _take_settings(self, before: Case) -> None:
        """Continue with another fluid, drive or tolerance. Collective."""
        assert isinstance(before, LatticeCase)
        self.case = with_relaxation_time(self.case, self.subdomain.width)
        earlier, over = self.steadiness.looks, self._over
        if before.flow == self.case.flow:
            self._follow(self._axis, self._began)
            for permeability in earlier:
                self.steadiness.add(permeability)
        elif not over:
            # Looks at another flow say nothing about this one.
            self._follow(self._axis, self._began)
        else:
            self._over = []
            self._follow(self._axes[0], self.step)
            self.flow.rest()
        self.finished = ""
        self.end_axis(self._why_ended())

    def _restart_from(self, checkpoint: Checkpoint, earlier: LatticeCase, folder: str) -> None:
        case, earlier = self.case, with_relaxation_time(earlier, self.subdomain.width)
        walls, walls_before = (sorted(set(one.image.walls)) for one in (case, earlier))
        if walls != walls_before:
            raise InputError(
                f"initial.restart: {folder} has image.walls = {walls_before}, this case {walls};"
                " both must be the same"
            )
        if self.resumed is not None and earlier.image.voxel_size != case.image.voxel_size:
            size = repr(earlier.image.voxel_size)
            raise InputError(
                f"image.voxel_size: rows and snapshots in {folder} are of voxels of {size};"
                f" accepted: {size}, or a new run from its state: --set initial.restart={folder}"
            )
        check_same_image(checkpoint, folder, self.subdomain, self.sites)
        *over, last = read_axes(checkpoint, axes_of(earlier.flow.axis))
        self.step, self.time = checkpoint.step, float(checkpoint.step)
        # Looks at another flow, or at other intervals, say nothing about this one.
        is_same = (earlier.flow, earlier.image.buffer) == (case.flow, case.image.buffer)
        if is_same:
            self._over = over
            self._follow(last.axis, last.began)
        elif len(self._axes) > 1:
            self._follow(self._axes[0], self.step)
        read_state(checkpoint, folder, self.flow)
        before = fluid_of(earlier).along(last.axis, *drive_of(earlier, self.domain))
        self.flow.continue_from(self.step - self._began, before)
        if is_same and earlier.convergence.interval == case.convergence.interval:
            for permeability in read_numbers(checkpoint, _LOOKS):
                self.steadiness.add(permeability)

    def kept(self) -> dict[str, Any]:
        """Return the populations, and the state of the search for a steady flow."""
        return {
            **super().kept(),
            "over": list(self._over),
            "axis": (self._axis, self._began),
            "finished": self.finished,
            "steadiness": self.steadiness.kept(),
            "flow": self.flow.kept(),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from what a simulation of the same case has kept."""
        super().restore(kept)
        self._over = list(kept["over"])
        self._follow(*kept["axis"])
        self.flow.restore(kept["flow"])
        self.finished = kept["finished"]
        self.steadiness.restore(kept["steadiness"])

    # -- stepping ----------------------------------------------------------------------------

    def step_size(self) -> float:
        """Return the size of a pair of steps, when most of those before are complete."""
        if self.step % (2 * _PAIRS_UNDER_WAY) == 0:
            self.flow.synchronize()
        return self.case.fixed_step

    def synchronize(self) -> None:
        """Wait until all steps are done."""
        self.flow.synchronize()

    def _advance(self, step_size: float, profile: bool) -> Timeline | None:
        steps, timeline = self.step, None
        ended = self.take_pair(profile=profile)
        if profile and self.step > steps:
            self.flow.synchronize()
            timeline = self.flow.timeline(forget=True)
        self.end_axis(ended)
        return timeline

    def take_pair(self, most: int | None = None, profile: bool = False) -> str:
        """Do a pair of steps; return why the flow along this axis is over, empty if it is not.

        It has at most `most` steps; by default the axes share the steps of the case. Collective; a
        RunError if the flow is too fast. No step is needed where nothing can flow.
        """
        if self.finished or not self.steadiness.is_blocked:
            self.steadiness.advance(profile)
            self.step += 2
            self.time = float(self.step)
        return self._why_ended(most)

    def end_axis(self, ended: str) -> None:
        """Begin the flow along the next axis, or end the run, if there is a reason. Collective."""
        if not ended:
            return
        if ended == ROUND_OFF and self.storage.has_unit:
            tolerance = self.case.convergence.tolerance
            parts = half_precision_text(self.steadiness.residual, tolerance)
            raise on_all_ranks(InputError(spelled(parts, self.terms)))
        if ended == CONVERGED and self.coarsening == 1 and not narrow_doubt(self.subdomain):
            doubt = resolution_doubt(self.resolution_error(), AXES[self._axis])
            self._warnings += [doubt] if doubt else []
        if len(self._over) + 1 < len(self._axes) and ended != INTERRUPTED:
            self._over.append(self._record())
            with self.timer.measured("next axis"):
                self._follow(self._axes[len(self._over)], began=self.step)
            self._begin()
            return
        tolerance, self.finished = self.case.convergence.tolerance, ended
        if ended == CONVERGED:
            self.finished = f"converged, the permeability is within {tolerance:g} of steady"
        elif ended == NO_PATH:
            axis = AXES[self._axis]
            self.finished = f"nothing can flow along {axis}, the permeability along {axis} is 0"
        if ended in (CONVERGED, NO_PATH) and not self._is_steady():
            self.finished = "the flow along the last axis is steady, along another it is not"
        elif ended == ROUND_OFF:
            self.finished = round_off_text(self.residual, tolerance, self.case.numerics.precision)

    def _why_ended(self, most: float | None = None) -> str:
        if self.steadiness.is_steady:
            return NO_PATH if self.steadiness.is_blocked else CONVERGED
        if self.steadiness.is_stuck:
            return ROUND_OFF
        if most is None:
            # The remaining axes share the remaining steps; the loop ends the last one.
            left = len(self._axes) - len(self._over)
            share = (int(self.case.time.end) - self._began) // left
            most = max(2, share - share % 2) if left > 1 else math.inf
        return MOST_STEPS if self.flow.steps >= most else ""

    def _record(self) -> AxisRecord:
        """Return the record of the flow along this axis. Collective."""
        means = self.steadiness.means()
        return AxisRecord(
            self._axis, self._began, self.steadiness.residual, means.sums.mach, means.column
        )

    def _is_steady(self) -> bool:
        """Whether the flows along all axes have become steady."""
        tolerance = self.case.convergence.tolerance
        is_last = len(self._over) + 1 == len(self._axes)
        return (
            is_last
            and self.steadiness.is_steady
            and all(one.residual <= tolerance for one in self._over)
        )

    def indicators(self) -> dict[str, Fact]:
        """Return the last known permeability, how steady the flow is, and when all flows will be.

        The end counts steps; `left` steps remain at the present pace, whatever the case allows.
        """
        steadiness, voxel_size = self.steadiness, self.case.image.voxel_size
        known = [value for _, value in steadiness.history[-1:]] or steadiness.looks[-1:]
        facts = {"permeability": permeability_fact(known[0], voxel_size)} if known else {}
        done, axes = len(self._over), len(self._axes)
        left = self.steadiness.steps_left
        if done + 1 < axes:
            # Of the flows that are yet to begin each is taken to need as many steps as this one.
            left += (axes - done - 1) * (self.step - self._began + left)
        return {
            **facts,
            "residual": Fact(self.steadiness.residual),
            "expected end": Fact(
                min(float(self.case.time.end), self.step + max(left, 2.0)), left=left
            ),
        }

    def warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        return super().warnings() + self.steadiness.warnings()

    # -- results -----------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return the quantities of `LABELS`; m^2 and millidarcy only if the voxel size is known."""
        means, image = self.steadiness.means(), self.case.image
        permeability = means.permeability * image.voxel_size**2
        in_metres = {
            "permeability": permeability,
            "permeability_millidarcy": 1e3 * permeability / DARCY,
        }
        components = {}
        if len(self._axes) > 1:
            names = [f"permeability_{row}{column}" for row in "xyz" for column in "xyz"]
            tensor = self.tensor() * image.voxel_size**2
            components = dict(zip(names, tensor.ravel().tolist(), strict=True))
        z, y, x = (float(one) for one in means.sums.velocity)
        return {
            "permeability_lattice": means.permeability,
            **(in_metres if image.in_metres else {}),
            **components,
            "velocity_x": x,
            "velocity_y": y,
            "velocity_z": z,
            **self._in_si_units(means.sums),
            "mach": means.sums.mach,
            "mass": means.sums.mass / self.sites,
            "wall_force": float(means.sums.wall_force[self._axis]),
            "driving_force": float(means.sums.driving_force[self._axis]),
            "residual": self.steadiness.residual,
        }

    def axis_flow(self, ended: str, keep_fields: bool) -> AxisFlow:
        """Return the results of the flow along this axis, which ended for a reason. Collective.

        Without fields, it has only sums of them.
        """
        means, units, axis = self.steadiness.means(), self._units, self._axis
        sums, voxel_size = means.sums, self.case.image.voxel_size
        snapshot = FlowSnapshot(self.flow, self.domain.sample, keep_fields)
        speed, *along = sum_over_ranks(self.comm, snapshot.sums).tolist()
        length = math.sqrt(max(means.permeability, 0.0))
        velocity = sums.velocity[::-1] * (units.velocity or 1.0)
        if units.velocity is None:
            reynolds = float(sums.velocity[axis]) * length / self.flow.fluid.viscosity
        else:
            reynolds = units.reynolds(float(velocity[2 - axis]), means.permeability)
        return AxisFlow(
            axis=AXES[axis],
            k=means.column[::-1] * voxel_size**2,
            velocity=velocity,
            tortuosity=speed / along[axis] if means.permeability and along[axis] else math.nan,
            wall_force=sums.wall_force[::-1] * (units.force or 1.0),
            driving_force=sums.driving_force[::-1] * (units.force or 1.0),
            mach=sums.mach,
            reynolds=reynolds,
            reynolds_length=length * voxel_size,
            converged=ended in (CONVERGED, NO_PATH),
            ended=ended,
            residual=self.steadiness.residual,
            resolution_error=self.resolution_error(),
            steps=means.steps,
            history=self.steadiness.history,
            fields=FlowFields(snapshot, self.comm, voxel_size, units),
            _means=means,
            _units=units,
            _comm=self.comm,
        )

    def resolution_error(self) -> float:
        """Return the estimated relative error that the voxels cause; NaN if unknown. Collective.

        It is that of the permeability along the present axis.
        """
        means, axis = self.steadiness.means(), self._axis
        is_known = self.steadiness.residual < 1 and means.permeability > 0
        if self.case.flow.inertia or not is_known:
            return math.nan
        velocity, share = float(means.sums.velocity[axis]), self.domain.sample_fraction
        return resolution_error(self.flow, means.permeability, velocity, share, self.comm)

    @property
    def residual(self) -> float:
        """The largest distance from the steady flow along the axes so far; 1 if unknown."""
        return max(self.steadiness.residual, *(one.residual for one in self._over), 0.0)

    def tensor(self, missing: float = 0.0) -> np.ndarray:
        """Return the permeability tensor in squares of voxels, rows and columns x, y, z.

        Columns of axes along which nothing has flowed yet are `missing`. Collective.
        """
        tensor = np.full((3, 3), missing)
        for record in [*self._over, self._record()]:
            tensor[:, 2 - record.axis] = record.column[::-1]
        return tensor

    def _in_si_units(self, sums: FlowSums) -> dict[str, float]:
        """Return Darcy's velocity, and the Reynolds number, if the fluid is known."""
        if self._units.velocity is None:
            return {}
        velocity = float(sums.velocity[self._axis]) * self._units.velocity
        values = {"darcy_velocity": velocity}
        if self._units.kinematic_viscosity is not None:
            values["reynolds"] = self._units.reynolds(
                velocity, self.steadiness.means().permeability
            )
        return values

    def pilot_findings(self, first_step: float, target: float, seconds: float) -> PilotFindings:
        """Return the findings of a pilot run. Collective."""
        from slipstream.lattice.pilot_flow import pilot_findings

        return pilot_findings(self, first_step, target, seconds)

    def findings(self, seconds: float, steps: int) -> dict[str, Fact]:
        """Return the permeability, how accurate it is, and how fast the run was. Collective."""
        records, voxel_size = [*self._over, self._record()], self.case.image.voxel_size
        devices, pores, axis = len({load.device for load in self._loads}), self.found, self._axis
        tensor = self.tensor() if len(self._axes) > 1 else None
        means = self.steadiness.means()
        drag, drive = (force[axis] for force in (means.sums.wall_force, means.sums.driving_force))
        si, along = self._in_si_units(means.sums), AXES[axis]
        names = {"darcy_velocity": ("Darcy velocity", "m/s"), "reynolds": ("Reynolds number", "")}
        flow = self.axis_flow("", keep_fields=False)
        error = flow.resolution_error
        return {
            **flow_findings(records, tensor, voxel_size, self._is_steady()),
            **({} if math.isnan(error) else {"resolution error": Fact(error, along=along)}),
            "tortuosity": Fact(flow.tortuosity, along=along),
            "drag on walls": Fact(drag, along=along, share=drag / drive),
            **{
                name: Fact(si[key], unit, along=along)
                for key, (name, unit) in names.items()
                if key in si
            },
            "porosity": Fact(pores.porosity, open=pores.open_porosity),
            "pore": Fact(self.domain.pore_text(pores.porosity)),
            "narrow pores": narrow_fact(self.subdomain),
            "storage": self._storage_fact(),
            **speed_findings(self.flow, self.comm, self.sites, steps, seconds, devices),
        }

    def labels(self) -> dict[str, str]:
        """Return the long names of the diagnostics."""
        return LABELS

    def pictures(self) -> PictureChoice:
        """Return the choice of pictures at the end."""
        return picture_choice(
            [AXES[axis] for axis in self._axes],
            self.case.image.in_metres,
            self.case.flow.viscosity is not None,
        )

    def fields(self) -> Iterator[Field]:
        """Yield velocity, density, pressure and pores at all voxels."""
        yield from self._fields.fields()

    def layout(self) -> Layout:
        """Return where the voxels are: ranks write slabs of planes. Collective at first."""
        self._read_image()
        shape, size = self.subdomain.shape, self.case.image.voxel_size
        lines = {
            axis: size * (np.arange(points) + 0.5)
            for axis, points in zip("zyx", shape, strict=True)
        }
        unit = "voxels" if size == 1 else "m"
        boxes = tuple(slabs(shape, 0, self.ranks))
        return Layout((shape[0], shape[1], shape[2]), boxes, lines, unit, are_cells=True)

    def point_values(self, of: Any, where: str) -> PointValues:
        """Return a function that makes the values of one of `FIELDS`. Collective at first."""
        if not isinstance(of, str) or of not in FIELDS:
            raise InputError(f"{where}: there is no {shown(of)}; accepted: {', '.join(FIELDS)}")
        names = [f"velocity_{axis}" for axis in "xyz"] if of == "velocity" else [of]
        suffixes = ("_x", "_y", "_z") if of == "velocity" else ("",)
        long_name, unit = describe_field(of, self.case.flow.viscosity is not None)
        precision = "float64" if self.case.numerics.precision == "float64" else "float32"
        dtype = "uint8" if of == "pore" else precision
        return ArrayValues(
            lambda component: self._fields.in_slab(names[component]).data,
            suffixes,
            dtype,
            long_name,
            unit,
            self.layout(),
            self.comm,
        )

    def checkpoint(self) -> Iterator[Field]:
        """Yield the populations of all pores, and the permeabilities of all looks."""
        yield from state(self.flow, self.comm)
        if len(self._axes) > 1:
            table = axes_table([*self._over, self._record()])
            yield rank_0_field(AXES_TABLE, table, self.rank, "axis, its first step, and its flow")
        # A field cannot be empty.
        if self.steadiness.looks:
            looks = np.array(self.steadiness.looks)
            yield rank_0_field(_LOOKS, looks, self.rank, "permeabilities looked at")

    def _digest_sum(self) -> np.ndarray:
        return self.flow.digest_sum()

    def write_at_end(self, folder: Path) -> list[Path]:
        """Write the last state for ParaView, if the case asks for it."""
        return self._fields.write_vtk(folder / "flow.vti") if self.case.output.vtk else []
