"""The distributed FFT against numpy.fft, by global index, on any number of ranks."""

import itertools

import pytest

from fft_oracle import check

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


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *itertools.product(SHAPES, ("float64", "complex64")),
        *itertools.product([(12, 10, 15), (7, 5, 3)], ("float32", "complex128")),
    ],
)
def test_every_rank_has_its_part_of_numpys_transform(comm, device, shape, dtype):
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


def test_chunks_of_planes_and_columns_cover_everything(comm, device):
    # On a CPU 2 MB hold some columns and 3 MB some planes of this shape, so there are many chunks.
    check(comm, device, (40, 48, 60), "float64", fields=3, truncation="2/3")
