"""Averages over time of what a run's folder has, from Python and from the command line."""

import shutil

import numpy as np
import pytest
import zarr

import slipstream as ss
from refusals import status_of
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.files.run_folder import RunFolder
from slipstream.files.time_series import Series, spectrum_fields
from slipstream.files.zarr_store import FieldStore
from slipstream.show.stored_run import average_of_run, averaged_names

TIMES = np.arange(401) * 0.25
SHELLS = np.arange(5.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as a run writes it, of numbers whose averages are known."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "case.toml").write_text('solver = "spectral"\n')
    random = np.random.default_rng(4)
    energy = 2 + random.standard_normal(len(TIMES)) + 50 * np.exp(-TIMES)
    series = Series(folder, {"energy": "kinetic energy"})
    spectra = FieldStore(folder / "spectra.zarr")
    fields = FieldStore(folder / "fields.zarr")
    for step, (time, value) in enumerate(zip(TIMES, energy, strict=True)):
        series.append(step, time, 0.25, {"energy": value, "work": -value})
        values = SHELLS * (1 + random.standard_normal(5) / 10)
        spectra.append(time, spectrum_fields({"energy_spectrum": (SHELLS, values)}, {}))
        if step % 40 == 0:
            data = time + np.arange(24.0).reshape(4, 3, 2)
            grid = {axis: np.arange(n) * 1.0 for axis, n in zip("zyx", data.shape, strict=True)}
            fields.append(time, [Field("u", tuple("zyx"), data.shape, (0, 0, 0), data, grid)])
    series.close()
    return folder


@pytest.mark.slow
def test_a_column_of_the_series(folder):
    run = ss.open(folder)
    energy = run.average("energy", since=20)
    rows = run.series["time"] >= 20
    assert energy.mean == pytest.approx(run.series["energy"][rows].mean(), rel=1e-14)
    assert energy.error == pytest.approx(1 / np.sqrt(rows.sum()), rel=0.3)
    assert (energy.since, energy.until, energy.is_spin_up_found) == (20, 100, False)
    assert energy.label == "kinetic energy"
    found = run.average("energy")
    assert found.is_spin_up_found
    assert 1 < found.since < 30
    assert abs(found.mean - 2) < 5 * found.error
    assert run.average("work", since=20, until=60).until == 60


def test_a_record_of_few_times_energy_over_dissipation_is_warned_of(tmp_path):
    """Such a record does not show the slow motion of the energy, whatever its scatter says."""
    (tmp_path / "case.toml").write_text('solver = "spectral"\n')
    random = np.random.default_rng(4)
    series = Series(tmp_path, {"energy": "", "dissipation": ""})
    for step, time in enumerate(TIMES):
        energy = 0.3 + 0.01 * random.standard_normal()
        series.append(step, time, 0.25, {"energy": energy, "dissipation": 0.1})
    series.close()
    run = RunFolder(tmp_path)
    (warning,) = average_of_run(run, "energy", since=0, until=20).warnings
    assert "6.8 times energy / dissipation long, less than 20" in warning
    assert not average_of_run(run, "energy", since=0, until=100).warnings
    assert not average_of_run(run, "dissipation", since=0, until=20).warnings


def test_a_spectrum_by_shell_and_a_field_by_point(folder):
    run = ss.open(folder)
    spectrum = run.average("energy_spectrum", since=0)
    np.testing.assert_array_equal(spectrum.coordinates["wavenumber"], SHELLS)
    np.testing.assert_allclose(spectrum.mean, SHELLS, atol=0.03)
    np.testing.assert_allclose(spectrum.error[1:], SHELLS[1:] * 0.1 / 20, rtol=0.5)
    with pytest.warns(RuntimeWarning, match="correlation times of 24 of the 24 values"):
        field = run.average("u", since=0)
    np.testing.assert_allclose(field.mean, 50 + np.arange(24.0).reshape(4, 3, 2))
    assert list(field.coordinates) == ["z", "y", "x"]
    assert field.error.shape == (4, 3, 2)


def test_large_fields_are_read_in_parts(folder, monkeypatch):
    whole = average_of_run(RunFolder(folder), "u")
    monkeypatch.setattr("slipstream.show.series_statistics._MOST_VALUES", 70)
    parts = average_of_run(RunFolder(folder), "u")
    for name in ("mean", "error", "fluctuation", "correlation_time"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    assert whole.since == parts.since


def test_names_say_what_there_is(folder, tmp_path):
    assert averaged_names(RunFolder(folder)) == ["energy", "work", "u", "energy_spectrum"]
    assert averaged_names(RunFolder(folder), only_numbers=True) == ["energy", "work"]
    with pytest.raises(InputError, match="no 'enrgy'; there are: energy, work, u, energy_spec"):
        average_of_run(RunFolder(folder), "enrgy")
    with pytest.raises(InputError, match="no samples since 200; there are: t = 0 to 100"):
        average_of_run(RunFolder(folder), "energy", since=200)
    for name in ("spectra", "spectra~2"):
        FieldStore(tmp_path / f"{name}.zarr").append(
            0, spectrum_fields({"energy_spectrum": (SHELLS, SHELLS)}, {})
        )
    with pytest.raises(InputError, match="accepted: spectra/energy_spectrum and spectra~2/"):
        average_of_run(RunFolder(tmp_path), "energy_spectrum")
    assert average_of_run(RunFolder(tmp_path), "spectra~2/energy_spectrum").samples == 1


def call(*arguments):
    return status_of(*arguments)


def test_the_command_prints_and_writes(folder, tmp_path, capsys):
    assert call("average", folder, "--out", tmp_path / "a.csv") == 0
    printed = capsys.readouterr().out
    energy = average_of_run(RunFolder(folder), "energy")
    assert f"{energy.since:.6g}*" in printed
    assert str(energy).split(",")[0] in printed
    assert "left out as spin-up; --since T chooses" in printed
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert rows[0].startswith("# energy: ")
    assert rows[2] == "name,mean,error,fluctuation,correlation_time"
    assert rows[3].split(",")[:2] == ["energy", repr(energy.mean)]

    assert (
        call("average", folder, "energy_spectrum", "--since", 5, "--out", tmp_path / "s.csv") == 0
    )
    spectrum = average_of_run(RunFolder(folder), "energy_spectrum", 5)
    rows = [one for one in (tmp_path / "s.csv").read_text().splitlines() if one[0] != "#"]
    assert rows[0] == "name,wavenumber,mean,error,fluctuation,correlation_time"
    assert rows[3].split(",")[1:3] == ["2.0", repr(float(spectrum.mean[2]))]

    assert call("average", folder, "u", "--since", 0, "--out", tmp_path / "u.zarr") == 0
    assert "4 x 3 x 2 averages, t = 0 to 100" in capsys.readouterr().out
    group = zarr.open_group(tmp_path / "u.zarr", mode="r")
    np.testing.assert_allclose(group["u_mean"][0, 0, 0], 50)
    assert group["u_error"].attrs["samples"] == 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no such folder"),
        (("RUN", "x"), "there is no 'x'"),
        (("RUN", "--since", "9", "--until", "3"), "the first is less"),
        (("RUN", "u", "--out", "OUT/a.csv"), "go into .zarr"),
        (("RUN", "--out", "OUT/a.txt"), "end with .csv or .zarr"),
    ],
)
def test_what_cannot_be_averaged_is_one_line(folder, tmp_path, capsys, arguments, message):
    places = {"RUN": str(folder), "OUT": str(tmp_path)}
    given = [one.replace("RUN", places["RUN"]).replace("OUT", places["OUT"]) for one in arguments]
    assert call("average", *given) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_record_of_steps_is_no_series_to_average(folder, tmp_path, capsys):
    """Digests are numbers without a mean, and a damaged record costs no averages."""
    shutil.copytree(folder, run := tmp_path / "run")
    steps = Series(run, {}, "steps", has_store=False)
    steps.append(0, 0.0, 0.25, {"digest": 1.0, "set": 0.0})
    steps.close()
    assert averaged_names(RunFolder(run), only_numbers=True) == ["energy", "work"]
    for damaged in ("step,time,step_size,digest,set\n", "step,time,set\n1,0.25,0.0?\n", "\0" * 99):
        (run / "steps.csv").write_text(damaged)
        assert call("average", run) == 0
        assert "energy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [("step,time,drag\n", "it has no rows"), ("step,time,drag\n1,0.25,0.0?\n", "not a series")],
)
def test_a_series_that_cannot_be_averaged_is_left_out(folder, tmp_path, capsys, content, said):
    shutil.copytree(folder, run := tmp_path / "run")
    (run / "outputs").mkdir()
    (run / "outputs" / "drag.csv").write_text(content)
    assert call("average", run) == 0
    printed = capsys.readouterr().out
    (line,) = [one for one in printed.splitlines() if one.startswith("left out: ")]
    assert "drag.csv: " in line and said in line
    assert "energy" in printed
    with pytest.raises(InputError, match=f"no 'drag'.*{said}"):
        average_of_run(RunFolder(run), "drag")
    (run / "diagnostics.csv").write_text(content)
    assert call("average", run) == 2
    assert said in capsys.readouterr().err
