"""Damage to any file of a run's folder, and how the commands that use the folder react.

    python tests/support/damaged_folders.py --families spectral --commands resume --kinds 50

Each kind of damage is done to a copy of a run that was stopped half way. A command then has to
refuse it in one line, to say what it leaves out, or to do what it does without the damage. Nothing
outside the folder may change, nothing may hang, and there is no traceback.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import xarray
from rich.console import Console

import damaged_states
import moments
from slipstream import cli
from slipstream.api.opened_run import open_run
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.files import open_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case

PLANE = 'plane = { axis = "z", position = 0 }'
OUTPUT = {
    "spectral": f"""pdf_interval = 0.2
fields = [
  {{ of = "velocity_x", {PLANE}, interval = 0.1 }},
  {{ of = "velocity_y", {PLANE}, interval = 0.1, file = "each.h5" }},
  {{ of = "velocity_z", {PLANE}, interval = 0.1, file = "some.vtk" }},
]
scalars = [{{ of = "velocity_x", reduce = "rms", interval = 0.1 }}]
""",
    "advection": f'fields = [{{ of = "tracer", {PLANE}, interval = 0.1 }}]\n',
    "lattice": 'fields = [{ of = "velocity", interval = 4, stride = 2 }]\n',
}
HALF_WAY = {"spectral": 7, "advection": 7, "lattice": 14}
COMMANDS = ("resume", "report", "plot", "watch", "open")
# Of a machine that does much else.
_SECONDS, _MOST_MEMORY = 400, 6 << 30


# -- damage -----------------------------------------------------------------------------------


def targets(base):
    """Return paths of files, by which each kind of them is met at least once."""
    kinds_of_files = {}
    for path in sorted(one for one in base.rglob("*") if one.is_file()):
        name = path.relative_to(base)
        parts = list(name.parts)
        if parts[0] == "checkpoints" and parts[1] != max(os.listdir(base / "checkpoints")):
            continue
        # One array of each store, with its first and its last chunk.
        kind = re.sub(r"velocity_[yz]|density|energy_\w+", "", "/".join(parts))
        kind = re.sub(r"(c[/.])\d+.*", r"\1", kind)
        kinds_of_files.setdefault(kind, []).append(str(name))
    for names in kinds_of_files.values():
        yield names[0]
        if len(names) > 1:
            yield names[-1]


def change(alter):
    def damage(run, name, _):
        path = run / name
        path.write_bytes(alter(path.read_bytes()))

    return damage


def exchange(make):
    def damage(run, name, outside):
        path = run / name
        content = path.read_bytes()
        path.unlink()
        make(path, content, outside)

    return damage


def _link(path, content, outside):
    path.symlink_to(outside / "file")


def _link_to_folder(path, content, outside):
    path.symlink_to(outside)


def _huge(path, content, outside):
    path.write_bytes(content)
    os.truncate(path, 1 << 40)


def _of(thing):
    return lambda path, content, outside: thing(path, content)


CHANGES = {
    **{name: change(alter) for name, alter in damaged_states._CHANGES.items()},
    "braces": change(lambda _: b"{}"),
    "null": change(lambda _: b"null"),
    "deep": change(lambda _: b"[" * 100_000),
    **{
        name: exchange(_of(thing))
        for name, thing in damaged_states._THINGS.items()
        if name != "link"
    },
    "linked": exchange(_link),
    "linked_to_folder": exchange(_link_to_folder),
    "huge": exchange(_huge),
}


def _partial_links(name):
    def place(run):
        # Not every family has all stores.
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        return run / f"{name}.partial"

    def link(run, outside):
        place(run).symlink_to(outside / "file")

    def fifo(run, outside):
        os.mkfifo(place(run))

    return {f"partial_link {name}": link, f"partial_fifo {name}": fifo}


def _folder_links(name):
    def link(run, outside):
        if (run / name).exists():
            shutil.rmtree(run / name)
        (run / name).symlink_to(outside)

    def link_to_copy(run, outside):
        if (run / name).exists():
            shutil.copytree(run / name, outside / "copy")
            shutil.rmtree(run / name)
        (run / name).symlink_to(outside / "copy")

    return {f"folder_link {name}": link, f"folder_link_to_copy {name}": link_to_copy}


def _record(key, value):
    def damage(run, outside):
        path = run / "run.json"
        said = json.loads(path.read_text())
        said.pop("checksum", None)  # as an earlier version wrote it
        said["segments"][0][key] = value
        path.write_text(json.dumps(said))

    return damage


def _stray_store(run, outside):
    shutil.copytree(run / "fields.zarr", run / "fields~2.zarr")


def _pickles(run, outside):
    path = next((run / "fields.zarr").glob("*/zarr.json"))
    said = json.loads(path.read_text())
    said["codecs"] = [{"name": "numcodecs.pickle", "configuration": {"protocol": 4}}]
    path.write_text(json.dumps(said))


def _rows_lost(run, outside):
    path = run / "diagnostics.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-4] + lines[-2:]))


def _deep_folders(run, outside):
    place = run / "deep"
    for _ in range(100):
        place = place / "d"
    place.mkdir(parents=True)


def _left_partial_state(run, outside):
    (run / "checkpoints" / "000000099.partial").mkdir()
    (run / "checkpoints" / "000000099.partial" / "x").write_text("x")


SPECIAL = {
    **_partial_links("case.toml"),
    **_partial_links("run.json"),
    **_partial_links(".slipstream.json"),
    **_partial_links("report.html"),
    **_partial_links("fields.zarr/zarr.json"),
    **_partial_links("fields.zarr/time/c/0"),
    **_partial_links("spectra.zarr/zarr.json"),
    **_partial_links("diagnostics.csv"),
    **_folder_links("checkpoints"),
    **_folder_links("fields.zarr"),
    **_folder_links("outputs"),
    **_folder_links(".replaced"),
    **_folder_links(".discarded"),
    **_folder_links("failed"),
    **_folder_links("fields~2.zarr"),
    **_folder_links("checkpoints/000000099.partial"),
    **_folder_links("checkpoints/000000099.damaged"),
    "fifo run.lock": lambda run, outside: os.mkfifo(run / "run.lock"),
    "link run.lock": lambda run, outside: (run / "run.lock").symlink_to(outside / "file"),
    "link any": lambda run, outside: (run / "any").symlink_to(outside / "file"),
    "from_step -7": _record("from_step", -7),
    "from_step huge": _record("from_step", 10**400),
    "from_time nan": _record("from_time", float("nan")),
    "from_time inf": _record("from_time", float("inf")),
    "stray store": _stray_store,
    "pickles": _pickles,
    "rows lost": _rows_lost,
    "deep folders": _deep_folders,
    "partial state": _left_partial_state,
}


def kinds_for(base):
    """Return all kinds of damage to a run, by name."""
    damages = dict(SPECIAL)
    for name in targets(base):
        for how, damage in CHANGES.items():
            damages[f"{how} {name}"] = lambda run, outside, name=name, damage=damage: damage(
                run, name, outside
            )
    return damages


# -- commands --------------------------------------------------------------------------------


def prepare(family, scratch):
    """Make a run that was stopped half way, and one that continued from there."""
    head, output = moments.CASES[family].split("[output]")
    text = f"{head}[output]{output.rstrip()}\n{OUTPUT[family]}"
    case = parse_case(text, [f"time.max_steps={HALF_WAY[family]}"])
    run_case(
        make_simulation(case, None, HostDevice(threads=1)), scratch / "base", Console(quiet=True)
    )
    shutil.copytree(scratch / "base", scratch / "whole")
    cwd = os.getcwd()
    os.chdir(scratch)
    try:
        status, said = command("resume", Path("whole"), scratch)
        assert status == 0, said
    finally:
        os.chdir(cwd)


def command(name, run, scratch):
    """Run a command in a separate process; return its status and output."""
    arguments = {
        "resume": ["resume", str(run), "--device", "cpu", "--set", "time.max_steps=1000"],
        "report": ["report", str(run), "--out", "page.html"],
        "plot": ["plot", str(run), "--out", "pictures", "--format", "svg"],
        "watch": ["watch", str(run), "--once"],
        "open": [],
    }[name]

    def act():
        for number, file in ((1, "out"), (2, "err")):
            os.dup2(os.open(scratch / file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        signal.alarm(_SECONDS)
        os.chdir(scratch)
        os.environ["COLUMNS"] = "1000"
        try:
            if name == "open":
                look(run)
            else:
                cli.main(arguments)
        except SystemExit as exit_:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(exit_.code or 0))
        sys.stdout.flush()
        sys.stderr.flush()

    status = moments.forked(act)
    out, err = ((scratch / file).read_text(errors="replace") for file in ("out", "err"))
    return status, (out, err)


def look(run):
    """Use all that an opened run has."""
    from slipstream.engine.errors import SlipstreamError

    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    try:
        opened = open_run(run)
        print(opened.settings, [*opened.series.items()], opened.times, repr(opened))
        print(opened._repr_html_()[:100], opened.states, sorted(opened.pictures))
        for name in opened.stores:
            if name != "diagnostics":
                data = opened.stores[name].load()
                print(name, data, {k: v.values.tobytes().hex() for k, v in data.items()})
    except SlipstreamError as error:
        print(f"slipstream: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def result_of(name, run, scratch, said):
    """Return the output of a reading command, without the parts that always differ."""
    if name == "report":
        return re.sub(r"reports?/\S+", "", (scratch / "page.html").read_text())
    if name == "plot":
        files = sorted((scratch / "pictures").glob("*.svg"))
        changing = r"<dc:date>.*?</dc:date>|id=\"[^\"]*\"|#\w+"
        return [(one.name, re.sub(changing, "", one.read_text())) for one in files]
    return re.sub(r"[\d.]+ ?(s|min|h|d|ms)\b.*", "", said[0]) if name == "watch" else said[0]


def tree(folder):
    """Return all that is in a folder, and when it was changed."""
    results = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        results[str(path.relative_to(folder))] = content, status.st_mtime_ns, status.st_mode
    return results


def numbers(path):
    """Return the contents of an HDF5 file, without the dates that the library adds."""
    with h5py.File(path) as file:
        arrays = {name: values[...].tobytes() for name, values in file.items()}
        return arrays, {name: str(value) for name, value in file.attrs.items()}


def differing(run, whole):
    """Return the names of output that differs from the output of the undamaged run."""
    found = []
    for path in sorted(whole.rglob("*")):
        name = str(path.relative_to(whole))
        inside = any(part.endswith(".zarr") or part == "checkpoints" for part in path.parts[:-1])
        if inside and path.parent != whole and ".zarr" in str(path.parent.relative_to(whole)):
            continue
        if name.startswith("checkpoints") or not (run / name).exists():
            if not name.startswith("checkpoints"):
                found.append(name)
            continue
        with contextlib.suppress(IsADirectoryError):
            if path.suffix == ".zarr":
                pair = [xarray.open_zarr(one / name).load() for one in (run, whole)]
                is_same = pair[0].equals(pair[1])
            elif path.suffix == ".h5":
                is_same = numbers(run / name) == numbers(path)
            elif path.suffix in (".csv", ".vti", ".pvd"):
                is_same = (run / name).read_bytes() == path.read_bytes()
            elif name == "case.toml":
                is_same = (run / name).read_text() == path.read_text()
            elif name == "run.json":
                counts = [
                    len(json.loads((one / name).read_text())["segments"]) for one in (run, whole)
                ]
                is_same = counts[0] == counts[1]
            else:
                continue
            if not is_same:
                found.append(name)
    states = [open_checkpoint(one) for one in (run, whole)]
    if states[0].step != states[1].step or not all(
        np.array_equal(states[0].read(one), states[1].read(one)) for one in states[1].arrays
    ):
        found.append("checkpoints")
    return found


def outcome(name, kind, damage, scratch, expected):
    """Return the outcome of a command on a damaged run: a word, and its faults."""
    run, outside = scratch / "run", scratch / "outside"
    for one in (run, outside, scratch / "pictures"):
        shutil.rmtree(one, ignore_errors=True)
    (scratch / "page.html").unlink(missing_ok=True)
    shutil.copytree(scratch / "base", run)
    outside.mkdir()
    (outside / "file").write_text("of somebody else")
    (outside / "000000004.partial").mkdir()
    (outside / "000000004.zarr").mkdir()
    damage(run, outside)
    before = tree(outside)
    status, (out, err) = command(name, run, scratch)
    if tree(outside) != before:
        return "outside", "something outside was changed"
    if status == -signal.SIGALRM:
        return "hang", "it hangs"
    if status < 0 or "Traceback" in err + out:
        return "traceback", (err or out).strip()[-300:] or f"status {status}"
    if status:
        lines = [one for one in err.splitlines() if "warning:" not in one]
        if len(lines) != 1 or not lines[0].startswith("slipstream: "):
            return "defect", f"status {status}: {err[-300:]}"
        return "refused", ""
    if name != "resume":
        if result_of(name, run, scratch, (out, err)) == expected:
            return "harmless", ""
        words = (
            "is damaged: ",
            "not as it was",
            "cannot be read: ",
            "not the record",
            "it is missing",
            "it has no segments",
            "snapshots, not",
            "not a regular file",
        )
        is_said = "warning" in err or any(one in out for one in words)
        return ("said", "") if is_said else ("silent", "another result without a word")
    text = " ".join(out.split())
    try:
        found = differing(run, scratch / "whole")
    except Exception as error:  # of zarr
        return "silent", f"its output cannot be read: {error}"
    for one in found:
        # What is set aside, and named, is a folder of snapshots as a whole.
        stem = "/".join(one.removesuffix(".pvd").split("/")[:2])
        stem = stem.replace(".zarr", "").replace(".csv", "")
        if not re.search(rf"{re.escape(stem)}[^ ]*(:| is missing)", text):
            return "silent", f"{one} differs without a word"
    if " is damaged: " in text:
        return "older state", ""
    is_said = "it is kept as" in text or "is missing; it begins again" in text
    return ("said", "") if is_said else ("harmless", "")


GOOD = ("refused", "said", "older state", "harmless")


def main(arguments=None):
    """Do kinds of damage to runs, and print the wrong outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(moments.CASES))
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS))
    parser.add_argument("--kinds", type=int, help="so many, drawn from the seed (default: all)")
    parser.add_argument("--only", default="", help="kinds with this in their name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tell", action="store_true")
    options = parser.parse_args(arguments)
    moments.warm_up()
    import matplotlib.pyplot as _  # noqa: F401

    found, wrong = Counter(), 0
    for family in options.families:
        with tempfile.TemporaryDirectory(dir=moments.QUICK) as folder:
            scratch = Path(folder).resolve()
            if moments.forked(prepare, family, scratch):
                raise SystemExit(f"{family} does not run")
            kinds = kinds_for(scratch / "base")
            names = [one for one in kinds if options.only in one]
            if options.kinds is not None:
                names = random.Random(options.seed).sample(names, min(options.kinds, len(names)))
            for name in options.commands:
                expected = None
                if name != "resume":
                    shutil.rmtree(scratch / "run", ignore_errors=True)
                    shutil.copytree(scratch / "base", scratch / "run")
                    shutil.rmtree(scratch / "pictures", ignore_errors=True)
                    status, said = command(name, scratch / "run", scratch)
                    assert status == 0, said
                    expected = result_of(name, scratch / "run", scratch, said)
                for kind in names:
                    result, fault = outcome(name, kind, kinds[kind], scratch, expected)
                    found[name, result] += 1
                    wrong += result not in GOOD
                    if options.tell or result not in GOOD:
                        print(f"{family}, {name}, {kind}: {result}: {fault}", flush=True)
        print(f"{family}: {len(names)} of {len(kinds)} kinds", flush=True)
    for name in options.commands:
        print(name, {result: n for (one, result), n in sorted(found.items()) if one == name})
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
