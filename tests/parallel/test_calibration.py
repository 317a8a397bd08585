"""The rates of this machine, written as the description of a machine and read again."""

import os

import pytest
from rich.console import Console

from slipstream.api.forecast import (
    forecast,
    load_machine,
    measured_rates,
    step_rates,
)
from slipstream.api.forecast import (
    step_rates as calibration,
)
from slipstream.case import load_case
from slipstream.engine.collective import on_first_rank
from slipstream.engine.errors import InputError, RunError


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    points = {"spectral": (8, 16), "transform": (8, 16), "lattice": (16, 24), "advection": (12, 16)}
    monkeypatch.setattr(step_rates, "POINTS", {"cpu": points, "gpu": points})
    monkeypatch.setattr(step_rates, "CACHE_MIB", {"cpu": (1, 4), "gpu": (1, 4)})
    monkeypatch.setattr(step_rates, "_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "_LARGE", {"cpu": 1 << 14, "gpu": 1 << 20})
    monkeypatch.setattr(calibration, "_MESSAGES", [800, 8000])
    monkeypatch.setattr(measured_rates, "_FILE", 1 << 16)
    monkeypatch.setattr(measured_rates, "_PIECE", 1 << 14)
    monkeypatch.setattr(measured_rates, "_SMALL_FILES", 2)
    monkeypatch.setattr(calibration, "_COPIED", {"cpu": 1 << 23, "gpu": 1 << 23})


@pytest.fixture
def path(comm, tmp_path):
    return on_first_rank(comm, lambda: tmp_path / "machine.toml")


def test_a_machine_describes_itself(comm, device, ranks, path):
    folder = path.parent / "runs" / "not there"
    machine = calibration.calibrate(device, comm, path, folder)
    assert machine.devices_per_node == ranks
    assert machine.storage.node_write_gb_per_s > 0 and machine.storage.file_ms > 0
    assert machine.storage.write_gb_per_s is None
    assert on_first_rank(comm, lambda: os.listdir(path.parent)) == [path.name]
    assert machine.network is None
    measured = {"host_gb_per_s", "latency_us"} & machine.node.model_fields_set
    assert len(measured) == (2 if ranks > 1 else 0)
    assert all(getattr(machine.node, name) > 0 for name in measured)
    for family in ("spectral", "lattice", "advection"):
        assert 0 < machine.device.share(family) <= 1
        assert machine.device.cached(family) > 0
    assert machine.device.cache_mib == (1, 4)
    # Which may be nothing where others have the cores; test_step_rates.py has their values.
    for name in ("step_us", "launch_us", "issue_us", "transform_us"):
        assert name in machine.device.model_fields_set and getattr(machine.device, name) >= 0
    assert on_first_rank(comm, lambda: load_machine(path)) == machine
    found = forecast(load_case("taylor-green", ["grid.points=32"]), machine, [1, 2])
    assert found[0].time is not None and found[0].time.total > 0
    assert (found[1].time is None) and "one node" in found[1].obstacle


def test_ranks_on_several_nodes_measure_the_network(comm, device, ranks, path, monkeypatch):
    if ranks == 1:
        pytest.skip("needs several ranks")
    monkeypatch.setenv("SLIPSTREAM_RANKS_PER_NODE", "1")
    machine = calibration.calibrate(device, comm, path)
    rates = machine.network.node_gb_per_s
    assert machine.network.message_bytes == (800.0, 8000.0)
    assert 0 < rates[0] <= rates[1]
    found = forecast(load_case("taylor-green", ["grid.points=32"]), machine, [1, ranks])
    assert all(one.time is not None for one in found)


def test_rates_that_vary_are_told(comm, device, path, monkeypatch, capsys):
    rates = iter([3e9, 1e9, 1.2e9])
    monkeypatch.setattr(calibration, "copy_bandwidth", lambda *arguments: lambda: next(rates))
    monkeypatch.setattr(calibration, "_in_node", lambda *arguments: {"gb_per_s": 1.0})
    calibration.calibrate_here(path, "cpu", path.parent, Console(width=200))
    if comm is None or comm.rank == 0:
        machine = load_machine(path)
        assert machine.device.copy_gb_per_s == 1.2
        assert "device.copy_gb_per_s varied from 1 to 3 in 3 rounds" in machine.sources[1]
        assert f"warning: {machine.sources[1]}" in capsys.readouterr().out


def test_what_is_printed_was_measured_and_the_rest_is_named(comm, path, capsys):
    folder = path.parent / "runs"
    # Lines of the file are not broken, however long.
    calibration.calibrate_here(path, "cpu", folder, Console(width=20))
    if comm is None or comm.rank == 0:
        printed = capsys.readouterr().out
        assert path.read_text().strip() in printed
        words = " ".join(printed.split())
        shown, _, assumed = words.partition("not measured, so taken as usual: ")
        of_one = ["node.host_gb_per_s = 5"] if comm is None else []
        for key in ("node.message_us = 0.5", *of_one):
            assert key in assumed and key.split(".")[1] not in shown


def test_a_file_in_no_folder_is_refused_before_anything_is_measured(comm, path, monkeypatch):
    monkeypatch.setattr(calibration, "calibrate", None)
    with pytest.raises(InputError, match="--calibrate .*: there is no folder"):
        calibration.calibrate_here(path.parent / "none" / "m.toml", "cpu", path.parent, Console())


def test_reading_from_memory_is_not_taken_for_reading(comm, path, monkeypatch):
    rates = {}
    for is_kept in (True, False):
        monkeypatch.setattr(measured_rates, "_is_in_memory", lambda path, kept=is_kept: kept)
        rates[is_kept] = measured_rates.storage_rates(path.parent, comm, 1)
    assert "node_read_gb_per_s" not in rates[True]
    assert rates[False]["node_read_gb_per_s"] > 0


def test_a_folder_that_cannot_be_written_ends_all(comm, path, monkeypatch):
    def fail(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(measured_rates, "replace_file", fail)
    with pytest.raises(OSError if comm is None else (OSError, RunError), match="Read-only"):
        measured_rates.storage_rates(path.parent, comm, 1)
    assert on_first_rank(comm, lambda: os.listdir(path.parent)) == []
