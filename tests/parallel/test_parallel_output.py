"""Files written by any number of ranks against those of one process, and read across."""

import numpy as np
import pytest
import zarr
from rich.console import Console

from flows import UNEVEN_BOX, advance, diagnostics, make_case, modes_of, own_part, save, start
from slipstream.engine.errors import RunError
from slipstream.files import durable_files, open_checkpoint, zarr_store
from slipstream.runs.run_case import run_case
from slipstream.spectral.spectral_simulation import SpectralSimulation

RUN = (
    *UNEVEN_BOX,
    "time.end=0.05",
    "output.diagnostics_interval=0.01",
    "output.fields_interval=0.03",
    "output.spectra_interval=0.02",
)


def stored_modes(folder):
    checkpoint = open_checkpoint(folder)
    return np.stack([checkpoint.read(f"velocity_{name}_hat") for name in "xyz"])


def test_checkpoint_holds_the_modes_of_all_ranks(comm, device, shared_folder):
    simulation = advance(start(device, *UNEVEN_BOX, comm=comm), 3)
    save(simulation, shared_folder)
    # Every rank reads everything and finds its own part in its place.
    stored = own_part(simulation, stored_modes(shared_folder))
    assert stored.tobytes() == modes_of(simulation).tobytes()
    assert open_checkpoint(shared_folder).step == 3


def test_checkpoint_of_several_ranks_is_read_by_one(comm, device, shared_folder):
    simulation = advance(start(device, *UNEVEN_BOX, comm=comm), 3)
    save(simulation, shared_folder)
    alone = start(device, *UNEVEN_BOX, f"initial.restart={shared_folder}")
    assert (alone.step, alone.time) == (simulation.step, simulation.time)
    assert own_part(simulation, modes_of(alone)).tobytes() == modes_of(simulation).tobytes()


@pytest.mark.several_ranks
def test_checkpoint_of_one_rank_is_read_by_several(comm, device, tmp_path):
    alone = advance(start(device, *UNEVEN_BOX), 3)
    save(alone, tmp_path)
    simulation = start(device, *UNEVEN_BOX, f"initial.restart={tmp_path}", comm=comm)
    assert (simulation.step, simulation.time) == (alone.step, alone.time)
    assert own_part(simulation, modes_of(alone)).tobytes() == modes_of(simulation).tobytes()


@pytest.mark.several_ranks
@pytest.mark.parametrize("points", ["[16, 20, 12]", "[30, 40, 24]"])
def test_other_resolution_is_reached_on_several_ranks(comm, device, shared_folder, points):
    simulation = advance(start(device, *UNEVEN_BOX, comm=comm), 1)
    save(simulation, shared_folder)
    settings = (f"initial.restart={shared_folder}", UNEVEN_BOX[1], f"grid.points={points}")
    alone, several = start(device, *settings), start(device, *settings, comm=comm)
    assert own_part(several, modes_of(alone)).tobytes() == modes_of(several).tobytes()
    assert np.abs(modes_of(alone)).max() > 0


@pytest.mark.several_ranks
def test_output_does_not_depend_on_the_number_of_ranks(comm, device, shared_folder, tmp_path):
    case = make_case(*RUN)
    alone, together = tmp_path / "alone", shared_folder / "together"
    quiet = Console(quiet=True)
    run_case(SpectralSimulation(case, None, device), alone, quiet)
    run_case(SpectralSimulation(case, comm, device), together, quiet)
    if comm is not None:
        comm.Barrier()  # rank 0 closes the time series after the others have left
    assert (state := open_checkpoint(together).path.relative_to(together)).name == "000000005.zarr"
    for store in ("fields.zarr", state, "spectra.zarr", "diagnostics.zarr"):
        one, many = (zarr.open_group(folder / store, mode="r") for folder in (alone, together))
        assert sorted(one.array_keys()) == sorted(many.array_keys())
        for name, array in one.arrays():
            if name.endswith("residual"):
                continue  # a small difference of large terms, too inexact to compare
            expected, actual = array[...], many[name][...]
            assert actual.dtype == expected.dtype
            # Roundings of 5 steps; missing parts would be not-a-number.
            scale = max(np.abs(expected).max(), 1e-3)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * scale, err_msg=name)
    np.testing.assert_array_equal(diagnostics(alone)["step"], diagnostics(together)["step"])
    assert (alone / "case.toml").read_text() == (together / "case.toml").read_text()


def test_damage_is_found_by_all_ranks_and_the_state_before_is_read(comm, device, shared_folder):
    simulation = advance(start(device, comm=comm), 1)
    save(simulation, shared_folder)
    before = modes_of(simulation)
    damaged = save(advance(simulation, 1), shared_folder)
    if comm is None or comm.rank == 0:
        chunks = sorted((damaged / "velocity_z_hat" / "c").rglob("[0-9]"))
        path = next(path for path in reversed(chunks) if path.is_file())
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    if comm is not None:
        comm.Barrier()
    onward = start(device, f"initial.restart={shared_folder}", comm=comm)
    (warning,) = onward.warnings()
    assert "array velocity_z_hat, chunk" in warning
    assert onward.step == 1
    assert modes_of(onward).tobytes() == before.tobytes()


@pytest.mark.parametrize("name", ["flush_file", "replace_file"])
def test_a_file_that_one_rank_cannot_write_ends_all(comm, device, shared_folder, monkeypatch, name):
    simulation = advance(start(device, comm=comm), 1)
    save(simulation, shared_folder)
    last = simulation.ranks - 1
    write = getattr(zarr_store, name)

    def fail(path, *content, **options):
        if simulation.rank == last and "velocity_y_hat/c" in str(path):
            with durable_files.errors_name(path):
                raise OSError(28, "No space left on device")
        write(path, *content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(zarr_store, name, fail)
        with pytest.raises(RunError, match=r"velocity_y_hat/c\S+ cannot be written: No space"):
            save(advance(simulation, 1), shared_folder)
    if comm is not None:
        comm.Barrier()
    assert [path.name for path in (shared_folder / "checkpoints").iterdir()] == ["000000001.zarr"]
    assert open_checkpoint(shared_folder, comm).step == 1
