"""Advection runs on any number of ranks against the same run in one process."""

import math

import numpy as np
import pytest
import zarr
from rich.console import Console

from flows import save
from slipstream.advection.advection_simulation import AdvectionSimulation
from slipstream.case import parse_case
from slipstream.engine.collective import on_every_rank
from slipstream.engine.decomposition import factorisations
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint
from slipstream.runs.run_case import run_case
from slipstream.show.solver_texts import description

pytestmark = pytest.mark.several_ranks

CASE = """
solver = "advection"
[grid]
points = [20, 16, 13]
[flow]
courant = [0.5, -0.4, 0.6]
[time]
end = 0.5
[output]
pictures = false
fields_interval = 0.2
"""


def make(device, *settings, comm=None, strategy="auto"):
    """Return a simulation on devices of the tested kind."""
    case = parse_case(CASE, [*settings, f"run.strategy={strategy}"])
    if strategy == "auto":
        return AdvectionSimulation(case, comm, device)
    gpu = device if device.kind == "cuda" else HostDevice(tiled=True)
    return AdvectionSimulation(case, comm, {"cpu": HostDevice(threads=1), "gpu": gpu})


def start(*arguments, **options):
    """Return a simulation in its initial state."""
    simulation = make(*arguments, **options)
    simulation.prepare()
    return simulation


def advance(simulation, steps):
    for _ in range(steps):
        simulation.advance(simulation.step_size())
    return simulation


def tracer(simulation):
    """Return this rank's part, and where it belongs."""
    (field,) = simulation.fields()
    return field.data, field.region()


def assert_same_bits(shared, alone):
    (mine, region), (whole, _) = tracer(shared), tracer(alone)
    assert (shared.step, shared.time) == (alone.step, alone.time)
    assert mine.tobytes() == np.ascontiguousarray(whole[region]).tobytes()


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_result_and_diagnostics_do_not_depend_on_the_number_of_ranks(comm, device, precision):
    setting = f"numerics.precision={precision}"
    alone, shared = start(device, setting), start(device, setting, comm=comm)
    for _ in range(3):
        advance(alone, 4), advance(shared, 4)
        assert_same_bits(shared, alone)
        one, many = alone.diagnostics(), shared.diagnostics()
        assert many == pytest.approx(one, rel=1e-12)
        if comm is not None:
            assert comm.allgather(many) == [many] * comm.size


def test_process_grid_is_given_in_the_order_of_the_points(comm, device, ranks):
    alone = advance(start(device), 5)
    for grid in factorisations(ranks, 3):
        shared = advance(start(device, f"run.grid={list(grid)}", comm=comm), 5)
        assert f" x {grid[2]} (x, y, z)" in description(shared)["ranks"] or ranks == 1
        assert shared.solver.problem.grid == tuple(reversed(grid))
        assert_same_bits(shared, alone)


def test_process_grid_of_other_ranks_is_refused(comm, device, ranks):
    with pytest.raises(InputError, match=rf"run\.grid.*number of ranks, {ranks}"):
        make(device, f"run.grid=[1, 1, {ranks + 1}]", comm=comm)


def test_run_of_several_ranks_is_gone_on_with_by_one(comm, device, shared_folder):
    alone, shared = start(device), advance(start(device, comm=comm), 7)
    save(shared, shared_folder)
    later = start(device, f"initial.restart={shared_folder}")
    assert later.step == 7
    # Errors are those against the solution at this step, not of a new start.
    assert later.diagnostics() == pytest.approx(shared.diagnostics(), rel=1e-12)
    assert_same_bits(advance(later, 6), advance(alone, 13))


@pytest.mark.parametrize("strategy", ["auto", "hybrid", "hybrid-overlap"])
def test_run_of_one_rank_is_gone_on_with_by_several(comm, device, tmp_path, strategy):
    alone = advance(start(device), 7)
    save(alone, tmp_path)
    setting = f"initial.restart={tmp_path}"
    shared = start(device, setting, "run.shell=2", comm=comm, strategy=strategy)
    assert_same_bits(shared, alone)
    assert_same_bits(advance(shared, 6), advance(alone, 6))


def test_output_does_not_depend_on_the_number_of_ranks(comm, device, shared_folder, tmp_path):
    alone, many = tmp_path / "one", shared_folder / "many"
    for simulation, folder in ((make(device), alone), (make(device, comm=comm), many)):
        run_case(simulation, folder, Console(quiet=True))
    state = open_checkpoint(alone).path.relative_to(alone)
    for name in ("fields.zarr", state):
        stored = [zarr.open_group(folder / name, mode="r") for folder in (alone, many)]
        expected, found = (group["tracer"][...] for group in stored)
        assert found.tobytes() == expected.tobytes()
        assert np.isfinite(found).all()
    assert open_checkpoint(many).step == math.ceil(0.5 * 13 / 0.6)


def test_case_of_a_run_on_more_ranks_than_points(comm, device):
    settings = ("grid.points=[1, 2, 2]", "initial.width=1", "flow.courant=[0, 1, 1]")
    alone, shared = start(device, *settings), start(device, *settings, comm=comm)
    assert_same_bits(advance(shared, 3), advance(alone, 3))
    assert shared.diagnostics() == pytest.approx(alone.diagnostics(), rel=1e-12)


def test_not_a_number_on_one_rank_is_seen_by_all(comm, device, ranks):
    shared = start(device, comm=comm)
    values, _ = tracer(shared)
    if comm is None or comm.rank == ranks - 1:
        values[0, 0, 0] = math.nan
    shared.solver.set(values)
    assert all(math.isnan(value) for value in shared.diagnostics().values())


def test_memory_lacking_on_one_rank_is_refused_by_all(comm, device, ranks, monkeypatch):
    simulation = make(device, comm=comm)
    if comm is None or comm.rank == ranks - 1:
        monkeypatch.setattr(device, "memory_free", lambda: 1000)
    with pytest.raises(InputError, match=r"grid\.points.* 9\.31e-07 GiB free"):
        on_every_rank(comm, simulation._allocate)


def test_earlier_run_that_is_not_there_is_refused_by_all(comm, device):
    simulation = make(device, "initial.restart=nowhere", comm=comm)
    simulation._allocate()
    with pytest.raises(InputError, match="nowhere: holds no checkpoint"):
        simulation._initialise()
