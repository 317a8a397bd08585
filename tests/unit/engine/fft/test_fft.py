"""The FFT plan on one rank against numpy.fft, by index; several ranks are in tests/parallel."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fft_oracle import assert_close, check, field, kept
from products import NAVIER_STOKES
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import chosen_transport
from slipstream.engine.fft import PlanePass, PlaneTask, PointProduct, SlabGeometry, truncate
from slipstream.engine.fft.line_transforms import ColumnPass
from slipstream.engine.schedule import POLICIES, StepGraph, commit
from slipstream.fft import DistributedFFT

DTYPES = ("float32", "float64", "complex64", "complex128")
PLAIN, TILED = HostDevice(), HostDevice(tiled=True)
TRUNCATIONS = st.one_of(
    st.sampled_from([None, "2/3", "nyquist"]), st.tuples(*[st.integers(0, 9)] * 3)
)


SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17])


def there_are(shape, truncation):
    """Return a truncation without wavenumbers that a shape does not have."""
    if not isinstance(truncation, tuple):
        return truncation
    return tuple(min(k, (n - 1) // 2) for k, n in zip(truncation, shape, strict=True))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.tuples(SIZES, SIZES, SIZES), st.sampled_from(DTYPES), st.integers(1, 3), TRUNCATIONS)
@example((1, 1, 1), "float64", 1, "2/3")
@example((16, 16, 16), "float32", 3, "2/3")
@example((13, 17, 11), "complex128", 2, (0, 8, 1))
def test_any_shape_equals_numpy_by_index_and_schedules_agree_bitwise(
    shape, dtype, fields, truncation
):
    truncation = there_are(shape, truncation)
    serial, overlap = (
        check(None, PLAIN, shape, dtype, fields, truncation, schedule=policy) for policy in POLICIES
    )
    for a, b in zip(serial, overlap, strict=True):
        assert a.tobytes() == b.tobytes()


# Each length in z or y compiles two kernels; 17 has none and falls back, in x anything goes.
TILED_SIZES = st.sampled_from([1, 5, 12, 17])


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.tuples(TILED_SIZES, TILED_SIZES, SIZES),
    st.sampled_from(["float64", "complex64"]),
    st.integers(1, 3),
    TRUNCATIONS,
    st.sampled_from(POLICIES),
)
def test_tiled_plans_equal_numpy_by_index(shape, dtype, fields, truncation, schedule):
    truncation = there_are(shape, truncation)
    check(None, TILED, shape, dtype, fields, truncation, schedule=schedule)


def test_tiled_transforms_are_chosen_where_they_fit():
    for shape, along_z, along_y in (
        ((12, 12, 12), True, True),
        ((17, 12, 12), False, True),
        ((12, 17, 12), True, False),
    ):
        geometry = SlabGeometry(shape, truncate(shape, None, True))
        for make, fits in ((ColumnPass, along_z), (PlanePass, along_y)):
            assert make(TILED, geometry, 1, complex).line.of_gpus == fits
            assert not make(PLAIN, geometry, 1, complex).line.of_gpus


@pytest.mark.parametrize("device", [PLAIN, TILED], ids=["plain", "tiled"])
@pytest.mark.parametrize("alignment", [1, 8])
@pytest.mark.parametrize("shape", [(6, 12, 10), (5, 17, 15), (40, 60, 50)])
def test_through_is_backward_product_and_forward(device, alignment, shape):
    """Planes -> points -> product -> planes, fused or not, of rows with and without padding."""
    geometry = SlabGeometry(shape, truncate(shape, "2/3", True), row_alignment=alignment)
    planes = PlanePass(device, geometry, 5, complex)
    nz, ny, nx = shape
    rows, kx = (nz, geometry.modes[1].count, geometry.row), geometry.modes[2].count
    packed = device.zeros((5, geometry.planes_size), complex)
    modes = packed.reshape(5, *rows)  # on one rank, planes are in order
    modes[:3, ..., :kx] = field((*rows[:2], kx), complex, 3)
    inside = np.ix_(range(5), range(nz), *kept(shape, "2/3", True)[1:])
    padded = np.zeros((3, nz, ny, nx // 2 + 1), complex)
    padded[inside[0][:3], *inside[1:]] = modes[:3, ..., :kx]
    u, v, w = np.fft.irfft2(padded, (ny, nx)) * (ny * nx)
    products = np.stack([u * u - w * w, u * v, u * w, v * v - w * w, v * w])
    expected = np.fft.rfft2(products)[inside]
    parameters = np.array([0.5, 2.0, 3.0])
    maxima = device.zeros((nz * ny,), np.int64)
    product = PointProduct(NAVIER_STOKES, 3, 5, device.array(parameters), maxima)
    graph = StepGraph(device)
    inputs, outputs = ([planes.packed(0, one)] for one in (packed[:3], packed))
    planes.record(graph, PlaneTask(3, 5, product=product), inputs, outputs)
    commit(graph, "overlap").run()
    assert_close(modes[..., :kx], expected, expected, "float64")
    rate = np.einsum("i,izyx", parameters, abs(np.stack([u, v, w]))).max()
    assert maxima.max().view(np.float64) == pytest.approx(rate, rel=1e-13)


def test_given_outputs_are_filled_and_returned():
    plan = DistributedFFT((4, 6, 5), device=PLAIN)
    (u,) = field((4, 6, 5), "float64")
    modes, points = plan.empty_output(), plan.empty_input()
    assert plan.forward(u, out=modes) is modes
    given = modes.copy()
    assert plan.backward(given, out=points) is points
    np.testing.assert_array_equal(given, modes)  # sources are kept
    expected = np.fft.rfftn(u)
    assert_close(modes, expected, expected, "float64")
    assert_close(points, u, u, "float64")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (2,) * 9}, "shape.*one to 8 sizes"),
        ({"shape": (4, 0, 4)}, "shape.*at least 1"),
        ({"dtype": "U8"}, "'U8'; accepted: float32, float64, complex64, complex128"),
        ({"dtype": "longdouble"}, "accepted: float32"),
        ({"fields": 0}, "fields is 0"),
        ({"truncation": "3/2"}, "'3/2' is unknown; accepted: None, '2/3', 'nyquist'"),
        ({"truncation": (1, 2)}, "largest wavenumber of each of the 3 axes"),
        ({"truncation": (1, 9, 1)}, "no such wavenumbers; accepted: at most"),
        ({"workers": 2}, "workers is 2, ranks that transform; accepted on one rank: 1"),
        ({"schedule": "eager"}, "schedule 'eager' is unknown; accepted"),
        ({"residency": "disk", "scratch": 3}, "scratch is 3; accepted: a folder, or a list of"),
        ({"device": "abacus"}, "'abacus' is unknown; accepted"),
    ],
)
def test_what_is_not_accepted_is_named(options, message):
    arguments = {"shape": (4, 4, 4), "device": PLAIN} | options
    with pytest.raises(InputError, match=message):
        DistributedFFT(**arguments)


def test_unknown_transport_is_named():
    with pytest.raises(InputError, match="'pigeon' is unknown; accepted: auto, peer, nccl"):
        chosen_transport("pigeon", None, PLAIN)


@pytest.mark.parametrize("given", [">f8", ">f4", ">c16", "int32", ">u2", "bool"])
@pytest.mark.parametrize("shape", [(12,), (5, 6), (2, 3, 4)])
def test_plans_of_the_types_that_numpy_converts_take_such_arrays(given, shape):
    u = (8 * field(shape, "complex128" if "c" in given else "float64")[0]).astype(given)
    plan = DistributedFFT(u.shape, u.dtype, device=PLAIN)
    assert plan.arguments.dtype == (u.dtype.newbyteorder("=") if u.dtype.kind in "fc" else float)
    expected = (np.fft.fftn if u.dtype.kind == "c" else np.fft.rfftn)(u)
    assert_close(plan.forward(u), expected, expected, plan.arguments.dtype)
    back = plan.backward(expected.astype(expected.dtype.newbyteorder(">")))
    assert_close(back, u, u, plan.arguments.dtype)


def test_integers_are_converted_only_where_none_changes():
    plan = DistributedFFT((4, 6), "float32", device=PLAIN)
    u = np.arange(24).reshape(4, 6)
    np.testing.assert_allclose(plan.forward(u.astype("uint16")), np.fft.rfft2(u), atol=1e-4)
    with pytest.raises(InputError, match="type int32; this plan takes .* float32"):
        plan.forward(u.astype("int32"))


@pytest.mark.parametrize("shape", [(4, 6, 4), (2, 4, 6, 5), (4, 6, 5, 1)])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_arrays_that_do_not_match_are_refused_before_anything_runs(shape, dtype):
    plan = DistributedFFT((4, 6, 5), device=PLAIN)
    (good,), bad = field((4, 6, 5), "float64"), np.zeros(shape, dtype)
    modes = plan.forward(good)
    for call, source, out in itertools.chain(
        [(plan.forward, bad, None), (plan.forward, good, bad)],
        [(plan.backward, bad, None), (plan.backward, modes, bad)],
    ):
        with pytest.raises(InputError, match="this plan takes shape"):
            call(source, out=out)
    assert not bad.any()
