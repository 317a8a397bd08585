"""The table of a step's memory, compared with actual allocations."""

import re
from pathlib import Path

import pytest

from flows import make_case
from slipstream.engine.device import HostDevice
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.outofcore import file_arrays
from slipstream.spectral.spectral_simulation import SpectralSimulation

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "large_grids.md"
ROW = re.compile(r"^\| (hd|mhd|boussinesq) \| (rk\d) \| ([\d +]+) \| (\d) \| (.*) \|$", re.M)
ROWS = ROW.findall(PAGE.read_text())
KEYS = {
    "hd": (),
    "mhd": ("equation.resistivity=0.02",),
    "boussinesq": ("equation.diffusivity=0.02", "equation.buoyancy_frequency=2.0"),
}
# Tables, and what begins at lines of the cache.
SMALL = 64 << 10


def test_the_table_has_all_models_and_integrators():
    assert len(ROWS) == 6


@pytest.mark.samples(6)
@pytest.mark.parametrize("residency", ["device", "host", "disk"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_step_allocates_what_the_table_says(tmp_path, monkeypatch, row, residency):
    model, integrator, modes, columns, numbers = row
    fields = sum(map(int, modes.split("+")))
    sizes = fields * 8 * (2 / 3) ** 3, int(columns) * 8 * (2 / 3) ** 2
    printed = [f"{size:.1f}" for size in (*sizes, sum(sizes))]
    assert numbers.split(" | ") == printed
    monkeypatch.setattr(file_arrays, "_SMALL", 1 << 14)
    settings = ["grid.points=32", f"equation.model={model}", f"time.integrator={integrator}"]
    if residency != "device":
        settings += [f"run.residency={residency}", "run.streaming={ resident = false }"]
    if residency == "disk":
        settings += [f"run.scratch={tmp_path}"]
    meter = MemoryMeter()
    with meter:
        device = HostDevice(threads=1)
        simulation = SpectralSimulation(make_case(*settings, *KEYS[model]), None, device)
        simulation._allocate()
    g = simulation.problem.geometry
    nz, ky, width = g.stored_shape
    expected = 16 * width * ky * (fields * nz + int(columns) * g.shape[0])
    used_bytes = meter.total()["disk" if residency == "disk" else "host"]
    if residency == "host":  # tiles are in the same memory, with tables that are estimated
        used_bytes -= simulation.flow.passes.device_bytes
        assert expected - 4 * SMALL <= used_bytes <= expected + SMALL
        return
    if residency == "device":  # and a batch of planes
        assert expected <= used_bytes <= expected + (8 << 20)
        return
    assert abs(used_bytes - expected) <= SMALL
