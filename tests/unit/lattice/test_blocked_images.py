"""Images through which no path leads along an axis: k is 0 there, with a warning that says so."""

import warnings

import numpy as np
import pytest

from flows import diagnostics
from launched_runs import enter, run
from slipstream.api.porous_flow import PorousFlow
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files.run_folder import read_run_record
from slipstream.lattice import permeability
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import AtItsEnd

NO_PATH = "no path leads through the pores along {}: nothing can flow"
CASE = """
solver = "lattice"
[image]
path = "image.npy"
[flow]
axis = "z"
[time]
end = 400
[output]
pictures = false
"""
pytestmark = pytest.mark.filterwarnings("ignore:[0-9]+% of the pore voxels")


@pytest.fixture(scope="module")
def device():
    return HostDevice(threads=1)


def slits():
    """Return an image with ways along x and y, a wall across z, and pores in it that are shut."""
    image = np.zeros((8, 6, 6), np.uint8)
    image[1:6] = 1
    image[3, :, 2] = 0
    image[7, 2, 3] = 1
    return image


def test_permeability_of_a_blocked_axis_is_zero(device):
    with pytest.warns(RuntimeWarning, match=NO_PATH.format("z")):
        result = permeability(slits(), voxel_size=2e-6, axis="z", device=device)
    assert (result.k, result.k_lattice, result.steps, result.residual) == (0, 0, 0, 0)
    assert result.converged and result.flow.ended == "no path"
    assert result.open_porosity == 0 < result.porosity
    assert not result.fields["velocity"].data.any()
    assert np.array_equal(result.fields["pore"].data, slits())
    assert result.flow.balance == 1 and result.flow.reynolds_number(1e-3) == 0
    assert "no path, after 0 steps" in repr(result)


def test_tensor_has_zeros_where_nothing_flows(device):
    with pytest.warns(RuntimeWarning, match=NO_PATH.format("z")):
        result = permeability(slits(), axis="all", device=device)
    assert result.converged and result.flows["z"].ended == "no path"
    assert not result.tensor[2].any() and not result.tensor[:, 2].any()
    for place, axis in enumerate("xy"):
        alone = permeability(slits(), axis=axis, device=device)
        assert result.tensor[place, place] == pytest.approx(alone.k, rel=1e-3)


@pytest.mark.filterwarnings("ignore:no path leads")
def test_flow_of_a_blocked_axis_can_be_followed_in_time(device):
    """Without a tolerance it is one as any other, which comes to rest."""
    flow = PorousFlow(slits(), axis="z", tolerance=0, device=device)
    results = []
    for steps in (2, 400):
        flow.run(steps=steps)
        results.append(flow.diagnostics["permeability_lattice"])
    assert not flow.finished and flow.steps == 402
    assert abs(results[1]) < 0.01 * abs(results[0])


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["z", "all"])
def test_run_of_a_blocked_image_says_so(tmp_path, monkeypatch, capsys, axis):
    folder = enter(tmp_path, monkeypatch, case=CASE)
    np.save(folder / "image.npy", slits())
    assert run(f"flow.axis={axis}") == 0
    (segment,) = read_run_record(folder / "out").segments
    told = NO_PATH.format("z")
    assert any(text.startswith(told) for text in segment.warnings)
    assert told in capsys.readouterr().out
    assert segment.ended_by == "finished"
    last = {name: column[-1] for name, column in diagnostics(folder / "out").items()}
    if axis == "z":
        assert (segment.to_step, last["permeability_lattice"]) == (0, 0)
        assert segment.results["permeability"][0].startswith("0 ")
    else:
        assert last["permeability_zz"] == last["permeability_xz"] == 0 < last["permeability_xx"]
    before = (folder / "out" / "diagnostics.csv").read_text()
    with pytest.raises(AtItsEnd, match="has ended .the flow is steady, step"):
        resume_run(folder / "out", ["time.end=1000"], None, HostDevice())
    # One series does not have permeabilities of two sizes of voxels.
    with pytest.raises(InputError, match="image.voxel_size: .*accepted: 1.0, or a new run"):
        resume_run(folder / "out", ["image.voxel_size=2e-6"], None, HostDevice())
    assert (folder / "out" / "diagnostics.csv").read_text() == before


def test_flow_as_an_object_is_over_at_once(device):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        flow = PorousFlow(slits(), axis="z", device=device)
        flow.run()
    assert any(NO_PATH.format("z") in str(one.message) for one in caught)
    assert flow.finished == "nothing can flow along z, the permeability along z is 0"
