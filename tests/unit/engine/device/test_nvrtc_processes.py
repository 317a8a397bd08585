"""Programs compiled in parallel are equal to programs compiled by one process."""

import os
import signal
import time

import pytest

import nvrtc
from flows import PATIENCE, wait_until
from slipstream.engine import kernels
from slipstream.engine.device import nvrtc_processes
from slipstream.engine.device.nvrtc_compiler import compile_program
from slipstream.engine.device.nvrtc_processes import OPTIONS, SideCompiler
from slipstream.engine.errors import RunError

ALL = (*OPTIONS, "-arch=sm_90")
COPY = kernels.source("gather_scatter.hpp", {"REAL": "double"})
TEXTS = [f"{COPY}\n#define NUMBER {number}\n" for number in range(3)]
TINY = 'extern "C" __global__ void fill(int *a) { a[0] = 1; }'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """The processes that are started."""
    results = []
    begin = nvrtc_processes.subprocess.Popen

    def popen(*arguments, **options):
        results.append(begin(*arguments, **options))
        return results[-1]

    monkeypatch.setattr(nvrtc_processes.subprocess, "Popen", popen)
    return results


def binaries(texts, processes=2):
    compiler = SideCompiler(nvrtc.library(), "13", processes)
    return [binary.result(PATIENCE) for binary in [compiler.submit(text, ALL) for text in texts]]


@pytest.mark.slow
def test_processes_compile_what_one_would_and_end_when_idle(cache, started, monkeypatch):
    monkeypatch.setattr(nvrtc_processes, "_PATIENCE", 0.2)
    actual = binaries(TEXTS)
    assert 1 <= len(started) <= 2
    assert actual == [compile_program(nvrtc.library(), text, ALL) for text in TEXTS]
    for process in started:
        process.wait(PATIENCE)  # as there is no work
    count = len(started)
    assert binaries(TEXTS) == actual  # from the cache
    assert len(started) == count
    assert len(list(cache.glob("*.cubin"))) == len(TEXTS)
    assert not list(cache.glob("*.lock"))


def test_entries_of_the_cache_are_distrusted_once_changed(cache, started):
    (before,) = binaries([TINY])
    (path,) = cache.glob("*.cubin")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert binaries([TINY]) == [before]


def test_mistakes_are_told(cache, started):
    with pytest.raises(RunError, match="NVRTC failed: kernel.cu.*error"):
        binaries([TINY + "nonsense"])
    assert binaries([TINY])


def test_a_process_that_is_killed_loses_nothing(cache, started, monkeypatch):
    monkeypatch.setattr(nvrtc_processes, "_PATIENCE", 30.0)
    compiler = SideCompiler(nvrtc.library(), "13", 2)
    compiler.submit(TINY, ALL).result(PATIENCE)
    (process,) = started
    process.send_signal(signal.SIGINT)  # as a terminal does
    time.sleep(0.1)
    assert process.poll() is None
    process.kill()
    other = TINY.replace("1;", "2;")
    # The same thread or the other one has it: either way there is an answer.
    assert compiler.submit(other, ALL).result(PATIENCE)
    assert compiler.submit(TINY.replace("1;", "3;"), ALL).result(PATIENCE)


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(cache, tmp_path):
    import subprocess
    import sys

    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from slipstream.engine.device import nvrtc_processes
from slipstream.engine.device.nvrtc_processes import SideCompiler
begin = nvrtc_processes.subprocess.Popen
def popen(*arguments, **options):
    process = begin(*arguments, **options)
    print(process.pid, flush=True)
    return process
nvrtc_processes.subprocess.Popen = popen
compiler = SideCompiler({nvrtc.library()!r}, "13", 2)
compiler.submit({TINY!r}, {ALL!r}).result({PATIENCE})
compiler.submit({COPY!r}, {ALL!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.stderr
    numbers = [int(line) for line in done.stdout.split()]
    assert numbers
    for number in numbers:
        wait_until(
            lambda number=number: not os.path.exists(f"/proc/{number}"), f"the end of {number}"
        )
