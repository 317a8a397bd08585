"""Flow along one axis, driven until it is steady, watched by a callback, or interrupted."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank, sum_over_ranks
from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.lattice.convergence import Steadiness
from slipstream.lattice.darcy import Means
from slipstream.lattice.flow_snapshot import FlowSnapshot
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid
from slipstream.lattice.velocity_set import AXES
from slipstream.simulation.stop_requests import Interruption

CONVERGED, MOST_STEPS, CALLBACK, INTERRUPTED = "converged", "max_steps", "callback", "interrupted"
# The tolerance is below what round-off leaves.
ROUND_OFF = "round-off"


@dataclass(frozen=True)
class FlowProgress:
    """The progress of a flow towards its steady state, for callbacks; the same on all ranks.

    Attributes
    ----------
    axis : str
        Direction of the flow.
    step : int
        Number of steps taken.
    permeability : float
        Along the axis, so far: in square metres if the voxel size is known, else in squares of
        voxels.
    residual : float
        Estimated relative distance from the permeability of the steady flow; 1 if it is unknown.
    mach : float
        Largest Mach number.
    seconds : float
        Since the flow began.
    """

    axis: str
    step: int
    permeability: float
    residual: float
    mach: float
    seconds: float


# A callback returns True to stop the flow, and None or False to let it go on.
Callback = Callable[[FlowProgress], bool | None]


@dataclass(frozen=True)
class SteadyFlow:
    """The final state of a flow along one axis, in lattice units; vectors are along z, y and x."""

    axis: int
    means: Means
    force: float  # per volume of the sample
    viscosity: float
    sites: int
    residual: float  # estimated relative distance from the steady flow
    ended: str
    was_interrupted: bool
    seconds: float
    history: list[tuple[int, float]]  # steps, and the permeability along the axis then
    tortuosity: float
    snapshot: FlowSnapshot

    @property
    def converged(self) -> bool:
        """Whether the tolerance was reached."""
        return self.ended == CONVERGED

    @property
    def updates(self) -> int:
        """Number of sites updated."""
        return self.sites * self.means.steps


def run_to_steady(
    flow: PoreFlow,
    axis: int,
    fluid: Fluid,
    force: float,
    tolerance: float,
    max_steps: int,
    interval: int,
    comm: Comm,
    *,
    callback: Callback | None = None,
    area: float = 1.0,
    keep_fields: bool = False,
    sample: Box | None = None,
    vectors: int = 0,
    stacklevel: int = 3,
) -> SteadyFlow:
    """Drive a flow along an axis until its permeability is steady. Collective.

    `fluid` has the driving force, and `force` is that per volume of the sample. `callback` gets
    permeabilities times the `area` of a voxel's face. With `vectors` it is accelerated.
    """
    flow.drive(fluid)
    flow.rest()
    steadiness = Steadiness(flow, axis, force, tolerance, interval, comm, vectors)
    ended, was_interrupted, began = MOST_STEPS, False, time.perf_counter()
    with Interruption(comm) as interruption:
        while flow.steps < max_steps:
            left = max_steps - flow.steps
            steps = min(interval - flow.steps % interval, left + left % 2)
            was_interrupted = _advance(steadiness, steps, interruption, comm)
            means = steadiness.means()
            # On all ranks, so that all stop where warnings are errors.
            for text in steadiness.warnings():
                warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)
            if steadiness.is_steady:
                ended = CONVERGED
            elif steadiness.is_stuck:
                ended = ROUND_OFF
            elif was_interrupted:
                ended = INTERRUPTED
            if callback is not None:
                seconds = time.perf_counter() - began
                k, residual = means.permeability * area, steadiness.residual
                told = FlowProgress(AXES[axis], flow.steps, k, residual, means.sums.mach, seconds)
                if _asks_to_stop(callback, told, comm) and ended != CONVERGED:
                    ended = CALLBACK
            if ended != MOST_STEPS:
                break
    seconds = time.perf_counter() - began
    snapshot = FlowSnapshot(flow, sample, keep_fields)
    sums = sum_over_ranks(comm, np.array([flow.sites.count, *snapshot.sums]))
    return SteadyFlow(
        axis,
        steadiness.means(),
        force,
        fluid.viscosity,
        int(sums[0]),
        steadiness.residual,
        ended,
        was_interrupted,
        seconds,
        steadiness.history,
        tortuosity(sums[1:], axis),
        snapshot,
    )


def _advance(steadiness: Steadiness, steps: int, interruption: Interruption, comm: Comm) -> bool:
    """Advance some steps, or until the flow is steady; return whether any rank was interrupted.

    A single rank stops early then.
    """
    for _ in range(steps // 2):
        steadiness.advance()
        if steadiness.is_steady or (comm is None and interruption.requested()[0]):
            break
    return interruption.requested()[0]


def _asks_to_stop(callback: Callback, told: FlowProgress, comm: Comm) -> bool:
    """Return whether the callback returns True on any rank; fail on all if it fails on one."""

    def ask() -> bool:
        answer = callback(told)
        if not (answer is None or isinstance(answer, bool | np.bool_)):
            raise InputError(f"callback: returned {answer!r}; accepted: True to stop, or None")
        return bool(answer)

    mine = on_every_rank(comm, ask)
    return mine if comm is None else any(comm.allgather(mine))


def tortuosity(sums: np.ndarray, axis: int) -> float:
    """Return the mean speed over the mean velocity along the axis; NaN if there is no flow.

    The hydraulic tortuosity of Duda, Koza and Matyka (2011), from the sums of `FlowSnapshot` over
    all pores of the sample.
    """
    along = float(sums[1 + axis])
    return float(sums[0]) / along if along else float("nan")
