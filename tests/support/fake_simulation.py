"""A simulation that costs nothing: exponential decay on a tiny grid."""

import math

import numpy as np

from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.fields import Fact, Field, PictureChoice, PlaneChoice
from slipstream.runs import Simulation

CASE = """
solver = "spectral"
title = "test"
[grid]
points = 8
[equation]
viscosity = 0.1
[initial]
flow = "taylor-green"
[time]
end = 1
step = 0.1
"""


class FakeSimulation(Simulation):
    transport, schedule = "none", "serial"

    def __init__(self, step_size=0.1, blow_up_at=None, on_step=None, start=(0, 0.0)):
        super().__init__(parse_case(CASE), None, HostDevice(threads=1))
        self._start = start
        self._step_size = step_size
        self._blow_up_at = blow_up_at
        self._on_step = on_step
        self.sizes = []

    def facts(self):
        return {"points": Fact("4 x 6 x 8"), **super().facts(), "ranks": Fact(1)}

    def memory(self):
        return [(self.device, 1024)]

    def _allocate(self):
        self._check_memory()

    def _initialise(self):
        self.step, self.time = self._start

    def _has_blown_up(self):
        return self._blow_up_at is not None and self.time >= self._blow_up_at

    def step_size(self):
        return math.nan if self._has_blown_up() else self._step_size

    def _advance(self, step_size, profile):
        self.sizes.append(step_size)
        self.time += step_size
        self.step += 1
        if self._on_step is not None:
            self._on_step(self)

    def diagnostics(self):
        energy = math.nan if self._has_blown_up() else math.exp(-self.time)
        return {"energy": energy, "dissipation": energy}

    def _digest_sum(self):
        return np.array([self.step], np.uint64)

    def labels(self):
        return {"energy": "kinetic energy", "energy_spectrum": "energy spectrum"}

    def pictures(self):
        return PictureChoice(
            curves=(("energy",), ("dissipation",)),
            curves_file="energy.png",
            peak="dissipation",
            planes=(PlaneChoice("vorticity_magnitude", "vorticity.png", "the largest"),),
        )

    def spectra(self):
        wavenumber = np.arange(1.0, 33.0)
        return {"energy_spectrum": (wavenumber, math.exp(-self.time) * wavenumber**-2)}

    def fields(self):
        shape = (8, 6, 4)
        coordinates = {name: np.arange(n) * 0.5 for name, n in zip("zyx", shape, strict=True)}
        for name in ("velocity_x", "vorticity_magnitude"):
            values = np.arange(float(math.prod(shape))).reshape(shape)
            attributes = {"long_name": name.replace("_", " ")}
            yield Field(name, ("z", "y", "x"), shape, (0, 0, 0), values, coordinates, attributes)

    def checkpoint(self):
        yield Field("state", ("k",), (5,), (0,), np.arange(5) * (1 + 2j))

    def timers(self):
        return {"fft": 0.25, "compute": 0.5}


def fake_simulation(*settings, **options):
    """Return a fake simulation whose case has some settings changed, and no pictures."""
    fake = FakeSimulation(**options)
    fake.case = parse_case(CASE, ("output.pictures=false", *settings))
    return fake
