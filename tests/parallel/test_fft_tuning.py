"""Tuning: measurements are kept in a readable file, and never change the result."""

import json
from dataclasses import asdict
from functools import partial

import pytest

from fft_oracle import check
from slipstream.engine import tuner
from slipstream.engine.collective import largest
from slipstream.engine.errors import InputError
from slipstream.fft import DistributedFFT, Streaming

SHAPE = (6, 12, 10)
BROKEN = {
    "no JSON": "{not json",
    "empty": "",
    "a list": "[1, 2]",
    "binary": "\udcff\udcfe",
    "no entry of this transform": '{"another machine": {"tune": "full"}}',
}


# What a hand, an older version or another machine may have left in an entry.
RECORDS = [
    {"slab": {"bits": 2}},
    {"slab": None},
    {"slab": {"kx_chunks": "two"}},
    {"workers": 0},
    {"transport": "pigeon"},
    [],
    [1],
    None,
    "fast",
    5,
]


@pytest.fixture
def folder(monkeypatch, shared_folder):
    """Where records are; kernels stay where they are kept for all tests."""
    monkeypatch.setattr(tuner, "cache_folder", lambda: shared_folder)
    return shared_folder


@pytest.fixture
def measured(monkeypatch):
    """Measurements since the test began."""
    tried, measure = [], tuner.measure

    def noting(candidates, prepare, *arguments):
        def prepared(candidate):
            tried.append(candidate)
            return prepare(candidate)

        return measure(candidates, prepared, *arguments)

    monkeypatch.setattr(tuner, "measure", noting)
    return tried


def entries(comm, folder):
    if comm is not None:
        comm.Barrier()
    result = json.loads((folder / "tuning.json").read_text())
    if comm is not None:
        comm.Barrier()
    return result


@pytest.mark.parametrize("division", [{}, {"layout": "pencil", "order": "natural"}])
def test_choices_are_measured_once_and_remembered(comm, device, ranks, folder, measured, division):
    check(comm, device, SHAPE, "float64", tune="quick", **division)
    tried = len(measured)
    assert tried >= (1 if ranks == 1 else 5)
    assert len(set(measured)) == tried
    ((key, entry),) = entries(comm, folder).items()
    for readable in (f"{ranks} ranks", "6x12x10 float64", "6x12x6 modes", device.name):
        assert readable in key
    assert entry["tune"] == "quick"
    assert entry["transport"] in {choice.transport for choice in measured}
    assert set(entry["slab"]) == {"kx_chunks", "plane_chunks", "store", "tiled", "whole"}
    # The second plan takes what the first has found.
    check(comm, device, SHAPE, "float64", tune="quick", **division)
    assert len(measured) == tried
    assert entries(comm, folder) == {key: entry}


def test_every_transform_is_remembered_for_itself(comm, device, folder, measured):
    different = [
        {},
        {"fields": 2},
        {"truncation": "2/3"},
        {"schedule": "serial"},
        {"layout": "root"},
        {"dtype": "complex64"},
    ]
    tried = []
    for options in different:
        before = len(measured)
        check(comm, device, SHAPE, **({"dtype": "float64", "tune": "quick"} | options))
        tried.append(len(measured) - before)
    layouts_differ = comm is not None and comm.size > 1
    assert all(tried) or (not layouts_differ and tried.count(0) == 1)
    assert len(entries(comm, folder)) == len([count for count in tried if count])


def test_what_the_user_has_chosen_is_not_tuned(comm, device, ranks, transports, folder, measured):
    if ranks == 1:
        pytest.skip("has no transport")
    for name in transports[:2]:
        measured.clear()
        check(comm, device, SHAPE, "float64", tune="quick", transport=name, workers=ranks)
        assert {(choice.transport, choice.workers) for choice in measured} == {(name, ranks)}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_used_counts_as_none(comm, device, folder, measured, content):
    if comm is None or comm.rank == 0:
        (folder / "tuning.json").write_text(content, errors="surrogateescape")
    check(comm, device, SHAPE, "float64", tune="quick")
    assert measured
    assert any("6x12x10 float64" in key for key in entries(comm, folder))


def test_an_entry_that_cannot_be_used_is_measured_again(comm, device, ranks, folder, measured):
    if ranks == 1 or device.kind != "cpu":
        pytest.skip("needs several ranks, and transports that cannot be used")
    check(comm, device, SHAPE, "float64", tune="quick", workers=1)
    ((key, good),) = entries(comm, folder).items()
    for record in RECORDS:
        bad = {**good, **record} if isinstance(record, dict) else record
        if comm.rank == 0:
            (folder / "tuning.json").write_text(json.dumps({key: bad}))
        measured.clear()
        check(comm, device, SHAPE, "float64", tune="quick", workers=1)
        assert measured, record
        assert set(entries(comm, folder)[key]) == set(good)


def test_full_tuning_measures_again_what_was_measured_quickly(comm, device, folder, measured):
    check(comm, device, (2, 2, 2), "float64", tune="quick")
    quickly = len(measured)
    check(comm, device, (2, 2, 2), "float64", tune="full", transport="mpi-p2p", workers=1)
    assert len(measured) > quickly
    for tune in ("full", "quick"):
        measured.clear()
        check(comm, device, (2, 2, 2), "float64", tune=tune, transport="mpi-p2p", workers=1)
        assert not measured


def on_the_host(comm, device, tune, **options):
    return DistributedFFT(
        SHAPE, comm=comm, device=device, residency="host", tune=tune, memory="1 MiB", **options
    )


@pytest.mark.slow
def test_ways_to_stream_are_measured_once_and_remembered(comm, device, ranks, folder, measured):
    fft = on_the_host(comm, device, "quick")
    tried = len(measured)
    assert tried == len(set(measured)) >= (7 if ranks == 1 else 9)
    assert fft.streamed.streaming in measured
    ((key, entry),) = entries(comm, folder).items()
    assert f"on the host, {1 << 20} bytes" in key
    assert entry["tune"] == "quick"
    again = on_the_host(comm, device, "quick")
    assert len(measured) == tried
    assert again.streamed.streaming == fft.streamed.streaming
    check(comm, device, SHAPE, "float64", residency="host", tune="quick", memory="1 MiB")


@pytest.mark.slow
def test_limits_that_differ_a_little_are_tuned_apart(comm, device, folder, measured):
    sizes = [1 << 20, (1 << 20) + 1]
    for size in sizes:
        DistributedFFT(SHAPE, comm=comm, device=device, residency="host", tune="quick", memory=size)
    assert len(entries(comm, folder)) == len(sizes)


@pytest.mark.slow
def test_what_needs_more_than_is_free_today_is_measured_again(
    comm, device, folder, measured, monkeypatch
):
    limits = iter([1 << 20, 1 << 21, 1 << 22])
    monkeypatch.setattr("slipstream.engine.fft.fft_tuning.memory_limit", lambda *_: next(limits))
    plan = partial(DistributedFFT, SHAPE, comm=comm, device=device, residency="host")
    for _ in range(2):
        plan(tune="quick")
    tried = len(measured)
    needed = largest(comm, plan().streamed.device_bytes)
    ((key, entry),) = entries(comm, folder).items()
    greedy = entry | asdict(Streaming(streams=16, tiles=1))
    if comm is None or comm.rank == 0:
        (folder / "tuning.json").write_text(json.dumps({key: greedy}))
    assert list(entries(comm, folder).values()) == [greedy]
    limits = iter([1 << 22, needed, needed])
    assert plan(tune="quick").streamed.streaming.streams == 16
    assert len(measured) == tried
    fft = plan(tune="quick")
    assert len(measured) > tried
    assert fft.streamed.device_bytes <= needed
    assert plan(tune="quick").streamed.streaming == fft.streamed.streaming


def test_what_the_user_says_of_streaming_is_not_tuned(comm, device, folder, measured):
    given = {"streams": 3, "tiles": 2, "copies": "packed"}
    fft = on_the_host(comm, device, "full", streaming=given)
    for name, value in given.items():
        assert {getattr(way, name) for way in measured} == {value}
        assert getattr(fft.streamed.streaming, name) == value


def test_too_little_memory_is_told_where_streaming_is_tuned_too(comm, device, folder, measured):
    with pytest.raises(InputError, match="memory .* on each device is too little"):
        DistributedFFT(
            (48, 64, 512), comm=comm, device=device, residency="host", tune="quick", memory=10_000
        )
    assert measured
    assert not (folder / "tuning.json").exists()
