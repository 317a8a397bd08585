"""Programs that ``make gpu-check`` starts, when, and its end, on a machine without a GPU."""

import collections
import heapq
import itertools
import re
import sys
import types

import pytest

import gpu_check
from flows import REPOSITORY
from gpu_check import Failure, Part, Schedule, Tally

GIB = 78.0
CORES = 16


@pytest.fixture
def outcomes(monkeypatch):
    """Return a function that lets parts have some outcomes: by default one test passes each."""

    def use(special=(), gpus=2):
        parts = gpu_check.parts_of(gpus)
        waiting = dict(enumerate(special))

        def launch(part, seen, record, log):
            log.write_text("what the part said")
            lines, status = waiting.get(parts.index(part), ([(0, "passed", "test", "")], 0))
            for rank, outcome, test, text in lines:
                Tally(record, rank).note(outcome, test, text)
            return status

        monkeypatch.setattr(gpu_check, "cuda_device_count", lambda: gpus)
        monkeypatch.setattr(gpu_check, "memory_free", lambda count: [GIB] * count)
        monkeypatch.setattr(gpu_check, "_launch", launch)
        return len(parts)

    return use


@pytest.mark.parametrize(
    ("lines", "end", "more_passed", "failed", "status"),
    [
        ([(0, "passed", name, "") for name in "abc"], 0, 2, 0, 0),
        ([(0, "passed", "a", ""), (0, "failed", "b", "why")], 1, 0, 1, 1),
        # It passed on one rank, and both of the others say what failed.
        ([(0, "passed", "a", ""), (1, "failed", "a", "x"), (2, "failed", "a", "y")], 1, -1, 1, 1),
        # A crash that no test reported, a launch in which nothing ran, and one that was stopped.
        ([(0, "passed", "a", "")], 139, 0, 1, 1),
        ([], 0, -1, 1, 1),
        ([(0, "passed", "a", ""), (0, "failed", "b", "why")], None, 0, 2, 1),
    ],
)
def test_last_line_is_the_sum_of_all_parts(
    outcomes, capsys, lines, end, more_passed, failed, status
):
    count = outcomes([(lines, end)])
    assert gpu_check.main([]) == status
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{count + more_passed} passed, {failed} failed"
    assert sum(line.startswith("gpu-check: failed: ") for line in said) >= failed


def test_failures_come_last_each_text_once(outcomes, capsys):
    lines = [(0, "failed", "a", "same"), (1, "failed", "a", "same"), (1, "failed", "b", "other")]
    outcomes([(lines, 1), ([], 7)])
    gpu_check.main([])
    said = capsys.readouterr().out
    list_ = said[said.index("GiB were free") :]
    assert said.count("same") == said.count("other") == 1
    assert "failed: a (rank 0 of 2, rank 1 of 2)\nsame\n" in list_
    assert "failed: b (rank 1 of 2)\nother\n" in list_
    assert "what the part said\ngpu-check: status 7\n" in list_
    assert re.search(r"\n\d+ passed, 3 failed\n$", list_)


def test_texts_of_several_parts_are_listed_under_the_test():
    one, two = Part(1, ("t",), 1, 1.0), Part(2, ("t",), 1, 1.0)
    failures = [Failure("t", one, [(0, "x\n")]), Failure("t", two, [(0, "y"), (1, "x")])]
    assert gpu_check.failure_texts(failures) == [
        "\ngpu-check: failed: t (rank 0 of 1, rank 1 of 2)\nx\n",
        "\ngpu-check: failed: t (rank 0 of 2)\ny\n",
    ]


def test_machine_without_a_gpu_fails_the_check(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "cuda_device_count", lambda: 0)
    assert gpu_check.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


# -- the schedule ------------------------------------------------------------------------------


def run_through(parts, free, processes):
    """Make parts take all of their seconds; return (begin, end, part, GPUs) of each."""
    schedule, ends, clock, result = Schedule(parts, free, processes), [], 0.0, []
    numbers = itertools.count()
    while schedule.waiting or ends:
        while (started := schedule.start()) is not None:
            part, gpus = started
            result.append((clock, clock + part.seconds, part, gpus))
            heapq.heappush(ends, (clock + part.seconds, next(numbers), part))
        clock, _, part = heapq.heappop(ends)
        schedule.end(part)
    return result


def at_once(spans):
    """Yield what runs at the same time, whenever something begins."""
    for now, *_ in spans:
        yield [one for one in spans if one[0] <= now < one[1]]


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_all_parts_fit_the_cards_and_end_within_ten_minutes(gpus):
    parts, cores = gpu_check.parts_of(gpus), CORES * gpus
    spans = run_through(parts, [GIB - gpu_check._LEFT] * gpus, 1.25 * cores)
    assert collections.Counter(part for _, _, part, _ in spans) == collections.Counter(parts)
    assert max(end for _, end, _, _ in spans) < 600
    for together in at_once(spans):
        assert sum(part.working for _, _, part, _ in together) <= 1.25 * cores
        for gpu in range(gpus):
            claims = [part.claims(seen[0], gpus)[gpu] for _, _, part, seen in together]
            assert sum(claims) < GIB
        if any(part.alone for _, _, part, _ in together):
            assert len(together) == 1
    assert {part.ranks for part in parts} == {1, 2, 4}


def test_parts_of_one_rank_are_spread_over_the_gpus():
    seen = collections.Counter()
    for _, _, part, gpus in run_through(gpu_check.parts_of(2), [GIB] * 2, 40):
        if not part.sees_all():
            assert part.claims(gpus[0], 2)[1 - gpus[0]] == 0
            seen.update(gpus)
    assert abs(seen[0] - seen[1]) <= 2


def test_what_may_take_long_starts_first_and_fills_what_is_left():
    long, large, small = (
        Part(1, (name,), seconds, gib)
        for name, seconds, gib in (("a", 3, 4), ("b", 2, 9), ("c", 1, 3))
    )
    spans = run_through([small, large, long], [10.0], 9)
    assert [(begin, part) for begin, _, part, _ in spans] == [(0, long), (0, small), (3, large)]


def test_a_small_gpu_runs_one_part_after_the_other():
    spans = run_through(gpu_check.parts_of(1), [2.0], 20)
    assert len(spans) == len(gpu_check.parts_of(1))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_few_processes_work_at_a_time():
    parts = [Part(2, (name,), 1, 0.1) for name in "abc"]
    spans = run_through(parts, [GIB], 4)
    assert [begin for begin, *_ in spans] == [0, 0, 1]


def test_environment_states_the_memory_and_the_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    part = Part(1, ("t",), 1, 1.5)
    one, all_ = gpu_check._environment(part, [1]), gpu_check._environment(part, [0, 1])
    assert one["CUPY_GPU_MEMORY_LIMIT"] == str(3 << 29)
    assert one["CUDA_VISIBLE_DEVICES"] == "1" and "CUDA_VISIBLE_DEVICES" not in all_
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpu_check._environment(part, [1])["CUDA_VISIBLE_DEVICES"] == "7"
    assert gpu_check._environment(part, [0, 1])["CUDA_VISIBLE_DEVICES"] == "5,7"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert gpu_check._environment(part, [0])["OMP_NUM_THREADS"] == "2"


# -- parts -------------------------------------------------------------------------------------


def test_every_file_is_in_one_part_of_each_kind():
    parts = gpu_check.parts_of(2)
    for folder, ranks in (("physics", 1), ("parallel", 1), ("parallel", 2), ("gpu", 1)):
        files = REPOSITORY.glob(f"tests/{folder}/test_*.py")
        names = sorted(str(path.relative_to(REPOSITORY)) for path in files)
        run = [test for part in parts if part.ranks == ranks for test in part.tests]
        assert names == sorted(test for test in run if test.startswith(f"tests/{folder}/"))
    assert all((REPOSITORY / test).exists() for part in parts for test in part.tests)


def test_tests_that_read_the_memory_of_a_whole_gpu_run_alone():
    for part in gpu_check.parts_of(1):
        for test in part.tests:
            if "memGetInfo" in (REPOSITORY / test).read_text():
                assert part.alone, test


def test_tests_of_several_gpus_see_all():
    opening = re.compile(r"\bcuda_device_count\(\)|devices = 2")
    for part in gpu_check.parts_of(2):
        if any(opening.search((REPOSITORY / test).read_text()) for test in part.tests):
            assert part.sees_all()


def test_a_folder_without_tests_has_empty_shares():
    assert gpu_check.shares("tests/no-such-folder", 2) == [(), ()]


def test_tally_notes_failures_of_all_ranks_and_successes_of_one(tmp_path):
    record = tmp_path / "record"
    for rank in (0, 1):
        tally = Tally(record, rank)
        for test, when, outcome in (
            ("good", "setup", "passed"),
            ("good", "call", "passed"),
            ("bad", "call", "failed"),
        ):
            report = types.SimpleNamespace(
                nodeid=test,
                when=when,
                passed=outcome == "passed",
                failed=outcome == "failed",
                longreprtext="why",
                sections=[("stdout", "printed")],
            )
            tally.pytest_runtest_logreport(report)
    with open(f"{record}.rank-001", "a") as file:
        file.write('["failed", "cut o')  # killed while it wrote
    why = "why\n--- stdout ---\nprinted"
    assert gpu_check.read_tally(record) == ({"good"}, {"bad": [(0, why), (1, why)]})


def test_launch_that_takes_too_long_is_stopped_and_tells_what_failed_before(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(gpu_check.mpi_launch, "launch_environment", lambda *_: {})
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho started\nexec sleep 30\n")
    script.chmod(0o755)
    monkeypatch.setattr(gpu_check.sys, "executable", str(script))
    record = tmp_path / "0"
    Tally(record).note("failed", "test_of_something", "because")
    part = Part(1, ("tests",), 0.5, 1.0)
    passed, failures = gpu_check._outcome(part, [0], record)
    assert passed == 0
    texts = gpu_check.failure_texts(failures)
    assert "test_of_something (rank 0 of 1)\nbecause" in texts[0]
    assert "stopped after 0.5 s" in texts[1]


@pytest.mark.parametrize("failed_before, again", [(0, True), (gpu_check._MOST_ATTEMPTS, False)])
def test_gpu_that_lacks_memory_to_open_is_tried_again(failed_before, again, monkeypatch, tmp_path):
    class RuntimeFailure(RuntimeError):
        status = 2

    def fail(ordinal):
        raise RuntimeFailure("out of memory")

    def replace_process(program, arguments):
        raise SystemExit("replaced")

    runtime = types.SimpleNamespace(
        CUDARuntimeError=RuntimeFailure, getDeviceCount=lambda: 1, setDevice=fail
    )
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setitem(sys.modules, "cupy.cuda", types.SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(gpu_check.os, "execv", replace_process)
    monkeypatch.setattr(gpu_check.time, "sleep", lambda seconds: None)
    monkeypatch.setenv(gpu_check._ATTEMPTS, str(failed_before))
    with pytest.raises(SystemExit if again else RuntimeFailure):
        gpu_check._open_gpu(tmp_path / "lock")
    assert int(gpu_check.os.environ[gpu_check._ATTEMPTS]) == failed_before + again
