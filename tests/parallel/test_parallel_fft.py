"""The distributed FFT against numpy.fft, by global index, on any number of ranks."""

import numpy as np
import pytest

from fft_oracle import check, field
from slipstream.engine.errors import InputError
from slipstream.fft import DistributedFFT

# Primes, lengths 1, fewer planes or modes than ranks (so that some are empty), uneven slabs.
SHAPES = [
    (8, 8, 8),
    (7, 5, 3),
    (12, 10, 15),
    (1, 1, 1),
    (1, 6, 5),
    (3, 1, 4),
    (2, 3, 1),
    (13, 17, 11),
    (3, 2, 34),
    (5, 16, 2),
]
TRUNCATIONS = ["2/3", "nyquist", (2, 3, 1), (0, 0, 0), (3, 1, 3)]


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_has_its_part_of_numpys_transform(comm, device, shape, dtype):
    check(comm, device, shape, dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [(12, 10, 15), (7, 5, 3)])
def test_other_precisions(comm, device, shape, dtype):
    check(comm, device, shape, dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("shape", [(12, 10, 15), (8, 8, 8)])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_truncated_transforms_keep_numpys_modes(comm, device, shape, dtype, truncation):
    check(comm, device, shape, dtype, truncation=truncation)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_batches_are_transformed_together(comm, device, dtype):
    check(comm, device, (12, 10, 15), dtype, fields=3, truncation="2/3")


def test_more_ranks_than_planes_and_modes(comm, device):
    # With a single ky kept all ranks but one are empty in spectral space, with one plane all but
    # one are empty in physical space.
    check(comm, device, (1, 16, 8), "float64", truncation=(0, 0, 3))
    check(comm, device, (16, 1, 8), "float64", fields=2)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("truncation", [None, "2/3"])
def test_schedules_and_transports_give_the_same_bits(comm, device, dtype, truncation):
    choices = [(s, t) for s in ("serial", "overlap") for t in ("mpi", "mpi-p2p", "auto")]
    results = [
        check(
            comm,
            device,
            (13, 24, 10),
            dtype,
            fields=2,
            truncation=truncation,
            schedule=schedule,
            transport=transport,
        )
        for schedule, transport in choices
    ]
    for forward, backward in results[1:]:
        assert forward.tobytes() == results[0][0].tobytes()
        assert backward.tobytes() == results[0][1].tobytes()


def test_chunks_of_planes_and_columns_cover_everything(comm, device):
    # On a CPU 2 MB hold some columns and 3 MB some planes of this shape, so there are many chunks.
    check(comm, device, (40, 48, 60), "float64", fields=3, truncation="2/3")


def test_given_output_array_is_filled(comm, device):
    fft = DistributedFFT((6, 5, 4), comm=comm, device=device)
    mine = np.ascontiguousarray(field((6, 5, 4), "float64")[0][fft.input_box.slices()])
    out = fft.empty_output()
    assert fft.forward(mine, out=out) is out
    expected = fft.device.to_host(fft.forward(mine))
    np.testing.assert_array_equal(fft.device.to_host(out), expected)


def test_wrong_arrays_are_refused_on_all_ranks(comm, device):
    fft = DistributedFFT((6, 5, 4), comm=comm, device=device)
    with pytest.raises(InputError, match="this plan takes"):
        fft.forward(np.zeros((9, 9, 9)))
    with pytest.raises(InputError, match="this plan takes"):
        fft.backward(np.zeros(fft.output_box.shape, np.complex64))
