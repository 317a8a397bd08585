"""Shared by all tests: the device they run on, and the MPI ranks that run them together.

Started under an MPI launcher, every rank runs the same tests in the same order. A test that
fails on one rank would leave the others waiting for it for ever, so it ends all of them.
"""

import atexit
import contextlib
import gc
import importlib
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import tiers
from fft_cases import usable_transports
from first_rank import wait_for_all
from quick_pictures import quick_pictures
from slipstream.engine import processes as mpi_launch
from slipstream.engine import tuner
from slipstream.engine.device import HostDevice, host_compiler, open_device
from slipstream.engine.exchange import local_rank
from slipstream.show import picture_process

DEVICE_VARIABLE = "SLIPSTREAM_TEST_DEVICE"
OWN_FOLDER = pytest.StashKey[str | None]()

# Some examples compile kernels, and other ranks take the cores: time says nothing about a test.
COMMON = {
    "database": None,
    "deadline": None,
    "max_examples": 50,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}
# Every run draws the same examples, and with --hypothesis-profile=random others.
settings.register_profile("slipstream", derandomize=True, **COMMON)
settings.register_profile("random", derandomize=False, **COMMON)
settings.load_profile("slipstream")
SEED_VARIABLE = "SLIPSTREAM_TEST_SEED"


def world():
    """Return the communicator of the ranks that run these tests; None for a single process."""
    return mpi_launch.world_comm()


def several_ranks():
    return (mpi_launch.launched_size() or 1) > 1


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=("cpu", "tiled", "cuda"),
        default=os.environ.get(DEVICE_VARIABLE, "cpu"),
        help="device of the tests that run on any: cpu, cuda, or tiled for the CPU with the"
        f" kernels and layouts of GPUs (default: ${DEVICE_VARIABLE}, else cpu)",
    )
    tiers.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Choose the temporary folders, before pytest's own plugins are configured with theirs."""
    share_seed(config.option)
    config.stash[OWN_FOLDER] = use_own_folder()
    if several_ranks() and not config.option.basetemp:
        # Ranks that tidy up one folder at the same time fail.
        config.option.basetemp = tempfile.mkdtemp(prefix="slipstream-tests-")
        atexit.register(_remove, config.option.basetemp, os.getpid())


def share_seed(option):
    """Share one seed of random examples with all workers and ranks that this run starts."""
    if SEED_VARIABLE in os.environ:
        option.hypothesis_profile, option.hypothesis_seed = "random", os.environ[SEED_VARIABLE]
    elif option.hypothesis_profile == "random":
        seed = option.hypothesis_seed or str(random.SystemRandom().randrange(2**32))
        option.hypothesis_seed = world().bcast(seed) if several_ranks() else seed
        os.environ[SEED_VARIABLE] = option.hypothesis_seed


def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter and SEED_VARIABLE in os.environ:
        seed = os.environ[SEED_VARIABLE]
        reporter.write_line(f"examples: drawn at random; {SEED_VARIABLE}={seed} draws them again")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return one worker more than there are cores: some tests wait, or let ranks wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    # Kernels of tests run for moments: compiled in half the time, they give the same bits.
    os.environ.setdefault(host_compiler.OPTIMISATION, "1")
    if config.getoption("--costs"):
        config.pluginmanager.register(tiers.CostRecorder(config))
    # Who runs the tests by nohup wants them to ignore a hang-up; what they start obeys it.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if several_ranks() and world().rank:
        # All ranks do the same: one of them reports it.
        reporter = config.pluginmanager.getplugin("terminalreporter")
        config.pluginmanager.unregister(reporter)
        silent = type(reporter)(config, open(os.devnull, "w"))  # noqa: SIM115
        config.pluginmanager.register(silent, "terminalreporter")


FOLDER = "SLIPSTREAM_TEST_FOLDER"


def use_own_folder():
    """Make this run, and all processes that it starts, write to a private temporary folder.

    Other runs of the tests at the same time tidy up theirs. It stays for three days if a test has
    failed. Ranks take one that all of them know.
    """
    if FOLDER in os.environ:
        return None
    parent = quick_folder() or tempfile.gettempdir()
    for old in Path(parent).glob("slipstream-tests-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > 3 * 86400:
                shutil.rmtree(old)
    own = None if several_ranks() else tempfile.mkdtemp(prefix="slipstream-tests-", dir=parent)
    os.environ[FOLDER] = os.environ["TMPDIR"] = own or parent
    tempfile.tempdir = None
    return own


def quick_folder(folder="/dev/shm", needed=4 * 2**30):
    """Return memory, if it has room: runs flush every file, and would await a disk; else None."""
    if "TMPDIR" in os.environ or not os.access(folder, os.W_OK):
        return None
    # Compiled kernels are among the files.
    executable = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return folder if executable and shutil.disk_usage(folder).free > needed else None


def pytest_sessionfinish(session, exitstatus):
    folder = session.config.stash[OWN_FOLDER]
    if folder and exitstatus != pytest.ExitCode.TESTS_FAILED:
        atexit.register(_remove, folder, os.getpid())


def _remove(folder, process):
    # What this process forks ends as it does.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config, items):
    """Leave out what needs a GPU where none was asked for, and what other numbers of ranks show.

    `tools/gpu_check.py` runs the former, and test_ranks.py the latter.
    """
    # What starts ranks comes first: several of these at a time would wait for each other's cores.
    items.sort(key=lambda item: item.get_closest_marker("mpi") is None)
    left_out = ["one_rank" if several_ranks() else "several_ranks"]
    if config.getoption("--device") != "cuda":
        left_out.append("gpu")
    tier, sampled = config.getoption("--tier"), tiers.take_samples(items)
    unwanted = {
        item
        for item in items
        if any(map(item.get_closest_marker, left_out)) or not tiers.is_in_tier(item, tier, sampled)
    }
    if unwanted:
        config.hook.pytest_deselected(items=list(unwanted))
        items[:] = [item for item in items if item not in unwanted]


def pytest_collection_finish():
    """Spare the collector what stays anyway: all modules, and the tests themselves."""
    gc.collect()
    gc.freeze()
    # What tests leave behind is little: looked for at every turn it would take longer than they.
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    _end_all_ranks_if_failed(report)


@pytest.hookimpl(trylast=True)
def pytest_collectreport(report):
    _end_all_ranks_if_failed(report)


def pytest_internalerror(excrepr):
    if several_ranks():
        mpi_launch.abort(world(), str(excrepr))


def _end_all_ranks_if_failed(report):
    if report.failed and several_ranks():
        captured = [f"--- {title} ---\n{text}" for title, text in report.sections]
        name = f"FAILED {report.nodeid}"
        sys.stdout.flush()
        mpi_launch.abort(world(), "\n".join([name, report.longreprtext, *captured]))


@pytest.fixture(scope="session", autouse=True)
def time_to_tune():
    """Whatever else the cores do, tuners try all candidates."""
    tuner.SECONDS.update(dict.fromkeys(tuner.SECONDS, math.inf))


class PicturesHere(picture_process.PictureProcess):
    """Draws in the tests' own process, which has loaded what that takes; others would each.

    Nothing is laid out, which takes longer than to draw: test_report.py looks at the pictures.
    """

    def __init__(self):
        self._requests, self.plots = ("", (), False), {}

    def __exit__(self, *_):
        pass

    def begin(self, folder, requests, for_page=False):
        # Pages of runs are looked at where they are the point, and nowhere else.
        self._folder, self._requests = folder, (folder, requests, False)

    def finish(self):
        drawn = []
        if self._requests[1]:
            with quick_pictures():
                pictures = picture_process._drawing(*self._requests)
                drawn = [picture_process._attempt(picture) for picture in pictures]
        self._answer = Future()
        self._answer.set_result(
            ([one for one, _ in drawn if one], [failure for _, failure in drawn if failure])
        )
        return super().finish()


@pytest.fixture(scope="session", autouse=True)
def pictures_drawn_here():
    """Runs draw pictures in the tests' own process, unless a test wants them to do as ever."""
    importlib.import_module("slipstream.runs.run_case").PictureProcess = PicturesHere


@pytest.fixture
def pictures_drawn_as_ever(monkeypatch):
    """Runs have another process draw their pictures."""
    monkeypatch.setattr(
        importlib.import_module("slipstream.runs.run_case"),
        "PictureProcess",
        picture_process.PictureProcess,
    )


@pytest.fixture(scope="module")
def quick_collector():
    """For files whose tests collect garbage: objects that stay are examined once, not each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def comm():
    """The ranks that run this test together, None for one process without MPI."""
    return world()


@pytest.fixture(scope="session")
def device_kind(request):
    """Device to test: "cpu", or "tiled" or "cuda" if asked for."""
    return request.config.getoption("--device")


@pytest.fixture(scope="session")
def tested_device(device_kind):
    """An open device of that kind; ranks share the GPUs in turn."""
    if device_kind == "tiled":
        return HostDevice(tiled=True)
    return open_device(device_kind, local_rank(world()))


@pytest.fixture(scope="session")
def device(tested_device):
    """Device that tests run on, unless they choose one themselves."""
    return tested_device


@pytest.fixture(autouse=True)
def current_device(device_kind, tested_device):
    """Make CuPy allocate on this rank's GPU, whatever the last test opened."""
    if device_kind == "cuda":
        tested_device.make_current()


@pytest.fixture(scope="session")
def ranks(comm):
    """How many ranks run this test."""
    return 1 if comm is None else comm.size


@pytest.fixture(scope="session")
def transports(comm, device):
    """The names of the transports that can be used here."""
    return usable_transports(comm, device)


@pytest.fixture
def shared_folder(comm, tmp_path):
    """One empty folder for all ranks."""
    yield tmp_path if comm is None else comm.bcast(tmp_path, root=0)
    if comm is not None:
        wait_for_all(comm)  # the rank whose it is removes it, while others may read from it
