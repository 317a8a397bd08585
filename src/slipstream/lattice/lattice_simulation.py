"""A lattice Boltzmann run: a case's settings, the flow through the pores, and what it becomes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import LatticeCase
from slipstream.collective import on_every_rank
from slipstream.decomposition import slabs
from slipstream.device import Device, HostDevice
from slipstream.errors import InputError
from slipstream.exchange import make_transport, open_matching_device
from slipstream.family import (
    PlainSimulation,
    StepTimer,
    busy_seconds,
    memory_text,
    open_earlier_run,
    ranks_per_device,
)
from slipstream.field import Field
from slipstream.lattice.d3q19 import AXES
from slipstream.lattice.darcy import (
    flow_results,
    permeability_text,
    porosity_result,
    speed_results,
)
from slipstream.lattice.domain_decomposition import hand_out
from slipstream.lattice.image_source import in_case_order, open_domain
from slipstream.lattice.lattice_checkpoint import (
    check_same_image,
    rank_0_field,
    read_numbers,
    read_state,
    state,
)
from slipstream.lattice.lattice_description import (
    Share,
    describe_problem,
    ranks_text,
    storage_parts,
)
from slipstream.lattice.lattice_memory import check_room, memory_needed
from slipstream.lattice.permeability import DARCY
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.pore_sites import check_size
from slipstream.lattice.steady_state import Steadiness, driving_force, fluid_of
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.lattice.voxel_fields import LABELS, PIECE_BYTES, VoxelFields, picture_choice
from slipstream.report.picture_choice import PictureChoice

# A GPU has as many pairs of steps to do, at most, before the host waits for it.
_PAIRS_UNDER_WAY = 16
_LOOKS = "look"
# Of a voxel while the image is read and handed out: as read, as handed out, and with a shell.
_BYTES_TO_READ = 3


class LatticeSimulation(PlainSimulation):
    """Flow through the pores of a voxel image; see `slipstream.simulation.Simulation`.

    Its steps come in pairs, which cannot be parted.

    Parameters
    ----------
    case : LatticeCase
        The settings.
    comm : mpi4py.MPI.Comm or None
        The ranks that share the image.
    device : Device
        This rank's device.

    Raises
    ------
    InputError
        If the case does not suit the device or the ranks.
    """

    def __init__(self, case: LatticeCase, comm: Any, device: Device) -> None:
        self.case, self.comm, self.device = case, comm, device
        self.finished = ""
        self.flow: PoreFlow | None = None
        self._timer = StepTimer(eager=case.run.timeline)
        self._ranks = comm.size if comm else 1
        self._transport = make_transport(case.run.transport, comm, device)
        self._is_prepared = False

    @property
    def step(self) -> int:
        """Number of time steps done."""
        return 0 if self.flow is None else self.flow.steps

    @property
    def time(self) -> float:
        """Time reached, in time steps."""
        return float(self.step)

    # -- before the run ----------------------------------------------------------------------

    def _prepare(self) -> None:
        """Read the image, hand it out, and choose how to store populations. Collective."""
        if self._is_prepared:
            return
        case = self.case
        axis = AXES.index(case.flow.axis)
        self.domain = open_domain(case.image, case.flow.axis, self.comm)
        self._check_room()
        periodic = [name not in case.image.walls for name in AXES]
        with in_case_order():
            self.portion = hand_out(
                self.domain,
                periodic,
                [axis],
                case.run.partition,
                self.comm,
                case.image.isolated,
            )
        box = self.portion.box
        mine = int(np.count_nonzero(self.portion.own[1:-1, 1:-1, 1:-1]))
        on_every_rank(self.comm, lambda: check_size(box.shape[2], mine))
        numerics = case.numerics
        wishes = {name: getattr(numerics, name) for name in (*TUNED, "precision")}
        need = functools.partial(self._own_memory, mine)
        self.storage, self._tried = choose_storage(
            wishes, self.portion, self.device, self.comm, need
        )
        neighbours = len(self.portion.neighbours)
        share = Share(mine, neighbours, self.device.identity, need(self.storage))
        shares = [share] if self.comm is None else self.comm.allgather(share)
        self._shares, self.sites = shares, sum(one.sites for one in shares)
        self._is_prepared = True

    def _check_room(self) -> None:
        """Refuse an image that the hosts cannot even hold, before it is read. Collective."""
        host = self.device if self.device.kind == "cpu" else HostDevice()
        rank = self.comm.rank if self.comm else 0
        voxels = slabs(self.domain.shape, 0, self._ranks)[rank].size
        need = ranks_per_device(self.comm, host) * _BYTES_TO_READ * voxels
        check_room(self.comm, host, need)

    def _own_memory(self, sites: int, storage: Storage) -> int:
        """Return the bytes that this rank needs on its device, output included."""
        voxels, real = self.portion.box.size, storage.real.itemsize
        need = memory_needed(sites, voxels, storage) + min(4 * voxels * real, PIECE_BYTES)
        # Where the device is the host, one of the fields that are written lies on it too, twice.
        return need + (2 * voxels * real if self.device.kind == "cpu" else 0)

    def _memory(self) -> int:
        """Return the bytes that the ranks of one device need on it."""
        return sum(one.memory for one in self._shares if one.device == self.device.identity)

    def describe(self) -> dict[str, str]:
        """Return what will be run, for people. Collective: reads and analyses the image."""
        self._prepare()
        return {
            **describe_problem(self.case, self.domain, self.portion.connectivity),
            "storage": "{} ({})".format(*storage_parts(self.storage, len(self._tried))),
            "device": self.device.name,
            "memory per device": memory_text(self.device, self._memory()),
            "ranks": ranks_text(self._shares, self.portion.rank, self.case.run.partition),
            "transport": self._transport.name if self._transport else "none (one rank)",
            "schedule": self.case.run.schedule,
        }

    def allocate(self) -> None:
        """Allocate the populations and record the steps. Collective.

        Raises
        ------
        InputError
            On all ranks, if a device's free memory does not suffice for the ranks that share it.
        """
        self._prepare()
        case = self.case
        check_room(self.comm, self.device, self._memory())
        self.flow = PoreFlow(
            self.portion,
            fluid_of(case),
            self.storage,
            self.device,
            self._transport,
            case.run.schedule,
        )
        convergence = case.convergence
        self._steadiness = Steadiness(
            self.flow,
            AXES.index(case.flow.axis),
            driving_force(case, self.domain),
            convergence.tolerance,
            convergence.interval,
            self.comm,
        )
        self._fields = VoxelFields(self.flow, self.comm, case.image.voxel_size)

    def initialise(self) -> None:
        """Go on from a checkpoint, if there is one; the fluid is at rest else."""
        folder = self.case.initial.restart
        if folder is not None:
            on_every_rank(self.comm, lambda: self._go_on_from(folder))
            self._judge()

    def _go_on_from(self, folder: str) -> None:
        checkpoint, earlier = open_earlier_run(folder, self.case)
        check_same_image(checkpoint, folder, self.portion, self.sites)
        read_state(checkpoint, folder, self.flow)
        self.flow.steps = checkpoint.step
        # What was seen of another flow, or at other intervals, tells nothing of this one.
        interval = self.case.convergence.interval
        if earlier.flow == self.case.flow and earlier.convergence.interval == interval:
            for permeability in read_numbers(checkpoint, _LOOKS):
                self._steadiness.add(permeability)

    # -- stepping ----------------------------------------------------------------------------

    def step_size(self) -> float:
        """Return the size of a pair of steps, when most of those before are complete."""
        if self.step % (2 * _PAIRS_UNDER_WAY) == 0:
            self.flow.synchronize()
        return self.case.fixed_step

    def advance(self, step_size: float) -> None:
        """Do a pair of steps, whatever the wanted size, and look at the permeability now and then.

        Raises
        ------
        RunError
            If the flow has become faster than the method holds for.
        """
        profile = self._timer.wants_next()
        self.flow.advance(2, profile)
        if profile:
            self.flow.synchronize()
            timeline = self.flow.timeline(forget=True)
            self._timer.add(timeline, busy_seconds(timeline, self.device.lanes))
        self._steadiness.look()
        self._judge()

    def _judge(self) -> None:
        if self._steadiness.is_steady:
            tolerance = self.case.convergence.tolerance
            self.finished = f"converged, the permeability is within {tolerance:g} of steady"

    def progress(self, step_size: float) -> str:
        """Return the step, the permeability, and its distance from that of the steady flow.

        As of the last look, as far as they are known.
        """
        looks, residual = self._steadiness.looks, self._steadiness.residual
        parts = [f"step {self.step}"]
        if looks:
            value, _ = permeability_text(looks[-1], self.case.image.voxel_size)
            parts.append(f"permeability {value}")
        if residual < 1:
            parts.append(f"{residual:.2g} from steady")
        return ", ".join(parts)

    def warnings(self) -> list[str]:
        """Return what people should be warned of, that they have not been told yet."""
        return self._steadiness.warnings()

    def timers(self) -> dict[str, float]:
        """Return seconds by category so far, extrapolated from the steps that were timed."""
        return self._timer.seconds()

    def write_timeline(self, folder: Path) -> list[Path]:
        """Write the timeline of the last pair that was timed, as picture and Chrome trace."""
        schedule, rank = self.case.run.schedule, self.portion.rank
        return self._timer.write(folder, schedule, rank, "a pair of time steps")

    # -- results -----------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return permeability, velocities and what tells how good they are; see `LABELS`.

        Only voxels of known size have a permeability in m^2 and in millidarcy.
        """
        means, image = self._steadiness.means(), self.case.image
        permeability = means.permeability * image.voxel_size**2
        in_metres = {
            "permeability": permeability,
            "permeability_millidarcy": 1e3 * permeability / DARCY,
        }
        z, y, x = (float(one) for one in means.velocity)
        return {
            "permeability_lattice": means.permeability,
            **(in_metres if image.in_metres else {}),
            "velocity_x": x,
            "velocity_y": y,
            "velocity_z": z,
            "mach": means.mach,
            "mass": means.mass / self.sites,
            "residual": self._steadiness.residual,
        }

    def results(self, seconds: float, steps: int) -> dict[str, tuple[str, str]]:
        """Return the permeability, how good it is, and how fast the run was. Collective."""
        means, residual = self._steadiness.means(), self._steadiness.residual
        devices = len({one.device for one in self._shares})
        return {
            **flow_results(means, self.case.image.voxel_size, residual, bool(self.finished)),
            "porosity": porosity_result(self.portion.connectivity),
            "storage": storage_parts(self.storage, len(self._tried)),
            **speed_results(self.flow, self.comm, self.sites, steps, seconds, devices),
        }

    def labels(self) -> dict[str, str]:
        """Return the long names of the diagnostics."""
        return LABELS

    def pictures(self) -> PictureChoice:
        """Return what is drawn at the end."""
        return picture_choice(self.case.flow.axis, self.case.image.in_metres)

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return nothing: there are no waves in pores."""
        return {}

    def fields(self) -> Iterator[Field]:
        """Yield velocity, density, pressure and pores at all voxels."""
        yield from self._fields.fields()

    def checkpoint(self) -> Iterator[Field]:
        """Yield the populations of all pores, and what has been seen of the permeability."""
        yield from state(self.flow, self.comm)
        # There is always something to write.
        looks = np.array(self._steadiness.looks or [math.nan])
        yield rank_0_field(_LOOKS, looks, self.portion.rank, "permeabilities looked at")

    def write_at_end(self, folder: Path) -> list[Path]:
        """Write the last state for ParaView, if that is asked for."""
        return self._fields.write_vtk(folder / "flow.vti") if self.case.output.vtk else []


def make_simulation(case: LatticeCase, comm: Any, device: str) -> LatticeSimulation:
    """Make the simulation of a case. Collective.

    Parameters
    ----------
    case : LatticeCase
        The settings.
    comm : mpi4py.MPI.Comm or None
        The ranks to run on.
    device : {"auto", "cpu", "cuda"}
        Which kind of device each rank opens; ranks of a node share its GPUs in turn.

    Raises
    ------
    InputError
        If there is no such device, or the case does not suit it.
    """
    opened = open_matching_device(device, comm)
    if case.numerics.encoding == "strips" and opened.kind != "cpu":
        raise InputError(
            "numerics.encoding: 'strips' is for CPUs; accepted on a GPU: auto, compact, wide"
        )
    return LatticeSimulation(case, comm, opened)
