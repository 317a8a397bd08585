"""How a typed program uses `slipstream`: mypy accepts it, and finds the mistakes it marks.

A mark without an error is itself an error (`warn_unused_ignores`).
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import slipstream as ss
from slipstream.engine.decomposition import Box
from slipstream.fft import DistributedFFT, PendingTransform, redistribute, with_halo

Real = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


def spectral_slope(fft: DistributedFFT, u: Real, lengths: tuple[float, float]) -> Real:
    u_hat: Complex = fft.forward(u)
    slope: Real = fft.backward(fft.derivative(u_hat, axis=0, lengths=lengths))
    return slope


def use() -> None:
    with DistributedFFT((8, 6), "float64", axes=(1, 0), norm="ortho", kinds="fft") as fft:
        u, modes = np.ones((8, 6)), np.empty((5, 6), complex)
        # What is given as out comes back, as what it is.
        same: np.ndarray[tuple[int, int], np.dtype[np.complex128]] = fft.forward(u, out=modes)
        same.shape[2]  # type: ignore[misc]
        result = fft.forward(u)
        assert_type(result, npt.NDArray[Any])
        print(result.imagine)  # type: ignore[attr-defined]
        assert_type(fft.backward(result), npt.NDArray[Any])
        assert_type(fft.derivative(result, 0), npt.NDArray[Any])
        assert_type(fft.empty_input(), npt.NDArray[Any])
        assert_type(fft.forward_async(u).wait(), npt.NDArray[Any])
        spectral_slope(fft, u, (1.0, 2.0))
        pending = fft.forward_async(u)
        assert_type(pending, PendingTransform)
        assert_type(pending.done(), bool)
        assert_type(fft.wavenumbers(2.0), "list[np.ndarray]")
        assert_type(fft.input_boxes, tuple[Box, ...])
    around = with_halo(redistribute(u, fft.input_boxes, fft.input_boxes), fft.input_boxes, 1)
    print(around)


def misuse(fft: DistributedFFT) -> None:
    DistributedFFT((8, 6), norm="unitary")  # type: ignore[arg-type]
    DistributedFFT((8, 6), kinds="dct5")  # type: ignore[arg-type]
    DistributedFFT((8, 6), layout="slabs")  # type: ignore[arg-type]
    DistributedFFT((8, 6), colour="red")  # type: ignore[call-arg]
    DistributedFFT("8, 6", "float64", None)  # type: ignore[call-arg, arg-type]
    fft.backwards(np.ones(3))  # type: ignore[attr-defined]
    fft.derivative(np.ones(3), axis="z")  # type: ignore[arg-type]


def use_simulations() -> None:
    sim = ss.Turbulence(points=8, viscosity=0.1, rotation=1.0, initial="abc", max_step=0.1)
    sim.viscosity, sim.cfl = 0.2, 0.5
    sim.forcing.amplitude = 0.1
    sim.parameters["rotation"] = 2.0
    assert_type(sim.viscosity, float)
    assert_type(sim.copy(), ss.Turbulence)
    flow = ss.Flow("mhd", points=(8, 8, 1), viscosity=0.1, resistivity=0.1)
    flow.parameters["resistivity"] = 0.2
    rock = ss.PorousFlow("rock.tif", voxel_size=2e-6, relaxation_time=0.8)
    rock.force = 2e-5
    ss.Advection(points=8, courant=(1.0, 0.5, 0.5)).run(steps=2)
    with ss.load("case.toml") as loaded:
        loaded.run(until=1.0)


def misuse_simulations(sim: ss.Turbulence, rock: ss.PorousFlow) -> None:
    ss.Turbulence(points=8, viscosity=0.1, intial="abc")  # type: ignore[call-arg]
    ss.Turbulence(points=8)  # type: ignore[call-arg]
    ss.Turbulence(points=8, viscosity="0.1")  # type: ignore[arg-type]
    ss.PorousFlow("rock.tif", relaxation_tme=0.8)  # type: ignore[call-arg]
    ss.Advection(points=8, corant=0.5)  # type: ignore[call-arg]
    sim.viscosty = 0.1  # type: ignore[attr-defined]
    sim.viscosity = "0.1"  # type: ignore[assignment]
    sim.steps = 3  # type: ignore[misc]
    sim.forcing.amplitud = 0.1  # type: ignore[attr-defined]
    rock.forc = 1e-5  # type: ignore[attr-defined]
    ss.Turbulance(points=8)  # type: ignore[attr-defined]
