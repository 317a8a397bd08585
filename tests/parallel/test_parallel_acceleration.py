"""Extrapolated flows have the same bits on any number of ranks."""

import numpy as np
import pytest

from slipstream.lattice import Storage, make_sample, permeability

pytestmark = pytest.mark.several_ranks


@pytest.mark.filterwarnings("ignore:.* of the pore voxels are in pores")
@pytest.mark.filterwarnings("ignore:pore faces solid")
@pytest.mark.parametrize(
    ("storage", "options"),
    [
        (Storage(), {"tolerance": 1e-5}),
        (Storage("two-lattice", "vector-collision", "row-tiles"), {"pressure_drop": 1e-4}),
        (Storage(precision="mixed"), {"partition": "cartesian", "isolated": "keep"}),
        (Storage(precision="float32"), {"axis": "all", "tolerance": 1e-2}),
        (Storage(precision="float16"), {"pressure_drop": 1e-4, "tolerance": 1e-1}),
        (Storage(), {"inertia": True, "force": 1e-4, "vectors": 4}),
        (Storage(), {"coarse_start": True, "axis": "all", "tolerance": 1e-2}),
    ],
)
def test_every_number_of_ranks_gives_the_same_flow(comm, device, storage, options):
    sample = make_sample("sandstone", (14, 15, 16), porosity=0.35, radius=4, seed=5)
    alone = permeability(sample, storage=storage, device=device, **options)
    actual = permeability(sample, storage=storage, device=device, comm=comm, **options)
    assert actual.steps == alone.steps
    assert actual.k == pytest.approx(alone.k, rel=1e-12 if storage.precision == "float64" else 1e-6)
    assert actual.resolution_error == pytest.approx(alone.resolution_error, nan_ok=True)
    for axis, flow in actual.flows.items():
        for name in ("velocity_z", "density"):
            whole = flow.fields.gather(name).data
            if comm is None or comm.rank == 0:
                expected = alone.flows[axis].fields[name].data
                np.testing.assert_array_equal(whole, expected)


def test_all_ranks_have_the_same_number_of_vectors(comm, device, monkeypatch):
    rank = 0 if comm is None else comm.rank
    sample = make_sample("sandstone", (14, 15, 16), porosity=0.35, radius=4, seed=5)
    # One rank is short of memory: then none is accelerated.
    monkeypatch.setattr("slipstream.lattice.acceleration._SHARE", 1e-9 if rank else 0.5)
    actual = permeability(sample, storage=Storage(), device=device, comm=comm, max_steps=20_000)
    plain = permeability(sample, storage=Storage(), device=device, comm=comm, vectors=0)
    if comm is not None and comm.size > 1:
        assert actual.steps == plain.steps
        assert actual.k == plain.k
