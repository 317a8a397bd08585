"""Plans on one communicator: messages never mix, orders that differ raise, nothing is left over."""

import gc
import random
import threading

import numpy as np
import pytest

from fft_oracle import Oracle
from first_rank import wait_for_all
from flows import PATIENCE, advance, modes_of, start
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.exchange import make_transport
from slipstream.fft import DistributedFFT

pytestmark = pytest.mark.usefixtures("quick_collector")

SHAPE = (6, 8, 10)


def plan(comm, device, transport="auto", **options):
    return DistributedFFT(SHAPE, comm=comm, device=device, transport=transport, **options)


def filled(fft, value):
    """Return arrays of a plan: points that are all `value`, and what takes their modes."""
    u, u_hat = fft.empty_input(), fft.empty_output()
    u[...] = value
    return u, u_hat


def mean(fft, u_hat):
    """Return the mode of the mean on the rank that has it; nothing elsewhere."""
    if u_hat.size and not any(fft.output_box.start):
        return float(fft.device.to_host(u_hat.reshape(-1)[:1])[0].real) / np.prod(SHAPE)
    return None


def assert_right(fft, arrays, value):
    fft.forward(*arrays)
    assert mean(fft, arrays[1]) in (None, pytest.approx(value, rel=1e-12))


def in_threads(comm, device, run):
    """Run something for 0 and for 1, each in a thread; ranks begin with different ones."""
    failures = []

    def work(number):
        try:
            if device.kind == "cuda":
                device.make_current()  # of each thread
            run(number)
        except Exception as failure:
            failures.append(failure)

    first = 0 if comm is None else comm.rank % 2
    threads = [threading.Thread(target=work, args=(number,)) for number in (first, 1 - first)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def highest(comm):
    """Return the largest number of several new communicators: MPI gives the lowest that is free."""
    probes = [comm.Dup() for _ in range(12)]
    numbers = [probe.py2f() for probe in probes]
    for probe in probes:
        probe.Free()
    return max(numbers)


def waiting_transports(device, transports):
    """Those whose exchanges the host waits for, so that the call that has waited raises."""
    return [one for one in transports if device.kind == "cpu" or one.startswith("mpi")]


@pytest.mark.parametrize("layout", ["slab", "pencil"])
def test_plans_that_threads_run_in_any_order_do_not_mix(comm, device, ranks, transports, layout):
    """Each thread has a plan; the order of the threads is left to every rank."""
    for transport in waiting_transports(device, transports) if ranks > 1 else ["auto"]:
        plans = [plan(comm, device, transport, layout=layout) for _ in range(2)]
        arrays = [filled(fft, 1 + number) for number, fft in enumerate(plans)]
        for fft, own in zip(plans, arrays, strict=True):
            fft.forward(*own)
        found = [[], []]

        def run(number, plans=plans, arrays=arrays, found=found):
            for turn in range(20):
                arrays[number][0][...] = 10 * turn + number
                plans[number].forward(*arrays[number])
                found[number].append(mean(plans[number], arrays[number][1]))

        in_threads(comm, device, run)
        for number in (0, 1):
            wanted = [10.0 * turn + number for turn in range(20)]
            assert found[number] in ([None] * 20, pytest.approx(wanted, abs=1e-12))


@pytest.mark.parametrize("threads", [False, True], ids=["in turn", "in threads"])
def test_simulations_side_by_side_give_what_each_gives_alone(comm, device, ranks, threads):
    # GPUs that wait for each other in one stream need the same order on all ranks.
    by_host = ["run.transport=mpi-p2p"] if device.kind == "cuda" and ranks > 1 else []
    settings = [(*by_host, "grid.points=8", f"initial.seed={seed}") for seed in (1, 2)]
    alone = [modes_of(advance(start(device, *own, comm=comm), 4)) for own in settings]
    pair = [start(device, *own, comm=comm) for own in settings]
    if threads:
        in_threads(comm, device, lambda number: advance(pair[number], 4))
    else:
        for _ in range(4):
            for simulation in pair:
                advance(simulation, 1)
    for simulation, modes in zip(pair, alone, strict=True):
        assert modes_of(simulation).tobytes() == modes.tobytes()


def test_a_plan_that_another_thread_runs_is_refused_or_waited_for(comm, device, ranks):
    fft = plan(comm, device)
    arrays, inside, leave = filled(fft, 3.0), threading.Event(), threading.Event()
    find_step = fft._steps[True].find

    def slowly(*arguments):
        inside.set()
        leave.wait(PATIENCE)
        return find_step(*arguments)

    fft._steps[True].find = slowly

    def run():
        if device.kind == "cuda":
            device.make_current()
        fft.forward(*arrays)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(PATIENCE)
    if ranks > 1:
        with pytest.raises(InputError, match="another thread is running this plan"):
            fft.forward(*arrays)
        leave.set()
    else:
        leave.set()
        fft.forward(*arrays)
    thread.join()
    fft._steps[True].find = find_step
    assert_right(fft, arrays, 3.0)


def test_orders_that_differ_raise_on_all_ranks(comm, device, ranks, transports, monkeypatch):
    if ranks == 1:
        pytest.skip("needs several ranks")
    for transport in waiting_transports(device, transports):
        plans = [plan(comm, device, transport) for _ in range(2)]
        arrays = [filled(fft, 1 + number) for number, fft in enumerate(plans)]
        for fft, own, value in zip(plans, arrays, (1, 2), strict=True):
            assert_right(fft, own, value)
        monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "1")
        order, raised = (0, 1) if comm.rank % 2 == 0 else (1, 0), 0
        for number in (*order, *order):
            try:
                arrays[number][1][...] = 0
                plans[number].forward(*arrays[number])
                assert mean(plans[number], arrays[number][1]) in (None, pytest.approx(1 + number))
            except RunError:
                raised += 1
        assert raised >= 2
        wait_for_all(comm)
        monkeypatch.undo()  # a rank that is late as others have the cores gives nothing up
        # What is given up is given up on all ranks; other plans continue.
        broken = 0
        for number in (0, 1):
            try:
                plans[number].forward(*arrays[number])
            except RunError:
                broken += 1
        assert comm.allgather(broken) == [broken] * ranks
        again = plan(comm, device, transport)
        assert_right(again, filled(again, 5), 5)


def test_an_error_that_one_rank_catches_spoils_no_other_plan(
    comm, device, ranks, transports, monkeypatch
):
    """The last rank gives a wrong array, catches the error, and continues with another plan."""
    if ranks == 1:
        pytest.skip("needs several ranks")
    for transport in waiting_transports(device, transports):
        first, other = plan(comm, device, transport), plan(comm, device, transport)
        arrays, other_arrays = filled(first, 1), filled(other, 2)
        assert_right(first, arrays, 1)
        monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "1")
        given = arrays[0][:, :1] if comm.rank == ranks - 1 else arrays[0]
        with pytest.raises((InputError, RunError)):
            first.forward(given, arrays[1])
        wait_for_all(comm)
        monkeypatch.undo()
        assert_right(other, other_arrays, 2)
        monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "1")
        with pytest.raises(RunError):  # no rank takes messages left over from before
            first.forward(*arrays)
        monkeypatch.undo()


def test_plans_come_and_go_in_any_order_and_leave_no_communicator(comm, device, ranks):
    """Some are closed by nobody, and ranks drop them at different times."""
    if ranks == 1:
        pytest.skip("needs several ranks")
    draws = random.Random(comm.rank)
    kept, used = [], []
    gc.collect()
    for number in range(120):
        fft = DistributedFFT((4, 4, 4), comm=comm, device=device, transport="mpi-p2p")
        kept.append(fft)
        del fft
        if number % 4 == 3:
            draws.shuffle(kept)
            del kept[2:]
            gc.collect()
        if number % 10 == 9:
            used.append(highest(comm))
    assert max(used[6:]) <= max(used[:6])


def test_communicators_of_a_users_communicator_end_with_it(comm, device, ranks):
    if ranks == 1:
        pytest.skip("needs several ranks")
    used = []
    for _ in range(10):
        part = comm.Split(0, -comm.rank)
        fft = DistributedFFT((4, 4, 4), comm=part, device=device, transport="mpi-p2p")
        assert_mean = filled(fft, 1)
        fft.forward(*assert_mean)
        del fft, assert_mean
        gc.collect()
        part.Free()
        used.append(highest(comm))
    assert used[5:] == [used[5]] * 5


def test_exchanges_of_transports_made_one_after_the_other_do_not_mix(comm, device, ranks):
    """A transport that is given no communicator makes its own."""
    if ranks == 1:
        pytest.skip("needs several ranks")
    first, second = (make_transport("mpi-p2p", comm, device) for _ in range(2))
    assert first.comm != second.comm
    oracle = Oracle(SHAPE, "float64")
    fft = plan(comm, device, "mpi-p2p")
    oracle.assert_modes(fft, fft.forward(oracle.input(fft)))
