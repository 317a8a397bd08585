"""States at the start of a run from files: as from formulas, and refusals."""

import math

import h5py
import numpy as np
import pytest
import zarr

from field_values import coordinates, formulas, largest_error
from flows import modes_of, points_of, start
from numpy_calculus import Calculus
from refusals import refused
from slipstream.api.opened_run import load
from slipstream.engine.decomposition import Box
from slipstream.spectral.restart_state import resampled

FORMULAS = {
    "velocity": ["sin(y + z)", "cos(x) + 0.5*sin(2*z)", "sin(x - 2*y)"],
    "scalar": "cos(x + y - z) + 0.25",
}
BOX = ("scalars=[{}]", "grid.points=[8, 10, 9]", 'grid.length=["2 pi", "2 pi", "2 pi"]')


def expected_fields(simulation):
    x, y, z = coordinates(simulation)
    return {
        "velocity_x": np.sin(y + z) + 0 * x,
        "velocity_y": np.cos(x) + 0.5 * np.sin(2 * z) + 0 * y,
        "velocity_z": np.sin(x - 2 * y) + 0 * z,
        "scalar": np.cos(x + y - z) + 0.25,
    }


def write(path, arrays):
    """Write arrays in the format that the path names."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    else:
        group = zarr.create_group(path)
        for name, array in arrays.items():
            group.create_array(name, data=array)
    return path


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in ("a.npz", "a.h5", "a.zarr") for dtype in ("float64", "float32")]
    + [("a.npz", ">f8"), ("a.h5", ">f8")],
)
def test_state_from_a_file_is_the_one_of_the_formulas(device, tmp_path, name, dtype):
    fields = expected_fields(start(device, *BOX, "initial.flow=abc"))
    stored = {key: value.astype(dtype) for key, value in fields.items()}
    path = write(tmp_path / name, {**stored, "pressure": np.zeros(3)})
    simulation = start(device, *BOX, "initial.flow=file", f"initial.path={path}")
    rounding = 2e-7 if dtype == "float32" else 4e-15
    assert largest_error(simulation, **fields) <= rounding
    assert (
        np.abs(modes_of(simulation) - modes_of(start(device, *BOX, *formulas(**FORMULAS)))).max()
        <= rounding
    )


@pytest.mark.parametrize("name", ["a.npz", "a.h5", "a.zarr"])
def test_snapshots_of_a_file_are_counted_from_zero_and_the_last_is_the_default(
    device, tmp_path, name
):
    fields = expected_fields(start(device, *BOX, "initial.flow=abc"))
    path = write(tmp_path / name, {"scalar": np.stack([fields["scalar"] * n for n in (3, 2, 1)])})
    for key, factor in (("", 1), ("initial.time=0", 3), ("initial.time=1", 2)):
        more = [key] if key else []
        simulation = start(device, *BOX, "initial.flow=file", f"initial.path={path}", *more)
        # What the file lacks is zero.
        expected = {"scalar": factor * fields["scalar"], "velocity_x": 0.0, "velocity_z": 0.0}
        assert largest_error(simulation, **expected) <= 1e-14


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_vectors_of_a_file_lose_their_gradient_part(device, tmp_path, precision):
    rng = np.random.default_rng(3)
    field = rng.standard_normal((3, 9, 10, 8))
    box = Calculus(field.shape[1:], (2 * math.pi,) * 3)
    path = write(
        tmp_path / "a.h5", {f"velocity_{axis}": one for axis, one in zip("xyz", field, strict=True)}
    )
    simulation = start(
        device,
        *BOX,
        "initial.flow=file",
        f"initial.path={path}",
        f"numerics.precision={precision}",
    )
    modes = box.without_gradient(box.modes(field))
    inside = [np.abs(m) <= (m.size - 1) // 3 for m in box.integers]
    modes *= np.logical_and.outer(np.logical_and.outer(inside[0], inside[1]), inside[2])
    error = np.abs(points_of(simulation) - box.points(modes)).max()
    assert error <= (5e-6 if precision == "float32" else 1e-13)


@pytest.mark.parametrize("points", [(6, 10, 8), (24, 40, 32)])
def test_points_of_another_resolution_keep_the_modes_of_both_grids(tmp_path, points):
    """Of waves that both grids hold all is kept; of one beyond the coarser grid, nothing."""

    def waves(shape, highest):
        z, y, x = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in shape), indexing="ij")
        found = 0.3 + np.sin(x + y) * np.cos(z) + 0.5 * np.cos(2 * y - x)
        return found + 0.1 * np.sin(highest * y)

    highest = 3 if points[0] < 12 else 17
    np.savez(tmp_path / "scalar.npz", scalar=waves(points, highest))
    settings = ("grid.points=[16, 20, 12]", "scalars=[{}]", "initial.flow=file")
    simulation = start("cpu", *settings, f"initial.path={tmp_path / 'scalar.npz'}")
    (field,) = (one.data for one in simulation.fields() if one.name == "scalar")
    expected = waves((12, 20, 16), highest if highest == 3 else 0)
    np.testing.assert_allclose(field, expected, rtol=0, atol=1e-13)
    said = simulation.warnings()
    assert any("interpolated to the 16 x 20 x 12 of the grid by its modes" in one for one in said)
    sim = load(simulation.case, comm=None, device="cpu")
    with pytest.warns(RuntimeWarning, match=r"fields\['scalar'\]: the array has .* by its modes"):
        sim.fields["scalar"][...] = 2 * waves(points, highest)
    sim.fields["scalar"] /= 2
    np.testing.assert_allclose(sim.fields["scalar"], expected, rtol=0, atol=1e-13)


def test_each_rank_gets_the_bits_of_the_whole():
    values = np.random.default_rng(1).random((6, 10, 8))
    grid = (12, 20, 16)

    def part(box):
        return resampled(lambda low, high: values[low:high], values.shape, grid, box)

    everything = part(Box((0, 0, 0), grid))
    for start_of, stop in (
        ((3, 0, 0), (7, 20, 16)),
        ((0, 5, 4), (12, 9, 16)),
        ((2, 2, 2), (2, 2, 2)),
    ):
        box = Box(start_of, stop)
        np.testing.assert_array_equal(part(box), everything[box.slices()])
    back = resampled(
        lambda low, high: everything[low:high], grid, values.shape, Box((0,) * 3, values.shape)
    )
    modes = np.fft.fftn(values)
    for axis, n in enumerate(values.shape):  # which have no direction
        modes[(slice(None),) * axis + (n // 2,)] = 0
    np.testing.assert_allclose(back, np.fft.ifftn(modes).real, rtol=0, atol=1e-14)


UNFIT = [
    (
        {"speed": np.zeros((9, 10, 8))},
        (),
        r"^initial\.path: .* holds no array of the model \(velocity_x, .*it holds: speed",
    ),
    (
        {"scalar": np.zeros((8, 10, 9))},
        (),
        r"scalar in .* has shape \(8, 10, 9\); accepted: \(9, 10, 8\)",
    ),
    ({"scalar": np.zeros((9, 10, 8), complex)}, (), "type complex128; accepted: real"),
    (
        {"scalar": np.zeros((2, 9, 10, 8))},
        ("initial.time=2",),
        r"^initial\.time: 2 is beyond .*accepted: 0 to 1",
    ),
]
UNFIT_ANYWHERE = [
    ({}, (), "it holds: none"),
    ({"scalar": np.zeros((10, 8))}, (), r"shape \(10, 8\)"),
    ({"scalar": np.full((9, 10, 8), np.nan)}, (), r"^initial\.path: scalar .*\(NaN\)"),
    ({"scalar": np.full((9, 10, 8), 1e60)}, ("numerics.precision=float32",), "float32"),
    ({"scalar": np.zeros((9, 10, 8))}, ("initial.time=0",), "no time axis"),
    ({"scalar": np.zeros((0, 9, 10, 8))}, (), "no snapshot"),
]


@pytest.mark.parametrize(
    ("name", "arrays", "settings", "message"),
    [(name, *one) for name in ("a.npz", "a.h5", "a.zarr") for one in UNFIT]
    + [("a.h5", *one) for one in UNFIT_ANYWHERE],
)
def test_file_that_does_not_fit_is_refused(device, tmp_path, name, arrays, settings, message):
    path = write(tmp_path / name, arrays)
    with refused(message):
        start(device, *BOX, "initial.flow=file", f"initial.path={path}", *settings)


def test_what_is_no_file_of_fields_is_refused(device, tmp_path):
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "text.txt").write_text("no fields")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("none.h5", "no such file"),
        ("text.txt", "no known format"),
        ("text.npz", "cannot be read"),
        ("empty", "cannot be read"),
    ):
        with refused(message) as caught:
            start(device, *BOX, "initial.flow=file", f"initial.path={tmp_path / name}")
        assert str(caught.value).startswith("initial.path: ")
