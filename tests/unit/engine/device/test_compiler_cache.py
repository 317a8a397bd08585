"""The conditions for finding a compiled kernel again.

The compiler is a script named by CXX, which logs its arguments and hands them to g++.
"""

import ctypes
import multiprocessing
import os
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from flows import PATIENCE
from slipstream.engine import private_cache
from slipstream.engine.device import host_compiler
from slipstream.engine.device.host_compiler import HostCompilations
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.private_cache import KEPT_NAMES, cache_folder, distrusted

TEXT = 'extern "C" int answer() { return ANSWER; }\n'
FORTY_TWO = "#define ANSWER 42\n" + TEXT


class LoggingCompiler:
    """A compiler that counts how often it compiles."""

    def __init__(self, folder, name="cxx", prelude=""):
        self.path, self.log = folder / name, folder / f"{name}.log"
        self.path.write_text(f'#!/bin/sh\necho "$*" >> "{self.log}"\n{prelude}\nexec g++ "$@"\n')
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def compilations(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(" -o " in line for line in lines)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(folder))
    return folder


@pytest.fixture
def cxx(tmp_path, monkeypatch):
    logging = LoggingCompiler(tmp_path)
    monkeypatch.setenv("CXX", str(logging.path))
    return logging


def answer(library):
    return ctypes.CDLL(str(library)).answer()


def libraries(folder):
    """Return all files but those of the folder itself."""
    return sorted(path.name for path in folder.iterdir() if path.name not in KEPT_NAMES)


def test_second_call_does_not_compile(cache, cxx):
    library = host_compiler.compile_library(FORTY_TWO)
    assert cxx.compilations() == 1
    assert answer(library) == 42
    before = library.stat()
    assert host_compiler.compile_library(FORTY_TWO) == library
    assert cxx.compilations() == 1
    assert library.stat().st_mtime_ns == before.st_mtime_ns
    assert libraries(cache) == [library.name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole[:-48],  # a good library without the digest
        lambda whole: b"",
        lambda whole: b"not ours" * 1000,
        lambda whole: whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
        lambda whole: whole + b"\0",
    ],
    ids=["half", "short by one", "no digest", "empty", "foreign", "one bit", "longer"],
)
def test_damaged_file_is_a_miss(cache, cxx, damage):
    library = host_compiler.compile_library(FORTY_TWO)
    # A loaded library must not be written to, so the damaged one is another file.
    damaged = damage(library.read_bytes())
    library.unlink()
    library.write_bytes(damaged)
    assert host_compiler.compile_library(FORTY_TWO) == library
    assert cxx.compilations() == 2
    assert answer(library) == 42


OTHER_COMPILERS = {
    "version": '[ "$1" = --version ] && echo "g++ 99.0" && exit 0',
    # A home shared by two machines: the same compiler means another one by -march=native.
    "native target": 'case "$*" in *" -E "*) set -- "$@" -mno-avx2 -mno-sse4.2 ;; esac',
}


@pytest.mark.parametrize("prelude", OTHER_COMPILERS.values(), ids=OTHER_COMPILERS)
def test_another_compiler_is_a_miss(cache, cxx, tmp_path, monkeypatch, prelude):
    library = host_compiler.compile_library(FORTY_TWO)
    same = LoggingCompiler(tmp_path, "same")
    monkeypatch.setenv("CXX", str(same.path))
    assert host_compiler.compile_library(FORTY_TWO) == library
    assert same.compilations() == 0  # the name of the compiler does not matter
    other = LoggingCompiler(tmp_path, "other", prelude)
    monkeypatch.setenv("CXX", str(other.path))
    assert host_compiler.compile_library(FORTY_TWO) != library
    assert other.compilations() == 1


def test_chosen_target_is_independent_of_the_native_one(cache, cxx, tmp_path, monkeypatch):
    """Machines with different processors that name one target find each other's kernels."""
    monkeypatch.setenv(host_compiler.MARCH, "x86-64-v2")
    library = host_compiler.compile_library(FORTY_TWO)
    assert "-march=x86-64-v2" in cxx.log.read_text()
    prelude = 'case "$*" in *-march=native*" -E "*) set -- "$@" -mno-avx2 -mno-sse4.2 ;; esac'
    other = LoggingCompiler(tmp_path, "other", prelude)
    monkeypatch.setenv("CXX", str(other.path))
    assert host_compiler.compile_library(FORTY_TWO) == library
    assert other.compilations() == 0
    monkeypatch.setenv(host_compiler.MARCH, "native")
    assert host_compiler.compile_library(FORTY_TWO) != library


def test_unknown_target_is_refused_in_one_line(cache, monkeypatch):
    monkeypatch.setenv(host_compiler.MARCH, "no-such-processor")
    with pytest.raises(InputError, match="^SLIPSTREAM_MARCH: .* know 'no-such-processor'; use "):
        host_compiler.compile_library(FORTY_TWO)


def test_levels_of_optimisation_are_kept_apart(cache, cxx, monkeypatch):
    monkeypatch.setenv(host_compiler.OPTIMISATION, "1")
    low = host_compiler.compile_library(FORTY_TWO)
    monkeypatch.delenv(host_compiler.OPTIMISATION)
    high = host_compiler.compile_library(FORTY_TWO)
    assert low != high
    assert "-O1 -march" in cxx.log.read_text()
    assert "-O3 -march" in cxx.log.read_text()
    monkeypatch.setenv(host_compiler.OPTIMISATION, "fast")
    with pytest.raises(InputError, match="^SLIPSTREAM_OPTIMISATION: 'fast' .*; use 0, 1, 2, 3$"):
        host_compiler.compile_library(FORTY_TWO)


def test_other_constants_and_other_flags_are_misses(cache, cxx, monkeypatch):
    first = host_compiler.compile_library(FORTY_TWO)
    second = host_compiler.compile_library("#define ANSWER 43\n" + TEXT)
    monkeypatch.setattr(host_compiler, "FLAGS", (*host_compiler.FLAGS, "-DNDEBUG"))
    third = host_compiler.compile_library(FORTY_TWO)
    assert cxx.compilations() == 3
    assert [answer(library) for library in (first, second, third)] == [42, 43, 42]
    assert len({first, second, third}) == 3


def test_chosen_folder_is_respected(cache, cxx, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == cache
    assert host_compiler.compile_library(FORTY_TWO).parent == cache
    assert not (tmp_path / "xdg").exists()


def test_without_a_choice_the_user_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("SLIPSTREAM_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "slipstream"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "slipstream"


@pytest.fixture
def unwritable_home(tmp_path, monkeypatch):
    """A home below a regular file, where not even root can make a folder."""
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("SLIPSTREAM_CACHE", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file" / "home"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_home_that_cannot_be_written_works(unwritable_home, cxx):
    library = host_compiler.compile_library(FORTY_TWO)
    assert answer(library) == 42
    assert library.parent.parent == unwritable_home
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700  # nobody else puts code there
    host_compiler.compile_library(FORTY_TWO)
    assert cxx.compilations() == 1


def test_chosen_folder_that_cannot_be_written_is_passed_over(unwritable_home, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_CACHE", os.path.join(os.environ["HOME"], "cache"))
    assert cache_folder().parent == unwritable_home


def test_folders_of_somebody_else_are_not_trusted(unwritable_home, monkeypatch):
    uid = os.getuid() + 1
    (unwritable_home / f"slipstream-{uid}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: uid)
    with pytest.raises(RunError, match="set SLIPSTREAM_CACHE"):
        cache_folder()


def test_no_compiler_is_an_error_that_names_what_to_install(cache, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RunError, match="no C\\+\\+ compiler found.*apt install g\\+\\+.*CXX"):
        host_compiler.compile_library(FORTY_TWO)
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(RunError, match="CXX, 'no-such-compiler', is not on the path"):
        host_compiler.compile_library(FORTY_TWO)


def test_text_that_does_not_compile_shows_the_compilers_words(cache, cxx):
    with pytest.raises(RunError, match="(?s)the C\\+\\+ compiler failed.*nonsense"):
        host_compiler.compile_library("nonsense;")
    assert libraries(cache) == []


@pytest.mark.slow
def test_several_processes_started_at_once_compile_once(cache, tmp_path, monkeypatch):
    # A compilation of two seconds lets all processes meet in it, however they are scheduled.
    slow = LoggingCompiler(tmp_path, "slow", 'case "$*" in *" -o "*) sleep 2 ;; esac')
    monkeypatch.setenv("CXX", str(slow.path))
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=host_compiler.compile_library, args=(FORTY_TWO,)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert slow.compilations() == 1
    (name,) = libraries(cache)
    assert answer(cache / name) == 42


def test_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "entry"
    private_cache.write_atomically(path, b"old")

    def interrupted(handle):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(OSError, match="disk full"):
        private_cache.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [Path(entry).name for entry in os.listdir(tmp_path)] == ["entry"]


def test_library_is_not_taken_for_another(cache, cxx):
    first = host_compiler.compile_library(FORTY_TWO)
    second = host_compiler.compile_library("#define ANSWER 43\n" + TEXT)
    second.unlink()
    second.write_bytes(first.read_bytes())
    assert host_compiler.compile_library("#define ANSWER 43\n" + TEXT) == second
    assert answer(second) == 43


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The place of the cache if the chosen folder is not used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "slipstream"


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750])
def test_folder_that_is_not_private_is_not_used(cache, elsewhere, mode):
    cache.mkdir()
    cache.chmod(mode)
    assert f"its mode is {mode:04o}; accepted: 0700" in distrusted(cache)
    assert f"passed over: {cache}: its mode is {mode:04o}" in private_cache.cache_text()
    assert cache_folder() == elsewhere
    cache.chmod(0o700)
    assert cache_folder() == cache


def test_chosen_folder_that_is_not_used_is_warned_of_once(cache, elsewhere, cxx):
    cache.mkdir()
    cache.chmod(0o755)
    expected = f"^SLIPSTREAM_CACHE: {cache}: its mode is 0755; .* are kept in {elsewhere} instead$"
    with pytest.warns(RuntimeWarning, match=expected):
        host_compiler.compile_library(FORTY_TWO)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        host_compiler.compile_library("#define ANSWER 43\n" + TEXT)


def test_folder_that_was_made_has_no_rights_for_others(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "new" / "cache"))
        folder = cache_folder()
    finally:
        os.umask(before)
    assert folder == tmp_path / "new" / "cache"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700] * 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_folder_of_another_owner_is_not_used(cache, elsewhere):
    cache.mkdir(mode=0o700)
    os.chown(cache, 12345, -1)
    assert cache_folder() == elsewhere


def test_what_was_not_used_for_long_or_is_too_much_is_removed(cache, cxx, monkeypatch):
    used = host_compiler.compile_library(FORTY_TWO)
    now, day = time.time(), 86400
    for name, days, size in (("old", 200, 10), ("a", 5, 4000), ("b", 4, 4000), ("c", 3, 4000)):
        path = cache / f"{name}.so"
        path.write_bytes(b"0" * size)
        os.utime(path, (now - days * day,) * 2)
    for name in ("killed.lock", "x.so123", "compiling-xyz"):
        (cache / name).write_bytes(b"")
        os.utime(cache / name, (now - 2 * day,) * 2)
    os.utime(used, (now - 300 * day,) * 2)
    host_compiler.compile_library(FORTY_TWO)  # which notes that it is used
    monkeypatch.setattr(private_cache, "MOST_BYTES", used.stat().st_size + 9000)
    private_cache.prune(cache)  # which was done when the first was compiled
    assert len(libraries(cache)) == 8
    private_cache.prune(cache, now + 1.1 * day)
    assert libraries(cache) == sorted([used.name, "b.so", "c.so"])


def test_lock_that_is_held_is_not_removed(cache):
    cache.mkdir()
    path = cache / "a.lock"
    with private_cache.locked(path):
        os.utime(path, (0, 0))
        private_cache.prune(cache)
        assert path.exists()
    assert not path.exists()


def test_lock_is_of_one_process_at_a_time_though_its_file_goes(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=count_up, args=(tmp_path / "a.lock", tmp_path / "number"))
        for _ in range(4)
    ]
    (tmp_path / "number").write_text("0")
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (tmp_path / "number").read_text() == "400"
    assert not (tmp_path / "a.lock").exists()


def count_up(lock, number):
    for _ in range(100):
        with private_cache.locked(lock):
            number.write_text(str(int(number.read_text()) + 1))


@pytest.fixture
def compilations():
    begun = HostCompilations()
    yield begun
    begun.stop()


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def gated_compiler(tmp_path, monkeypatch):
    """Return a compiler whose texts with GATED wait for the file that is returned too."""
    gate = tmp_path / "open"
    prelude = (
        'for one in "$@"; do case "$one" in *.cpp)'
        f' if grep -q GATED "$one"; then while [ ! -e "{gate}" ]; do sleep 0.02; done; fi ;;'
        " esac; done"
    )
    compiler = LoggingCompiler(tmp_path, "gated", prelude)
    monkeypatch.setenv("CXX", str(compiler.path))
    return compiler, gate


def test_begun_programs_are_compiled_once_by_threads_or_by_who_needs_them(cache, cxx, compilations):
    texts = [f"#define ANSWER {number}\n{TEXT}" for number in range(4)]
    for text in texts * 2:
        compilations.begin(text, True)
    compilations.finish()
    assert len(libraries(cache)) == 4
    assert [answer(compilations.library(text, True)) for text in texts] == [0, 1, 2, 3]
    assert answer(compilations.library(FORTY_TWO, True)) == 42
    assert cxx.compilations() == 5


def test_two_threads_may_wait_for_the_same_programs(cache, cxx, compilations, monkeypatch):
    """The other thread takes the last program off the list while this one waits for the lock."""
    compilations.begin(FORTY_TWO, True)
    compilations.library(FORTY_TWO, True)
    lock = compilations._lock

    class LateLock:
        def __enter__(self):
            lock.acquire()
            compilations._needed.clear()

        def __exit__(self, *_):
            lock.release()

    compilations._needed[FORTY_TWO, True] = None
    monkeypatch.setattr(compilations, "_lock", LateLock())
    compilations.finish()


def test_who_needs_a_program_does_not_wait_for_others(cache, tmp_path, monkeypatch, compilations):
    _, gate = gated_compiler(tmp_path, monkeypatch)
    others = [f"#define GATED {number}\n{TEXT}" for number in range(20)]
    for text in others:
        compilations.begin("#define ANSWER 1\n" + text, True, is_needed=False)
    compilations.begin(FORTY_TWO, True)
    compilations.finish()
    assert answer(compilations.library(FORTY_TWO, True)) == 42
    assert not gate.exists()


def test_program_that_does_not_compile_fails_who_needs_it_each_time(cache, cxx, compilations):
    compilations.begin("nonsense;", True)
    with pytest.raises(RunError, match="nonsense"):
        compilations.finish()
    with pytest.raises(RunError, match="nonsense"):
        compilations.library("nonsense;", True)
    assert libraries(cache) == []


def test_forked_process_does_not_wait_for_threads_of_its_parent(
    cache, tmp_path, monkeypatch, compilations
):
    compiler, gate = gated_compiler(tmp_path, monkeypatch)
    for number in range(20):
        compilations.begin(f"#define ANSWER {number}\n#define GATED\n{TEXT}", True)
    compilations.begin(FORTY_TWO, True)
    wait_for(lambda: compiler.compilations() > 0)
    child = multiprocessing.get_context("fork").Process(
        target=lambda: os._exit(answer(compilations.library(FORTY_TWO, True)))
    )
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 42
    gate.touch()


END_EARLY = """
import os, sys, time
from slipstream.engine.device.host_compiler import COMPILATIONS
for number in range(20):
    COMPILATIONS.begin(f"int answer() {{ return {number}; }}", True)
while not os.path.exists(sys.argv[1]) or " -o " not in open(sys.argv[1]).read():
    time.sleep(0.01)
"""


def test_process_that_ends_early_stops_its_compilers_and_leaves_nothing(cache, tmp_path):
    endless = LoggingCompiler(
        tmp_path, "endless", 'case "$*" in *" -o "*) while true; do sleep 1; done ;; esac'
    )
    environment = os.environ | {"CXX": str(endless.path), "SLIPSTREAM_CACHE": str(cache)}
    subprocess.run(
        [sys.executable, "-c", END_EARLY, str(endless.log)],
        env=environment,
        check=True,
        timeout=PATIENCE,
    )
    assert endless.compilations() > 0
    assert libraries(cache) == []
    # The compiler of nobody would still be there, under the name of its script.
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(endless.path).encode() in one for one in commands)
