"""Runs with rows and spectra at every step take as much memory however long they are."""

import gc
import tracemalloc

import numpy as np
import pytest
import xarray
from rich.console import Console

from fake_simulation import CASE, FakeSimulation
from flows import diagnostics
from slipstream.case import parse_case
from slipstream.files import time_series
from slipstream.files.stored_arrays import StoredArrays, StoredSpectra
from slipstream.runs.run_case import run_case

SHELLS = np.arange(1.0, 2049.0)


class WithSpectra(FakeSimulation):
    def spectra(self):
        return {"energy_spectrum": (SHELLS, SHELLS**-2 * (1 + self.time))}


class WithRows(FakeSimulation):
    def spectra(self):
        return {}


@pytest.fixture(autouse=True)
def usual_collections():
    """Collect garbage as often as Python does: other tests do so seldom."""
    seldom = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*seldom)


def run(kind, folder, steps):
    """Return the most memory that a run of some steps takes."""
    fake = kind(step_size=1 / steps)
    settings = (f"time.step={1 / steps!r}", f"output.diagnostics_interval={0.5 / steps!r}")
    settings += (f"output.spectra_interval={0.5 / steps!r}", "output.pictures=false")
    fake.case = parse_case(CASE, settings)
    gc.collect()
    tracemalloc.start()
    try:
        run_case(fake, folder, Console(quiet=True))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "lengths", "bytes_of_a_row"),
    # A spectrum has 32 KiB, a row in memory 800 bytes. What is left is garbage of zarr's, and
    # copies of one chunk of each of the five columns, 16 MiB at most.
    [(WithSpectra, (10, 40), 10_000), (WithRows, (1000, 4000), 200)],
)
def test_memory_does_not_grow_with_what_is_written(tmp_path, kind, lengths, bytes_of_a_row):
    run(kind, tmp_path / "first", 5)  # imports
    short, long = (run(kind, tmp_path / str(steps), steps) for steps in lengths)
    assert long - short < bytes_of_a_row * (lengths[1] - lengths[0])


@pytest.mark.thorough
def test_rows_in_blocks_are_those_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(time_series, "_ROWS_AT_ONCE", 4)
    run(WithRows, tmp_path, 21)
    rows = diagnostics(tmp_path)
    with xarray.open_zarr(tmp_path / "diagnostics.zarr") as series:
        assert len(series["time"]) == 22
        for name, values in rows.items():
            np.testing.assert_array_equal(series[name], values)


def test_a_row_that_a_full_disk_has_cut_is_left_out(tmp_path):
    series = time_series.Series(tmp_path, {})
    for step in range(3):
        series.append(step, 0.1 * step, 0.1, {"energy": 1.0})
    series.flush()
    path = tmp_path / "diagnostics.csv"
    path.write_text(path.read_text().removesuffix(",1.0\n"))
    series.close()
    with xarray.open_zarr(tmp_path / "diagnostics.zarr") as stored:
        assert stored["step"].values.tolist() == [0, 1]


@pytest.mark.thorough
def test_spectra_are_read_as_they_were(tmp_path):
    run(WithSpectra, tmp_path, 5)
    stored = StoredSpectra(StoredArrays(tmp_path / "spectra.zarr"), ["energy_spectrum"])
    assert len(stored) == 6
    for index in (0, 3, -1):
        time, spectra = stored[index]
        assert time == pytest.approx(0.2 * (index % 6))
        wavenumber, values = spectra["energy_spectrum"]
        np.testing.assert_array_equal(wavenumber, SHELLS)
        np.testing.assert_array_equal(values, SHELLS**-2 * (1 + time))
    assert [time for time, _ in stored[4:]] == [stored[4][0], stored[5][0]]
