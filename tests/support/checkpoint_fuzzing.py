"""Damaged and forged states, through the command line's own entry.

A run that continues from a damaged folder ends with status 2 and one line, or has one of the states
that were written, not a third. One that continues from a forged folder, whose checksums are right,
may have any numbers, but ends as any run does. A few run with the tests; many of them with

    python tests/support/checkpoint_fuzzing.py --states 1000
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import fuzzing
from image_fuzzing import SAID, flipped, places_in, special
from slipstream.files.checkpoint import MANIFEST, Manifest

# Storage that is not tuned, so that sums have the same order in all runs.
STORAGE = """
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
"""
FAMILIES = {
    "spectral": (fuzzing.SPECTRAL, 0.01),
    "lattice": (fuzzing.LATTICE + STORAGE, 20),
    "advection": (fuzzing.ADVECTION, 0.01),
}
TEXTS = (b"", b"{}", b"[" * 9999, b"\x00" * 99, b"\xff\xfe", b'{"format": 1}', b'{"format": 2}')
WORDS = (
    'model = "evil.py:flow"',
    "points = 9",
    "[",
    "\x1b[2J",
    'solver = "lattice"',
    "",
    "9" * 5000,
)


def write_states(folder):
    """Run a case of each family, which writes two states into a folder of its name."""
    from slipstream import cli

    for family, (text, interval) in FAMILIES.items():
        case = Path(folder, f"{family}.toml")
        case.write_text(text)
        given = ["--set", f"output.checkpoint_interval={interval}", "--device", "cpu"]
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, contextlib.suppress(SystemExit):
            cli.main(["run", str(case), "--out", str(Path(folder, family)), *given])
        assert len(list(Path(folder, family, "checkpoints").iterdir())) == 2


def damage(draw, state):
    """Do something to the files of a state that nobody who forges it would do."""
    files = sorted(one for one in state.rglob("*") if one.is_file())
    file, kind = draw.choice(files), draw.random()
    if kind < 0.2:
        os.truncate(file, draw.randrange(max(1, file.stat().st_size)))
    elif kind < 0.45:
        flipped(file, draw, draw.choice((1, 3, 20)))
    elif kind < 0.55:
        file.write_bytes(draw.choice(TEXTS))
    elif kind < 0.65:
        special(file, draw)
    elif kind < 0.75:
        file.unlink()
    elif kind < 0.8:
        shutil.rmtree(file.parent)
    elif kind < 0.85:
        shutil.copy(
            draw.choice(files), draw.choice(files).with_name(draw.choice(("new", "0", "c")))
        )
    elif kind < 0.9:
        file.rename(file.with_name("renamed"))
    else:
        draw.choice(files).write_bytes(draw.choice(files).read_bytes())


def forge(draw, state):
    """Change what a state says, and make its checksums those of what it says now."""
    names = [str(one.relative_to(state)) for one in sorted(state.rglob("*")) if one.is_file()]
    manifest = json.loads((state / MANIFEST).read_text())
    kind = draw.random()
    if kind < 0.3:  # in the manifest alone, or in both
        holder, key = draw.choice(list(places_in({k: manifest[k] for k in ("arrays",)})))
        holder[key] = draw.choice(SAID)
    elif kind < 0.5:
        change = {
            "step": draw.choice((0, 1, 2**40, 2**62 - 1)),
            "time": draw.choice((0.0, -1.0, 1e300, 0.01)),
            "case": changed_case(draw, manifest["case"]),
        }
        key = draw.choice(sorted(change))
        said = json.loads((state / "zarr.json").read_text())
        manifest[key] = said["attributes"][key] = change[key]
        (state / "zarr.json").write_text(json.dumps(said))
    else:
        file = state / draw.choice([name for name in names if name != MANIFEST])
        if file.name == "zarr.json":
            said = json.loads(file.read_text())
            holder, key = draw.choice(list(places_in(said)))
            holder[key] = draw.choice(SAID)
            with contextlib.suppress(ValueError):
                file.write_text(json.dumps(said))
        else:
            flipped(file, draw, draw.choice((1, 3, 20, 500)))
    contents = {name: (state / name).read_bytes() for name in names if name != MANIFEST}
    manifest["files"] = {name: (len(one), zlib.crc32(one)) for name, one in contents.items()}
    with contextlib.suppress(Exception):  # of what no manifest can say
        text = Manifest.model_validate_json(json.dumps(manifest)).sealed().model_dump_json()
        (state / MANIFEST).write_text(text)


def changed_case(draw, text):
    """Return the text of a case with a line, or a few letters, changed."""
    lines = text.splitlines()
    lines[draw.randrange(len(lines))] = draw.choice(WORDS)
    return "\n".join(lines)


def go_on(worker, folder, family, states):
    """Run a step from the states in a folder; return the outcome."""
    text, _ = FAMILIES[family]
    (folder / "case.toml").write_text(text)
    settings = [f"initial.restart={states}", "time.end=4000", "time.max_steps=2"]
    given = [word for one in settings for word in ("--set", one)]
    return worker.run(["run", "case.toml", "--device", "cpu", "--out", "out", *given], folder)


def check(number, prototypes, expected, worker):
    """Damage or forge states; return the damage, the outcome, and its faults."""
    draw = random.Random(f"states-{number}")
    family = draw.choice(sorted(FAMILIES))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(Path(prototypes, family), folder / "states", symlinks=True)
        states = sorted((folder / "states" / "checkpoints").iterdir())
        is_forged = draw.random() < 0.4
        for state in states if draw.random() < 0.5 else states[1:]:
            for _ in range(draw.choice((1, 1, 2))):
                with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
                    (forge if is_forged else damage)(draw, state)
        outcome = go_on(worker, folder, family, folder / "states")
    defect = outcome.defect
    if not defect and outcome.status == 0 and not is_forged:
        numbers = outcome.output.splitlines()[-1]
        if numbers not in expected[family]:
            defect = f"numbers of no state that was written: {numbers}"
    return ("forged" if is_forged else "damaged", family), outcome, defect


def results_of(prototypes, worker):
    """Return by family what a run that continues from each of its states has."""
    defects = {}
    for family in FAMILIES:
        defects[family] = []
        for state in sorted(Path(prototypes, family, "checkpoints").iterdir()):
            with tempfile.TemporaryDirectory() as place:
                outcome = go_on(worker, Path(place), family, state)
            assert outcome.status == 0, outcome.output
            defects[family].append(outcome.output.splitlines()[-1])
        assert len(set(defects[family])) == 2, defects
    return defects


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    wanted = parser.parse_args()
    fuzzing.use_one_thread()
    counts, slowest, defects = Counter(), 0.0, 0
    with tempfile.TemporaryDirectory() as prototypes:
        write_states(prototypes)
        worker = fuzzing.Worker(whole_every=0)
        expected = results_of(prototypes, worker)
        for number in range(wanted.start, wanted.start + wanted.states):
            kind, outcome, defect = check(number, prototypes, expected, worker)
            counts[(*kind, outcome.status)] += 1
            if outcome.status == 2:
                slowest = max(slowest, outcome.processor)
            if defect:
                defects += 1
                print(f"--- state {number} {kind}: {defect}\n{outcome.output[-1500:]}")
        worker.close()
    print(f"states: {wanted.states}, {dict(counts)}, slowest refusal {slowest:.2f} s")
    print(f"{defects} defects")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
