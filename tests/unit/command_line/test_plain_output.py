"""Where the terminal or file cannot show every letter, commands write plainly, without an error."""

import codecs
import io
import os
import subprocess
import sys

import pytest

from flows import PATIENCE, RANDOM, environment
from fuzzing import ADVECTION
from refusals import status_of
from slipstream.engine import text as printable_text

# Every command in one process, which takes as long to start as all of them to run.
COMMANDS = """
import sys
from slipstream.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as end:
        print(line, "ended with", end.code)
"""
LATTICE = """
solver = "lattice"
title = "h\u00f6hle \u2713"
[image]
sample = "channel"
shape = [4, 8, 6]
axis = "x"
voxel_size = 2e-6
[time]
end = 20
[convergence]
interval = 10
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
"""
LINES = (
    "run flow.toml --out flow --set time.max_steps=2 --set run.device=cpu",
    "run pores.toml --out pores --set run.device=cpu --set output.pictures=false",
    "run missing-\u03c0.toml",
    "explain flow.toml",
    "explain --model mhd",
    "new case --solver advection",
    "info",
    "--help",
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({"PYTHONIOENCODING": "ascii"}, LINES),
        ({"PYTHONIOENCODING": "latin-1", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}, LINES[:1]),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, LINES[2:4]),
    ],
    ids=["ascii", "latin-1, in a terminal", "no locale"],
)
def test_every_command_writes_in_any_encoding(tmp_path, variables, lines):
    (tmp_path / "flow.toml").write_text(
        RANDOM.replace("points = 16", 'points = 8\nlength = "4 pi"')
    )
    (tmp_path / "pores.toml").write_text(LATTICE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *lines],
        cwd=tmp_path,
        env={**environment(), **variables},
        capture_output=True,
        timeout=PATIENCE,
    )
    said = (done.stdout + done.stderr).decode("latin-1")
    assert done.returncode == 0, said
    assert "Traceback" not in said
    assert "UnicodeEncodeError" not in said
    ends = [line.split(" ended with ")[1] for line in said.splitlines() if " ended with " in line]
    assert ends == ["2" if "missing" in line else "0" for line in lines], said


def test_letters_are_written_as_people_would():
    codecs.register_error("slipstream.plain", printable_text.plain)
    text = "2\u03c0 x 3 m\u00b2, 4 \u00b5s, \u22121, \u00fcber, \u6f22"
    written = text.encode("ascii", "slipstream.plain")
    assert written == b"2pi x 3 m^2, 4 us, -1, uber, ?"


def test_nobody_needs_to_read_the_output(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stream = io.TextIOWrapper(io.FileIO(writer, "wb"), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "__stdout__", stream)
    printable_text.allow_plain_output()
    for _ in range(3):
        print("\u03c0" * 10_000, flush=True)
    sys.stdout.close()


def fill_disk(monkeypatch):
    """Write standard output to a disk without room."""
    stream = io.TextIOWrapper(io.FileIO("/dev/full", "wb"), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "__stdout__", stream)


def test_a_full_disk_is_told_once_by_commands_that_only_print(monkeypatch, capfd):
    fill_disk(monkeypatch)
    for _ in range(2):
        assert status_of("cases") == 1
    said = "slipstream: error: standard output: No space left on device, so some of it is missing"
    assert capfd.readouterr().err.splitlines() == [said, said]


def test_a_run_whose_log_is_on_a_full_disk_reaches_its_end(monkeypatch, tmp_path, capfd):
    fill_disk(monkeypatch)
    (tmp_path / "case.toml").write_text(ADVECTION)
    out = tmp_path / "out"
    assert status_of("run", tmp_path / "case.toml", "--device", "cpu", "--out", out) == 0
    assert status_of("resume", out, "--set", "time.max_steps=5") == 0
    warning = "slipstream: warning: standard output: No space left on device, so some of it is"
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith(warning) and second == first
    assert [path.name for path in sorted(out.glob("checkpoints/*"))][-1] == "000000004.zarr"
    assert "at step 4, t = " in (out / "run.log").read_text()


def test_other_errors_of_the_output_are_raised(monkeypatch, tmp_path):
    (tmp_path / "read only").touch()
    stream = io.TextIOWrapper(io.FileIO(tmp_path / "read only", "rb"), encoding="ascii")
    file = printable_text._UnheardFile(stream.fileno(), "rb", closefd=False)
    with pytest.raises(OSError, match="not open for writing"):
        file.write(b"x")
