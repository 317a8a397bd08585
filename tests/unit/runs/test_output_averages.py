"""Averages over time that a run accumulates, against snapshots of the same times."""

import numpy as np
import pytest
import xarray
from rich.console import Console
from test_time_averages import process

import slipstream as ss
from slipstream.case import parse_case
from slipstream.engine.errors import InputError, RunError
from slipstream.files import open_checkpoint
from slipstream.files.run_folder import read_run_record
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case
from slipstream.show.series_statistics import RunningAverage

CASE = """
solver = "spectral"
[grid]
points = [8, 12, 10]
[equation]
viscosity = 0.05
[initial]
flow = "random"
seed = 3
[time]
end = 0.8
step = 0.05
[output]
pictures = false
report = false
"""
SNAPSHOTS = '{ of = "velocity", interval = 0.05, file = "snapshots" }'
QUIET = Console(quiet=True)


def run(folder, averages, *settings, text=CASE):
    case = parse_case(
        f"{text}fields = [{SNAPSHOTS}]\naverages = [{averages}]\n", ("run.device=cpu", *settings)
    )
    simulation = make_simulation(case)
    run_case(simulation, folder, QUIET)
    return simulation


def stored(folder, name):
    return xarray.open_zarr(folder / "outputs" / f"{name}.zarr").load()


# -- the sums -----------------------------------------------------------------------------------


def trapezoid(values):
    """Return the mean over time of samples at equal distances."""
    return (values[1:].mean(axis=0) + values[:-1].mean(axis=0)) / 2


def deviation(values):
    return np.sqrt(trapezoid((values - trapezoid(values)) ** 2))


def test_sums_are_integrals_over_all_samples():
    random = np.random.default_rng(1)
    values = 1e6 + random.standard_normal((41, 3, 2))
    sums = RunningAverage((3, 2), 0.5, 1.0)
    for number, one in enumerate(values):
        sums.add(one, 1.0 + 0.1 * number)
    np.testing.assert_allclose(sums.mean, trapezoid(values), rtol=1e-14)
    np.testing.assert_allclose(sums.variance, deviation(values) ** 2, rtol=1e-8)
    means = np.array([trapezoid(values[n : n + 6]) for n in range(0, 40, 5)])
    np.testing.assert_allclose(sums.variance_of_mean, means.var(axis=0, ddof=1) / 8, rtol=1e-7)
    assert (sums.samples, sums.batches, sums.duration) == (40, 8, pytest.approx(4))


def test_the_mean_of_a_line_is_exact():
    """The right end-points would give 0.55."""
    sums = RunningAverage((), 1.0, 0.0)
    for time in np.arange(11) / 10:
        sums.add(np.array(time), time)
    assert sums.mean == pytest.approx(0.5, rel=1e-14)


def test_samples_of_a_phase_count_alike():
    values = np.random.default_rng(1).standard_normal((40, 3, 2))
    sums = RunningAverage((3, 2), 0.5, 1.0, is_equal=True)
    for number, one in enumerate(values, 1):
        sums.add(one, 1.0 + 0.1 * number)
    np.testing.assert_allclose(sums.mean, values.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(sums.variance, values.var(axis=0), rtol=1e-8)
    means = values.reshape(8, 5, 3, 2).mean(axis=1)
    np.testing.assert_allclose(sums.variance_of_mean, means.var(axis=0, ddof=1) / 8, rtol=1e-7)


def test_samples_of_unequal_distances_count_by_their_time():
    times = np.cumsum(np.random.default_rng(2).gamma(2, 0.1, 50))
    sums = RunningAverage((), 1.0, 0.0)
    for time in times:
        sums.add(np.array(np.sin(time)), time)
    # Before the first sample nothing is known.
    weights = np.diff(times, append=times[-1]) / 2
    weights[1:] += np.diff(times) / 2
    weights[0] += times[0]
    mean = weights @ np.sin(times) / times[-1]
    assert sums.mean == pytest.approx(mean)
    assert sums.variance == pytest.approx(weights @ (np.sin(times) - mean) ** 2 / times[-1])
    sums.add(np.array(99.0), times[-1])  # the same moment once more
    assert sums.mean == pytest.approx(mean)


def test_errors_are_as_large_as_they_are_said_to_be():
    """Each point is a separate process: for many, errors and distances are known."""
    random = np.random.default_rng(3)
    times = np.arange(1, 1601) * 0.25
    records = process(times, 1.0, 3000, random)
    sums = RunningAverage((3000,), 20.0, 0.0)
    for time, one in zip(times, records, strict=True):
        sums.add(one, time)
    assert sums.batches == 20
    error = np.sqrt(sums.variance_of_mean)
    away = np.abs(sums.mean) / error
    assert 0.63 < (away < 1).mean() < 0.70
    assert 0.92 < (away < 2).mean() < 0.96
    assert np.sqrt(np.mean(error**2)) == pytest.approx(np.sqrt(2 / 400), rel=0.06)
    assert not sums.doubts(sums.variance.mean(), sums.variance_of_mean.mean())


@pytest.mark.parametrize(
    ("batch", "said"), [(2.0, "correlation times long, fewer than 6"), (100.0, "4 batches of 100")]
)
def test_batches_that_are_too_short_or_too_few_are_warned_of(batch, said):
    times = np.arange(1, 1601) * 0.25
    sums = RunningAverage((100,), batch, 0.0)
    for time, one in zip(times, process(times, 1.0, 100, np.random.default_rng(4)), strict=True):
        sums.add(one, time)
    (text,) = sums.doubts(sums.variance.mean(), sums.variance_of_mean.mean())
    assert said in text


# -- in runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_averages_are_those_of_snapshots(tmp_path):
    averages = """
      { of = "velocity", interval = 0.05, batch = 0.1, file = "whole" },
      { of = "velocity", interval = 0.1, since = 0.4, batch = 0.2, file = "later" },
      { of = "velocity", interval = 0.05, profile = "z", file = "profile" },
      { of = { uv = "velocity_x * velocity_y" }, interval = 0.05, stride = 2, file = "uv" },
      { of = "velocity", interval = 0.05, phases = 4, batch = 0.4, file = "phases" },
    """
    run(tmp_path, averages)
    snapshots = stored(tmp_path, "snapshots")
    assert len(snapshots.time) == 17
    whole = stored(tmp_path, "whole").isel(time=0)
    for axis in "xyz":
        values = snapshots[f"velocity_{axis}"].values
        np.testing.assert_allclose(whole[f"velocity_mean_{axis}"], trapezoid(values), atol=1e-15)
        np.testing.assert_allclose(
            whole[f"velocity_fluctuation_{axis}"], deviation(values), atol=1e-14
        )
        batches = np.array([trapezoid(values[n : n + 3]) for n in range(0, 16, 2)])
        error = batches.std(axis=0, ddof=1) / np.sqrt(8)
        np.testing.assert_allclose(whole[f"velocity_error_{axis}"], error, atol=1e-14)
    assert whole.time == pytest.approx(0.8)
    assert whole.velocity_mean_x.attrs["long_name"].startswith("time average of ")

    phases = stored(tmp_path, "phases").isel(time=0)
    for phase in range(4):
        # Times that are a period of 0.2 apart.
        values = snapshots.velocity_x.values[1:][(phase - 1) % 4 :: 4]
        mean, fluctuation = (
            phases[f"velocity_phase_{phase}_{kind}_x"] for kind in ("mean", "fluctuation")
        )
        np.testing.assert_allclose(mean, values.mean(0), atol=1e-15)
        np.testing.assert_allclose(fluctuation, values.std(0), atol=1e-14)

    # What is found out at the end is said, and kept.
    said = "output.averages[2]: velocity: 2 batches of 0.2 only: errors are rough"
    assert said in (tmp_path / "run.log").read_text()
    assert said in read_run_record(tmp_path).segments[-1].warnings

    later = stored(tmp_path, "later")
    expected = trapezoid(snapshots.velocity_x.values[8::2])
    np.testing.assert_allclose(later.velocity_mean_x[0], expected, atol=1e-15)
    assert later.attrs["since"] == 0.4

    profile = stored(tmp_path, "profile").isel(time=0)
    assert profile.velocity_mean_x.dims == ("z",)
    values = snapshots.velocity_x.values
    mean = trapezoid(values).mean(axis=(1, 2))
    np.testing.assert_allclose(profile.velocity_mean_x, mean, atol=1e-15)
    square = trapezoid((values - mean[:, None, None]) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(profile.velocity_fluctuation_x, np.sqrt(square), atol=1e-14)

    product = (snapshots.velocity_x * snapshots.velocity_y).values[:, ::2, ::2, ::2]
    np.testing.assert_allclose(stored(tmp_path, "uv").uv_mean[0], trapezoid(product), atol=1e-15)


@pytest.mark.slow
def test_nothing_is_written_before_there_are_samples(tmp_path):
    average = '{ of = "velocity", interval = 0.05, since = 0.4, batch = 0.1, file = "mean" }'
    run(tmp_path, average, "time.max_steps=4")
    assert [one.name for one in (tmp_path / "outputs").iterdir()] == ["snapshots.zarr"]
    resume_run(tmp_path, ["time.max_steps=100"], console=QUIET)
    run(tmp_path / "whole", average)
    assert stored(tmp_path, "mean").equals(stored(tmp_path / "whole", "mean"))


@pytest.mark.slow
@pytest.mark.samples(2)
@pytest.mark.parametrize("steps", [3, 7, 8, 9, 13])
@pytest.mark.parametrize("how", ["", ", profile = 'z'"])
def test_averages_go_on_with_the_same_bits(tmp_path, steps, how):
    """A run ends before, at, or after the start of an average, at a sample or between two."""
    average = f'{{ of = "velocity", interval = 0.1, since = 0.4, file = "mean"{how} }}'
    run(tmp_path / "whole", average)
    run(tmp_path / "parts", average, f"time.max_steps={steps}")
    resume_run(tmp_path / "parts", ["time.max_steps=100"], console=QUIET)
    whole, parts = (stored(tmp_path / name, "mean") for name in ("whole", "parts"))
    assert whole.sizes["time"] == 1 and not np.isnan(whole.velocity_mean_x).any()
    assert parts.isel(time=-1).equals(whole.isel(time=-1))


@pytest.mark.slow
def test_adaptive_steps_hit_the_samples(tmp_path):
    text = CASE.replace("step = 0.05", "cfl = 0.3\nmax_step = 0.04")
    run(tmp_path, '{ of = "velocity", interval = 0.05, since = 0.25, batch = 0.1 }', text=text)
    snapshots = stored(tmp_path, "snapshots")
    mean = trapezoid(snapshots.velocity_x.values[snapshots.time.values > 0.24])
    np.testing.assert_allclose(stored(tmp_path, "velocity-average").velocity_mean_x[0], mean)


@pytest.mark.slow
def test_a_run_from_a_state_takes_its_samples_if_it_says_since_when(tmp_path):
    averages = '{ of = "velocity", interval = 0.05, since = 0.1, batch = 0.1, file = "mean" }'
    run(tmp_path / "whole", averages)
    run(tmp_path / "first", averages, "time.end=0.4")
    restart = f"initial.restart={tmp_path / 'first'}"
    run(tmp_path / "second", averages, restart)
    assert stored(tmp_path / "second", "mean").equals(stored(tmp_path / "whole", "mean"))
    # Without it the average is of this run alone.
    again = averages.replace("since = 0.1, ", "")
    run(tmp_path / "again", again, restart)
    assert stored(tmp_path / "again", "mean").attrs["since"] == pytest.approx(0.4)
    snapshots = stored(tmp_path / "again", "snapshots").velocity_x.values
    mean = stored(tmp_path / "again", "mean").velocity_mean_x[0]
    np.testing.assert_allclose(mean, trapezoid(snapshots), atol=1e-15)
    # What is averaged otherwise, or of other points, begins again, and that is said.
    for other in (
        averages.replace("batch = 0.1", "batch = 0.15"),
        averages.replace("0.1,", "0.2,"),
    ):
        run(tmp_path / "other", other, restart, "time.end=0.6")
        said = (tmp_path / "other" / "run.log").read_text()
        assert "output.averages[1]: its settings are not those of before; the average" in said


@pytest.mark.slow
def test_states_hold_sums_that_are_not_the_flow(tmp_path, recwarn):
    run(tmp_path / "a", '{ of = "velocity", interval = 0.05, batch = 0.1 }', "time.end=0.4")
    names = open_checkpoint(tmp_path / "a").arrays
    assert "average.velocity-average.velocity_x.mean" in names
    with ss.Flow(
        "hd", points=(8, 12, 10), viscosity=0.05, initial={"restart": str(tmp_path / "a")}
    ) as flow:
        flow.step()
    assert not [one for one in recwarn if "average" in str(one.message)]


@pytest.mark.slow
def test_from_python_into_a_folder(tmp_path):
    flow = ss.Turbulence(
        points=8,
        viscosity=0.05,
        initial="taylor-green",
        step=0.05,
        output={"averages": [{"of": "velocity", "interval": 0.05, "since": 0.1, "batch": 0.1}]},
    )
    flow.run(until=0.5, output=tmp_path / "run")
    mean = stored(tmp_path / "run", "velocity-average").velocity_mean_x
    with pytest.warns(RuntimeWarning, match="1 sample only"):
        found = ss.open(tmp_path / "run").average("velocity_mean_x", since=0)
    np.testing.assert_array_equal(found.mean, mean[0])


@pytest.mark.parametrize(
    ("averages", "message"),
    [
        ('{ of = "velocity" }', r"averages\[1\].interval: is required"),
        (
            '{ of = "velocity", interval = 0.05, phases = 4, batch = 0.2 }',
            r"averages\[1\]: .*accepted: twice the period, phases \* interval, or more",
        ),
        ('{ of = "velocity", interval = 0.1, times = [1] }', "interval and times exclude"),
        ('{ of = "velocity", interval = 0.1, batch = 0.1 }', "twice the interval or more"),
        ('{ of = "velocity", interval = 0.1, profile = "r" }', r"\.profile: .*accepted: x, y"),
        ('{ of = "velocity", interval = 0.1, profile = "z", stride = 2 }', "exclude each other"),
        ('{ of = "velocity", interval = 0.1, since = 0.9 }', "since: is 0.9; accepted: less than"),
        ('{ of = "velocity", interval = 0.1, since = 0.12 }', "do not hit time 0.12; nearest"),
        ('{ of = "velocity", interval = 0.12 }', r"averages\[1\].interval: .* do not hit interval"),
        ('{ of = "velocty", interval = 0.1 }', r"averages\[1\].of: .*velocty"),
        ('{ of = "velocity", interval = 0.1, file = "snapshots" }', "'snapshots' is also output"),
        ('{ of = "velocity", interval = 0.1, precision = "float16" }', "float16"),
    ],
)
def test_what_is_not_accepted_is_one_line(tmp_path, averages, message):
    with pytest.raises(InputError, match=message):
        run(tmp_path, averages)
    assert not (tmp_path / "outputs").exists()


def test_what_has_no_mean_ends_the_run(tmp_path):
    with pytest.raises(RunError, match="no number at t = 0, so it has no average"):
        run(tmp_path, '{ of = "exp(2000 + velocity_x)", interval = 0.1, file = "none" }')


@pytest.mark.slow
def test_phase_averages_go_on(tmp_path):
    averages = (
        '{ of = "velocity_x", interval = 0.05, phases = 3, batch = 0.3, profile = "z",'
        ' file = "mean" }'
    )
    run(tmp_path / "whole", averages)
    run(tmp_path / "parts", averages, "time.end=0.4")
    ss.open(tmp_path / "parts").resume({"time.end": 0.8})
    whole, parts = (stored(tmp_path / name, "mean") for name in ("whole", "parts"))
    assert set(whole) == set(parts) and len(whole) == 9
    for name, values in whole.items():
        np.testing.assert_array_equal(values[-1], parts[name][-1])


# -- from Python, without a folder --------------------------------------------------------------


def test_averages_while_stepping_from_python(tmp_path):
    flow = ss.Turbulence(points=8, viscosity=0.05, initial="taylor-green", step=0.05)
    samples = []
    average = flow.average(["velocity", "velocity_x**2"], every=0.1, batch=0.2)
    thinner = flow.average("velocity", steps=2, batch=0.2, profile="z")
    flow.every(0.1, lambda sim: samples.append(np.array(sim.fields["velocity"][...])))
    with pytest.raises(InputError, match="there are no samples yet"):
        average.write(tmp_path / "a.zarr")
    flow.run(until=1.0)
    expected = trapezoid(np.array(samples))
    assert average.samples == 10
    np.testing.assert_allclose(average.mean["velocity"], expected, atol=1e-15)
    np.testing.assert_allclose(average.mean["velocity_x_2"].shape, (8, 8, 8))
    np.testing.assert_allclose(
        average.fluctuation["velocity"], deviation(np.array(samples)), atol=1e-14
    )
    np.testing.assert_allclose(thinner.mean["velocity"], expected.mean(axis=(2, 3)), atol=1e-15)
    with pytest.warns(RuntimeWarning, match="5 batches of 0.2 only: errors are rough"):
        average.write(tmp_path / "a.zarr")
    kept = xarray.open_zarr(tmp_path / "a.zarr").load()
    np.testing.assert_array_equal(kept.velocity_error_x[0], average.error["velocity"][0])
    # It continues, and stops.
    average.cancel()
    flow.run(until=1.2)
    assert (average.samples, thinner.samples) == (10, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of interval"),
        ({"steps": 3}, "batch is needed with steps"),
        ({"steps": 3, "batch": "x"}, "batch: .*number"),
        ({"every": 0.1, "batch": 0.1}, "twice the interval"),
        ({"every": 0.1, "profile": "q"}, "profile.*accepted: x, y"),
        ({"every": 0.1, "profile": "x", "plane": ("z", 0)}, "profile and plane exclude"),
        ({"every": -1}, "every: interval is -1"),
    ],
)
def test_wrong_arguments_are_one_line(options, message):
    flow = ss.Turbulence(points=8, viscosity=0.05, initial="taylor-green", step=0.05)
    with pytest.raises(InputError, match=message):
        flow.average("velocity", **options)
