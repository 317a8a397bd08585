"""The pressure of blocks of pores, from which steady flows are extrapolated."""

import itertools

import numpy as np
import pytest

from lattice_oracle import subdomain_of, tight_pores
from slipstream.engine.device import HostDevice
from slipstream.lattice import Fluid, PoreFlow, Storage
from slipstream.lattice.pressure_blocks import (
    PressureBlocks,
    PressureGrids,
    block_edge,
    blocks_memory,
)
from slipstream.lattice.velocity_set import D3Q19

DEVICE = HostDevice(threads=1)


def driven_out(couplings, pressure):
    """Return the flow that a pressure drives out of each block, to and fro."""
    out = np.zeros(pressure.shape)
    for coupling, velocity in zip(couplings, D3Q19.velocities[1::2], strict=True):
        flow = coupling * (pressure - np.roll(pressure, -velocity, axis=(0, 1, 2)))
        out += flow - np.roll(flow, velocity, axis=(0, 1, 2))
    return out


def solved(links, given):
    """Return the pressure that drives so much out of each block."""
    grids, unit = PressureGrids(DEVICE, links.astype(np.uint32), 1.0, D3Q19), 2.0**40
    grids.solve(np.rint(given * unit).astype(np.int64), unit)
    return grids.solution[..., 1:-1]


@pytest.mark.parametrize("shape", [(16, 16, 16), (9, 12, 15), (40, 3, 1), (2, 2, 2)])
def test_a_wave_has_the_pressure_of_its_eigenvalue(shape):
    couplings = np.ones((D3Q19.links // 2, *shape), np.float32)
    phase = 2 * np.pi * np.arange(shape[0]) / shape[0]
    wave = np.broadcast_to(np.cos(phase)[:, None, None], shape).astype(np.float32)
    # Ten directions lead to the next plane, or to the previous plane.
    eigenvalue = 10 * (1 - np.cos(phase[1]))
    actual = solved(couplings, wave)
    left = wave - driven_out(couplings, actual)
    assert np.sum(left**2) <= 0.1**2 * np.sum(wave**2) * 1.001
    # Pressures are known but for a constant.
    np.testing.assert_allclose(actual - actual.mean(), wave / eigenvalue, atol=0.15 / eigenvalue)


@pytest.mark.parametrize("porosity", [0.3, 0.6])
def test_most_of_a_residual_is_balanced_in_disordered_pores(porosity):
    random = np.random.default_rng(1)
    couplings = np.zeros((D3Q19.links // 2, 16, 16, 16), np.float32)
    pore = tight_pores((16, 16, 16), porosity)
    for coupling, velocity in zip(couplings, D3Q19.velocities[1::2], strict=True):
        coupling[...] = pore & np.roll(pore, -velocity, axis=(0, 1, 2))
    pressure = random.normal(size=pore.shape) * pore
    given = driven_out(couplings, pressure).astype(np.float32)
    found = solved(couplings, given)
    left = given - driven_out(couplings, found)
    assert np.linalg.norm(left) < 0.2 * np.linalg.norm(given)


@pytest.mark.parametrize("walls", [(True, True, True), (True, False, True)])
def test_couplings_count_the_links_between_blocks(walls):
    pore = tight_pores((7, 8, 9), 0.5)
    flow = PoreFlow(subdomain_of(pore, walls), Fluid(), Storage(), DEVICE)
    blocks = PressureBlocks(flow, None)
    shape, pores = (4, 4, 5), flow.subdomain.own[1:-1, 1:-1, 1:-1]
    expected = np.zeros((D3Q19.links, *shape))
    for site in zip(*np.nonzero(pores), strict=True):
        for velocity in D3Q19.velocities[1:]:
            to = np.add(site, velocity)
            outside = (to < 0) | (to >= pores.shape)
            if np.any(outside & ~np.array(walls)) or not pores[tuple(to % pores.shape)]:
                continue
            by = np.where(outside, velocity, to // 2 - np.array(site) // 2)
            if by.any():
                direction = D3Q19.velocities.tolist().index(by.tolist())
                block = tuple(np.array(site) // 2)
                expected[(direction - 1, *block)] += 2 if np.abs(velocity).sum() == 1 else 1
    found = blocks._grids.grids[0].couplings[..., 1:-1]
    np.testing.assert_array_equal(found, expected[::2] / 2)


def test_pressures_conserve_mass_and_do_not_depend_on_storage():
    pore = tight_pores((10, 12, 14), 0.5)
    residual = np.random.default_rng(0).normal(size=pore.shape).astype(np.float32)
    results = []
    for layout, order in itertools.product(("stream", "vector-bundle"), ("raster", "row-tiles")):
        storage = Storage(layout=layout, order=order)
        flow = PoreFlow(subdomain_of(pore, (True,) * 3), Fluid(), storage, DEVICE)
        blocks, pores = PressureBlocks(flow, None), flow.subdomain.own[1:-1, 1:-1, 1:-1]
        numbers = flow.sites.count, flow.sites.stored
        places = tuple(blocks._places[:, : numbers[0]].astype(int))
        assert pores[places].all() and len(set(zip(*places, strict=True))) == numbers[0]
        target = np.zeros((4, numbers[1]), np.float32)
        target[0, : numbers[0]] = (residual - residual[pores != 0].mean())[places]
        changes = np.zeros((1, *target.shape), np.float32)
        most = float(np.abs(target).max())
        mean, bound = blocks.solve(target, changes, np.zeros(1), most, flow.fluid, 10)
        pressure = blocks.pressure[: numbers[0]]
        assert mean == pytest.approx(pressure.sum(dtype=np.float64), abs=1e-9 * bound)
        assert np.abs(pressure).max() <= bound
        field = np.zeros(pore.shape, np.float32)
        field[places] = pressure
        results.append((field.tobytes(), mean))
    assert len(set(results)) == 1


def test_blocks_grow_with_the_image():
    assert [block_edge((n,) * 3) for n in (1, 64, 322, 324, 512, 1300)] == [2, 2, 2, 4, 4, 16]
    assert blocks_memory((512,) * 3, 0) < 5e8
