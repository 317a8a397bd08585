"""Statistics of states on any number of ranks: the same as in one process, and on every rank."""

import numpy as np
import pytest

from flows import advance, start

BOX = ("grid.points=[12, 10, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
MODELS = {
    "scalar": (
        "equation.scalars=1",
        "equation.diffusivity=0.02",
        "numerics.dealiasing=phase-shift",
    ),
    "mhd": ("equation.model=mhd", "equation.resistivity=0.02", "equation.mean_field=0.7"),
    "plane": ("grid.points=[12, 16, 1]",),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["transfer", "anisotropic", "structure", "pdf"])
def test_statistics_depend_on_the_number_of_ranks_by_roundings_only(comm, device, model, kind):
    settings = (*BOX, *MODELS[model])
    serial, shared = (start(device, *settings, comm=one) for one in (None, comm))
    for simulation in (serial, shared):
        # Scalars begin as zero.
        simulation.flow.state[3:] += simulation.flow.state[:1]
        advance(simulation, 2)
    expected = {field.name: field.data for field in serial.statistics(kind)}
    found = {field.name: field for field in shared.statistics(kind)}
    assert found.keys() == expected.keys()
    size = np.prod(serial.problem.geometry.shape)
    for name, values in expected.items():
        actual = found[name].data
        # Every rank has all of it.
        assert found[name].shape == actual.shape == values.shape
        if name.endswith("_pdf"):
            # A value may be on an edge but for rounding; a point counts 10 / size.
            assert np.abs(actual - values).sum() <= 4 * 10 / size
        elif comm is not None:
            everyone = comm.allgather(actual.tobytes())
            assert len(set(everyone)) == 1
        if not name.endswith("_pdf"):
            scale = max(np.abs(np.nan_to_num(values)).max(), 1e-3)
            np.testing.assert_allclose(actual, values, rtol=0, atol=1e-11 * scale, err_msg=name)
