"""Behaviour that needs several processes: tests on 2 to 6 MPI ranks, and ``--ranks`` itself."""

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows import (
    PATIENCE,
    RANDOM,
    REPOSITORY,
    diagnostics,
    environment,
    slipstream,
    wait_until,
)
from slipstream import cli
from slipstream.engine.processes import find_mpiexec
from slipstream.files import open_checkpoint

pytestmark = pytest.mark.mpi

CASE = RANDOM.replace("points = 16", "points = [16, 20, 12]")
# What a row says of the flow; the residual is the small difference of large terms.
COMPARED = ("step", "time", "energy", "enstrophy", "dissipation", "helicity")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "case.toml").write_text(CASE)
    return tmp_path


def options(out, settings):
    overrides = [argument for setting in settings for argument in ("--set", setting)]
    return ["run", "case.toml", "--device", "cpu", "--out", out, *overrides]


def run(folder, out, ranks, settings=()):
    return slipstream(*options(out, settings), "--ranks", ranks, cwd=folder, ranks=ranks)


def completed(folder, out, ranks, settings=()):
    result = run(folder, out, ranks, settings)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def completed_alone(folder, out, settings=()):
    """Run in this process."""
    with contextlib.chdir(folder), pytest.raises(SystemExit) as end:
        cli.main(options(out, settings))
    assert not end.value.code


def assert_same_series(actual, expected, tolerance):
    for name in COMPARED:
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=tolerance * scale)


def run_tests(ranks, *arguments, launcher=(), **variables):
    """Run pytest on some ranks; return what came of it."""
    command = [
        find_mpiexec(),
        *launcher,
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--color=no",
        "-p",
        "no:cacheprovider",
        "--timeout=500",
        "--timeout-method=thread",
        *arguments,
    ]
    settings = {"OMP_NUM_THREADS": "1", "SLIPSTREAM_TIMEOUT": "300", **variables}
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**environment(ranks), **settings},
        capture_output=True,
        text=True,
        timeout=3000,
    )


# On how many ranks the tests of a file run besides one; "2 tiled" with the kernels and padded rows
# of GPUs, whose exchanges are so tested without one. A file that is not named runs on three: they
# are several, divide nothing evenly, and have two different neighbours each. A test that is named
# goes by its own entry.
ON = {
    # 4 x 1 x 1 has two neighbours along an axis, 2 x 2 x 1 the same one twice.
    "advection_strategies": ("4",),
    "halo_exchange": ("4",),
    "parallel_advection": ("4",),
    # Boxes that are divided along two axes.
    "parallel_pores": ("4",),
    "sparse_exchange": ("4",),
    "parallel_lattice_run::test_populations_do_not_depend_on_the_number_of_ranks": ("3", "4"),
    # Process grids of pencils along two axes are those of six ranks, see below.
    "fft_layouts": ("2 tiled",),
    # What each kind of kernels does on several ranks, however many.
    "parallel_simulation": ("2", "2 tiled"),
    "changed_settings": ("2",),
    "counted_memory": ("2",),
    "interrupts": ("2",),
    # On a single rank they have a CPU's kernels, too.
    "changed_settings::test_steps_after_a_change_have_the_bits_of_a_run_with_it": ("2 tiled",),
    "wrong_kinds": ("2",),
    "chosen_output": ("2",),
    "chosen_output::test_files_of_each_format_have_the_points_of_a_region": ("2", "2 tiled"),
    "fft_agreement": ("2", "2 tiled"),
    "fft_arrays": ("2", "2 tiled"),
    "fft_choices": ("2", "2 tiled"),
    "parallel_expressions": ("2", "2 tiled"),
    "parallel_expressions::test_steps_after_an_evaluation_have_the_same_bits": ("2",),
    "parallel_fft": ("2", "2 tiled"),
    # Kernels of GPUs pad rows: their states are stored without.
    "parallel_output": ("2",),
    "parallel_output::test_checkpoint_holds_the_modes_of_all_ranks": ("2", "2 tiled"),
    "parallel_output::test_checkpoint_of_one_rank_is_read_by_several": ("2", "2 tiled"),
    "peer_transport": ("2", "2 tiled"),
    "peer_transport::test_memory_of_plans_that_are_gone_is_freed": ("2",),
    # Six, see below.
    "counted_messages": ("3",),
    # What measures takes its time on every rank.
    "fft_tuning": ("2",),
    "calibration": ("2",),
    "parallel_bench": ("2",),
    # Layers above the exchanges; other files show that exchanges are right for three.
    "arrays_in_files": ("2",),
    "narrow_steps": ("2",),
    "parallel_arguments": ("2",),
    "parallel_bodies": ("2",),
    "parallel_models": ("2",),
    "parallel_acceleration": ("2",),
    "parallel_initial": ("2",),
    "parallel_particles": ("2",),
    "parallel_receipts": ("2",),
    "parallel_shards": ("2",),
    "permeability_on_ranks": ("2",),
    "parallel_resume": ("2",),
    "parallel_statistics": ("2",),
    "scalars": ("2",),
    "several_forces": ("2",),
    "shear": ("2",),
    "streamed_steps": ("2",),
    "pencil_steps::test_tiles_of_the_host_have_the_bits_of_slabs": ("2",),
    "tuner": ("2",),
    "walls::test_equals_the_symmetric_flow_of_a_doubled_box": ("3", "2 tiled"),
    # Three would fail in the same places, and take longer.
    "blow_up": ("2",),
    "faults": ("2",),
    "fft_lifetime": ("2",),
    "forked_ranks": ("2",),
    "simulation_lifetime": ("2",),
    "several_plans": ("2",),
    "streaming_memory::test_many_plans_leave_nothing_behind": ("2",),
    "streaming_memory::test_many_transforms_with_random_options_leave_no_array_behind": ("2",),
    "interactive": ("2",),
    "command_line": ("2",),
    # One to a node, several, and as many on each or not.
    "nodes": ("3", "4"),
}
PARALLEL = sorted(
    path.relative_to(REPOSITORY) for path in REPOSITORY.glob("tests/parallel/test_*.py")
)


def name_of(path):
    return path.stem.removeprefix("test_")


def runs_on(ranks, path):
    """Return pytest's arguments for the tests of a file that run on this number of ranks."""
    own = {key: on for key, on in ON.items() if key.startswith(f"{name_of(path)}::")}
    names = {f"{path}::{key.split('::')[1]}": ranks in on for key, on in own.items()}
    if ranks in ON.get(name_of(path), ("3",)):
        return [str(path), *(f"--deselect={name}" for name, runs in names.items() if not runs)]
    return [name for name, runs in names.items() if runs]


def test_all_that_is_named_is_there():
    texts = {name_of(path): (REPOSITORY / path).read_text() for path in PARALLEL}
    for key in ON:
        name, _, test = key.partition("::")
        assert f"\ndef {test}(" in texts[name] if test else name in texts, key


def run_parallel_tests(ranks, tier):
    """Run those tests of tests/parallel that belong to a tier on ranks, such as "2 tiled"."""
    tests = itertools.chain(*(runs_on(ranks, path) for path in PARALLEL))
    number, *kind = ranks.split()
    device = f"--device={kind[0] if kind else 'cpu'}"
    result = run_tests(int(number), *tests, device, f"--tier={tier}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert "failed" not in result.stdout


@pytest.mark.timeout(3200)
def test_quick_parallel_tests_hold_on_three_ranks():
    run_parallel_tests("3", "quick")


# The longest first.
@pytest.mark.thorough
@pytest.mark.timeout(3200)
@pytest.mark.parametrize(
    ("ranks", "tier"), [("2", "all"), ("3", "beyond-quick"), ("2 tiled", "all"), ("4", "all")]
)
def test_parallel_tests_hold_on_several_ranks(ranks, tier):
    run_parallel_tests(ranks, tier)


@pytest.mark.thorough
def test_more_ranks_than_points_or_planes_give_the_same():
    """Six ranks, with process grids of 2 x 3, which may be on six, three or two nodes."""
    names = ("counted_messages", "fft_layouts", "lattice_flow", "nodes")
    tests = [f"tests/parallel/test_{name}.py" for name in names]
    result = run_tests(6, *tests, "-k", "any and not workers or rk4 or lattice_send")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def without_its_name(*command):
    """Return a command in a namespace in which this machine may have another name."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--uts", *command]


@pytest.fixture
def two_nodes(tmp_path):
    """Options of a launcher that starts two ranks each on two nodes: this machine, renamed."""
    if not Path(find_mpiexec()).with_name("prterun").exists():
        pytest.skip("needs Open MPI 5")
    if shutil.which("unshare") is None or subprocess.run(without_its_name("true")).returncode:
        pytest.skip("needs the right to name this machine in a namespace")
    agent = tmp_path / "agent"  # instead of ssh: options, a host, and a command
    renamed = shlex.join(without_its_name("sh", "-c"))
    agent.write_text(
        '#!/bin/sh\nwhile case "$1" in -*) ;; *) false;; esac; do shift; done\n'
        'name=node${1##*.}; shift; export name\ncommand="$*"; export command\n'
        f"exec {renamed} 'hostname $name && exec sh -c \"$command\"'\n"
    )
    agent.chmod(0o755)
    hosts = ["--host", "127.0.0.2:2,127.0.0.3:2", "--map-by", "ppr:2:node:oversubscribe"]
    return ["--prtemca", "plm_ssh_agent", str(agent), *hosts]


@pytest.mark.thorough
def test_ranks_of_different_nodes_give_the_same_bits(two_nodes):
    tests = ["tests/parallel/test_nodes.py", "--device=cpu"]
    result = run_tests(4, *tests, launcher=two_nodes, SLIPSTREAM_TEST_NODES="2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def test_failure_on_one_rank_is_reported_and_ends_the_others(tmp_path):
    path = tmp_path / "test_rank_1_fails.py"
    path.write_text(
        "def test_one_fails(comm):\n    assert comm.rank != 1, 'the reason'\n"
        "def test_others_wait(comm):\n    comm.Barrier()\n"
    )
    folders = [str(REPOSITORY / name) for name in ("tests", "tests/support")]
    paths = os.pathsep.join([*folders, environment()["PYTHONPATH"]])
    result = run_tests(2, "-p", "conftest", str(path), PYTHONPATH=paths)
    assert result.returncode != 0
    assert "rank 1: FAILED" in result.stderr
    assert "the reason" in result.stderr


def test_run_on_two_ranks_gives_the_numbers_of_one(folder):
    settings = ("time.end=0.1", "output.diagnostics_interval=0.01")
    completed_alone(folder, "one", settings)
    result = completed(folder, "two", 2, settings)
    assert "ranks" in result.stdout
    # Only one rank reports.
    assert result.stdout.count("wall time") == 1
    one, two = diagnostics(folder / "one"), diagnostics(folder / "two")
    assert one["step"].tolist() == list(range(11))
    # A few roundings in each of 10 steps.
    assert_same_series(two, one, 1e-12)


# After what only ranks can know, launchers would say more. See test_command_line.py for the rest.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [("grid.pionts=8", "'points'"), ("grid.points=100000", "grid.points")],
    ids=["before ranks start", "on ranks"],
)
def test_bad_input_on_two_ranks_is_one_line_with_status_2(folder, settings, expected):
    result = run(folder, "out", 2, (settings,))
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.startswith("slipstream: error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert expected in result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_run_goes_on_with_the_numbers_of_an_uninterrupted_one(folder, number):
    command = [
        sys.executable,
        "-m",
        "slipstream",
        "run",
        "case.toml",
        "--ranks",
        "2",
        "--device",
        "cpu",
        "--out",
        "stopped",
        "--set",
        "time.end=1000",
        "--set",
        "output.diagnostics_interval=0.01",
        "--set",
        "output.spectra_interval=1000",
        "--set",
        "time.step=0.001",
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        series = folder / "stopped" / "diagnostics.csv"
        wait_until(lambda: _has_rows(series, 3, process), "the third row")
        process.send_signal(number)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 75, output + errors
    assert errors.startswith("slipstream: interrupted at step ")
    assert errors.count("\n") == 1
    stopped = open_checkpoint(folder / "stopped")
    assert stopped.step > 0
    assert diagnostics(folder / "stopped")["step"][-1] == stopped.step

    if number == signal.SIGTERM:
        return  # what it leaves is the same
    end = stopped.time + 0.02
    common = (f"time.end={end!r}", "time.step=0.001", "output.diagnostics_interval=0.001")
    completed_alone(folder, "whole", common)
    whole = diagnostics(folder / "whole")
    later = {name: values[whole["step"] >= stopped.step] for name, values in whole.items()}
    assert len(later["step"]) == 21
    restart = ("initial.restart=stopped", *common)
    completed_alone(folder, "on_1", restart)
    completed(folder, "on_3", 3, restart)
    for name in ("on_1", "on_3"):
        # Roundings of a few hundred steps, which the flow amplifies little in so short a time.
        assert_same_series(diagnostics(folder / name), later, 1e-11)


def _has_rows(path, count, process):
    """Return whether a process, which must be running, has written some rows of its series."""
    assert process.poll() is None, process.communicate()
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(not line.startswith("#") for line in lines) > count
