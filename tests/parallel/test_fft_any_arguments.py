"""Any arguments, drawn at random: numpy's numbers, or a refusal on all ranks that names one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, together, transforms
from fft_oracle import Oracle
from slipstream.engine.errors import InputError
from slipstream.fft import DistributedFFT

# What people give by mistake, for whatever argument.
MISTAKES = (
    None,
    True,
    0,
    -1,
    3,
    2.5,
    float("nan"),
    1 << 70,
    "",
    "x",
    b"x",
    (),
    [],
    {},
    ("8", "6"),
    (2.0, 2.0, 2.0),
    [[1, 2], [3]],
    object(),
    print,
    np.int64(2),
    np.True_,
    np.float32(2),
    np.array([2, 3]),
    np.array(["slab"]),
    np.ma.masked,
    np.dtype(">f8"),
)
NAMES = (
    "shape",
    "dtype",
    "fields",
    "layout",
    "order",
    "process_grid",
    "input_boxes",
    "output_boxes",
    "truncation",
    "transport",
    "workers",
    "wire",
    "tune",
    "schedule",
    "residency",
    "memory",
    "streaming",
    "device",
)


def result_of(comm, device, case):
    """Return the plan of a case, and None; or None, and why it is refused."""
    try:
        return DistributedFFT(**{"device": device, **case}, comm=comm), None
    except InputError as refusal:
        return None, str(refusal)


@alike(examples=30)
@given(data=st.data())
def test_one_wrong_argument_is_named_or_taken_for_what_it_is(comm, device, ranks, data):
    case = data.draw(transforms(ranks, tiled=device.tiled_transforms()))
    name = data.draw(st.sampled_from(NAMES))
    mistake = data.draw(st.sampled_from(MISTAKES))
    odd = data.draw(st.sampled_from([None, *range(ranks)]))  # None: on all
    mine = case | {name: mistake} if odd in (None, 0 if comm is None else comm.rank) else case

    def test():
        fft, refusal = result_of(comm, device, mine)
        everyone = [refusal] if comm is None else comm.allgather(refusal)
        assert all(everyone) or not any(everyone), everyone
        if fft is None:
            # Another argument may be the first that does not go with the mistake.
            assert any(other in refusal for other in NAMES), refusal
            assert "\n" not in refusal
            return
        a = fft.arguments
        if np.prod(a.shape) * a.fields > 1e6:
            return
        oracle = Oracle(a.shape, a.dtype, a.fields, a.truncation)
        modes, points = fft.forward(oracle.input(fft)), fft.backward(oracle.output(fft))
        if a.wire is None:
            oracle.assert_modes(fft, modes)
            oracle.assert_points(fft, points)

    together(comm, test)


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_on_the_last_rank_alone_ends_in_a_refusal_or_a_transform(
    comm, device, ranks, name
):
    """Nobody waits for a rank that has failed."""
    last = comm is None or comm.rank == ranks - 1
    for mistake in MISTAKES:
        case = {"shape": (4, 6, 5)} | ({name: mistake} if last else {})
        fft, refusal = result_of(comm, device, case)
        assert (fft is None) != (refusal is None)
        everyone = [refusal] if comm is None else comm.allgather(refusal)
        assert all(everyone) or not any(everyone), everyone
