"""Behaviour that only a GPU shows. Run by `tools/gpu_check.py`, skipped elsewhere."""

import math

import numpy as np
import pytest

from fft_oracle import check
from flows import (
    RANDOM,
    UNEVEN_BOX,
    advance,
    diagnostics,
    modes_of,
    points_of,
    random_values,
    relative_error,
    slipstream,
    start,
)
from products import NAVIER_STOKES
from slipstream.engine.device import HostDevice, RowLaunch, open_device
from slipstream.engine.fft.line_transforms import LineTransform, Rows, in_strides
from slipstream.engine.fft.pack_unpack import RowMover, RowTables
from slipstream.engine.fft.slab_layout import NOT_KEPT
from slipstream.engine.fft.transform_parts import Modes
from slipstream.engine.schedule.committed_steps import CapturedStep
from slipstream.fft import DistributedFFT
from slipstream.spectral.cfl import courant_rate
from slipstream.spectral.energy_budget import vector_sums
from slipstream.spectral.spectrum import vorticity

pytestmark = pytest.mark.gpu

LENGTHS = 'grid.length=["2 pi", "3 pi", 5.0]'
# 17, 34 and 38 have prime factors without a tiled kernel, so that cuFFT takes part, along
# all axes or some of them; 64 and 48 have one.
BOXES = {
    "cube": ("grid.points=64",),
    "no tiles": ("grid.points=[34, 38, 34]", LENGTHS),
    "tiles in y and z": ("grid.points=[34, 64, 48]", LENGTHS),
    "tiles in x and z": ("grid.points=[64, 34, 48]", LENGTHS),
    "tiles in x and y": ("grid.points=[48, 64, 17]", LENGTHS),
    "uneven": UNEVEN_BOX,
    "plane": ("grid.points=[48, 40, 1]", LENGTHS),
}


@pytest.fixture(scope="module")
def host():
    return HostDevice()


# -- flows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", BOXES)
def test_flow_on_the_gpu_equals_that_on_the_cpu(device, host, box):
    there, here = (advance(start(one, *BOXES[box]), 10) for one in (device, host))
    # Other transforms, so other roundings, in each of 10 steps.
    assert relative_error(modes_of(there), modes_of(here)) <= 1e-11
    assert relative_error(points_of(there), points_of(here)) <= 1e-11
    ours, theirs = here.diagnostics(), there.diagnostics()
    for name in ("energy", "enstrophy", "dissipation", "helicity"):
        assert theirs[name] == pytest.approx(ours[name], rel=1e-11, abs=1e-12)
    spectra = [one.spectra()["energy_spectrum"][1] for one in (there, here)]
    assert relative_error(*spectra) <= 1e-11
    assert courant_rate(there.flow) == pytest.approx(courant_rate(here.flow), rel=1e-11)


@pytest.mark.parametrize("box", ["cube", "tiles in y and z"])
def test_single_precision_flow_equals_that_on_the_cpu(device, host, box):
    settings = (*BOXES[box], "numerics.precision=float32")
    there, here = (advance(start(one, *settings), 10) for one in (device, host))
    # Roundings of 6e-8 in each of 40 substages.
    assert relative_error(modes_of(there), modes_of(here)) <= 5e-6


@pytest.mark.parametrize("flow", ["taylor-green", "abc"])
def test_initial_flow_equals_that_on_the_cpu(device, host, flow):
    settings = ("grid.points=[34, 24, 20]", f"initial.flow={flow}", "numerics.dealiasing=none")
    there, here = (start(one, *settings) for one in (device, host))
    # One transform.
    assert relative_error(modes_of(there), modes_of(here)) <= 1e-14


@pytest.mark.parametrize("integrator", ["rk2", "rk3", "rk4"])
@pytest.mark.parametrize("box", ["cube", "no tiles", "uneven"])
def test_captured_graph_gives_the_bits_of_the_serial_schedule(device, box, integrator):
    settings = (*BOXES[box], f"time.integrator={integrator}")
    results = []
    for schedule in ("serial", "overlap"):
        simulation = start(device, *settings, f"run.schedule={schedule}")
        # More steps than one profiled interval, so that both the graph and its nodes have run.
        advance(simulation, 12)
        results.append((modes_of(simulation).tobytes(), courant_rate(simulation.flow)))
    assert results[0] == results[1]


def test_step_size_may_change_between_replays_of_a_graph(device, host):
    sizes = (0.01, 0.02, 0.005, 0.02)
    flows = []
    for one in (device, host):
        simulation = start(one, "grid.points=32")
        for size in sizes:
            simulation.advance(size)
        flows.append(modes_of(simulation))
    assert relative_error(*flows) <= 1e-11


def test_run_on_the_gpu_writes_the_series_of_the_cpu(tmp_path):
    (tmp_path / "case.toml").write_text(RANDOM)
    settings = ("--set", "grid.points=32", "--set", "time.end=0.1")
    for kind in ("cpu", "cuda"):
        result = slipstream(
            "run", "case.toml", "--device", kind, "--out", kind, *settings, cwd=tmp_path
        )
        assert result.returncode == 0, result.stdout + result.stderr
    here, there = (diagnostics(tmp_path / kind) for kind in ("cpu", "cuda"))
    np.testing.assert_array_equal(there["step"], here["step"])
    for name in ("energy", "enstrophy", "helicity"):
        assert relative_error(there[name], here[name]) <= 1e-11


# -- transforms --------------------------------------------------------------------------------

SHAPES = [(16, 17, 34), (34, 16, 17), (17, 34, 16), (64, 100, 128), (128, 64, 100), (17, 17, 17)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transform_equals_numpys(device, shape, dtype):
    check(None, device, shape, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.parametrize("truncation", ["2/3", (2, 3, 1)])
def test_truncated_transform_equals_numpys(device, shape, dtype, truncation):
    check(None, device, shape, dtype, fields=2, truncation=truncation)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_transform_gives_the_same_bits_as_a_graph_and_node_by_node(device, dtype):
    results = [
        check(None, device, (16, 34, 100), dtype, fields=3, truncation="2/3", schedule=schedule)
        for schedule in ("serial", "overlap")
    ]
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()


def test_every_plan_of_a_process_is_captured_as_a_graph():
    for _ in range(3):
        fft = DistributedFFT((32, 32, 32), device="cuda")
        u, u_hat = fft.empty_input(), fft.empty_output()
        assert type(fft._prepared(True, u, u_hat, None)[0]) is CapturedStep
    assert fft.device is open_device("cuda")
    from slipstream.engine.device.cuda_device import CudaDevice

    assert fft.device == CudaDevice(fft.device.ordinal)


# -- kernels -----------------------------------------------------------------------------------


def run_on(device, bind, *arrays):
    """Run an operation on copies of the arrays; return them, back on the host."""
    placed = [device.array(array) for array in arrays]
    device.run(bind(device, *placed))
    return [device.to_host(array) for array in placed]


def both(device, host, bind, *arrays):
    return run_on(device, bind, *arrays), run_on(host, bind, *arrays)


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_kernels_that_move_or_scale_data_give_the_bits_of_the_cpu(device, host, real):
    name = {"float32": "float", "float64": "double"}[real]
    source = random_values((37, 101), real)

    def copy(array, origin, target):
        kernel = array.kernel("copy_bandwidth.hpp", "copy_rows", REAL=name)
        return kernel.bind(RowLaunch(37, 101), origin, target, 37, 101)

    (_, copied), _ = both(device, host, copy, source, np.zeros_like(source))
    np.testing.assert_array_equal(copied, source)

    def scale(array, values):
        return array.scale(values, 1 / 3)

    there, here = both(device, host, scale, source)
    np.testing.assert_array_equal(there[0], here[0])
    np.testing.assert_array_equal(here[0], source * source.dtype.type(1 / 3))


@pytest.mark.parametrize("complex_dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("modes", [Modes(40, 40, 0), Modes(40, 14, 13), Modes(40, 14, 0)])
def test_rows_are_gathered_and_scattered_as_on_the_cpu(device, host, complex_dtype, modes):
    fields, planes, rows = 2, 3, 11
    kept = np.array([0, 1, 2, 8, 9, 10])
    offset = np.full(rows, NOT_KEPT, np.int64)
    # Rows of all planes are next to each other: row r of plane p is at offset[r] + p * pitch[r].
    offset[kept] = np.arange(kept.size) * planes * modes.count
    pitch = np.full(rows, modes.count, np.int64)
    packed = random_values((fields, kept.size * planes * modes.count), complex_dtype, 1)
    work = random_values((fields, planes, rows, modes.size), complex_dtype, 2)

    def move(name):
        def bind(one, packed, work):
            mover = RowMover(one, complex_dtype, modes)
            tables = RowTables(one, (offset, pitch))
            return mover.bind(packed, work, tables, 0, name == "scatter")

        return bind

    inside = np.r_[0 : modes.low, modes.size - modes.high : modes.size]
    by_row = packed.reshape(fields, kept.size, planes, modes.count).swapaxes(1, 2)
    there, here = both(device, host, move("gather"), packed, work)
    expected = np.zeros_like(work)
    expected[np.ix_(range(fields), range(planes), kept, inside)] = by_row
    np.testing.assert_array_equal(there[1], expected)
    np.testing.assert_array_equal(here[1], expected)
    there, here = both(device, host, move("scatter"), packed, work)
    gathered = work[np.ix_(range(fields), range(planes), kept, inside)]
    expected = np.ascontiguousarray(gathered.swapaxes(1, 2)).reshape(fields, -1)
    np.testing.assert_array_equal(there[0], expected)
    np.testing.assert_array_equal(here[0], expected)


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_product_and_rate_equal_those_of_the_cpu(device, host, real):
    rows, columns = 29, 70
    points = random_values((5, rows, columns), real)
    constants = {
        "REAL": {"float32": "float", "float64": "double"}[real],
        "INPUTS": 3,
        "OUTPUTS": 5,
        "PRODUCT_HEADER": f'"{NAVIER_STOKES}"',
    }
    per_spacing = np.array([3.0, 2.0, 1.5])

    def bind(one, points, maxima):
        kernel = one.kernel("pointwise.hpp", "apply_pointwise", **constants)
        launch = RowLaunch(rows, columns, reduces=True)
        parameters = one.array(per_spacing)
        return kernel.bind(launch, points, maxima, parameters, rows, columns, rows * columns)

    there, here = both(device, host, bind, points, np.zeros(rows, np.int64))
    u, v, w = points[:3]
    # One rounding a product, and one a difference; neither machine contracts them.
    expected = np.stack([u * u - w * w, u * v, u * w, v * v - w * w, v * w])
    np.testing.assert_array_equal(there[0], here[0])
    np.testing.assert_array_equal(there[0], expected)
    rate = np.abs(points[:3].astype(float) * per_spacing[:, None, None]).sum(axis=0).max(axis=1)
    # Three roundings at most.
    np.testing.assert_allclose(there[1].view(np.float64), rate, rtol=1e-15)
    np.testing.assert_allclose(there[1].view(np.float64), here[1].view(np.float64), rtol=1e-15)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_sums_and_curl_of_one_state_equal_those_of_the_cpu(device, host, precision):
    settings = (*UNEVEN_BOX, f"numerics.precision={precision}")
    there, here = (start(one, *settings) for one in (device, host))
    assert modes_of(there).tobytes() == modes_of(here).tobytes()
    # Sums of the same numbers in double precision, in another order.
    sums = [vector_sums(one.flow, one.flow.read_state()[:3]) for one in (there, here)]
    np.testing.assert_allclose(sums[0][:3], sums[1][:3], rtol=1e-12)
    curls = []
    for one in (there, here):
        vorticity(one.flow)
        curls.append(one.flow.modes_of(one.device.to_host(one.flow.stage)))
    epsilon = np.finfo(precision).eps
    # Two products and a difference.
    assert relative_error(*curls) <= 2 * epsilon


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 30, 64, 100, 128, 512])
def test_tiled_transform_equals_that_of_the_cpu(device, host, n, real, forward):
    columns, low, high = 21, n - n // 2, n // 3
    positions = Modes(n, low, high).positions()
    offset = np.where(positions < 0, NOT_KEPT, positions * columns)
    complex_dtype = np.result_type(real, np.complex64)
    modes = random_values((2, 3 * (low + high) * columns), complex_dtype, n)
    points = random_values((2, 3, n, columns), complex_dtype, n + 1)
    pitch = np.where(positions < 0, 0, (low + high) * columns)

    def bind(one, modes, points):
        tables = RowTables(one, (offset, pitch))
        rows = Rows(modes, [modes], tables)
        line = LineTransform(one, "z", n, complex_dtype)
        return line.bind(rows, in_strides(points), (2, 3, columns), forward)

    there, here = both(device, host, bind, modes, points)
    # Roundings of a few passes over the largest values.
    tolerance = 8 * np.finfo(real).eps * (1 + math.log2(n))
    for actual, expected in zip(there, here, strict=True):
        assert relative_error(actual, expected) <= tolerance
    transform = np.fft.fft(points.astype(complex), axis=2)
    if forward:
        kept = np.r_[0:low, n - high : n]
        expected = transform[:, :, kept].reshape(2, -1)
        assert relative_error(there[0], expected) <= tolerance
