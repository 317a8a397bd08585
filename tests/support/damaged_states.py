"""Damage to the files of a state, by accident or by hand, and how a restart reacts.

Started as a script it does all of it to a run of each family.
"""

import json
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

import lattice_flows
from slipstream.case import make_case, parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files import write_checkpoint
from slipstream.files.checkpoint import Manifest
from slipstream.runs import make_simulation

DAMAGES = {}


def damage(function):
    """Enter a function of a state and one of its chunks, both paths, under its name."""
    DAMAGES[function.__name__] = function
    return function


# -- by accident: bytes of a chunk, of a description, of the manifest ------------------------


def _truncated(content):
    return content[: len(content) // 2]


def _emptied(_):
    return b""


def _extended(content):
    return content + b"\0"


def _flipped_at(place):
    def flip(content):
        place_there = int(place * (len(content) - 1))
        one = bytes([content[place_there] ^ 1])
        return content[:place_there] + one + content[place_there + 1 :]

    return flip


def _zeroed(content):
    return bytes(len(content))


def _scrambled(content):
    return np.random.default_rng(1).bytes(len(content))


def _tail_lost(content):
    """Damage by a device that had not written the last block."""
    return content[: 3 * len(content) // 4] + bytes(len(content) - 3 * len(content) // 4)


_CHANGES = {
    "truncated": _truncated,
    "emptied": _emptied,
    "extended": _extended,
    "flipped_first": _flipped_at(0),
    "flipped_within": _flipped_at(0.6),
    "flipped_last": _flipped_at(1),
    "zeroed": _zeroed,
    "scrambled": _scrambled,
    "tail_lost": _tail_lost,
}
_FILES = {
    "chunk": lambda state, chunk: chunk,
    "description": lambda state, chunk: state / chunk.relative_to(state).parts[0] / "zarr.json",
    "group": lambda state, chunk: state / "zarr.json",
    "manifest": lambda state, chunk: state / "manifest.json",
}


def _enter_changes():
    for which, find in _FILES.items():
        for how, change in _CHANGES.items():
            # Every kind of change of the numbers, and of the manifest; a few of what zarr says.
            if which in ("chunk", "manifest") or how in ("truncated", "flipped_within"):

                def alter(state, chunk, find=find, change=change):
                    path = find(state, chunk)
                    path.write_bytes(change(path.read_bytes()))

                DAMAGES[f"{which}_{how}"] = alter


_enter_changes()


# -- other things than files -----------------------------------------------------------------


def _pipe(path, _):
    os.mkfifo(path)


def _link(path, content):
    target = next(one for one in path.parents if one.name == "checkpoints") / "elsewhere"
    target.write_bytes(content)
    path.symlink_to(target)


def _endless(path, _):
    path.symlink_to("/dev/zero")


def _dangling(path, _):
    path.symlink_to("nowhere")


def _socket(path, _):
    here = os.getcwd()
    os.chdir(path.parent)  # such names are short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def _folder(path, _):
    path.mkdir()


def _nothing(path, _):
    pass


def _device(path, _):
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero


_THINGS = {
    "fifo": _pipe,
    "link": _link,
    "endless": _endless,
    "dangling": _dangling,
    "socket": _socket,
    "folder": _folder,
    "missing": _nothing,
}
if os.geteuid() == 0:
    _THINGS["device"] = _device


def _enter_things():
    for which, find in _FILES.items():
        for what, make in _THINGS.items():
            if which in ("chunk", "manifest") or what in ("fifo", "missing"):

                def exchange(state, chunk, find=find, make=make):
                    path = find(state, chunk)
                    content = path.read_bytes()
                    path.unlink()
                    make(path, content)

                DAMAGES[f"{which}_{what}"] = exchange


_enter_things()


def _array_of(state, chunk):
    return state / chunk.relative_to(state).parts[0]


def _instead(make):
    """Return damage that puts something else where a state was."""

    def replace(state, chunk):
        shutil.rmtree(state)
        make(state)

    return replace


def _link_array(state, chunk):
    array = _array_of(state, chunk)
    array.rename(state.parent / "elsewhere")
    array.symlink_to(state.parent / "elsewhere")


DAMAGES |= {
    "state_is_empty": _instead(Path.mkdir),
    "state_is_a_file": _instead(lambda state: state.write_bytes(b"state")),
    "state_is_a_fifo": _instead(os.mkfifo),
    "state_is_a_link_to_nowhere": _instead(lambda state: state.symlink_to("nowhere")),
    "state_is_of_another_step": lambda state, _: state.rename(state.with_name("000000777.zarr")),
    "chunks_are_missing": lambda *paths: shutil.rmtree(_array_of(*paths) / "c"),
    "array_is_missing": lambda *paths: shutil.rmtree(_array_of(*paths)),
    "array_is_a_link": _link_array,
    "file_is_extra": lambda _, chunk: chunk.with_name("99").write_bytes(chunk.read_bytes()),
    # As a file system's repair may leave it: the content of one file under another's name.
    "file_is_in_two_places": lambda state, chunk: (state / "zarr.json").write_bytes(
        chunk.read_bytes()
    ),
}


# -- by hand: the manifest's checksum is right ------------------------------------------------


def change_manifest(state, change):
    """Change what the manifest says, and give it the checksum of that."""
    path = state / "manifest.json"
    said = json.loads(path.read_text())
    change(said)
    try:
        sealed = Manifest.model_validate_json(json.dumps(said)).sealed()
    except ValueError:  # the damage is not in its checksum
        path.write_text(json.dumps(said))
    else:
        path.write_text(sealed.model_dump_json())


def reseal(state, *names):
    """Make the manifest describe these files as they are."""

    def change(said):
        for name in names:
            content = (state / name).read_bytes()
            said["files"][name] = [len(content), zlib.crc32(content)]

    change_manifest(state, change)


def change_description(state, name, change):
    """Change what zarr says of an array, in both places, and what the manifest says of that."""
    for file, inside in ((f"{name}/zarr.json", False), ("zarr.json", True)):
        said = json.loads((state / file).read_text())
        change(said["consolidated_metadata"]["metadata"][name] if inside else said)
        (state / file).write_text(json.dumps(said))
    reseal(state, f"{name}/zarr.json", "zarr.json")


def _manifest_edits():
    def first(said):
        return said["arrays"][max(said["arrays"])]

    def other_type(said):
        return "float64" if first(said)["dtype"] == "int64" else "int64"

    def a_chunk(said):
        return min(name for name in said["files"] if "/c/" in name)

    yield "format", lambda said: said.update(format=2)
    yield "format_text", lambda said: said.update(format="1" * 10_000)
    yield "step", lambda said: said.update(step=said["step"] + 1)
    yield "step_negative", lambda said: said.update(step=-1)
    yield "step_huge", lambda said: said.update(step=10**4000)
    yield "step_fraction", lambda said: said.update(step=4.5)
    yield "time", lambda said: said.update(time=said["time"] + 1)
    yield "time_nan", lambda said: said.update(time=float("nan"))
    yield "case", lambda said: said.update(case="solver = 'spectral'")
    yield "extra_key", lambda said: said.update(run="me")
    yield "no_case", lambda said: said.pop("case")
    yield "no_arrays", lambda said: said.update(arrays={})
    yield "no_files", lambda said: said.update(files={})
    yield "fewer_files", lambda said: said["files"].pop(a_chunk(said))
    yield "fewer_arrays", lambda said: said["arrays"].pop(min(said["arrays"]))
    yield "outside", lambda said: said["files"].update({"../../case.toml": [1, 1]})
    yield "absolute", lambda said: said["files"].update({"/etc/passwd": [1, 1]})
    yield "nul", lambda said: said["files"].update({"a\0b": [1, 1]})
    yield "size", lambda said: said["files"].update({a_chunk(said): [1 << 40, 1]})
    yield "retyped", lambda said: first(said).update(dtype=other_type(said))
    yield "unknown_type", lambda said: first(said).update(dtype="object")
    yield "reshaped", lambda said: first(said).update(shape=[*first(said)["shape"], 1])
    yield "longer", lambda said: first(said)["shape"].__setitem__(0, 1 << 61)
    yield "no_chunks", lambda said: first(said)["chunks"].__setitem__(0, 0)
    yield "small_chunks", lambda said: first(said)["chunks"].__setitem__(0, 2)
    yield "wrong_kind", lambda said: said.update(files=[])


def _enter_edits():
    for name, edit in _manifest_edits():
        DAMAGES[f"manifest_says_{name}"] = lambda state, _, edit=edit: change_manifest(state, edit)


_enter_edits()


_MANIFESTS = {
    "manifest_is_deep": b"[" * 100_000,
    "manifest_is_a_list": b"[1]",
    "manifest_is_no_text": b'{"format": 1, "step": "\xff\xfe"}',
}
for _name, _content in _MANIFESTS.items():
    DAMAGES[_name] = lambda state, _, content=_content: (state / "manifest.json").write_bytes(
        content
    )


def _with_value(value):
    def put(state, chunk):
        name = str(chunk.relative_to(state))
        said = json.loads((state / "manifest.json").read_text())
        dtype = said["arrays"][name.split("/")[0]]["dtype"]
        values = np.frombuffer(chunk.read_bytes(), dtype).copy()
        values[0] = value
        chunk.write_bytes(values.tobytes())
        reseal(state, name)

    return put


DAMAGES["chunk_has_nan"] = _with_value(np.nan)
DAMAGES["chunk_has_infinity"] = _with_value(-np.inf)


def _description_edits():
    def compressed(said):
        said["codecs"].append({"name": "gzip", "configuration": {"level": 1}})

    yield "retyped", lambda said: said.update(data_type="int64")
    yield "reshaped", lambda said: said["shape"].append(1)
    yield "compressed", compressed
    yield "big_endian", lambda said: said["codecs"][0]["configuration"].update(endian="big")
    yield "older_format", lambda said: said.update(zarr_format=2)
    yield "other_chunks", lambda said: said["chunk_grid"].update(name="rectangular")
    yield "other_keys", lambda said: said["chunk_key_encoding"].update(name="v2")


def _enter_description_edits():
    for name, edit in _description_edits():

        def change(state, chunk, edit=edit):
            change_description(state, chunk.relative_to(state).parts[0], edit)

        DAMAGES[f"description_says_{name}"] = change


_enter_description_edits()


# -- runs whose states are damaged ------------------------------------------------------------

CASES = {
    "spectral": make_case(
        "spectral",
        grid={"points": 8},
        equation={"viscosity": 0.1},
        initial={"flow": "random", "seed": 1},
        time={"end": 1.0, "step": 0.05},
    ),
    "advection": make_case(
        "advection", grid={"points": [8, 7, 6]}, initial={"width": 0.2}, time={"end": 1.0}
    ),
    "lattice": parse_case(lattice_flows.CHANNEL),
}
STEPS = (2, 4)


def bits(simulation):
    return simulation.step, [
        (field.name, field.data.tobytes()) for field in simulation.checkpoint()
    ]


class Run:
    """A run of a family with two states, and a simulation that continues from it."""

    def __init__(self, family, folder):
        case, device = CASES[family], HostDevice(threads=1)
        self.family = family
        self.folder, self._written = folder / "run", folder / "written"
        simulation = make_simulation(case, None, device)
        simulation.prepare()
        self.states: dict = {}
        while simulation.step < STEPS[-1]:
            simulation.advance(simulation.step_size())
            if simulation.step in STEPS:
                self.states[simulation.step] = bits(simulation)
                write_checkpoint(
                    self._written,
                    simulation.checkpoint(),
                    step=simulation.step,
                    time=simulation.time,
                    case=case.to_toml(),
                )
        fields = [field for field in simulation.checkpoint() if field.data.dtype.kind in "fc"]
        # One whose last numbers are not 0, so that losing them is damage.
        self.array = next(field.name for field in fields if field.data.flat[-1])
        onward = parse_case(case.to_toml(), [f"initial.restart={self.folder}"])
        self.simulation = make_simulation(onward, None, device)

    def reset(self):
        """Restore the files as they were written."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._written, self.folder)

    def state(self, step):
        return self.folder / "checkpoints" / f"{step:09d}.zarr"

    def chunk(self, step):
        return min((self.state(step) / self.array / "c").rglob("0"), key=lambda p: -len(p.parts))

    def damage(self, name, step):
        DAMAGES[name](self.state(step), self.chunk(step))

    def go_on(self):
        """Return the state, and the warnings, of a simulation that continues from the files."""
        self.simulation.prepare()
        return bits(self.simulation), self.simulation.warnings()


def outcome(run, name):
    """Return the outcome of a restart from a damaged state, with an intact one before it."""
    run.reset()
    run.damage(name, STEPS[-1])
    try:
        state, warnings = run.go_on()
    except InputError as error:
        return "refused" if str(error).isprintable() else f"refused with {error!r}"
    except Exception as error:
        return f"defect: {error!r}"
    if state == run.states[STEPS[0]]:
        intact = f"; continuing from {run.state(STEPS[0]).name}"
        told = [one for one in warnings if "is damaged: " in one and one.endswith(intact)]
        return "the state before" if told and told[0].isprintable() else "unsaid"
    return "not noticed" if state == run.states[STEPS[-1]] else "other numbers"


def main():
    """Do all kinds of damage to all families; return 1 if anything but the state before results."""
    outcomes = Counter()
    for family in CASES:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(family, Path(folder))
            for name in DAMAGES:
                signal.alarm(400)  # ends anything that hangs
                result = outcome(run, name)
                signal.alarm(0)
                outcomes[result] += 1
                if result != "the state before":
                    print(f"{family}, {name}: {result}")
    print(f"{len(DAMAGES)} kinds of damage x {len(CASES)} families: {dict(outcomes)}")
    return int(set(outcomes) != {"the state before"})


if __name__ == "__main__":
    sys.exit(main())
