"""Pictures of two axes: flow through a volume of one slice."""

import warnings

import numpy as np
import pytest
import tifffile

from slipstream.api.porous_flow import PorousFlow
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import permeability


@pytest.fixture(scope="module")
def device():
    return HostDevice(threads=1)


def slit():
    """Return a picture of a slit of 8 voxels along x, of a height of 10."""
    picture = np.zeros((10, 6), np.uint8)
    picture[1:9] = 255
    return picture


def test_flow_within_a_picture_is_that_of_poiseuille(tmp_path, device):
    tifffile.imwrite(tmp_path / "slit.tif", slit())
    np.save(tmp_path / "slit.npy", slit())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for image in (slit(), slit()[None], tmp_path / "slit.tif", tmp_path / "slit.npy"):
            result = permeability(image, axis="x", tolerance=1e-9, device=device)
            # The parabola at the centres of its voxels.
            assert result.k == pytest.approx((8**3 / 12 + 8 / 24) / 10, rel=1e-9)
            assert result.fields["velocity"].shape[1:] == (1, 10, 6)
        flow = PorousFlow(slit(), axis="x", tolerance=1e-9, device=device)
        flow.run()
        assert flow.diagnostics["permeability_lattice"] == pytest.approx(4.3, rel=1e-9)


def test_flow_across_a_picture_is_doubted_and_through_a_volume_of_one_slice_is_not(device):
    with pytest.warns(RuntimeWarning, match="single slice, .* use axis x or y for flow within"):
        across = permeability(slit(), device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert permeability(slit()[None], device=device).k == across.k


@pytest.mark.parametrize("image", [np.ones(4), np.ones((1, 1, 2, 2)), 3.0], ids=["1", "4", "0"])
def test_other_numbers_of_axes_are_refused(image, device):
    for make in (permeability, PorousFlow):
        with pytest.raises(InputError, match="^image.* two|^image.*a path, or a NumPy array"):
            make(image, axis="x", device=device)
