"""The rates of this machine, written as the description of a machine and read again."""

import pytest

from slipstream.bench import calibration
from slipstream.case import load_case
from slipstream.collective import on_first_rank
from slipstream.forecast import forecast, load_machine


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(calibration, "_POINTS", {"cpu": 16, "cuda": 32})
    monkeypatch.setattr(calibration, "_LARGE", {"cpu": 1 << 14, "cuda": 1 << 20})
    monkeypatch.setattr(calibration, "_MESSAGES", [800, 8000])
    measure = calibration.copy_bandwidth
    monkeypatch.setattr(calibration, "copy_bandwidth", lambda device: measure(device, 1 << 24))


@pytest.fixture
def path(comm, tmp_path):
    return on_first_rank(comm, lambda: tmp_path / "machine.toml")


def test_a_machine_describes_itself(comm, device, ranks, path):
    machine = calibration.calibrate(device, comm, path)
    assert machine.devices_per_node == ranks
    assert machine.network is None
    assert 0 < machine.device.share_of_bound <= 1
    assert on_first_rank(comm, lambda: load_machine(path)) == machine
    found = forecast(load_case("taylor-green", ["grid.points=32"]), machine, [1, 2])
    assert found[0].time is not None and found[0].time.total > 0
    assert (found[1].time is None) and "one node" in found[1].obstacle


def test_ranks_on_several_nodes_measure_the_network(comm, device, ranks, path, monkeypatch):
    if ranks == 1:
        pytest.skip("needs several ranks")
    monkeypatch.setattr(calibration, "_ranks_of_node", lambda comm: 1)
    machine = calibration.calibrate(device, comm, path)
    rates = machine.network.node_gb_per_s
    assert machine.network.message_bytes == (800.0, 8000.0)
    assert 0 < rates[0] <= rates[1]
    found = forecast(load_case("taylor-green", ["grid.points=32"]), machine, [1, ranks])
    assert all(one.time is not None for one in found)
