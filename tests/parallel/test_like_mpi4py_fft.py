"""Programs for mpi4py-fft, as its users write them; the ideas are from its tests."""

import itertools

import numpy as np
import pytest

from fft_oracle import field
from kinds_oracle import transform
from slipstream.engine.decomposition import slabs, whole
from slipstream.fft import DistributedFFT, redistribute, section
from slipstream.files import read_array, write_arrays

TOLERANCE = {"float32": 1e-4, "complex64": 1e-4, "float64": 1e-11, "complex128": 1e-11}
SIZES = (4, 5)
AXES = {
    2: [None, (-1,), (-2,), (-1, -2), (-2, -1), (-1, 0), (0, -1), (0, 1)],
    3: [None, (0, 1, 2), (0, -2, -1)],
    4: [None, (0, 1, 2, 3), (0, 1, -2, -1)],
}


def part(array, box):
    return np.ascontiguousarray(array[(..., *box.slices())])


def close(device, found, expected, dtype):
    scale = max(1.0, float(abs(expected).max(initial=0)))
    np.testing.assert_allclose(
        device.to_host(found), expected, rtol=0, atol=TOLERANCE[dtype] * scale
    )


def test_cosines_and_sines_along_pairs_of_five_axes(comm, device):
    shape = (3, 2, 4, 3, 4)
    kinds = ("fft", "dct3", "dct3", "dst3", "dst3")
    array = field(shape, "float64")[0]
    fft = DistributedFFT(shape, comm=comm, device=device, kinds=kinds)
    u = part(array, fft.input_box)
    u_hat = fft.forward(u)
    close(device, u_hat, part(transform(array, range(5), kinds), fft.output_box), "float64")
    close(device, fft.backward(u_hat), u, "float64")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_there_and_back_along_all_lists_of_axes(comm, device, dtype):
    # Each list of axes with some of the shapes.
    lengths = {count: itertools.cycle(itertools.product(SIZES, repeat=count)) for count in AXES}
    for count, lists in AXES.items():
        for axes, layout in itertools.product(lists, ("slab", "pencil")):
            if layout == "pencil" and count == 2:
                continue
            shape = next(lengths[count])
            fft = DistributedFFT(shape, dtype, comm=comm, device=device, axes=axes, layout=layout)
            # Arrays have the shapes of the boxes, and are whole along the first transformed axis.
            assert fft.empty_input().shape == fft.input_box.shape
            assert fft.empty_output().shape == fft.output_box.shape
            first = (range(count) if axes is None else axes)[-1]
            assert fft.input_box.shape[first] == shape[first] or not fft.input_box.size
            u = part(field(shape, dtype)[0], fft.input_box)
            close(device, fft.backward(fft.forward(u)), u, dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_modes_of_padded_points_come_back(comm, device, dtype):
    for count, axes in ((2, None), (2, (-2,)), (2, (-1, 0)), (3, None), (4, (0, 1, -2, -1))):
        for norm in ("backward", "forward"):
            fft = DistributedFFT(
                (5, 4, 5, 6)[:count],
                dtype,
                comm=comm,
                device=device,
                axes=axes,
                padding=1.5,
                norm=norm,
            )
            u_hat = fft.forward(part(field(fft.shape, dtype)[0], fft.input_box))
            again = fft.forward(fft.backward(u_hat))
            close(device, again, device.to_host(u_hat), dtype)


@pytest.mark.parametrize("leading", [(), (2,), (2, 2)])
def test_tensors_are_realigned_and_give_their_components_and_lines(comm, device, ranks, leading):
    shape, rank = (4, 5, 3), 0 if comm is None else comm.rank
    for axis in range(3):
        before, after = slabs(shape, axis, ranks), slabs(shape, (axis + 1) % 3, ranks)
        array = np.random.default_rng(2).random((*leading, *shape))
        a = part(array, before[rank])
        b = redistribute(a, before, after, comm)
        np.testing.assert_array_equal(b, part(array, after[rank]))
        np.testing.assert_array_equal(redistribute(b, after, before, comm), a)
        line, lines = section(a, before, (0, slice(None), 2), comm)
        on_first = [whole((5,)), *[whole((0,))] * (ranks - 1)]
        found = redistribute(line, lines, on_first, comm)
        if rank == 0:
            np.testing.assert_array_equal(found, array[..., 0, :, 2])
    # A plan of as many fields as a tensor has components takes it as it is, and each alone.
    count = int(np.prod(leading, dtype=int))
    fft = DistributedFFT(shape, comm=comm, device=device, fields=count)
    u = part(array, fft.input_box).reshape(fft.empty_input().shape)
    u_hat = device.to_host(fft.forward(u))
    if count > 1:
        one = device.to_host(fft.component.forward(u[1]))
        np.testing.assert_allclose(one, u_hat[1], atol=1e-12)
    same = fft.like()
    np.testing.assert_allclose(device.to_host(same.forward(u)), u_hat, atol=1e-12)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_series_and_slices_are_written_and_read(comm, device, shared_folder, suffix):
    for shape, slices in (
        ((4, 5), {"row": (3, slice(None)), "column": (slice(None), 2)}),
        (
            (4, 3, 2, 5),
            {"cube": (slice(None), 2, slice(None), slice(None)), "line": (1, 2, 0, slice(None))},
        ),
    ):
        fft = DistributedFFT(shape, comm=comm, device=device, fields=2)
        array = field(shape, "float64", 2)
        u = part(array, fft.input_box)
        u_hat = fft.forward(u)
        for step in range(2):
            names = [shared_folder / f"{name}-{step}.{suffix}" for name in ("u", "u_hat")]
            write_arrays(names[0], {"u": u * (1 + step)}, fft.input_boxes, comm, {"step": step})
            write_arrays(names[1], {"u": u_hat}, fft.output_boxes, comm)
            actual = read_array(names[0], "u", fft.input_boxes, comm)
            np.testing.assert_array_equal(actual, u * (1 + step))
            actual = read_array(names[1], "u", fft.output_boxes, comm)
            np.testing.assert_array_equal(actual, device.to_host(u_hat))
        for name, index in slices.items():
            path = shared_folder / f"{name}.{suffix}"
            mine, boxes = section(u, fft.input_boxes, index, comm)
            write_arrays(path, {name: mine}, boxes, comm)
            actual = read_array(path, name, boxes, comm)
            np.testing.assert_array_equal(
                actual, part(array[(slice(None), *index)], boxes[0 if comm is None else comm.rank])
            )


def test_the_taylor_green_vortex_of_its_solver_has_the_same_energy(comm, device):
    """Rotation form, Runge-Kutta of fourth order, ten steps in a box of 2 pi, 4 pi, 4 pi."""
    lengths, viscosity, step, n = (2 * np.pi, 4 * np.pi, 4 * np.pi), 0.000625, 0.01, 16
    fft = DistributedFFT(
        (n, n, n), comm=comm, device=device, fields=3, truncation="nyquist", norm="forward"
    )
    fine, xp = fft.padded(), fft.device.array_module
    x, y, z = fft.points(lengths)
    zero = np.zeros(fft.input_box.shape)
    u = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), zero])
    k = [xp.asarray(one) for one in fft.wavenumbers(lengths)]
    k_squared = sum(one**2 for one in k)
    over = xp.where(k_squared == 0, 1, k_squared)

    def cross(a, b):
        return xp.stack([a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)])

    def slope(u_hat):
        vorticity = 1j * cross(k, u_hat)
        rate = fine.forward(cross(fine.backward(u_hat), fine.backward(vorticity)))
        pressure = sum(one * part for one, part in zip(k, rate, strict=True)) / over
        return rate - xp.stack([one * pressure for one in k]) - viscosity * k_squared * u_hat

    u_hat = fft.forward(u).copy()
    for _ in range(10):
        first = slope(u_hat)
        second = slope(u_hat + step / 2 * first)
        third = slope(u_hat + step / 2 * second)
        fourth = slope(u_hat + step * third)
        u_hat = u_hat + step / 6 * (first + 2 * second + 2 * third + fourth)
    u = device.to_host(fft.backward(u_hat))
    energy = float((u * u).sum()) / n**3 / 2
    energy = energy if comm is None else sum(comm.allgather(energy))
    assert energy == pytest.approx(0.124953117517, abs=1e-7)
