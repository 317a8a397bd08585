"""Fields and arrays on disk, on any ranks and device: the bits of those on the host."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fft_cases import alike, together, transforms, usual_transports
from fft_oracle import check
from first_rank import wait_for_all
from flows import advance, make_case, modes_of, start
from slipstream.engine.outofcore import file_arrays
from slipstream.engine.outofcore.file_arrays import files_of
from slipstream.fft import DistributedFFT
from slipstream.files import open_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case

QUIET = Console(quiet=True)
GRID = ("grid.points=[16, 12, 10]",)
MODELS = {
    "hd": ("time.integrator=rk2",),
    "single": ("numerics.precision=float32", "time.integrator=rk4"),
    "shifted": ("numerics.dealiasing=phase-shift",),
    "mhd": ("equation.model=mhd", "equation.resistivity=0.02", "equation.mean_field=0.7"),
}
HOW = ("{ tiles = 3 }", "{ tiles = 3, resident = false }")


@pytest.fixture(autouse=True)
def all_in_files(monkeypatch):
    """Put small arrays in files too, with short stripes."""
    monkeypatch.setattr(file_arrays, "_SMALL", 1)
    monkeypatch.setattr(file_arrays, "_STRIPE", 4 * 4096)


def folders_in(place, count):
    paths = [place / str(number) for number in range(count)]
    for path in paths:
        path.mkdir(exist_ok=True)
    return [str(path) for path in paths]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how", "folders"),
    [
        ("hd", HOW[1], 1),
        ("hd", HOW[0], 2),
        pytest.param("single", HOW[1], 1, marks=pytest.mark.one_rank),
        ("shifted", HOW[0], 1),
        ("mhd", HOW[1], 3),
    ],
)
@pytest.mark.parametrize("transport", ["auto", "mpi-p2p"])
def test_steps_from_disk_give_the_bits_of_steps_from_the_host(
    comm, device, ranks, shared_folder, model, how, folders, transport
):
    if ranks == 1 and transport != "auto":
        pytest.skip("one rank exchanges nothing")
    settings = *GRID, *MODELS[model], f"run.streaming={how}", f"run.transport={transport}"
    scratch = folders_in(shared_folder, folders)
    disk = start(device, *settings, "run.residency=disk", f"run.scratch={scratch}", comm=comm)
    # On a CPU also those of fields on the device, as other tests compare these two.
    host = start(device, *settings, "run.residency=host", comm=comm)
    assert disk.placement.residency == "disk" and files_of(disk.flow.state) is not None
    for simulation in (disk, host):
        advance(simulation, 3)
    assert modes_of(disk).tobytes() == modes_of(host).tobytes()
    for one, other in zip(disk.fields(), host.fields(), strict=True):
        assert np.array_equal(one.data, other.data), one.name
    assert disk.diagnostics() == host.diagnostics()


@pytest.mark.slow
def test_a_run_goes_on_from_disk_to_memory_and_back(comm, device, shared_folder):
    """The steps of a run have the same bits wherever its fields are, and however it was ended."""
    whole, run = shared_folder / "whole", shared_folder / "run"
    settings = *GRID, "time.integrator=rk2", "time.max_steps=6", "time.end=1"
    host = "run.residency=host", "run.streaming={ tiles = 3 }"
    disk = "run.residency=disk", f"run.scratch={folders_in(shared_folder, 1)}"

    def state(folder):
        checkpoint = open_checkpoint(folder, comm)
        assert checkpoint.step == 6
        return [checkpoint.read(name).tobytes() for name in sorted(checkpoint.arrays)]

    run_case(make_simulation(make_case(*settings, *host), comm, device), whole, QUIET)
    case = make_case(*settings, *disk, "run.streaming={ tiles = 3 }", "time.max_steps=2")
    run_case(make_simulation(case, comm, device), run, QUIET)
    # A CPU's arithmetic is the same wherever fields are; a GPU's libraries choose by tiles.
    between = ["run.residency=device"] if device.kind == "cpu" else [host[0]]
    resume_run(run, [*between, "time.max_steps=4"], comm, device, QUIET)
    resume_run(run, [*disk, host[1], "time.max_steps=6"], comm, device, QUIET)
    assert state(run) == state(whole)
    wait_for_all(comm) if comm is not None else None


@pytest.mark.several_ranks
def test_blocks_of_other_ranks_go_to_their_files(comm, device, shared_folder):
    """Whoever makes a block writes it to the file of the rank that gets it."""
    settings = *GRID, "run.residency=disk", f"run.scratch={folders_in(shared_folder, 1)}"
    disk = start(device, *settings, comm=comm)
    exchange = disk.flow.passes.exchange(0, range(3), False)
    assert exchange.targets.stores
    blocks = [block for places in exchange.targets.blocks for block in places.values()]
    assert all(files_of(block) is not None for block in blocks if block.size)


@pytest.mark.slow
@alike(examples=12)
@given(data=st.data())
def test_any_transform_of_files_equals_numpy(comm, device, ranks, transports, data):
    case = data.draw(transforms(ranks))
    exchange = data.draw(st.sampled_from(["host", "device"]))
    tiles = data.draw(st.one_of(st.integers(1, 5), st.just(60)))
    case["streaming"] = {"tiles": tiles, "exchange": exchange}
    usual = usual_transports(transports, device, exchange)
    case["transport"] = data.draw(st.sampled_from(["auto", *usual]))
    together(comm, check, comm, device, residency="disk", **case)


@pytest.mark.parametrize("truncation", [None, "2/3"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_transforms_of_files_give_the_bits_of_transforms_from_the_host(
    comm, device, shared_folder, dtype, truncation
):
    how = {"dtype": dtype, "truncation": truncation, "device": device, "comm": comm}
    how["streaming"] = {"tiles": 4}
    shape, scratch = (18, 14, 22), str(shared_folder)
    disk = DistributedFFT(shape, residency="disk", scratch=scratch, **how)
    host = DistributedFFT(shape, residency="host", **how)
    generator = np.random.default_rng(1)
    part = disk.input_box.shape
    points = (generator.random(part) + (1j * generator.random(part) if "c" in dtype else 0)).astype(
        dtype
    )
    modes = host.forward(points)
    own = disk.forward(points)
    assert np.array_equal(own, modes)
    assert own.size == 0 or files_of(own) is not None
    assert np.array_equal(disk.backward(own), host.backward(modes))
    # Files of users are taken in place.
    rank = 0 if comm is None else comm.rank
    if points.size == 0 or modes.size == 0:
        return
    given_points, given_modes = (
        np.memmap(shared_folder / f"{name}{rank}", one.dtype, "w+", shape=one.shape)
        for name, one in (("points", points), ("modes", modes))
    )
    given_points[...] = points
    disk.forward(given_points, given_modes)
    assert np.array_equal(given_modes, modes)
