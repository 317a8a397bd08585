"""Statistics of states on any number of ranks: the same as in one process, and on every rank."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import advance, start
from slipstream.engine.accepted import STATISTICS

pytestmark = pytest.mark.several_ranks

BOX = ("grid.points=[12, 10, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
MODELS = {
    "scalar": (
        "scalars=[{diffusivity=0.02}]",
        "numerics.dealiasing=phase-shift",
    ),
    "mhd": ("equation.model=mhd", "equation.resistivity=0.02", "equation.mean_field=0.7"),
    "plane": ("grid.points=[12, 16, 1]",),
}


KINDS = tuple(STATISTICS)


def advanced(device, model, comm):
    simulation = start(device, *BOX, *MODELS[model], comm=comm)
    # Scalars begin as zero.
    simulation.flow.state[3:] += simulation.flow.state[:1]
    return advance(simulation, 2)


@pytest.mark.parametrize("model", MODELS)
def test_statistics_depend_on_the_number_of_ranks_by_roundings_only(comm, device, model):
    def alone():
        serial = advanced(device, model, None)
        kinds = {
            kind: {field.name: field.data for field in serial.statistics(kind)} for kind in KINDS
        }
        return kinds, np.prod(serial.problem.geometry.shape)

    kinds, size = on_first_rank(comm, alone)
    shared = advanced(device, model, comm)
    for kind, expected in kinds.items():
        found = {field.name: field for field in shared.statistics(kind)}
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            check(comm, name, found[name], values, size)


def check(comm, name, field, values, size):
    """Compare results on ranks, each with all of them, with those of one process."""
    actual = field.data
    assert field.shape == actual.shape == values.shape
    if name.endswith("_pdf"):
        # A value may be on an edge but for rounding; a point counts 10 / size.
        assert np.abs(actual - values).sum() <= 4 * 10 / size
        return
    if comm is not None:
        everyone = comm.allgather(actual.tobytes())
        assert len(set(everyone)) == 1
    scale = max(np.abs(np.nan_to_num(values)).max(), 1e-3)
    np.testing.assert_allclose(actual, values, rtol=0, atol=1e-11 * scale, err_msg=name)


def test_joint_densities_are_the_same_on_any_ranks(comm, device):
    of, means = ["velocity_x", "2*velocity_y*velocity_z"], ["vorticity_z**2", "velocity_y"]

    def found(own):
        simulation = advanced(device, "scalar", own)
        density = simulation.density(of, means, (5, 4), "density")
        limits = density.limits()
        return limits, density.read(limits)

    limits, expected = on_first_rank(comm, lambda: found(None))
    own, arrays = found(comm)
    np.testing.assert_allclose(own, limits, rtol=1e-10)
    # The largest and the least value may be in other bins than alone, but for rounding.
    assert np.abs(arrays[0] - expected[0]).max() <= 1e-9 * expected[0].max()
    for one, other in zip(arrays[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
