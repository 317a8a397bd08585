"""The limit of CuPy's memory pool, kept by arrays, shared memory and free blocks."""

import gc
from types import SimpleNamespace

import pytest
from test_gpu_kernels import gpus  # noqa: F401

from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError

TOTAL, ELSEWHERE = 1000, 100


class Refused(MemoryError):
    """CuPy's error, which says more."""

    def __init__(self, *_):
        super().__init__("refused")


class Pool:
    """CuPy's pool as far as it counts: freed memory stays in it, and counts, until it is asked."""

    def __init__(self, limit):
        self.limit, self.used, self.kept = limit, 0, 0

    def get_limit(self):
        return self.limit

    def set_limit(self, size):
        self.limit = size

    def used_bytes(self):
        return self.used

    def free_bytes(self):
        return self.kept

    def total_bytes(self):
        return self.used + self.kept

    def free_all_blocks(self):
        self.kept = 0

    def malloc(self, size):
        if self.limit and self.total_bytes() + size > self.limit:
            raise Refused
        self.used += size
        return size

    def free(self, size):
        self.used, self.kept = self.used - size, self.kept + size


@pytest.fixture
def opened(gpus, monkeypatch):  # noqa: F811
    """Return a function that opens a GPU of `TOTAL` bytes whose pool has a limit."""

    def open_limited(limit, allocator=None):
        pool, used = Pool(limit), {}

        def allocate(size):
            if size > TOTAL:
                failure = cuda.runtime.CUDARuntimeError()
                failure.status = 2  # out of memory
                raise failure
            used[len(used) + 1] = size
            return len(used)

        def choose(allocator):
            cuda.chosen = allocator

        cuda = gpus.cuda
        monkeypatch.setattr(gpus, "get_default_memory_pool", lambda: pool)
        choose(allocator or pool.malloc)
        cuda.get_allocator = lambda: cuda.chosen
        cuda.set_allocator = choose
        cuda.memory = SimpleNamespace(OutOfMemoryError=Refused)
        cuda.runtime.malloc, cuda.runtime.free = allocate, used.pop
        cuda.runtime.memGetInfo = lambda: (
            TOTAL - ELSEWHERE - pool.total_bytes() - sum(used.values()),
            TOTAL,
        )
        return open_device("cuda"), pool, cuda

    return open_limited


def test_without_a_limit_all_that_is_free_on_the_gpu_is_free(opened):
    device, pool, cuda = opened(0)
    assert cuda.chosen == pool.malloc
    assert (device.memory_total(), device.memory_free()) == (TOTAL, TOTAL - ELSEWHERE)
    pool.free(pool.malloc(70))
    assert device.memory_free() == TOTAL - ELSEWHERE
    device.release(device.allocate(500))
    assert pool.get_limit() == 0


def test_arrays_and_shared_memory_together_keep_to_the_limit(opened):
    device, pool, cuda = opened(300)
    assert (device.memory_total(), device.memory_free()) == (300, 300)
    cuda.chosen(100)
    assert device.memory_free() == 200
    shared = device.allocate(150)
    assert (device.memory_total(), device.memory_free()) == (300, 50)
    with pytest.raises(InputError, match="no memory left for 60 bytes to share"):
        device.allocate(60)
    with pytest.raises(Refused):
        cuda.chosen(60)
    device.release(shared)
    assert (device.memory_total(), device.memory_free()) == (300, 200)


def test_what_the_gpu_itself_refuses_is_not_counted(opened):
    device, pool, _ = opened(5 * TOTAL)
    with pytest.raises(InputError, match="no memory left"):
        device.allocate(2 * TOTAL)
    assert pool.get_limit() == 5 * TOTAL
    assert (device.memory_total(), device.memory_free()) == (TOTAL, TOTAL - ELSEWHERE)


def test_what_others_have_taken_is_not_free(opened):
    device, _, _ = opened(950)
    assert device.memory_free() == TOTAL - ELSEWHERE


def test_a_pool_frees_what_it_keeps_before_it_refuses(opened, monkeypatch):
    device, pool, cuda = opened(300)
    pool.free(cuda.chosen(250))
    assert device.memory_free() == 300
    cuda.chosen(200)
    # What only the collector finds is freed too.
    monkeypatch.setattr(gc, "collect", lambda: pool.free(200))
    cuda.chosen(250)
    assert (pool.used, pool.kept) == (250, 0)


def test_an_allocator_that_a_user_has_chosen_stays(opened):
    def theirs(size):
        return size

    assert opened(300, theirs)[2].chosen is theirs
