"""`slipstream run --check`: a run then does as announced, and nothing is written."""

import itertools
import math
import os

import pytest
from rich.console import Console

import lattice_flows
from flows import make_case
from refusals import status_of
from slipstream.case import make_case as case_of
from slipstream.case import parse_case
from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError
from slipstream.engine.fields import PilotFindings
from slipstream.engine.processes import Interrupted, Interruption
from slipstream.lattice import lattice_simulation, pilot_flow
from slipstream.runs import make_simulation, output_writer, trial_run
from slipstream.runs.output_writer import counts_until
from slipstream.runs.run_case import run_case
from slipstream.runs.trial_run import Trial, check_run, cost_of
from slipstream.show.solver_texts import description, pilot_texts
from slipstream.spectral import pilot_run

DEVICE = open_device("cpu")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Timed steps end immediately, and pilots as late as it takes; the process has just begun."""
    monkeypatch.setattr(trial_run, "own_age", lambda: 1.0)
    monkeypatch.setattr(trial_run, "_STEPPING", 0.02)
    monkeypatch.setattr(trial_run, "_PILOT", math.inf)


def check(case, folder, **options):
    console = Console(record=True, width=80, file=open(os.devnull, "w"))  # noqa: SIM115
    forecast = check_run(
        lambda: make_simulation(case, None, DEVICE), case, folder, None, console, **options
    )
    return forecast, console.export_text()


def small(*settings):
    return make_case("grid.points=12", "time.end=0.1", *settings)


ADVECTION = case_of(
    "advection",
    grid={"points": 12},
    initial={"width": 0.2},
    time={"end": 0.5},
    output={"pictures": False},
)
LATTICE = parse_case(lattice_flows.CHANNEL)
CASES = {
    "fixed": small("output.fields_interval=0.05"),
    "adaptive": small("time.cfl=0.1", "output.fields_interval=0.03", "output.spectra_interval=0.1"),
    "advection": ADVECTION,
    "lattice": LATTICE,
}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_announced_is_what_a_run_does(tmp_path, name):
    case = CASES[name]
    folder = tmp_path / "runs" / "one"
    forecast, said = check(case, folder)
    assert list(tmp_path.iterdir()) == []
    assert "nothing was run or written" in said
    assert max(map(len, said.splitlines())) <= 80 or "warning" in said
    simulation = make_simulation(case, None, DEVICE)
    run_case(simulation, folder, Console(quiet=True))
    if case.fixed_step is not None and not case.ends_early:
        assert round(forecast.steps) == simulation.step
    else:
        # Converging, and hitting times of output, are not foreseen to the step.
        assert forecast.steps == pytest.approx(simulation.step, rel=0.35, abs=3)
    rows = (folder / "diagnostics.csv").read_text().splitlines()
    written = [row for row in rows if not row.startswith("#")][1:]
    assert len(written) == pytest.approx(forecast.counts["diagnostics"], rel=0.35, abs=3)
    if name == "fixed":
        assert len(written) == forecast.counts["diagnostics"]
    size = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    assert forecast.disk == pytest.approx(size, rel=0.5)
    files = sum(one.is_file() for one in folder.rglob("*"))
    assert forecast.files == pytest.approx(files, rel=0.25, abs=5)
    assert f"in {forecast.files} files, of" in " ".join(said.split())
    assert forecast.wall == pytest.approx(sum(forecast.parts.values()))
    assert all(part >= 0 for part in forecast.parts.values())


@pytest.mark.slow
def test_output_that_would_be_large_is_made_but_not_written(tmp_path, monkeypatch):
    case = small("output.fields_interval=0.05")
    actual, _ = check(case, tmp_path / "one")
    monkeypatch.setattr(trial_run, "LARGE", 0)
    monkeypatch.setattr(trial_run, "_PROBE", 1 << 20)
    monkeypatch.setattr(trial_run, "OutputWriter", refuse_to_record)
    large, _ = check(case, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []
    assert large.steps == actual.steps
    # Velocity and vorticity, three times, and a state: bytes alone, without what zarr says of them.
    fields, state = 4 * 12**3 * 8 * 3, 3 * 7 * 7 * 4 * 16
    assert large.disk == pytest.approx(fields + state, rel=0.1)
    # An array each time, a file each.
    assert large.files == 4 * 3 + 3


@pytest.mark.slow
def test_a_run_of_many_files_is_told_what_to_change(tmp_path, monkeypatch):
    monkeypatch.setattr(output_writer, "MANY_FILES", 20)
    monkeypatch.setattr(trial_run, "_TELLING", 2)
    _, said = check(small("output.fields_interval=0.01"), tmp_path / "one")
    said = " ".join(said.split())
    assert "in 4 files, 11 times" in said
    assert "more than 20: file systems may refuse them" in said
    assert "output.fields_interval" in said
    run_case(
        make_simulation(small("output.fields_interval=0.01"), None, DEVICE),
        tmp_path / "one",
        Console(quiet=True),
    )
    (told,) = [line for line in (tmp_path / "one/run.log").open() if "file systems may" in line]
    # Four arrays, eleven times.
    assert "about 44 files" in told


def refuse_to_record(*arguments):
    writer = ORIGINAL_WRITER(*arguments)
    writer.record = writer.record_last = lambda step_size: pytest.fail("it is written")
    return writer


ORIGINAL_WRITER = trial_run.OutputWriter


def test_a_check_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    asked = iter([False, True])
    monkeypatch.setattr(
        Interruption, "requested", lambda self, *wishes: (next(asked, True), *wishes)
    )
    with pytest.raises(Interrupted, match="nothing was written"):
        check(small(), tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_would_refuse_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(type(DEVICE), "memory_free", lambda self: 1000)
    with pytest.raises(InputError, match=r"grid\.points: this grid needs"):
        check(small(), tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_counted_as_they_are_written():
    case = small("output.fields_interval=0.03", "output.checkpoint_interval=0.05")
    counts = counts_until(case, 0.1)
    # At 0, 0.03, 0.06, 0.09 and the end; at 0, 0.05 and 0.1, which is the end.
    assert (counts["fields"], counts["checkpoint"]) == (5, 3)
    assert counts_until(small("output.checkpoint=false"), 0.1)["checkpoint"] == 0
    trial = Trial(first_step=0.01, step_seconds=2.0, starting=1.0)
    trial.seconds = {"fields": 10.0}
    trial.bytes = {"fields": 1000.0, "checkpoint": 1e6}
    actual = cost_of(case, trial, PilotFindings())
    assert actual.steps == 10
    assert actual.wall == 1 + 20 + 50
    # The last two states are kept.
    assert actual.disk == 5000 + 2e6
    stopped = cost_of(small("time.max_steps=4"), trial, PilotFindings())
    assert stopped.steps == 4


def test_steps_are_added_where_they_are_shortened_to_hit_output():
    case = small("time.cfl=0.5", "output.fields_interval=0.025")
    trial = Trial(first_step=0.01)
    foreseen = PilotFindings(steps=10.0)
    # Two and a half steps between two snapshots are three.
    assert cost_of(case, trial, foreseen).steps == 12
    fitting = small("time.cfl=0.5", "output.fields_interval=0.05")
    assert cost_of(fitting, trial, foreseen).steps == 10


@pytest.mark.slow
@pytest.mark.parametrize(("wall", "said"), [("25s", "about 4 jobs"), ("1s", "before the run has")])
def test_jobs_that_a_run_takes_are_counted(tmp_path, monkeypatch, wall, said):
    actual = cost_of(
        small(), Trial(starting=5.0, first_step=0.01, step_seconds=8.0), PilotFindings()
    )
    assert actual.wall == 85
    monkeypatch.setattr(trial_run, "cost_of", lambda *_arguments: actual)
    _, text = check(small(f"time.wall='{wall}'"), tmp_path / "one")
    assert said in " ".join(text.split())


# -- resolution ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "source", "dissipation"),
    [
        (
            ("forcing={ kind = 'random', injection = 0.4 }",),
            "what forcing.injection puts in",
            0.4,
        ),
        ((), "the largest in a pilot run of 12 x 12 x 12 points", None),
    ],
)
def test_resolution_is_judged_by_what_will_be_dissipated(tmp_path, settings, source, dissipation):
    case = small("equation.viscosity=0.05", *settings)
    simulation = make_simulation(case, None, DEVICE)
    simulation.prepare()
    actual = pilot_run.pilot_findings(simulation, 0.01, 1.0, math.inf)
    text = pilot_texts(actual, case)["kmax_eta"]
    assert source in text
    if dissipation is not None:
        kmax = 3  # the largest wavenumber of 12 points that no product aliases into
        eta = (0.05**3 / dissipation) ** 0.25
        assert f"about {kmax * eta:.2g} at least" in text
        assert any("kmax_eta will fall to" in one for one in actual.warnings)
        enough = pilot_run.pilot_findings(simulation, 0.01, 0.1, math.inf)
        assert not enough.warnings


def test_steps_of_many_points_follow_from_those_of_few(monkeypatch):
    monkeypatch.setitem(pilot_run._MOST_POINTS, 3, 8)
    case = small("time.cfl=0.1", "initial.peak_wavenumber=1.0")
    simulation = make_simulation(case, None, DEVICE)
    simulation.prepare()
    first = simulation.step_size()
    foreseen = simulation.pilot_findings(first, 1.0, math.inf)
    steps = 0
    while simulation.time < case.time.end * (1 - 1e-9):
        simulation.advance(min(simulation.step_size(), case.time.end - simulation.time))
        steps += 1
    assert "8 x 8 x 8" in foreseen.source
    assert foreseen.steps == pytest.approx(steps, rel=0.1)


def test_the_last_step_of_a_pilot_counts_as_far_as_it_goes():
    case = small("time.cfl=0.5")
    simulation = make_simulation(case, None, DEVICE)
    pilot = pilot_run.Pilot((12, 12, 12), 0.0, 0.1, [0.04, 0.04, 0.04], [0.04, 0.04, 0.02])
    assert pilot_run.expected_steps(simulation, pilot, 0.01) == pytest.approx(10)


def test_a_pilot_that_cannot_be_tells_nothing(monkeypatch):
    monkeypatch.setitem(pilot_run._MOST_POINTS, 3, 8)
    case = small("grid.points=24", "initial.flow=abc", "initial.wavenumber=6", "time.cfl=0.5")
    simulation = make_simulation(case, None, DEVICE)
    simulation.prepare()
    foreseen = simulation.pilot_findings(simulation.step_size(), 1.0, math.inf)
    assert foreseen.steps is None
    assert "as in the initial state" in pilot_texts(foreseen, simulation.case)["kmax_eta"]


# -- lattice ---------------------------------------------------------------------------------------


def test_image_far_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """Reading and analysing it could take minutes; some planes show that it does not fit."""
    monkeypatch.setattr(type(DEVICE), "memory_free", lambda _: 20000)
    monkeypatch.setattr(lattice_simulation, "read_pores", None)
    with pytest.raises(InputError, match="image: this image needs .*`slipstream project` is for"):
        check(LATTICE, tmp_path / "run")


def test_pores_of_one_and_two_voxels_are_narrow():
    for width, expected in itertools.product((1, 2, 3, 5), ("x", "z")):
        shape = {"x": [width + 2, 8, 8], "z": [8, 8, width + 2]}[expected]
        case = parse_case(
            lattice_flows.CHANNEL,
            [f"image.shape={shape}", f'image.axis="{expected}"', 'flow.axis="y"'],
        )
        simulation = make_simulation(case, None, DEVICE)
        description(simulation)
        assert simulation.subdomain.narrow == (1.0 if width <= 2 else 0.0)


def test_coarse_images_keep_what_is_mostly_pore():
    case = parse_case(lattice_flows.CHANNEL, ["image.shape=[18, 8, 9]"])
    simulation = make_simulation(case, None, DEVICE)
    description(simulation)
    coarse = pilot_flow.coarse_pores(simulation, 2)
    # Of 18 layers across x, the first and the last are solid: half of the coarse ones there.
    assert coarse.shape == (4, 4, 9)
    assert coarse.all()
    assert not pilot_flow.coarse_pores(simulation, 1)[:, :, [0, -1]].any()


# -- the command -----------------------------------------------------------------------------------


def command(*arguments):
    return status_of("run", *arguments)


@pytest.mark.slow
def test_the_command_leaves_an_earlier_run_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "case.toml").write_text(small().to_toml())
    earlier = tmp_path / "runs" / "case" / "diagnostics.csv"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("step,time\n0,0.0\n")
    before = sorted(tmp_path.rglob("*"))
    assert command("case.toml", "--check", "--device", "cpu", "--resolve", "100") == 0
    assert "below 100" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before
    assert command("case.toml", "--resolve", "2") == 2
    assert "goes with --check" in capsys.readouterr().err
