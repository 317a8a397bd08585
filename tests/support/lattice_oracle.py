"""A textbook lattice Boltzmann method, on all voxels together with NumPy.

Populations are arrays of shape (19, planes, rows, columns), as deviations from those of a fluid at
rest with density one; those of solid voxels are zero. Nothing is shared with the package but the
numbering of the velocities.
"""

import numpy as np

from slipstream.lattice.domain_decomposition import decompose
from slipstream.lattice.velocity_set import D3Q19

DIRECTIONS = range(19)
OPPOSITE = [D3Q19.velocities.tolist().index((-velocity).tolist()) for velocity in D3Q19.velocities]


class Image:
    """An array as what subdomains are read from."""

    def __init__(self, voxels):
        self.voxels, self.shape = voxels, voxels.shape

    def read(self, box):
        return self.voxels[box.slices()].copy()


def subdomain_of(image, periodic, comm=None, partition="bisection", axes=(2,)):
    """Return this rank's subdomain of an image, keeping all pores."""
    return decompose(Image(image), periodic, axes, partition, comm, isolated="keep")


def random_pores(shape, porosity=0.6, seed=1):
    """Return an image of pores that are independent of each other."""
    return (np.random.default_rng(seed).random(shape) < porosity).astype(np.uint8)


def tight_pores(shape=(12, 12, 12), porosity=0.3, width=0.6, seed=0):
    """Return where a smooth random field is lowest: narrow pores that percolate along all axes.

    Many of them are one voxel wide, with walls on both sides of an axis: nothing damps momentum
    along it there, and it changes its sign at every step.
    """
    noise = np.fft.fftn(np.random.default_rng(seed).standard_normal(shape))
    for axis, size in enumerate(shape):
        wavenumbers = 2 * np.pi * np.fft.fftfreq(size)
        smooth = np.exp(-((wavenumbers * width) ** 2) / 2)
        noise *= smooth.reshape([-1 if other == axis else 1 for other in range(3)])
    values = np.fft.ifftn(noise).real
    return (values < np.quantile(values, porosity)).astype(np.uint8)


def random_populations(image, seed=0, size=1e-2):
    """Return populations of no flow in particular."""
    return np.random.default_rng(seed).uniform(-size, size, (19, *image.shape)) * image


def resting(image, fluid):
    """Return the populations of a fluid at rest, which the force is about to set in motion."""
    momentum = -np.array(fluid.force) / 2
    one = 3 * D3Q19.weights * (D3Q19.velocities @ momentum)
    return one[:, None, None, None] * image


def velocity_and_density(populations, image, fluid):
    """Return the fields of `PoreFlow.fields`: velocity along z, y and x, and density."""
    momentum = np.einsum("qa,qzyx->azyx", D3Q19.velocities, populations)
    velocity = momentum + np.array(fluid.force)[:, None, None, None] / 2
    return np.concatenate([velocity * image, 1 + populations.sum(axis=0, keepdims=True)])


def advanced(populations, image, fluid, periodic, steps):
    """Return populations some steps later."""
    for _ in range(steps):
        populations = _streamed(_collided(populations, fluid), image, fluid, periodic) * image
    return populations


def _collided(f, fluid):
    """Relax even and odd parts to equilibrium, with the force of Guo, Zheng and Shi (2002)."""
    rates = (1 / fluid.relaxation_time, 1 / (0.5 + fluid.magic / (fluid.relaxation_time - 0.5)))
    force, density = np.array(fluid.force), f.sum(axis=0)
    velocity = np.einsum("qa,qzyx->azyx", D3Q19.velocities, f) + force[:, None, None, None] / 2
    work = np.einsum("azyx,a->zyx", velocity, force)
    square = (velocity**2).sum(axis=0)
    result = np.empty_like(f)
    for q, (c, w) in enumerate(zip(D3Q19.velocities, D3Q19.weights, strict=True)):
        along = np.einsum("a,azyx->zyx", c, velocity)
        parts = [(f[q] + f[OPPOSITE[q]]) / 2, (f[q] - f[OPPOSITE[q]]) / 2]
        equilibrium = [w * density, 3 * w * along]
        source = [0.0, 3 * w * (c @ force)]
        if fluid.inertia:
            equilibrium[0] = w * (density + 4.5 * along**2 - 1.5 * square)
            source[0] = 3 * w * (3 * along * (c @ force) - work)
        result[q] = f[q]
        for rate, part, balance, push in zip(rates, parts, equilibrium, source, strict=True):
            result[q] += -rate * (part - balance) + (1 - rate / 2) * push
    return result


def _streamed(f, image, fluid, periodic):
    """Move populations; populations from solid or a wall come from the voxel itself."""
    result = np.empty_like(f)
    for q, (c, w) in enumerate(zip(D3Q19.velocities, D3Q19.weights, strict=True)):
        moved, open_ = np.roll(f[q], c, (0, 1, 2)), np.roll(image, c, (0, 1, 2)) != 0
        for axis in range(3):
            if not c[axis]:
                continue
            face = [slice(None)] * 3
            face[axis] = 0 if c[axis] > 0 else -1
            moved[tuple(face)] += 3 * w * c[axis] * fluid.pressure_drop[axis]
            if not periodic[axis]:
                open_[tuple(face)] = False
        result[q] = np.where(open_, moved, f[OPPOSITE[q]])
    return result


def wall_force(populations, image, fluid, periodic):
    """Return the momentum that walls got in the last step: twice the momentum sent back by them.

    Where a wall is met across a face, the pressure drop pushes on it, too.
    """
    total = np.zeros(3)
    for q, (c, w) in enumerate(zip(D3Q19.velocities, D3Q19.weights, strict=True)):
        closed, pushed = np.roll(image, c, (0, 1, 2)) == 0, np.zeros(image.shape)
        for axis in range(3):
            if c[axis]:
                face = [slice(None)] * 3
                face[axis] = 0 if c[axis] > 0 else -1
                closed[tuple(face)] |= not periodic[axis]
                pushed[tuple(face)] += 3 * w * c[axis] * fluid.pressure_drop[axis]
        total += c * (pushed - 2 * populations[q])[(image != 0) & closed].sum()
    return total


def site_numbers(image, order):
    """Return the numbers of an image's pores, in the order of its voxels."""
    z, y, x = np.nonzero(image)
    tiles = (y // 8, z // 8) if order == "row-tiles" else ()
    numbers = np.empty(len(x), np.int64)
    numbers[np.lexsort((x, y, z, *tiles))] = np.arange(len(x))
    return numbers


def set_populations(flow, populations):
    """Give a flow its part of the populations of the whole image."""
    image = flow.subdomain.own[1:-1, 1:-1, 1:-1]
    numbers, part = site_numbers(image, flow.storage.order), flow.subdomain.box.slices()
    for q in DIRECTIONS:
        flow.set_populations(numbers, q, populations[q][part][image != 0])


def populations_of(flow):
    """Return the populations of a flow's box."""
    image = flow.subdomain.own[1:-1, 1:-1, 1:-1]
    numbers, result = site_numbers(image, flow.storage.order), np.zeros((19, *image.shape))
    for q in DIRECTIONS:
        result[q][image != 0] = flow.populations(numbers, q)
    return result
