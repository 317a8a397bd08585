"""Any axes, kinds and norms of arrays of any number of axes, on any number of ranks."""

import math

import numpy as np
import pytest

from fft_oracle import field
from kinds_oracle import period, sums, transform
from refusals import refused
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.engine.fft import transform_parts
from slipstream.fft import DistributedFFT

KINDS = ("dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4")
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}


def with_norms(values):
    """Return each value with each norm; on several ranks with one, as none divides a sum."""
    return [
        pytest.param(value, norm, marks=() if (i + j) % 3 == 0 else pytest.mark.one_rank)
        for i, value in enumerate(values)
        for j, norm in enumerate(("backward", "ortho", "forward"))
    ]


def part(fft, whole, box, fields=1):
    return np.ascontiguousarray(
        whole[(slice(None), *box.slices())][slice(None) if fields > 1 else 0]
    )


def check(comm, device, shape, dtype, axes=None, kinds="fft", norm="backward", fields=1, **options):
    """Compare a transform and its inverse with the oracle's, and return the plan."""
    fft = DistributedFFT(
        shape,
        dtype,
        comm=comm,
        device=device,
        axes=axes,
        kinds=kinds,
        norm=norm,
        fields=fields,
        **options,
    )
    whole = field(shape, dtype, fields)
    chosen = tuple(range(len(shape))) if axes is None else tuple(axes)
    names = (kinds,) * len(chosen) if isinstance(kinds, str) else kinds
    wide = whole.astype(np.result_type(whole.dtype, np.float64))
    shifted = [axis % len(shape) + 1 for axis in chosen]
    expected = transform(wide, shifted, names, norm)
    assert fft.shape == tuple(shape)
    assert fft.spectral_shape == expected.shape[1:]
    u, u_hat = part(fft, whole, fft.input_box, fields), part(fft, expected, fft.output_box, fields)
    actual = fft.device.to_host(fft.forward(u))
    back = fft.device.to_host(fft.backward(u_hat.astype(actual.dtype)))
    assert back.dtype == whole.dtype
    assert actual.dtype == (
        whole.dtype if expected.dtype.kind == "f" else fft.arguments.complex_dtype
    )
    tolerance = TOLERANCE[dtype] * 8
    np.testing.assert_allclose(actual, u_hat, rtol=0, atol=tolerance * abs(expected).max(initial=1))
    np.testing.assert_allclose(back, u, rtol=0, atol=tolerance * abs(whole).max(initial=1))
    return fft


@pytest.mark.parametrize(("dtype", "norm"), with_norms(["float64", "complex64"]))
def test_axes_are_those_of_numpy_in_any_order(comm, device, dtype, norm):
    shape = (4, 5, 6, 7)
    for axes in ((1, 3), (3, 1), (-1,), (0,), (2, -4, 1), (3, 2, 1, 0), None):
        check(comm, device, shape, dtype, axes, norm=norm)
    for axes in ((1, 0), (0, 1), (0,), (1,)):
        check(comm, device, (6, 9), dtype, axes, norm=norm)
    check(comm, device, (7,), dtype, norm=norm)


@pytest.mark.parametrize(("kind", "norm"), with_norms(KINDS))
def test_cosines_and_sines_are_the_sums_of_scipy(comm, device, kind, norm):
    # By a library, and by the formula that GPUs take.
    for place in (device, HostDevice(tiled=True)) if device.kind == "cpu" else (device,):
        for dtype in ("float64", "complex128"):
            check(comm, place, (2, 6, 5), dtype, (1, 2), kind, norm)
    check(comm, device, (5, 2), "float32", (0,), kind, norm)
    if norm == "ortho":
        matrix = sums(kind, 6, ortho=True)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-14)


def random_case(generator, ranks):
    """Return arguments of a plan, the same on all ranks."""
    count = int(generator.integers(1, 6))
    shape = tuple(int(n) for n in generator.choice([2, 3, 4, 5, 8], count))
    axes = tuple(int(a) for a in generator.permutation(count)[: generator.integers(1, count + 1)])
    kinds = tuple(str(kind) for kind in generator.choice(["fft", "fft", *KINDS], len(axes)))
    case = {
        "shape": shape,
        "dtype": str(generator.choice(["float32", "float64", "complex64", "complex128"])),
        "axes": axes,
        "kinds": kinds if generator.random() < 0.6 else "fft",
        "norm": str(generator.choice(["backward", "ortho", "forward"])),
        "fields": int(generator.integers(1, 3)),
        "layout": str(generator.choice(["slab", "pencil", "root"])),
        "order": str(generator.choice(["transposed", "natural"])),
        "schedule": str(generator.choice(["overlap", "serial"])),
    }
    if generator.random() < 0.2:
        case["workers"] = int(generator.integers(1, ranks + 1))
    return case


def test_any_of_all_together_equals_the_oracle(comm, device, ranks):
    generator = np.random.default_rng(23)
    for _ in range(60 if ranks == 1 else 20):
        check(comm, device, **random_case(generator, ranks))


def test_what_is_not_transformed_costs_no_exchange(comm, device, ranks):
    for shape, axes in (((8, 4, 5, 6), (1, 3)), ((3, 8, 4), (0, 2)), ((4, 9), (0,))):
        fft = check(comm, device, shape, "float64", axes)
        assert fft.exchanges == 0
        assert fft.input_box.shape != fft.shape or ranks == 1
        assert "0 exchanges each way" in fft.describe()
    fft = check(comm, device, (8, 9), "float64", (1, 0))
    assert fft.exchanges == (1 if ranks > 1 else 0)
    assert "real transform along axis 0" in fft.describe()


def test_many_axes_are_divided_by_pencils(comm, device, ranks):
    fft = check(comm, device, (4, 4, 2, 3, 2, 2), "float64", layout="pencil")
    assert fft.exchanges <= 2


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_padding_interpolates_and_leaves_out_what_modes_cannot_have(comm, device, dtype):
    shape, fine = (6, 5, 8), (9, 8, 12)
    coarse = DistributedFFT(shape, dtype, comm=comm, device=device, truncation="nyquist")
    padded = coarse.padded()
    assert padded.shape == fine
    assert padded.spectral_shape == coarse.spectral_shape
    assert padded.output_box == coarse.output_box
    # Waves that both grids resolve have the same modes.
    u, v = (np.cos(z + 2 * y - 3 * x) + 0.5 for z, y, x in (coarse.points(), padded.points()))
    tolerance = TOLERANCE[dtype] * np.prod(shape)
    modes, finer = (fft.forward(a.astype(dtype)) for fft, a in ((coarse, u), (padded, v)))
    modes, finer = coarse.device.to_host(modes), coarse.device.to_host(finer)
    np.testing.assert_allclose(finer, modes, rtol=0, atol=tolerance)
    found = padded.device.to_host(padded.backward(modes))
    np.testing.assert_allclose(found, v, rtol=0, atol=tolerance)
    for norm in ("ortho", "forward"):
        other = coarse.like(norm=norm)
        finer = other.padded(1.5)
        plain, two = (
            other.device.to_host(fft.forward(a.astype(dtype)))
            for fft, a in ((other, u), (finer, v))
        )
        np.testing.assert_allclose(plain, two, rtol=0, atol=tolerance)


def test_padding_concerns_fourier_axes_alone(comm, device):
    fft = DistributedFFT(
        (4, 6, 6), comm=comm, device=device, kinds=("dct2", "fft", "fft"), padding=(1.5, 2)
    )
    assert fft.shape == (4, 9, 12)
    assert fft.spectral_shape == (4, 5, 3)
    modes = fft.device.to_host(fft.forward(np.ones(fft.input_box.shape)))
    expected = np.zeros(fft.spectral_shape)
    expected[0, 0, 0] = 2 * 4 * 6 * 6
    np.testing.assert_allclose(modes, expected[fft.output_box.slices()], atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": ()}, "axes"),
        ({"axes": (0, 0)}, "each axis once"),
        ({"axes": (3,)}, "-3 to 2"),
        ({"axes": "x"}, "axes 'x'"),
        ({"axes": 1.5}, "axes 1.5"),
        ({"kinds": "dct5"}, "'dct5' is unknown; accepted: fft, dct1"),
        ({"kinds": ("fft", "fft")}, "one for each of the 3 axes"),
        ({"norm": "unitary"}, "norm 'unitary' is unknown; accepted: backward, ortho, forward"),
        ({"norm": None}, "norm None is unknown"),
        ({"padding": 0.5}, "padding 0.5; accepted"),
        ({"padding": (1.5, 1.5)}, "each of the 3 Fourier axes"),
        ({"padding": "2/3"}, "padding '2/3'"),
        ({"kinds": "dct2", "padding": 1.5}, "padding"),
        ({"kinds": "dct2", "truncation": "2/3"}, "accepted without Fourier axes: None"),
        ({"shape": (1, 4, 4), "kinds": "dct1"}, "at least 2 points"),
        ({"axes": (0, 1), "residency": "host"}, "residency 'host'"),
        ({"kinds": "dst1", "residency": "host"}, "residency 'host'"),
        ({"shape": (4, 4, 4, 4), "residency": "host"}, "residency 'host'"),
    ],
)
def test_what_cannot_be_is_refused_on_all_ranks(comm, device, options, message):
    arguments = {"shape": (4, 4, 4), "comm": comm, "device": device} | options
    with refused(message):
        DistributedFFT(**arguments)


@pytest.mark.several_ranks
def test_ranks_that_differ_in_what_they_ask_for_all_hear_of_it(comm, device):
    with pytest.raises(InputError, match="ranks disagree on axes"):
        DistributedFFT((4, 4), comm=comm, device=device, axes=(comm.rank % 2,))
    with pytest.raises(InputError, match="ranks disagree on norm"):
        DistributedFFT((4, 4), comm=comm, device=device, norm=("ortho", "forward")[comm.rank % 2])
    # And the next plan is none the worse for it.
    check(comm, device, (4, 4, 4), "float64")


def test_norms_stream_from_the_host_as_well(comm, device):
    for norm in ("ortho", "forward"):
        check(comm, device, (4, 6, 5), "float64", norm=norm, residency="host", fields=2)


def test_factors_are_those_of_a_transform_and_its_inverse(comm, device):
    fft = DistributedFFT((4, 5), comm=comm, device=device, kinds=("dst1", "fft"), norm="ortho")
    forward, backward = fft.arguments.factors
    assert forward == pytest.approx(backward)
    assert 1 / (forward * backward) == pytest.approx(period("dst1", 4) * 5)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "natural"},
        {"layout": "pencil"},
        {"layout": "root", "fields": 2},
        {"residency": "host"},
        pytest.param(
            {"residency": "host", "streaming": {"tiles": 20}, "fields": 2}, marks=pytest.mark.slow
        ),
        {"truncation": "2/3"},
        {"kinds": "dct2"},
        {"kinds": ("dst4", "fft", "dct1")},
        {"shape": (24, 40)},
        {"shape": (24, 40), "residency": "host"},
        {"shape": (6, 4, 5, 8)},
    ],
    ids=str,
)
def test_sums_overflow_only_where_their_scaled_result_does(comm, device, options):
    """Powers of two change no bits, however large the sums would be without a scale."""
    options = {"shape": (12, 10, 8), **options}
    for number, norm in enumerate(("backward", "ortho", "forward")):
        dtype = ("float32", "complex64")[number % 2]
        fft = DistributedFFT(dtype=dtype, comm=comm, device=device, norm=norm, **options)
        generator = np.random.default_rng(comm.rank if comm else 0)
        for call, given, into, factor in (
            (fft.forward, fft.empty_input(), fft.empty_output(), fft.arguments.factors[0]),
            (fft.backward, fft.empty_output(), fft.empty_input(), fft.arguments.factors[1]),
        ):
            one = generator.uniform(1, 2, given.shape).astype(given.dtype)
            small = fft.device.to_host(call(fft.device.array(one), out=into)).copy()
            most = float(abs(small).max(initial=0))
            most = most if comm is None else max(comm.allgather(most))
            # The results, and the sums along any one axis, are representable.
            spare = math.log2(max(most, 4 * max(options["shape"])))
            power = np.float32(2.0 ** math.floor(126 - spare))
            large = call(fft.device.array(one * power), out=into)
            np.testing.assert_array_equal(fft.device.to_host(large), small * power)
            if factor < 0.01:
                assert math.log2(most / factor * 0.9) + math.log2(power) > 128


@pytest.mark.parametrize(
    "options",
    [
        {"order": "natural"},
        {"layout": "pencil"},
        {"layout": "root"},
        {"residency": "host"},
        {"axes": (1, 0, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(6, 5, 8), (5, 4, 7), (1, 12, 12), (6, 4), (9,)], ids=str)
def test_modes_of_no_real_field_give_the_points_of_numpy(comm, device, shape, options):
    if len(shape) < len(options.get("axes", ())):
        return
    for dtype in ("float64", "float32"):
        fft = DistributedFFT(shape, dtype, comm=comm, device=device, **options)
        (modes,) = field(fft.spectral_shape, fft.arguments.complex_dtype)
        axes = options.get("axes", tuple(range(len(shape))))
        expected = np.fft.irfftn(modes, [shape[axis] for axis in axes], axes)
        back = fft.device.to_host(fft.backward(modes[fft.output_box.slices()]))
        points = expected[fft.input_box.slices()]
        tolerance = TOLERANCE[dtype] * abs(expected).max()
        np.testing.assert_allclose(back, points, rtol=0, atol=tolerance)


def test_lanes_share_transforms_along_an_axis(comm, device, monkeypatch):
    """Of arrays so small that one thread would do them alone."""
    if device.kind != "cpu":
        return
    monkeypatch.setattr(transform_parts, "_DIVIDED", 0)
    three = HostDevice(threads=3, lanes=3)
    for case in (
        {"shape": (6, 5), "dtype": "float64"},
        {"shape": (2, 7, 1), "dtype": "complex128", "axes": (1, 0)},
        {"shape": (4, 5, 6), "dtype": "float32", "kinds": ("dct2", "fft", "dst3"), "norm": "ortho"},
        {"shape": (3, 4, 2, 5), "dtype": "float64", "layout": "pencil", "fields": 2},
        {"shape": (5,), "dtype": "complex64"},
    ):
        for schedule in ("overlap", "serial"):
            fft = check(comm, three, **case, schedule=schedule)
        timeline = fft.profile(fft.empty_input(), fft.empty_output())["forward"]
        labels = [entry.label for entry in timeline.entries]
        if comm is None and case["shape"] == (6, 5):
            assert labels.count("fft axis 0") == 3


def test_columns_of_real_points_are_transformed_aside_as_on_gpus(comm, device):
    if device.kind != "cpu":
        return
    for shape, axes in (((5, 3), (1, 0)), ((4, 5, 3), (0, 2, 1)), ((3, 7, 2), (1,))):
        for dtype in ("float32", "float64"):
            fft = check(comm, HostDevice(tiled=True), shape, dtype, axes, fields=2)
    if comm is None:
        timeline = fft.profile(fft.empty_input(), fft.empty_output())["forward"]
        assert "transpose" in [entry.label for entry in timeline.entries]


@pytest.mark.one_rank
def test_modes_of_real_points_are_read_in_place_on_cpus(device):
    """They are left as they are, so no copy of them is needed."""
    if device.kind != "cpu":
        return
    for axis in (0, 1):
        fft = DistributedFFT((12, 10), device=HostDevice(threads=1), axes=axis)
        u, u_hat = fft.empty_input(), fft.empty_output()
        u[...] = field((12, 10), "float64")[0]
        u_hat[...] = kept = np.fft.rfft(u, axis=axis)
        np.testing.assert_allclose(fft.backward(u_hat, np.empty_like(u)), u, atol=1e-14)
        np.testing.assert_array_equal(u_hat, kept)
        timeline = fft.profile(u, u_hat)["backward"]
        assert [entry.label for entry in timeline.entries] == [f"fft axis {axis}"]
        assert "buffers of 0 B on" in fft.describe()
