"""Sweep over parameters as people do it, in processes or threads, and compare with one by one.

    python tests/support/process_sweep.py fork|spawn|threads [NUMBER]

The parent has used its own threads before. It prints the differences, or "the same".
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import slipstream as ss
from slipstream.fft import DistributedFFT

WORKERS = 2


def points_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).random((16, 12, 10))


def spectrum(number: int) -> np.ndarray:
    with DistributedFFT((16, 12, 10), device="cpu") as fft:
        pending = fft.forward_async(points_of(number))
        return fft.forward(fft.backward(pending.wait()))


def energy(number: int) -> float:
    with ss.Turbulence(
        points=16, viscosity=0.01 * (1 + number), initial="taylor-green", comm=None, device="cpu"
    ) as sim:
        sim.step(2)
        return sim.diagnostics["energy"]


# What a forked process gets from its parent.
inherited: list[DistributedFFT | ss.Turbulence] = []


def go_on(number: int) -> tuple[np.ndarray, float]:
    fft, sim = inherited
    assert isinstance(fft, DistributedFFT)
    assert isinstance(sim, ss.Turbulence)
    done = fft.forward_async(points_of(0)).wait()
    assert np.array_equal(done, fft.forward(points_of(0)))
    sim.step(2)
    return done, sim.diagnostics["energy"]


def make_inherited() -> None:
    sim = ss.Turbulence(
        points=16, viscosity=0.01, initial="taylor-green", comm=None, device="cpu", step=0.01
    )
    inherited[:] = DistributedFFT((16, 12, 10), device="cpu"), sim
    go_on(0)


def sweep(how: str, work: Callable, count: int) -> list:
    if how == "threads":
        with ThreadPoolExecutor(WORKERS) as threads:
            return list(threads.map(work, range(count)))
    with multiprocessing.get_context(how).Pool(WORKERS) as pool:
        return pool.map_async(work, range(count)).get(60)


def differences(how: str, count: int) -> list[str]:
    make_inherited()
    results = []
    for work in (spectrum, energy):
        expected = [work(number) for number in range(count)]
        for number, value in enumerate(sweep(how, work, count)):
            if not np.array_equal(value, expected[number]):
                results.append(f"{work.__name__} {number}")
    if how == "fork":
        with multiprocessing.get_context(how).Pool(1) as pool:
            modes, value = pool.apply_async(go_on, [0]).get(60)
        mine = go_on(0)
        if not np.array_equal(modes, mine[0]) or value != mine[1]:
            results.append("what was inherited")
    return results


if __name__ == "__main__":
    found = differences(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    print("; ".join(found) or "the same")
