"""States that a run has had but not stored: computed again, and compared with its digests."""

import itertools
import shutil

import numpy as np
import pytest
from rich.console import Console

import moments
import slipstream
from refusals import status_of
from slipstream import Turbulence, cli
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.recomputing import verify_run
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case

pytestmark = [
    pytest.mark.filterwarnings("ignore:kmax_eta"),
    pytest.mark.filterwarnings("ignore:initial.peak_wavenumber"),
]
QUIET = Console(quiet=True)
ONE = {"comm": None, "device": "cpu"}
ADAPTIVE = "adaptive"
# A state of each step, or pair of steps, to have something to compare with.
EVERY = {"spectral": 0.05, ADAPTIVE: 0.05, "advection": 0.05, "lattice": 2}


def case_of(family, *settings):
    text = moments.CASES["spectral" if family == ADAPTIVE else family]
    if family == ADAPTIVE:
        text = text.replace("step = 0.05", "cfl = 0.4")
    given = [f"output.checkpoint_interval={EVERY[family]}", "output.keep_checkpoints=99"]
    given += ["output.fields_interval=100", "output.digest_steps=4", "output.report=false"]
    return parse_case(text, [*given, *settings])


def run(family, folder, *settings):
    run_case(make_simulation(case_of(family, *settings), None, HostDevice()), folder, QUIET)
    return folder


def files_of(folder):
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*") if p.is_file()}


def without_states(folder, place, kept=()):
    """Return a copy of a run's folder with only some of its states."""
    copy = shutil.copytree(folder, place)
    for path in (copy / "checkpoints").iterdir():
        if int(path.stem) not in kept:
            shutil.rmtree(path)
    return copy


def assert_same_bits(simulation, state):
    stored = open_checkpoint(state)
    assert (simulation.solver.step, simulation.solver.time) == (stored.step, stored.time)
    for field in simulation.solver.checkpoint():
        if field.name in stored.arrays:
            np.testing.assert_array_equal(field.data, stored.read(field.name))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each family, by name, with a state of every step."""
    made = {}

    def folder_of(family):
        if family not in made:
            made[family] = run(family, tmp_path_factory.mktemp("runs") / family)
        return made[family]

    return folder_of


@pytest.mark.slow
def test_a_step_on_shifted_grids_is_computed_from_an_odd_state(tmp_path):
    """Even and odd steps take the grids in opposite order."""
    settings = "numerics.dealiasing=phase-shift", "time.integrator=heun"
    folder = run("spectral", tmp_path / "run", *settings)
    states = {state.step: state.path for state in slipstream.open(folder).states}
    opened = slipstream.open(without_states(folder, tmp_path / "odd", (3,)))
    assert_same_bits(opened.at(step=6), states[6])


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY)
def test_any_step_is_computed_with_the_bits_of_the_run(runs, tmp_path, family):
    states = slipstream.open(runs(family)).states
    assert len(states) > 6
    for kept in ((), (states[3].step,)):
        folder = without_states(runs(family), tmp_path / f"{len(kept)}", kept)
        before = files_of(folder)
        opened = slipstream.open(folder)
        for state in states[4::6]:
            plan = opened.recomputation(step=state.step)
            begins = max([one for one in kept if one <= state.step], default=0)
            assert (plan.origin.step, plan.steps) == (begins, state.step - begins)
            assert plan.seconds >= 0
            assert_same_bits(opened.at(step=state.step, **ONE), state.path)
        assert_same_bits(opened.at(state.time, **ONE), state.path)
        assert files_of(folder) == before


def test_a_time_between_two_steps_is_reached_by_a_shorter_step(runs):
    opened = slipstream.open(runs("spectral"))
    flow, reference = opened.at(0.27, **ONE), opened.at(step=5, **ONE)
    reference.solver.advance(0.27 - reference.time)
    assert flow.time == reference.time == pytest.approx(0.27, abs=1e-15)
    found, expected = (one.fields["vorticity"].plane("z", 1) for one in (flow, reference))
    np.testing.assert_array_equal(found, expected)
    flow.run(until=0.32)  # a simulation like any other
    with pytest.raises(InputError, match="accepted: 0 to 0.6"):
        opened.at(7.0, **ONE)
    with pytest.raises(InputError, match="accepted: 0 to 12"):
        opened.at(step=13, **ONE)
    with pytest.raises(InputError, match="one of time and step"):
        opened.at(0.1, step=2, **ONE)
    with pytest.raises(InputError, match="cannot be shortened; accepted: multiples of 2"):
        slipstream.open(runs("lattice")).at(3.0, **ONE)


@pytest.mark.slow
def test_segments_have_the_settings_that_the_run_had(tmp_path):
    """A run is stopped, continues with other settings, and is changed by a program."""
    folder = run(ADAPTIVE, tmp_path / "run", "time.max_steps=3")
    changes = ["equation.viscosity=0.02", "time.cfl=0.3", "time.max_steps=1000"]
    resume_run(folder, changes, None, HostDevice(), QUIET)
    # It is killed after a state, and continues from there.
    for state in sorted((folder / "checkpoints").iterdir())[-3:]:
        shutil.rmtree(state)
    resume_run(folder, ["run.schedule=serial"], None, HostDevice(), QUIET)
    opened = slipstream.open(without_states(folder, tmp_path / "copy"))
    for state in slipstream.open(folder).states[1::3]:
        assert_same_bits(opened.at(step=state.step, **ONE), state.path)
    verdicts = verify_run(folder, since=0.0)
    assert {one.text for one in verdicts} == {"the same bits"} and len(verdicts) > 6


@pytest.mark.slow
def test_particles_are_followed_again_after_a_change_of_points(tmp_path):
    heavy = '{name="heavy", number=8, kind="inertial", response_time=0.3}'
    folder = run(
        "spectral", tmp_path / "run", "time.max_steps=4", f"particles=[{{number=9}},{heavy}]"
    )
    resume_run(folder, ["grid.points=14", "time.max_steps=1000"], None, HostDevice(), QUIET)
    assert {one.text for one in verify_run(folder, since=0.0)} == {"the same bits"}
    last = slipstream.open(folder).states[-1]
    opened = slipstream.open(without_states(folder, tmp_path / "copy", (4,)))
    assert_same_bits(opened.at(step=last.step, **ONE), last.path)
    simulation = opened.at(step=4, **ONE).solver
    digest, positions = simulation.digest(), simulation.particles.sets[1].state[:3]
    positions[2, 5] = np.nextafter(positions[2, 5], 9)
    assert simulation.digest() != digest


@pytest.mark.slow
def test_what_cannot_be_computed_again_is_refused(tmp_path):
    folder = run("spectral", tmp_path / "run", "time.max_steps=4", "output.keep_checkpoints=1")
    changes = ["grid.points=14", "time.max_steps=1000"]
    resume_run(folder, changes, None, HostDevice(), QUIET)
    opened = slipstream.open(folder)
    with pytest.raises(InputError, match=r"another grid.points at step 4.*keep_checkpoints"):
        opened.at(step=7, **ONE)
    assert opened.at(step=4, **ONE).case.grid.points == 12
    (folder / "steps.csv").unlink()
    with pytest.raises(InputError, match=r"no steps.csv, which earlier versions"):
        opened.at(step=4, **ONE)


@pytest.mark.slow
def test_changes_by_a_program_are_made_again_and_set_fields_are_not(tmp_path):
    output = {"pictures": False, "checkpoint_interval": 0.1, "keep_checkpoints": 99}
    case = {"points": 8, "initial": "taylor-green", "step": 0.05, "output": output}
    sim = Turbulence(viscosity=0.1, **case, **ONE)

    def change(simulation):
        simulation.viscosity = 0.05

    def kick(simulation):
        simulation.fields["velocity"][...] = 1.1 * np.array(simulation.fields["velocity"])

    sim.every(call=change, times=[0.1])
    sim.every(call=kick, times=[0.3])
    early = {}
    sim.every(
        call=lambda simulation: early.update(k=simulation.fields["velocity"].gather()), times=[0.25]
    )
    sim.every(  # while the run is under way, in a folder that it has locked
        call=lambda simulation: early.update(
            then=slipstream.open(tmp_path / "run").at(0.15, **ONE)
        ),
        times=[0.2],
    )
    sim.run(until=0.5, output=tmp_path / "run")
    opened = slipstream.open(without_states(tmp_path / "run", tmp_path / "none"))
    np.testing.assert_array_equal(opened.at(0.25, **ONE).fields["velocity"].gather(), early["k"])
    assert early["then"].steps == 3
    with pytest.raises(InputError, match="a program set fields or particles at step 6"):
        opened.at(0.4, **ONE)
    states = slipstream.open(tmp_path / "run").states
    kept = without_states(tmp_path / "run", tmp_path / "one", (states[-2].step,))
    assert_same_bits(slipstream.open(kept).at(step=states[-1].step, **ONE), states[-1].path)

    given = Turbulence(viscosity=0.1, **case, **ONE)
    given.fields["velocity"][...] = np.array(sim.fields["velocity"])
    given.run(until=0.2, output=tmp_path / "given")
    opened = slipstream.open(without_states(tmp_path / "given", tmp_path / "bare"))
    with pytest.raises(InputError, match="set by a program at the start"):
        opened.at(0.1, **ONE)


def changed_digest(folder, row):
    """Change a digest in the record, and return between which steps it is."""
    path = folder / "steps.csv"
    lines = path.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("step,")) + 1
    cells = lines[first + row].split(",")
    cells[3] = str(float(cells[3]) + 1)
    lines[first + row] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    return int(lines[first + row - 1].split(",")[0]), int(cells[0])


@pytest.mark.parametrize("family", EVERY)
def test_a_digest_that_deviates_is_found_where_it_is(runs, tmp_path, family, capsys):
    folder = without_states(runs(family), tmp_path / "run")
    before = files_of(folder)
    status = status_of("verify", str(folder), "--from", "0", "--device", "cpu")
    assert not status and "the same bits" in capsys.readouterr().out
    assert files_of(folder) == before
    low, high = changed_digest(folder, 5)
    assert status_of("verify", str(folder), "--from", "0", "--device", "cpu") == 1
    (verdict,) = verify_run(folder, since=0.0, device="cpu")
    assert verdict.deviates == (low, high)
    time = slipstream.open(runs(family)).states[2].time
    assert [one.deviates for one in verify_run(folder, 0.0, time, device="cpu")] == [None]
    with pytest.warns(RuntimeWarning, match=f"between steps {low} and {high}"):
        slipstream.open(folder).at(step=high, **ONE)


def test_bits_of_another_device_are_compared_but_for_rounding(runs, tmp_path, monkeypatch):
    from slipstream.runs import recomputing as verifying

    folder = without_states(runs("spectral"), tmp_path / "run")
    monkeypatch.setattr(verifying, "hosts_and_devices", lambda one: ([], ["some GPU"]))
    (verdict,) = verify_run(folder, since=0.0, device="cpu")
    assert verdict.text == "the same bits"
    changed_digest(folder, 2)
    (verdict,) = verify_run(folder, since=0.0, device="cpu")
    assert "other bits, computed on" in verdict.text and not verdict.deviates
    assert verdict.rows == 13 and verdict.difference < 1e-9
    # What rounding does not explain is found nevertheless.
    settings = ("time.integrator=rk2",)
    (verdict,) = verify_run(folder, since=0.0, device="cpu", settings=settings)
    assert verdict.deviates == (0, 1)


@pytest.mark.slow
def test_runs_without_digests_are_computed_but_not_verified(tmp_path):
    folder = run("spectral", tmp_path / "run", "output.digest_steps=0")
    lines = [line for line in (folder / "steps.csv").read_text().splitlines() if line[0] != "#"]
    assert len(lines) == 1 + 13 and all(line.split(",")[3] == "nan" for line in lines[1:])
    state = slipstream.open(folder).states[5]
    copy = without_states(folder, tmp_path / "copy")
    assert_same_bits(slipstream.open(copy).at(step=state.step, **ONE), state.path)
    with pytest.raises(InputError, match="no digests; use output.digest_steps"):
        verify_run(folder)


@pytest.mark.slow
def test_a_time_without_a_snapshot_is_drawn(runs, tmp_path, capsys):
    folder = without_states(runs("spectral"), tmp_path / "run")
    before = files_of(folder)
    command = ["plot", str(folder), "--time", "0.23", "--out", str(tmp_path / "plots")]
    status_of(*command)
    said = capsys.readouterr().out
    assert "computes 5 steps from the initial state" in said and "picture:" in said
    with pytest.raises(SystemExit):
        cli.main([*command, "--nearest"])
    assert "no snapshot of that time; drawn is the nearest" in capsys.readouterr().out
    (folder / "steps.csv").unlink()
    assert status_of(*command) == 2
    assert "has no steps.csv" in (said := capsys.readouterr().err) and "--nearest draws" in said
    assert files_of(folder).items() <= before.items()


# -- what a history has, and what damages it -------------------------------------------------------


def flow_with_particles(**options):
    output = {"pictures": False, "report": False, "digest_steps": 1, "keep_checkpoints": 1}
    given = {"points": 8, "viscosity": 0.1, "initial": "taylor-green", "step": 0.05}
    return Turbulence(**given, output=output, particles=[{"number": 9, "interval": 0.1}], **options)


@pytest.mark.slow
def test_particles_keep_their_order_where_settings_change_in_any_way(tmp_path):
    """A change within the process and one by a resume lead to the same bits, which are replayed."""
    digests = []
    for way in ("process", "resume"):
        sim, folder = flow_with_particles(**ONE), tmp_path / way
        sim.run(until=0.3, output=folder)
        if way == "process":
            sim.viscosity = 0.05
            sim.run(until=0.6, output=folder)
            digests.append(sim.solver.digest())
        else:
            sim.close()
            slipstream.open(folder).resume({"time.end": 0.6, "equation.viscosity": 0.05}, **ONE)
            digests.append(slipstream.open(folder).at(step=12, **ONE).solver.digest())
        assert {one.text for one in verify_run(folder, since=0.0)} == {"the same bits"}
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_placed_particles_and_another_integrator_are_not_repeated(tmp_path):
    sim = flow_with_particles(**ONE)
    sim.run(until=0.2, output=tmp_path / "placed")
    sim.particles["tracers"].positions = np.full((9, 3), 1.0)
    sim.run(until=0.4, output=tmp_path / "placed")
    placed = slipstream.open(tmp_path / "placed")
    with pytest.raises(InputError, match="a program set fields or particles at step 4"):
        placed.at(step=6, **ONE)
    # What is before is verified, and what is not is named.
    first, rest = verify_run(placed.path, since=0.0)[:2]
    assert (first.text, first.start, first.end) == ("the same bits", 0, 4)
    assert (rest.start, rest.end) == (4, 8) and "set fields or particles" in rest.problem

    run("spectral", folder := tmp_path / "run", "time.max_steps=4", "output.keep_checkpoints=1")
    more = ["scalars=[{name='dye', diffusivity=0.1}]", "time.max_steps=8"]
    other = ["time.integrator='rk2'", "time.max_steps=8"]
    for changes, what in ((more, "other scalars"), (other, "another time.integrator")):
        copy = shutil.copytree(folder, tmp_path / what.replace(" ", "-"))
        resume_run(copy, changes, None, HostDevice(), QUIET)
        with pytest.raises(InputError, match=rf"{copy}: step 6 .*{what} at step 4; more"):
            slipstream.open(copy).at(step=6, **ONE)
        first, rest = verify_run(copy, since=0.0)[:2]
        assert (first.text, first.start, first.end) == ("the same bits", 0, 4)
        assert f"{what} at step 4" in rest.problem


@pytest.mark.slow
@pytest.mark.parametrize("kept", [1, 9])
def test_where_a_resume_changed_fields_the_state_is_as_it_was_before(tmp_path, kept):
    run("spectral", tmp_path / "run", "time.max_steps=4", f"output.keep_checkpoints={kept}")
    with slipstream.open(tmp_path / "run").at(step=4, **ONE) as sim:
        fields, digest = list(sim.fields), sim.solver.digest()
    settings = ["scalars=[{name='dye', diffusivity=0.1}]", "time.max_steps=8"]
    resume_run(tmp_path / "run", settings, None, HostDevice(), QUIET)
    with slipstream.open(tmp_path / "run").at(step=4, **ONE) as sim:
        assert (list(sim.fields), sim.solver.digest()) == (fields, digest)


@pytest.mark.slow
def test_a_function_that_fails_leaves_a_state_from_which_both_continue(tmp_path):
    """The same simulation continues in its folder, and so does another process."""
    reference = flow_with_particles(**ONE)
    reference.step(12)
    sim = flow_with_particles(**ONE)

    def fail(_):
        callback.cancel()
        raise ZeroDivisionError("the user's")

    callback = sim.every(times=[0.25], call=fail)
    with pytest.raises(ZeroDivisionError):
        sim.run(until=0.6, output=tmp_path / "run")
    assert [one.step for one in slipstream.open(tmp_path / "run").states] == [5]
    copy = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    sim.run(until=0.6, output=tmp_path / "run")
    slipstream.open(copy).resume({"time.end": 0.6}, **ONE)
    for folder in (tmp_path / "run", copy):
        again = slipstream.open(folder).at(step=12, **ONE)
        assert again.solver.digest() == reference.solver.digest()
        assert {one.text for one in verify_run(folder, since=0.0)} == {"the same bits"}


def change_text(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("steps.csv", lambda text: text[: text.index("\n0,") + 1], "has no whole row"),
        ("steps.csv", lambda text: text.replace("\n1,", "\n-7,"), "not in order"),
        ("steps.csv", lambda text: text.replace("\n0,", "\n-9,"), "no run can have"),
        ("steps.csv", lambda text: text.replace("\n1,", "\nnan,"), "no run can have"),
        ("steps.csv", lambda text: text.replace("digest", "digits"), "has no column 'digest'"),
        ("run.json", lambda text: text.replace("[grid]", "[grid"), "checksum differs"),
        (
            "run.json",
            lambda text: text.replace("[grid]", "[grid").partition(',\n "checksum')[0] + "}",
            "case of the segment from step 0 cannot be read",
        ),
    ],
)
def test_a_damaged_history_is_refused_by_its_name(runs, tmp_path, name, damage, message, capsys):
    folder = without_states(runs("spectral"), tmp_path / "run")
    path = folder / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=message) as refused:
        slipstream.open(folder).at(step=3, **ONE)
    assert str(path) in str(refused.value)
    assert status_of("verify", str(folder), "--device", "cpu") == 2
    assert str(path) in (said := capsys.readouterr().err) and "Traceback" not in said


def test_a_state_that_rotation_removed_meanwhile_is_told(runs, tmp_path, monkeypatch):
    from slipstream.runs import recomputing

    folder, make = without_states(runs("spectral"), tmp_path / "run", (4, 8)), make_simulation

    def removed(*arguments):
        shutil.rmtree(folder / "checkpoints" / "000000004.zarr", ignore_errors=True)
        return make(*arguments)

    monkeypatch.setattr(recomputing, "make_simulation", removed)
    first, second, third = verify_run(folder, since=0.0, device="cpu")
    assert first.text == third.text == "the same bits"
    assert second.problem == (
        "the run has removed 000000004.zarr since; use output.keep_checkpoints in the run"
    )


FORCES = (
    [],
    ["{kind='linear', rate=0.2}"],
    ["{kind='linear', rate=0.1}", "{kind='abc', amplitude=0.1}"],
)


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(range(len(FORCES)), 2)))
def test_forces_that_a_resume_adds_or_removes_are_repeated(tmp_path, before, after):
    first, then = (f"forcing=[{', '.join(FORCES[number])}]" for number in (before, after))
    folder = run(
        "spectral", tmp_path / "run", "time.max_steps=4", "output.keep_checkpoints=1", first
    )
    resume_run(folder, [then, "time.max_steps=8"], None, HostDevice(), QUIET)
    whole = verify_run(folder, since=0.0)[0]
    assert (whole.start, whole.end, whole.text) == (0, 8, "the same bits")
