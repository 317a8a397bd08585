"""Blocks of the documentation's pages, executed as readers would type them.

Every block has a language: python, bash, toml, or text for output and drawings. A line
``<!-- not run: reason -->`` before a block excludes it from execution; its syntax is
checked all the same.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import cache

from flows import PATIENCE, environment

OUTPUT = "output.txt"
LANGUAGES = ("python", "bash", "toml", "text")
# Programs that blocks call, which note their arguments; launchers run the rest of their line.
NOTED = ("slipstream", "pip", "make", "git", "python", "python3", "sbatch", "qsub")
LAUNCHERS = ("mpiexec", "srun")
STUB = r"""#!/bin/bash
name=${0##*/}
case $name in
mpiexec | srun)
    while [[ $1 == -* ]]; do [[ $1 == -n ]] && shift; shift; done
    exec "$@" ;;
git) mkdir -p "${@: -1}" ;;
python3) mkdir -p .venv/bin && touch .venv/bin/activate ;;
esac
printf '%q ' "$name" "$@" | sed 's/$/\n/' >> "$NOTED_IN"
"""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and why it is not run, if it is not."""

    language: str
    text: str
    not_run: str


@cache
def all_blocks(document):
    """Return the fenced blocks of a page; those of directives, such as ``{toctree}``, are none."""
    pattern = r"^(?:<!-- not run: (.+) -->\n)?```([\w{}-]*)\n(.*?)^```$"
    found = re.findall(pattern, document.read_text(), re.M | re.S)
    return [Block(name, text, why) for why, name, text in found if not name.startswith("{")]


def blocks(document, language):
    """Return the texts of the blocks of a language that are run."""
    return [b.text for b in all_blocks(document) if b.language == language and not b.not_run]


def noted_commands(document, folder):
    """Return the commands of a page's blocks, as the shell has them, each with its arguments.

    Bash runs the blocks, with loops, variables and conditions; the programs only note their names.
    """
    programs = folder / "programs"
    programs.mkdir()
    stub = programs / NOTED[0]
    stub.write_text(STUB)
    stub.chmod(0o755)
    for name in (*NOTED[1:], *LAUNCHERS):
        (programs / name).symlink_to(stub)
    activate = folder / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    noted = folder / "noted"
    noted.touch()
    script = "".join(f"(\n{text}) < /dev/null || exit\n" for text in blocks(document, "bash"))
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "NOTED_IN": str(noted),
            "SCRATCH": "scratch",
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0 and not result.stderr, result.stderr
    return [shlex.split(line) for line in noted.read_text().splitlines()]


def commands_not_run(document):
    """Return the program and arguments of commands in blocks of Bash that are not run."""
    text = "".join(b.text for b in all_blocks(document) if b.language == "bash" and b.not_run)
    lines = re.findall(r"\b(?:python -m )?((?:slipstream|bench) \w+ .*)", text.replace("\\\n", " "))
    # What follows a command on its line is not its own.
    return [shlex.split(line.rstrip("&| "), comments=True) for line in lines]


@cache
def _server():
    """Start a process that has loaded Slipstream; it ends with this one, whose pipe it reads."""
    command = [sys.executable, "-u", __file__]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment(), text=True)


def execute_forked(script, folder, variables):
    """Run a program in a fork of a process that has loaded Slipstream; return status and output."""
    server = _server()
    print(json.dumps([str(script), str(folder), variables]), file=server.stdin, flush=True)
    return int(server.stdout.readline()), (folder / OUTPUT).read_text()


def _serve():
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _execute(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _execute(script, folder, variables):
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    descriptor = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    warnings.simplefilter("error", SyntaxWarning)
    sys.path.insert(0, folder)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    import loaded_for_pages  # noqa: F401

    _serve()
