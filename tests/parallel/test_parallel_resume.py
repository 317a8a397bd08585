"""A run whose segments have different numbers of ranks has the output of one process."""

import numpy as np
import pytest
from rich.console import Console

from flows import UNEVEN_BOX, diagnostics, make_case
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import AtItsEnd, run_case

SETTINGS = (
    *UNEVEN_BOX,
    "time.end=0.06",
    "output.diagnostics_interval=0.01",
    "output.fields_interval=0.02",
    "output.spectra_interval=0.02",
    "output.fields=[{ of = 'velocity_x', plane = { axis = 'y', position = 0 }, interval = 0.02 }]",
    "output.averages=[{ of = 'velocity', interval = 0.01, batch = 0.02, file = 'mean' },"
    " { of = 'velocity', interval = 0.01, profile = 'z', batch = 0.02, file = 'profile' },"
    " { of = 'velocity', interval = 0.01, points = [[1, 2, 3]], batch = 0.02, file = 'place' }]",
)
AVERAGES = ("outputs/mean.zarr", "outputs/profile.zarr", "outputs/place.zarr")
QUIET = Console(quiet=True)


def assert_same_output(run, alone):
    import xarray  # which takes long to load: not on every rank

    ours, theirs = diagnostics(run), diagnostics(alone)
    assert ours["step"].tolist() == list(range(7))
    np.testing.assert_allclose(ours["energy"], theirs["energy"], rtol=1e-12)
    for name in ("fields.zarr", "spectra.zarr", "outputs/velocity_x-plane.zarr", *AVERAGES):
        actual, expected = (xarray.open_zarr(folder / name).load() for folder in (run, alone))
        assert actual.time.values.tolist() == expected.time.values.tolist()
        for array in expected.data_vars:
            scale = np.abs(expected[array].values).max()
            np.testing.assert_allclose(actual[array], expected[array], rtol=0, atol=1e-12 * scale)
    assert open_checkpoint(run).step == 6


def is_first(comm):
    return comm is None or comm.rank == 0


def wait(comm):
    if comm is not None:
        comm.Barrier()


@pytest.mark.slow
def test_segments_may_have_any_number_of_ranks(comm, device, shared_folder, tmp_path):
    run = shared_folder / "run"
    if is_first(comm):
        run_case(make_simulation(make_case(*SETTINGS), None, device), tmp_path / "alone", QUIET)
        case = make_case(*SETTINGS, "time.max_steps=2")
        run_case(make_simulation(case, None, device), run, QUIET)
    wait(comm)
    # Chunks that one process has made are shared by the ranks, and the other way round.
    resume_run(run, ["time.max_steps=5"], comm, device, QUIET)
    wait(comm)
    if is_first(comm):
        resume_run(run, ["time.max_steps=100"], None, device, QUIET)
    wait(comm)
    with pytest.raises(AtItsEnd, match="has ended"):
        resume_run(run, [], comm, device, QUIET)
    if is_first(comm):
        assert_same_output(run, tmp_path / "alone")
    wait(comm)  # the folder goes with the first rank's test


@pytest.mark.slow
def test_all_ranks_are_told_why_a_run_cannot_go_on(comm, device, shared_folder):
    with pytest.raises(InputError, match="no such folder"):
        resume_run(shared_folder / "nowhere", [], comm, device, QUIET)
    run = shared_folder / "run"
    case = make_case("grid.points=8", "time.end=0.02")
    run_case(make_simulation(case, comm, device), run, QUIET)
    for setting, said in (("grid.length=3.0", "box of"), ("grid.pionts=3", "pionts")):
        with pytest.raises(InputError, match=said):
            resume_run(run, [setting, "time.end=1"], comm, device, QUIET)
    resume_run(run, ["time.end=0.04"], comm, device, QUIET)
    assert open_checkpoint(run, comm).step == 4
    wait(comm)
