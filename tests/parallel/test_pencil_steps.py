"""Steps on a process grid: the same bits as in slabs, and states that go from one to the other."""

import numpy as np
import pytest

from fft_cases import usable_transports
from first_rank import on_first_rank
from flows import advance, make_case, modes_of, own_part, points_of, save, start
from slipstream.engine.decomposition import check_boxes
from slipstream.engine.errors import InputError
from slipstream.spectral.cfl import courant_rate
from slipstream.spectral.spectral_simulation import SpectralSimulation

BOX = ("grid.points=[16, 12, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
PENCIL = "run.decomposition=pencil"
STEPS = {
    "hd": ("numerics.dealiasing=2/3 sphere", "time.integrator=rk3"),
    "boussinesq": (
        "equation.model=boussinesq",
        "equation.diffusivity=0.02",
        "equation.buoyancy_frequency=2.0",
        "time.integrator=rk4",
    ),
    "mhd": (
        "equation.model=mhd",
        "equation.resistivity=0.02",
        "numerics.dealiasing=phase-shift",
        "numerics.precision=float32",
        "time.integrator=rk4",
    ),
    "forced": ('forcing={ kind="random", amplitude=0.2, shells=[1, 2], seed=3 }',),
}


def grid_of(ranks):
    """Return the setting of a grid with ranks along y, and along z if there are enough."""
    over = ranks if ranks in (1, 2, 3) else 2
    return f"run.grid=[{over}, {ranks // over}]"


def taken_together(comm, simulation):
    """Return the modes of all ranks on the first one."""
    box, modes = simulation.problem.geometry.spectral_box, modes_of(simulation)
    parts = [(box, modes)] if comm is None else comm.gather((box, modes))
    if parts is None:
        return None
    whole = np.zeros((len(modes), *simulation.problem.geometry.spectral_shape), modes.dtype)
    for one, values in parts:
        whole[(slice(None), *one.slices())] = values
    return whole


@pytest.mark.parametrize("schedule", ["serial", "overlap"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_have_the_bits_of_slabs(comm, device, ranks, name, schedule):
    settings = (*BOX, *STEPS[name], f"run.schedule={schedule}")
    slabs = advance(start(device, *settings, "run.decomposition=slab", comm=comm), 2)
    pencils = advance(start(device, *settings, PENCIL, grid_of(ranks), comm=comm), 2)
    assert (pencils.problem.geometry.grid is None) == (ranks == 1)
    expected, found = taken_together(comm, slabs), taken_together(comm, pencils)
    if found is not None:
        assert found.tobytes() == expected.tobytes()
    rates = [courant_rate(one.flow) for one in (slabs, pencils)]
    everyone = [rates] if comm is None else comm.allgather(rates)
    assert len(set(np.max(everyone, axis=0))) == 1
    many, few = pencils.diagnostics(), slabs.diagnostics()
    rounding = 1e-5 if "numerics.precision=float32" in settings else 1e-11
    for key in (name for name in few if not name.endswith("residual")):
        assert many[key] == pytest.approx(few[key], rel=rounding, abs=rounding, nan_ok=True), key
    expected = slabs.spectra()
    for key, spectrum in pencils.spectra().items():
        np.testing.assert_allclose(spectrum, expected[key], rtol=rounding, atol=rounding)


# Fields on the host in tiles of these parts of a field: of whole planes, and of less than one. Of
# what has rows of modes in parts, no columns stay on the device.
STREAMED = {
    "whole planes": ("{ tiles = 2 }", True),
    "parts of planes": ("{ tiles = 24 }", False),
    "rows": ("{ tiles = 1000, streams = 2 }", False),
    "updates of the host": ('{ tiles = 24, update = "host" }', False),
}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how", "decomposition", "points", "transport"),
    [
        ("hd", "rows", "pencil", [12, 10, 5], "auto"),
        ("boussinesq", "parts of planes", "pencil", [16, 12, 9], "mpi-p2p"),
        ("mhd", "whole planes", "pencil", [16, 12, 9], "mpi-p2p"),
        ("forced", "updates of the host", "pencil", [16, 11, 9], "auto"),
        ("forced", "updates of the host", "slab", [16, 11, 9], "mpi-p2p"),
        ("mhd", "rows", "slab", [12, 11, 4], "mpi-p2p"),
        ("boussinesq", "whole planes", "slab", [12, 11, 9], "mpi-p2p"),
        ("hd", "parts of planes", "slab", [16, 12, 9], "auto"),
    ],
)
def test_tiles_of_the_host_have_the_bits_of_slabs(
    comm, device, ranks, name, how, decomposition, points, transport
):
    settings = (*BOX, *STEPS[name], f"grid.points={points}")
    options, stays = STREAMED[how]
    divided = (f"run.decomposition={decomposition}",)
    divided += (grid_of(ranks),) if decomposition == "pencil" else ()
    divided += (f"run.transport={transport}",) if ranks > 1 else ()
    streamed = start(
        device, *settings, *divided, "run.residency=host", f"run.streaming={options}", comm=comm
    )
    slabs = start(device, *settings, "run.decomposition=slab", comm=comm)
    for steps in (1, 2):
        expected, found = (taken_together(comm, advance(one, steps)) for one in (slabs, streamed))
        if found is not None and device.kind == "cpu":
            assert found.tobytes() == expected.tobytes()
        # What is looked at between steps goes through the same tiles.
        looked = [points_of(one) for one in (slabs, streamed)]
        boxes = [one.problem.geometry.physical_box for one in (slabs, streamed)]
        looked = [placed(comm, slabs, *one) for one in zip(boxes, looked, strict=True)]
        if looked[0] is not None and device.kind == "cpu":
            assert looked[0].tobytes() == looked[1].tobytes()
    passes = streamed.flow.passes
    is_slab = streamed.problem.geometry.grid is None
    assert passes.fields.shape.has_whole_planes == (stays and is_slab)
    assert stays or passes.resident.ky == 0
    many, few = streamed.diagnostics(), slabs.diagnostics()
    rounding = 1e-5 if "numerics.precision=float32" in settings else 1e-11
    for key in (name for name in few if not name.endswith("residual")):
        assert many[key] == pytest.approx(few[key], rel=rounding, abs=rounding, nan_ok=True), key


@pytest.mark.slow
def test_tiles_smaller_than_a_plane_come_from_files_too(comm, device, ranks, shared_folder):
    settings = (*BOX, "grid.points=[12, 10, 4]")
    disk = ("run.residency=disk", f'run.scratch="{shared_folder}"', "run.streaming={ tiles = 24 }")
    streamed = advance(start(device, *settings, *disk, PENCIL, grid_of(ranks), comm=comm), 1)
    assert not streamed.flow.passes.fields.shape.has_whole_planes
    slabs = advance(start(device, *settings, "run.decomposition=slab", comm=comm), 1)
    expected, found = (taken_together(comm, one) for one in (slabs, streamed))
    if found is not None and device.kind == "cpu":
        assert found.tobytes() == expected.tobytes()


def placed(comm, simulation, box, values):
    """Return the points of all ranks on the first one."""
    parts = [(box, values)] if comm is None else comm.gather((box, values))
    if parts is None:
        return None
    shape = len(values), *simulation.problem.geometry.shape
    whole = np.zeros(shape, values.dtype)
    for one, own in parts:
        whole[(slice(None), *one.slices())] = own
    return whole


@pytest.mark.several_ranks
def test_bits_do_not_depend_on_the_transport(comm, device, ranks):
    expected = None
    for transport in usable_transports(comm, device):
        settings = PENCIL, grid_of(ranks), f"run.transport={transport}"
        found = taken_together(comm, advance(start(device, *BOX, *settings, comm=comm), 1))
        if found is not None:
            expected = found if expected is None else expected
            assert found.tobytes() == expected.tobytes()


def test_points_and_modes_are_divided_along_two_axes(comm, device, ranks):
    pencils = start(device, *BOX, PENCIL, grid_of(ranks), comm=comm)
    geometry = pencils.problem.geometry
    check_boxes(list(geometry.physical_boxes), geometry.shape, "points")
    check_boxes(list(geometry.spectral_boxes), geometry.spectral_shape, "modes")
    expected = on_first_rank(comm, lambda: points_of(start(device, *BOX)))
    mine = expected[(slice(None), *geometry.physical_box.slices())]
    np.testing.assert_array_equal(points_of(pencils), mine)


@pytest.mark.parametrize(
    ("before", "after"), [(PENCIL, "slab"), ("run.decomposition=slab", "pencil")]
)
def test_a_state_goes_on_in_the_other_decomposition(comm, device, before, after, shared_folder):
    first = advance(start(device, *BOX, before, comm=comm), 2)
    save(first, shared_folder)
    expected = taken_together(comm, advance(first, 1))
    second = start(
        device,
        *(one for one in BOX if not one.startswith("initial.")),
        f"run.decomposition={after}",
        f"initial.restart={shared_folder}",
        comm=comm,
    )
    found = taken_together(comm, advance(second, 1))
    assert second.step == 3
    if found is not None:
        assert found.tobytes() == expected.tobytes()


def test_auto_takes_pencils_for_more_ranks_than_planes(comm, device, ranks):
    flat = ("grid.points=[16, 12, 1]", "initial.peak_wavenumber=2.0")
    found = start(device, *flat, comm=comm)
    assert found.problem.geometry.grid == (None if ranks == 1 else (1, ranks))
    alone = on_first_rank(comm, lambda: modes_of(advance(start(device, *flat), 2)))
    np.testing.assert_array_equal(modes_of(advance(found, 2)), own_part(found, alone))


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("run.grid=[5, 7]",), "run.grid: .5, 7. is for 35 ranks"),
        (("grid.points=[4, 2, 1]",), "run.decomposition: . ranks cannot all have work"),
    ],
)
def test_grids_that_do_not_fit_are_refused(comm, device, ranks, settings, message):
    with pytest.raises(InputError, match=message):
        SpectralSimulation(make_case(*BOX, PENCIL, *settings), comm, device)


@pytest.mark.one_rank
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("run.grid=[1, 2]",), "'grid' goes with decomposition \"pencil\""),
        ((PENCIL, "run.grid=[0, 2]"), "accepted: two whole numbers"),
    ],
)
def test_settings_that_have_no_effect_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        make_case(*BOX, *settings)
