"""Distributed transforms against numpy.fft, by global index."""

import math

import numpy as np

from slipstream.fft import DistributedFFT


def field(shape, dtype, fields=1):
    """Return the whole physical array, the same on every rank."""
    generator = np.random.default_rng(math.prod(shape))
    values = generator.standard_normal((fields, *shape, 2))
    whole = values[..., 0] if np.dtype(dtype).kind == "f" else values[..., 0] + 1j * values[..., 1]
    return whole.astype(dtype)


def kept(shape, truncation, real):
    """Return, for each axis, where numpy.fft puts the modes that a truncation keeps."""
    axes = []
    for axis, n in enumerate(shape):
        half = real and axis == 2
        wavenumbers = np.arange(n // 2 + 1) if half else np.rint(np.fft.fftfreq(n) * n)
        if truncation is None:
            largest = n
        else:
            # The Nyquist mode of an even length, 2 |k| = n, is never kept.
            largest = {"2/3": math.ceil(n / 3) - 1, "nyquist": n}.get(
                truncation if isinstance(truncation, str) else None
            )
            largest = truncation[axis] if largest is None else largest
            largest = min(largest, (n - 1) // 2)
        axes.append(np.flatnonzero(np.abs(wavenumbers) <= largest))
    return axes


def transform(whole, real):
    """Return numpy's transform of each field, in double precision."""
    forward = np.fft.rfftn if real else np.fft.fftn
    return forward(whole.astype(np.float64 if real else np.complex128), axes=(1, 2, 3))


def inverse(modes, shape, real):
    if real:
        return np.fft.irfftn(modes, s=shape, axes=(1, 2, 3))
    return np.fft.ifftn(modes, axes=(1, 2, 3))


def assert_close(actual, expected, everywhere, dtype):
    """Compare with a tolerance of some rounding errors per pass of a fast transform.

    The scale is the largest value of the whole array, since a rank's own part may be small.
    """
    size = math.prod(everywhere.shape[1:])
    epsilon = np.finfo(np.dtype(dtype)).eps
    tolerance = 4 * epsilon * (2 + math.log2(size)) * np.abs(everywhere).max(initial=1e-30)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def check(comm, device, shape, dtype, fields=1, truncation=None, **options):
    """Transform forth, back and forth, all against numpy; return this rank's results."""
    fft = DistributedFFT(
        shape, dtype, comm=comm, device=device, fields=fields, truncation=truncation, **options
    )
    real = np.dtype(dtype).kind == "f"
    whole, axes = field(shape, dtype, fields), kept(shape, truncation, real)
    all_modes = transform(whole, real)
    inside = np.ix_(range(fields), *axes)
    modes = all_modes[inside]
    assert modes.shape[1:] == fft.spectral_shape
    mine = (slice(None), *fft.input_box.slices())
    my_modes = (slice(None), *fft.output_box.slices())

    def batch(array):
        return np.ascontiguousarray(array if fields > 1 else array[0])

    source = batch(whole[mine])
    result = fft.device.to_host(fft.forward(source))
    assert result.dtype == np.result_type(dtype, np.complex64)
    assert_close(result, batch(modes[my_modes]), modes, dtype)

    filtered = np.zeros_like(all_modes)
    filtered[inside] = modes
    expected = inverse(filtered, shape, real)
    given = batch(modes[my_modes]).astype(result.dtype)
    back = fft.device.to_host(fft.backward(given))
    assert back.dtype == np.dtype(dtype)
    assert_close(back, batch(expected[mine]), expected, dtype)
    # The plan is used again, and must neither remember the last array nor have changed this one.
    np.testing.assert_array_equal(source, batch(whole[mine]))
    np.testing.assert_array_equal(fft.device.to_host(fft.forward(source)), result)
    return result, back
