"""Operations of a plan besides transforms: derivatives, products, adjoints, pending calls."""

import copy
import ctypes
import pickle
import threading

import numpy as np
import pytest

from fft_oracle import field
from flows import PATIENCE
from slipstream.engine.errors import InputError, RunError
from slipstream.fft import DistributedFFT, PendingTransform

SHAPE = (6, 5, 8)


def plan(comm, device, shape=SHAPE, dtype="float64", **options):
    return DistributedFFT(shape, dtype, comm=comm, device=device, **options)


def part(whole, box):
    return np.ascontiguousarray(whole[box.slices()])


def total(comm, value):
    return value if comm is None else sum(comm.allgather(value))


def inner(comm, device, a, b):
    """Return the inner product of two distributed arrays, as pairs of real numbers."""
    a, b = device.to_host(a), device.to_host(b)
    return total(comm, float(np.vdot(a, b).real))


def test_derivatives_of_waves_in_a_box_of_any_lengths(comm, device):
    lengths = (2.0, 3.0, 5.0)
    fft = plan(comm, device)
    z, y, x = fft.points(lengths)
    a, b, c = (2 * np.pi / length for length in lengths)
    u = np.sin(2 * a * z) * np.cos(b * y) + np.cos(3 * c * x)
    u_hat = fft.forward(u)
    actual = device.to_host(fft.backward(fft.derivative(u_hat, 0, lengths=lengths)))
    expected = 2 * a * np.cos(2 * a * z) * np.cos(b * y) + 0 * x
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    actual = device.to_host(fft.backward(fft.derivative(u_hat, -1, 2, lengths)))
    np.testing.assert_allclose(actual, -9 * c * c * np.cos(3 * c * x) + 0 * z + 0 * y, atol=1e-11)
    k = fft.wavenumbers(lengths)
    laplacian = sum(fft.derivative(u_hat, axis, 2, lengths) for axis in range(3))
    squares = fft.device.array_module.asarray(sum(one**2 for one in k))
    np.testing.assert_allclose(
        device.to_host(laplacian), device.to_host(-squares * u_hat), atol=1e-9
    )


def test_odd_derivatives_leave_out_the_nyquist_mode_and_kinds_their_own(comm, device):
    fft = plan(comm, device, (8, 6))
    y = fft.points()[0]
    u_hat = fft.forward(np.cos(4 * y) + np.zeros(fft.input_box.shape))
    assert abs(device.to_host(fft.derivative(u_hat, 0))).max(initial=0) < 1e-13
    second = device.to_host(fft.backward(fft.derivative(u_hat, 0, 2)))
    np.testing.assert_allclose(second, -16 * np.cos(4 * y) + np.zeros(second.shape), atol=1e-12)
    for kind, wave in (("dct2", np.cos), ("dst2", np.sin), ("dct1", np.cos), ("dst1", np.sin)):
        fft = plan(comm, device, (7, 6), kinds=(kind, "fft"))
        y, x = fft.points((3.0, 1.0))
        u = wave(2 * np.pi * y / 3) * np.cos(2 * np.pi * x)
        found = fft.backward(fft.derivative(fft.forward(u), 0, 2, (3.0, 1.0)))
        np.testing.assert_allclose(device.to_host(found), -((2 * np.pi / 3) ** 2) * u, atol=1e-11)
        with pytest.raises(InputError, match="accepted: even orders"):
            fft.derivative(fft.empty_output(), 0)
    u_hat = fft.forward(np.ones(fft.input_box.shape))
    by_number = fft.derivative(u_hat, np.int64(-1)), fft.derivative(u_hat, 1)
    np.testing.assert_array_equal(*map(device.to_host, by_number))
    for axis in (2, -3, "x", None):
        with pytest.raises(InputError, match="axis .*accepted: one of the transformed axes"):
            fft.derivative(fft.empty_output(), axis)
    for lengths in (0, "1", (1.0,), (1.0, -1.0), float("nan")):
        with pytest.raises(InputError, match="lengths .*accepted: a positive number"):
            fft.wavenumbers(lengths)


def test_poisson_with_walls_and_periodic_sides(comm, device):
    """A box with u = 0 at the ends of z, du/dy = 0 at those of y, periodic along x."""
    lengths = (1.0, 2.0, 3.0)
    fft = plan(comm, device, (9, 8, 10), kinds=("dst2", "dct2", "fft"))
    z, y, x = fft.points(lengths)
    exact = np.sin(2 * np.pi * z) * np.cos(np.pi * y) * np.cos(2 * np.pi * x / 3)
    k_squared = sum(k**2 for k in fft.wavenumbers(lengths))
    modes = fft.forward(-((2 * np.pi) ** 2 + np.pi**2 + (2 * np.pi / 3) ** 2) * exact)
    modes /= -fft.device.array_module.asarray(k_squared)
    np.testing.assert_allclose(device.to_host(fft.backward(modes)), exact, atol=1e-13)


@pytest.mark.parametrize("norm", ["backward", "ortho"])
def test_products_by_the_three_halves_rule_are_those_of_the_convolution(comm, device, norm):
    """Against the sum over all pairs of modes, which knows no grid."""
    n = 6
    fft = plan(comm, device, (n, n), "complex128", truncation="nyquist", norm=norm)
    modes = np.arange(-2, 3)
    generator = np.random.default_rng(1)
    u, v = (generator.standard_normal((2, 5, 5, 2)) @ [1, 1j]) * n
    expected = np.zeros((5, 5), complex)
    for p in np.ndindex(5, 5):
        for q in np.ndindex(5, 5):
            k = (p[0] + q[0] - 2, p[1] + q[1] - 2)
            if min(k) >= 0 and max(k) < 5:
                expected[k] += u[p] * v[q]
    expected /= n * n if norm == "backward" else n
    order = np.ix_(modes % 5, modes % 5)
    stored = []
    for one in (u, v, expected):
        whole = np.zeros((5, 5), complex)
        whole[order] = one
        stored.append(part(whole, fft.output_box))
    found = fft.padded().product(*stored[:2])
    np.testing.assert_allclose(device.to_host(found), stored[2], atol=1e-10)
    # Without padding it is aliased.
    aliased = abs(device.to_host(fft.product(*stored[:2])) - stored[2]).max(initial=0)
    assert max([aliased] if comm is None else comm.allgather(aliased)) > 0.1
    with pytest.raises(InputError, match="Nyquist mode"):
        plan(comm, device, (n, n)).padded()


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_convolutions_are_the_periodic_sums(comm, device, norm):
    shape = (4, 6, 5)
    u, v = field(shape, "float64", 2)
    fft = plan(comm, device, shape, axes=(0, 2), norm=norm)
    expected = np.zeros(shape)
    for shift in np.ndindex(4, 5):
        rolled = np.roll(v, shift, (0, 2))
        expected += u[shift[0], :, shift[1]][None, :, None] * rolled
    found = fft.convolve(part(u, fft.input_box), part(v, fft.input_box))
    np.testing.assert_allclose(device.to_host(found), part(expected, fft.input_box), atol=1e-12)
    with pytest.raises(InputError, match="accepted: plans of 'fft' only"):
        plan(comm, device, (4,), kinds="dct1").convolve(np.ones(4), np.ones(4))


CASES = {
    "real": {"dtype": "float64"},
    "odd": {"shape": (5, 4, 7), "dtype": "float64", "norm": "forward"},
    "complex": {"dtype": "complex128", "axes": (2, 0)},
    "truncated": {"dtype": "float64", "truncation": "2/3", "norm": "ortho"},
    "padded": {"dtype": "float64", "padding": "3/2"},
    "along the first": {"dtype": "float64", "axes": (2, 0)},
    "fields": {"dtype": "float64", "fields": 2},
    **{
        f"{kind} {norm}": {"kinds": (kind, "fft", kind), "norm": norm}
        for kind in ("dct1", "dct2", "dst3", "dst4")
        for norm in ("backward", "ortho")
    },
    "no Fourier axis": {"kinds": ("dst1", "dst2", "dct3")},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_adjoints_are_adjoint(comm, device, ranks, case):
    fft = plan(comm, device, **case)
    generator = np.random.default_rng(0 if comm is None else comm.rank)

    def noise(array):
        values = generator.standard_normal((*array.shape, 2))
        return (values @ [1, 1j] if array.dtype.kind == "c" else values[..., 0]).astype(array.dtype)

    u, u_hat = noise(fft.empty_input()), noise(fft.empty_output())
    for there, back in (
        (
            inner(comm, device, u_hat, fft.forward(u)),
            inner(comm, device, fft.forward_adjoint(u_hat), u),
        ),
        (
            inner(comm, device, u, fft.backward(u_hat)),
            inner(comm, device, fft.backward_adjoint(u), u_hat),
        ),
    ):
        assert there == pytest.approx(back, rel=1e-10, abs=1e-10)


def test_one_component_of_several(comm, device):
    fft = plan(comm, device, fields=3)
    whole = field(SHAPE, "float64", 3)
    u = np.stack([part(one, fft.input_box) for one in whole])
    u_hat = device.to_host(fft.forward(u))
    assert fft.component is fft.component
    assert fft.component.component is fft.component
    for number in range(3):
        found = device.to_host(fft.component.forward(u[number]))
        np.testing.assert_allclose(found, u_hat[number], atol=1e-12)
    component = fft.component
    fft.close()
    with pytest.raises(InputError, match="closed"):
        component.forward(u[0])


def test_calls_that_do_not_wait_are_done_in_their_order(comm, device):
    fft, other = plan(comm, device), plan(comm, device, (4, 6), "complex64")
    whole, second = field(SHAPE, "float64")[0], field((4, 6), "complex64")[0]
    u, v = part(whole, fft.input_box), part(second, other.input_box)
    expected = device.to_host(fft.forward(u)).copy()
    u_hat, points = fft.empty_output(), fft.empty_input()
    there = fft.forward_async(u, out=u_hat)
    back = fft.backward_async(u_hat, out=points)
    aside = other.forward_async(v)
    assert isinstance(there, PendingTransform)
    # A call that waits comes after pending ones.
    again = device.to_host(fft.forward(u))
    assert back.done()
    assert there.done()
    assert there.wait() is u_hat
    assert there.wait() is u_hat
    assert device.to_host(u_hat).tobytes() == expected.tobytes()
    assert again.tobytes() == expected.tobytes()
    np.testing.assert_allclose(device.to_host(back.wait()), u, atol=1e-13)
    modes = part(np.fft.fftn(second), other.output_box)
    np.testing.assert_allclose(device.to_host(aside.wait()), modes, atol=1e-4)
    with pytest.raises(InputError, match="u is an array of shape"):
        fft.forward_async(np.zeros((1, 1)))
    with pytest.raises(InputError, match="out is an array of shape"):
        fft.forward_async(u, out=np.zeros((1, 1)))
    assert device.to_host(fft.forward_async(u).wait()).tobytes() == expected.tobytes()
    before = threading.active_count()
    pending = fft.forward_async(u)
    fft.close()
    assert pending.done()
    assert threading.active_count() <= before
    with pytest.raises(InputError, match="closed"):
        fft.forward_async(u)


def test_waiting_has_a_limit_and_failures_are_those_of_the_call(comm, device, monkeypatch):
    fft = plan(None, device)
    if device.kind != "cpu":
        return
    held, prepared, u = threading.Event(), fft._prepared, np.ones(SHAPE)
    monkeypatch.setattr(fft, "_prepared", lambda *given: held.wait(PATIENCE) and prepared(*given))
    pending = fft.forward_async(u)
    assert not pending.done()
    with pytest.raises(RunError, match=r"not done after 0.01 s"):
        pending.wait(0.01)
    held.set()
    np.testing.assert_allclose(pending.wait(PATIENCE), np.fft.rfftn(u), atol=1e-12)

    def fail(*_):
        raise RunError("the reason")

    monkeypatch.setattr(fft, "_prepared", fail)
    with pytest.raises(RunError, match="the reason"):
        fft.forward_async(u).wait()


def test_plans_are_pickled_by_their_arguments(comm, device):
    fft = plan(comm, device, axes=(0, 2), norm="ortho", fields=2, truncation=(2, 3))
    made = pickle.loads(pickle.dumps(fft))
    assert made.arguments == fft.arguments
    assert repr(made) == repr(fft)
    u = np.random.default_rng(3).random(fft.empty_input().shape)
    first, second = (device.to_host(one.forward(u)) for one in (fft, made))
    np.testing.assert_allclose(second, first, atol=1e-12)
    assert copy.deepcopy(fft).arguments == fft.arguments
    fft.close()
    with pytest.raises(InputError, match="closed"):
        pickle.dumps(fft)
    if comm is not None and comm.size > 2:
        half = comm.Split(comm.rank == 0)
        some = plan(half, device)
        if comm.rank:
            with pytest.raises(InputError, match="cannot be pickled"):
                pickle.dumps(some)
        half.Free()
    if comm is not None and comm.size > 1:
        reversed_ranks = comm.Split(0, -comm.rank)
        with pytest.raises(InputError, match="all of MPI's ranks in another order"):
            pickle.dumps(plan(reversed_ranks, device))
        reversed_ranks.Free()


def test_plans_tell_what_they_are(comm, device, ranks):
    fft = plan(comm, device, axes=(2, 0), norm="ortho", fields=2, truncation="2/3")
    text = repr(fft)
    assert text.startswith("<DistributedFFT((6, 5, 8), 'float64', axes=(2, 0), norm='ortho',")
    assert f"on {ranks} rank" in text
    assert "np." not in repr(plan(comm, device, np.array([4, 4])))
    page = fft._repr_html_()
    assert "<table>" in page
    assert "6 x 5 x 8" in page
    assert "ortho" in page
    fft.close()
    assert repr(fft).endswith("closed>")
    assert "closed" in fft._repr_html_()


class Exporter:
    """An array of another library, which knows nothing of ours but DLPack."""

    def __init__(self, array, device=None):
        self.array, self.device, self.exports = array, device, 0

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.exports += 1
        return self.array.__dlpack__(**options)


class Refuser(Exporter):
    def __dlpack__(self, **options):
        raise RuntimeError("it requires a gradient")


def test_arrays_of_other_libraries_are_taken_and_filled(comm, device):
    fft = plan(comm, device)
    whole = field(SHAPE, "float64")[0]
    u = part(whole, fft.input_box)
    expected = device.to_host(fft.forward(u)).copy()
    xp = device.array_module
    foreign, out = Exporter(xp.asarray(u)), Exporter(xp.zeros_like(fft.empty_output()))
    for _ in range(3):
        assert fft.forward(foreign, out=out) is out
        assert device.to_host(out.array).tobytes() == expected.tobytes()
    assert foreign.exports
    result = xp.from_dlpack(fft.forward(Exporter(xp.asarray(u))))
    assert device.to_host(result).tobytes() == expected.tobytes()
    assert fft.forward_async(foreign, out=out).wait() is out
    np.testing.assert_array_equal(device.to_host(foreign.array), u)
    adjoint = fft.forward_adjoint(Exporter(xp.asarray(expected)))
    assert adjoint.shape == u.shape
    with pytest.raises(InputError, match="by DLPack: it requires a gradient; accepted"):
        fft.forward(Refuser(u))
    with pytest.raises(InputError, match="u is of type Exporter"):
        fft.forward(Exporter(u, device=(10, 0)))
    with pytest.raises(InputError, match="u is an array of shape"):
        fft.forward(Exporter(np.zeros((1, 2))))
    frozen = np.zeros_like(expected)
    frozen.flags.writeable = False
    if expected.size:
        with pytest.raises(InputError, match="out"):
            fft.forward(u, out=Exporter(frozen))
    assert device.to_host(fft.forward(u)).tobytes() == expected.tobytes()


def test_pointers_of_exports_are_the_same_memory(device):
    if device.kind != "cpu":
        return
    fft = plan(None, device)
    u_hat = fft.forward(np.ones(SHAPE))
    view = np.from_dlpack(u_hat)
    assert ctypes.addressof(ctypes.c_char.from_buffer(view)) == u_hat.ctypes.data


def test_points_and_modes_of_one_memory_only_where_rows_allow_it(comm, device):
    fft = plan(comm, device, axes=(2, 0))
    with pytest.raises(InputError, match="cannot share memory"):
        fft.empty_in_place()
    for case in ({"kinds": "dst2"}, {"dtype": "complex128", "axes": (1,)}, {"axes": (0, 2)}):
        fft = plan(comm, device, **case)
        points, modes = fft.empty_in_place()
        whole = field(SHAPE, points.dtype)[0]
        u = part(whole, fft.input_box)
        expected = device.to_host(fft.forward(u)).copy()
        points[...] = device.array_module.asarray(u)
        assert fft.forward(points, out=modes) is modes
        np.testing.assert_allclose(device.to_host(modes), expected, atol=1e-12)
        fft.backward(modes, out=points)
        np.testing.assert_allclose(device.to_host(points), u, atol=1e-12)
