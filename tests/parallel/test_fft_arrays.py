"""Whatever arrays a plan is given, however they lie in memory, it does the same with them."""

import numpy as np
import pytest

from fft_oracle import Oracle
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fft import distributed_fft
from slipstream.engine.fft.user_arrays import array_key
from slipstream.fft import DistributedFFT

SHAPE = (5, 12, 9)
CASES = {
    "slab": {"dtype": "float64"},
    "slab, natural": {"dtype": "complex64", "order": "natural", "truncation": "2/3"},
    "pencil": {"dtype": "complex128", "layout": "pencil"},
    "root": {"dtype": "float32", "layout": "root"},
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
    return request.param


def plan_and_oracle(comm, device, fields=2, dtype="float64", truncation=None, **division):
    fft = DistributedFFT(
        SHAPE, dtype, comm=comm, device=device, fields=fields, truncation=truncation, **division
    )
    return fft, Oracle(SHAPE, dtype, fields, truncation)


def surrounded(array, device, last):
    """Return a copy of an array inside of a larger one, with `last` more on the last axis."""
    xp = device.array_module
    outer = xp.full((*[n + 2 for n in array.shape[:-1]], array.shape[-1] + last), 7, array.dtype)
    view = outer[(*[slice(1, -1)] * (array.ndim - 1), slice(0, array.shape[-1]))]
    view[...] = xp.asarray(array)
    return view


def every_other(array, device):
    xp = device.array_module
    outer = xp.full((*array.shape[:-1], 2 * array.shape[-1]), 7, array.dtype)
    outer[..., ::2] = xp.asarray(array)
    return outer[..., ::2]


def transposed(array, device):
    """Return a copy whose last axis is contiguous, the others being in reversed order."""
    order = (*range(array.ndim - 2, -1, -1), array.ndim - 1)
    xp = device.array_module
    return xp.ascontiguousarray(xp.asarray(array).transpose(order)).transpose(order)


def shifted(array, device):
    """Return a copy that is not aligned for vector instructions."""
    memory = device.array_module.zeros(array.nbytes + array.itemsize, np.uint8)
    view = memory[array.itemsize :].view(array.dtype).reshape(array.shape)
    view[...] = device.array_module.asarray(array)
    return view


ARRANGEMENTS = {
    "on the device": lambda a, device: device.array(a),
    "on the host": lambda a, device: a.copy(),
    "Fortran": lambda a, device: device.array_module.asarray(a, order="F"),
    "surrounded": lambda a, device: surrounded(a, device, 3),
    "rows of an odd length": lambda a, device: surrounded(a, device, a.shape[-1] % 2 + 1),
    "every other": every_other,
    "transposed": transposed,
    "shifted": shifted,
    "reversed": lambda a, device: device.array_module.asarray(a[::-1, ..., ::-1])[::-1, ..., ::-1],
    "reversed view": lambda a, device: np.ascontiguousarray(a[..., ::-1, :])[..., ::-1, :],
}


def test_sources_of_any_arrangement_give_the_same_bits_and_are_kept(comm, device, case):
    fft, oracle = plan_and_oracle(comm, device, **case)
    for transform, original in (
        (fft.forward, oracle.input(fft)),
        (fft.backward, oracle.output(fft)),
    ):
        expected = device.to_host(transform(original)).tobytes()
        for name, arrange in ARRANGEMENTS.items():
            source = arrange(original, device)
            # First it is copied; when it comes again it may be used in place.
            for _ in range(3):
                result = device.to_host(transform(source))
                assert result.tobytes() == expected, name
                np.testing.assert_array_equal(device.to_host(source), original, err_msg=name)


def test_outputs_of_any_arrangement_are_filled_and_nothing_around_them(comm, device, case):
    fft, oracle = plan_and_oracle(comm, device, **case)
    for transform, source in (
        (fft.forward, oracle.input(fft)),
        (fft.backward, oracle.output(fft)),
    ):
        expected = device.to_host(transform(source))
        for name, arrange in ARRANGEMENTS.items():
            out = arrange(np.full_like(expected, 3), device)
            for _ in range(3):
                assert transform(source, out=out) is out
                assert device.to_host(out).tobytes() == expected.tobytes(), name
                out[...] = 3
            whole = out if out.base is None else out.base
            if whole.dtype == out.dtype:
                assert np.isin(device.to_host(whole), (3, 7)).all(), name


def test_read_only_and_broadcast_sources_are_taken(comm, device):
    fft, oracle = plan_and_oracle(comm, device)
    source = oracle.input(fft)
    expected = device.to_host(fft.forward(source)).tobytes()
    source.flags.writeable = False
    one = np.broadcast_to(np.float64(2.5), source.shape)
    for _ in range(3):
        assert device.to_host(fft.forward(source)).tobytes() == expected
        modes = device.to_host(fft.forward(one))
    constant = np.zeros_like(modes)
    if constant.size and not any(fft.output_box.start):
        constant[:, 0, 0, 0] = 2.5 * np.prod(SHAPE)
    np.testing.assert_allclose(modes, constant, rtol=0, atol=1e-12 * 2.5 * np.prod(SHAPE))


def test_a_plan_takes_other_arrays_again_and_again(comm, device, case):
    fft, _ = plan_and_oracle(comm, device, 1, **case)
    kind = case["dtype"], 1, case.get("truncation")
    oracles = [Oracle(SHAPE, *kind, seed) for seed in range(6)]
    firsts, results = {}, [fft.empty_output() for _ in range(2)]
    sources = [oracle.input(fft) for oracle in oracles]
    # More arrays than a plan remembers; some return immediately, some late, some with an output.
    for turn, number in enumerate([0, 0, 0, 1, 2, 0, 1, 3, 4, 5, 5, 5, 4, 0, 2, 2, 1, 0]):
        out = results[turn % 2] if turn % 3 else None
        modes = device.to_host(fft.forward(sources[number], out=out)).copy()
        oracles[number].assert_modes(fft, modes)
        assert modes.tobytes() == firsts.setdefault(number, modes).tobytes()
        oracles[number].assert_points(fft, fft.backward(oracles[number].output(fft)))


@pytest.fixture
def recorded(monkeypatch):
    """How often a step has been recorded."""
    steps, commit = [], distributed_fft.commit

    def counting(graph, policy):
        steps.append(graph)
        return commit(graph, policy)

    monkeypatch.setattr(distributed_fft, "commit", counting)
    return steps


@pytest.mark.parametrize("residency", ["device", "host"])
def test_temporaries_are_copied_and_not_recorded_again(comm, device, recorded, residency):
    """Though the memory of one that is gone is given to the next."""
    fft, oracle = plan_and_oracle(comm, device, residency=residency)
    u, out = device.array(oracle.input(fft)), fft.empty_output()
    places = set()
    for number in range(30):
        temporary = u * (number + 1)
        places.add(array_key(temporary))
        fft.forward(temporary, out=out)
        del temporary
        np.testing.assert_allclose(
            device.to_host(out), oracle.output(fft) * (number + 1), rtol=1e-12, atol=1e-9
        )
    # Between the plan's own input and the output, at most also one that came at first.
    assert len(recorded) <= 2
    assert not u.size or len(places) < 30
    for _ in range(10):
        fft.forward(u, out=out)
    assert len(recorded) <= 3


def test_an_array_that_comes_again_while_it_lives_is_used_in_place(comm, device, recorded):
    fft, oracle = plan_and_oracle(comm, device)
    fields, out = device.array(oracle.input(fft)), fft.empty_output()
    for _ in range(5):
        fft.forward(fields[...], out=out)  # another object each time, of the same memory
    # Once to be copied, once in place.
    assert len(recorded) == 2 or not fields.size
    oracle.assert_modes(fft, out)


def test_more_arrays_than_a_plan_remembers_are_not_recorded_at_every_call(comm, device, recorded):
    fft, oracle = plan_and_oracle(comm, device)
    arrays = [device.array(oracle.input(fft) * (k + 1)) for k in range(7)]
    out = fft.empty_output()
    for number in range(70):
        k = number % 7
        fft.forward(arrays[k], out=out)
        np.testing.assert_allclose(
            device.to_host(out), oracle.output(fft) * (k + 1), rtol=1e-12, atol=1e-9
        )
    assert len(recorded) <= 7
    # Others take their place when they are not used any more.
    other = device.array(oracle.input(fft))
    for _ in range(100):
        fft.forward(other, out=out)
    before = len(recorded)
    fft.forward(other, out=out)
    assert len(recorded) == before
    assert fft._steps[True].find(other, out) is not None or not other.size


@pytest.mark.parametrize("shape", [SHAPE, (64,)])
def test_arrays_that_overlap_otherwise_are_transformed_as_if_they_did_not(comm, device, shape):
    fft = DistributedFFT(shape, "complex128", comm=comm, device=device, fields=3, order="natural")
    oracle = Oracle(shape, "complex128", 3)
    expected = device.to_host(fft.forward(oracle.input(fft))).copy()
    size = expected.size
    for shift in (0, 1, 2, 8, size // 2):
        memory = device.empty((size + shift,), np.complex128)
        for first, last in (
            (slice(0, size), slice(shift, None)),
            (slice(shift, None), slice(0, size)),
        ):
            u, out = memory[first].reshape(expected.shape), memory[last].reshape(expected.shape)
            for _ in range(3):
                u[...] = device.array(oracle.input(fft))
                fft.forward(u, out=out)
                assert device.to_host(out).tobytes() == expected.tobytes(), shift


def test_arrays_that_share_memory_are_transformed_in_place(comm, device, case):
    fft, oracle = plan_and_oracle(comm, device, **case)
    expected = device.to_host(fft.forward(oracle.input(fft))).tobytes()
    points, modes = fft.empty_in_place()
    assert points.shape == oracle.input(fft).shape
    assert modes.shape == oracle.output(fft).shape
    for _ in range(3):
        points[...] = device.array(oracle.input(fft))
        fft.forward(points, out=modes)
        assert device.to_host(modes).tobytes() == expected
        fft.backward(modes, out=points)
        oracle.assert_points(fft, points)


@pytest.mark.parametrize("kind", ["a plan's own", "any"])
def test_complex_arrays_of_one_shape_are_transformed_in_place(comm, device, kind):
    fft, oracle = plan_and_oracle(comm, device, dtype="complex128", order="natural")
    expected = device.to_host(fft.forward(oracle.input(fft))).tobytes()
    u = fft.empty_input() if kind == "a plan's own" else device.array(oracle.input(fft))
    for _ in range(3):
        u[...] = device.array(oracle.input(fft))
        assert fft.forward(u, out=u) is u
        assert device.to_host(u).tobytes() == expected
        fft.backward(u, out=u)
        oracle.assert_points(fft, u)


def test_transforms_are_in_order_with_their_stream(comm, device, case):
    fft, oracle = plan_and_oracle(comm, device, **case)
    stream = device.stream()
    points, modes, back = fft.empty_input(), fft.empty_output(), fft.empty_input()
    source = device.array(oracle.input(fft))
    for _ in range(3):
        points[...] = 0
        device.synchronize()
        stream.submit(device.copy(points, source))
        fft.forward(points, out=modes, stream=stream)
        fft.backward(modes, out=back, stream=stream)
        stream.synchronize()
        oracle.assert_modes(fft, modes)
        oracle.assert_points(fft, back)
        oracle.assert_modes(fft, _finished(stream, fft.forward(points, stream=stream)))


def _finished(stream, array):
    stream.synchronize()
    return array


def test_lists_are_taken(comm, device):
    fft, oracle = plan_and_oracle(comm, device, 1)
    source = oracle.input(fft)
    if not source.size:
        # A list does not have the shape of an empty array.
        oracle.assert_modes(fft, fft.forward(source))
    else:
        oracle.assert_modes(fft, fft.forward(source.tolist()))


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_arrays_that_a_plan_cannot_take_are_refused_on_all_ranks(comm, device, direction):
    fft, oracle = plan_and_oracle(comm, device)
    u, out = oracle.input(fft), np.zeros_like(oracle.output(fft))
    if direction == "backward":
        u, out = out, u
    transform = getattr(fft, direction)
    for array in (u[:1], u[0], u[None], u.astype(np.complex64), u.astype(object)):
        with pytest.raises(InputError, match="this plan takes shape"):
            transform(array)
    for array in (out[:1], out[0], out.astype(np.complex64), u[..., :1]):
        with pytest.raises(InputError, match="this plan takes shape"):
            transform(u, out=array)
    out.flags.writeable = False
    with pytest.raises(InputError, match="out is read-only"):
        transform(u, out=out)
    assert not out.any() or direction == "backward"


def test_an_array_that_one_rank_refuses_ends_the_plan_on_all(comm, device, ranks):
    """None gets a result, though the rank that refused continues with the next call."""
    if ranks == 1 or device.kind != "cpu":
        pytest.skip("needs several ranks on CPUs: a GPU that waits is not told")
    fft, oracle = plan_and_oracle(comm, device)
    u = oracle.input(fft)
    failures = []
    for array in (u[..., :1] if comm.rank == 1 else u, u, u):
        with pytest.raises((InputError, RunError)) as failure:
            fft.forward(array)
        failures.append(failure.type)
    assert (failures[0] is InputError) == (comm.rank == 1)
    assert all(issubclass(one, RunError) for one in failures[1:])


NO_ARRAYS = {
    "a number": 3.0,
    "a text": "abc",
    "nothing": None,
    "an object": object(),
    "a ragged list": [[1.0, 2.0], [3.0]],
    "a list of texts": [["a", "b"]],
}


@pytest.mark.parametrize("method", ["forward", "backward", "profile"])
def test_what_is_no_array_is_refused_by_the_name_of_the_argument(comm, device, method):
    fft, oracle = plan_and_oracle(comm, device)
    u, u_hat = device.array(oracle.input(fft)), device.array(oracle.output(fft))
    source, out = (u_hat, u) if method == "backward" else (u, u_hat)
    name = "u_hat" if method == "backward" else "u"
    target = "u_hat" if method == "profile" else "out"
    call = getattr(fft, method)
    wrong = [*NO_ARRAYS.values(), np.ma.masked_array(device.to_host(source), mask=True)]
    wrong.append(device.to_host(source).astype(object))
    for one in wrong:
        with pytest.raises(InputError, match=f"^{name} is .* this plan takes shape"):
            call(one, out)
    swapped = device.to_host(out).astype(out.dtype.newbyteorder())
    for one in (*wrong, swapped):
        if one is None and method != "profile":
            continue  # then the plan allocates the result
        with pytest.raises(InputError, match=f"^{target} is .* this plan takes shape"):
            call(source, one)
    if method != "profile":
        with pytest.raises(InputError, match="^out is .* this plan takes shape"):
            call(source, device.to_host(out).tolist())
    # The plan continues as if nothing had been asked.
    oracle.assert_modes(fft, fft.forward(u))
    oracle.assert_points(fft, fft.backward(u_hat))


def test_results_are_not_written_where_elements_share_a_place(comm, device):
    fft, oracle = plan_and_oracle(comm, device)
    u, shape = oracle.input(fft), oracle.output(fft).shape
    one = np.lib.stride_tricks.as_strided(np.zeros(1, complex), shape, (0,) * len(shape))
    step = np.dtype(complex).itemsize
    window = np.lib.stride_tricks.as_strided(np.zeros(4000, complex), shape, (step,) * len(shape))
    if not u.size or np.prod(shape) < 2:
        return
    for out in (one, window):
        with pytest.raises(InputError, match="out has overlapping elements"):
            fft.forward(u, out=out)


def test_arrays_of_other_classes_of_numpy_are_taken(comm, device, tmp_path):
    fft, oracle = plan_and_oracle(comm, device)
    u, modes = oracle.input(fft), oracle.output(fft)
    if not u.size or not modes.size:
        u, modes = u.view(np.ndarray), modes.view(np.ndarray)
        source, out = u, modes
    else:
        source = np.memmap(tmp_path / "points", u.dtype, "w+", shape=u.shape)
        out = np.memmap(tmp_path / "modes", modes.dtype, "w+", shape=modes.shape)
        source[...] = u
    for _ in range(3):
        out[...] = 0
        assert fft.forward(source, out=out) is out
        oracle.assert_modes(fft, np.asarray(out))


@pytest.mark.parametrize("residency", ["device", "host"])
def test_what_is_no_stream_is_refused(comm, device, residency):
    fft = DistributedFFT((6, 4, 4), comm=comm, device=device, residency=residency)
    with pytest.raises(InputError, match="stream <object .*; accepted: a stream of this device"):
        fft.forward(fft.empty_input(), stream=object())


def test_plans_of_one_process_run_steps_of_one_kind(comm, device_kind, transports):
    """Resources that plans share, such as shared buffers, were made for the first of them."""
    kind = "cuda" if device_kind == "cuda" else "cpu"
    for transport in transports:
        for schedule in ("serial", "overlap"):
            steps = []
            for _ in range(3):
                fft = DistributedFFT(
                    (8, 8, 8), comm=comm, device=kind, transport=transport, schedule=schedule
                )
                step, *_ = fft._prepared(True, fft.empty_input(), fft.empty_output(), None)
                steps.append(step)
            assert len({type(step) for step in steps}) == 1
