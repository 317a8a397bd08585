"""Distributed transforms against numpy.fft, by global index."""

import math

import numpy as np

from slipstream.fft import DistributedFFT


def field(shape, dtype, fields=1, seed=0):
    """Return the whole physical array, the same on every rank."""
    generator = np.random.default_rng((math.prod(shape), seed))
    values = generator.standard_normal((fields, *shape, 2))
    whole = values[..., 0] if np.dtype(dtype).kind == "f" else values[..., 0] + 1j * values[..., 1]
    return whole.astype(dtype)


def kept(shape, truncation, real):
    """Return, for each axis, where numpy.fft puts the modes that a truncation keeps."""
    axes = []
    for axis, n in enumerate(shape):
        half = real and axis == len(shape) - 1
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
    """Return numpy's transform of all fields, in double precision."""
    forward, axes = np.fft.rfftn if real else np.fft.fftn, tuple(range(1, whole.ndim))
    return forward(whole.astype(np.float64 if real else np.complex128), axes=axes)


def inverse(modes, shape, real):
    backward, axes = np.fft.irfftn if real else np.fft.ifftn, tuple(range(1, modes.ndim))
    return backward(modes, s=shape, axes=axes)


def assert_close(actual, expected, everywhere, dtype):
    """Compare with a tolerance of some rounding errors per pass of a fast transform.

    The scale is the largest value of the whole array, truncated modes included, since a rank's own
    part may be small.
    """
    size = math.prod(everywhere.shape[1:])
    epsilon = np.finfo(np.dtype(dtype)).eps
    tolerance = 4 * epsilon * (2 + math.log2(size)) * np.abs(everywhere).max(initial=1e-30)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


class Oracle:
    """A random array, numpy's transform of it and the way back, and this rank's parts of them.

    Attributes
    ----------
    points, everything, modes, filtered : array
        The whole physical array, all of its modes, the kept modes, and the array that has
        only these.
    """

    def __init__(self, shape, dtype, fields=1, truncation=None, seed=0):
        self.dtype, self.fields, real = np.dtype(dtype), fields, np.dtype(dtype).kind == "f"
        self.points = field(shape, dtype, fields, seed)
        self.everything = transform(self.points, real)
        inside = np.ix_(range(fields), *kept(shape, truncation, real))
        self.modes = self.everything[inside]
        padded = np.zeros_like(self.everything)
        padded[inside] = self.modes
        self.filtered = inverse(padded, shape, real)

    def input(self, fft):
        """Return this rank's points, newly made and contiguous."""
        return self._part(self.points, fft.input_box, self.dtype)

    def output(self, fft):
        """Return this rank's modes, in the plan's type."""
        return self._part(self.modes, fft.output_box, np.result_type(self.dtype, np.complex64))

    def assert_modes(self, fft, actual):
        """Compare this rank's result of `forward`."""
        actual = fft.device.to_host(actual)
        assert actual.dtype == np.result_type(self.dtype, np.complex64)
        assert_close(actual, self._part(self.modes, fft.output_box), self.everything, self.dtype)

    def assert_points(self, fft, actual):
        """Compare this rank's result of `backward`."""
        actual = fft.device.to_host(actual)
        assert actual.dtype == self.dtype
        assert_close(actual, self._part(self.filtered, fft.input_box), self.filtered, self.dtype)

    def _part(self, everywhere, box, dtype=None):
        part = everywhere[(slice(None), *box.slices())]
        return np.array(part if self.fields > 1 else part[0], dtype=dtype, order="C")


def check(comm, device, shape, dtype, fields=1, truncation=None, **options):
    """Transform forth, back and forth, all against numpy; return this rank's results."""
    fft = DistributedFFT(
        shape, dtype, comm=comm, device=device, fields=fields, truncation=truncation, **options
    )
    oracle = Oracle(shape, dtype, fields, truncation)
    assert oracle.modes.shape[1:] == fft.spectral_shape
    source, modes = oracle.input(fft), oracle.output(fft)
    # Nothing is compared before everything has been exchanged: no rank waits for one that ended.
    result = fft.device.to_host(fft.forward(source))
    back = fft.device.to_host(fft.backward(modes))
    again = fft.device.to_host(fft.forward(source))
    oracle.assert_modes(fft, result)
    oracle.assert_points(fft, back)
    # The plan was used again, and must neither remember the last array nor have changed this one.
    np.testing.assert_array_equal(source, oracle.input(fft))
    np.testing.assert_array_equal(modes, oracle.output(fft))
    np.testing.assert_array_equal(again, result)
    return result, back
