"""Warnings of runs from Python: eddies that are not resolved, files that are replaced."""

import warnings

import pytest

import slipstream as ss


@pytest.mark.slow
@pytest.mark.parametrize("has_folder", [False, True])
def test_a_run_that_is_not_resolved_warns_once(tmp_path, has_folder):
    sim = ss.Turbulence(points=16, viscosity=0.002, initial="random")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sim.run(until=0.05, output=tmp_path / "run" if has_folder else None)
        sim.run(steps=2)
    texts = [str(one.message) for one in caught if "kmax_eta" in str(one.message)]
    assert len(texts) == 1
    assert "below 1 the smallest eddies are not resolved" in texts[0]


def test_the_check_changes_no_diagnostics():
    rows = []
    for steps in ((4,), (2, 2)):
        sim = ss.Turbulence(points=16, viscosity=0.1, initial="random", max_step=0.01)
        first = dict(sim.diagnostics)
        for number in steps:
            sim.run(steps=number)
        assert first["energy"] > sim.diagnostics["energy"]
        rows.append(dict(sim.diagnostics))
    assert rows[0] == rows[1]


def test_a_file_of_another_process_is_not_replaced_in_silence(tmp_path, monkeypatch):
    sim = ss.Turbulence(points=16, viscosity=1.0, initial="random")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # what this process has written
            sim.output("velocity", file=tmp_path / "u.zarr")
    monkeypatch.setattr("slipstream.api.output_methods._WRITTEN", set())
    with pytest.warns(RuntimeWarning, match=r"u\.zarr was there, from an earlier process"):
        sim.output("velocity", file=tmp_path / "u.zarr")
