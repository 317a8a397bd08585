"""The benchmarks on any number of ranks: figures agree with each other and with the plans."""

import json
import os

import numpy as np
import pytest

from bench import exchange, fft
from bench.dns import measure_streamed_step, step_variants
from bench.exchange import ExchangeRequest
from bench.fft import FixedTransforms, TransformRequest, make_plan
from bench.harness import OnFirstRank
from flows import make_case
from slipstream.api.forecast import measured_rates
from slipstream.api.forecast.measured_rates import PATTERNS, ExchangeTimer, usable_transports
from slipstream.case.spectral_case import SpectralStreaming
from slipstream.engine.errors import InputError
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE
from slipstream.fft import Streaming
from slipstream.spectral.spectral_simulation import SpectralSimulation


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    for module in (exchange, fft):
        monkeypatch.setattr(
            module, "copy_bandwidth", lambda device: measured_rates.copy_bandwidth(device, 1 << 20)
        )


def several(comm):
    if comm is None or comm.size == 1:
        pytest.skip("needs several ranks")


def test_exchange_measures_every_pattern_transport_and_size(comm, device):
    several(comm)
    request = ExchangeRequest(transports=("mpi", "auto"), smallest=64, largest=256, repetitions=2)
    result = exchange.measure_exchange(request, device, comm)
    rows = result["rows"]
    names = {row["transport"] for row in rows}
    assert "mpi" in names
    assert len(rows) == len(PATTERNS) * len(names) * 2
    for row in rows:
        messages = comm.size - 1 if row["pattern"] == "all-to-all" else 1
        rate = row["GB/s per rank"] * 1e9
        assert rate * row["seconds"] == pytest.approx(messages * row["bytes"])
        limit = result["limits (GB/s per rank)"][row["pattern"]] * 1e9
        assert row["fraction of the limit"] == pytest.approx(rate / limit)
    # All ranks report the same.
    assert len(set(comm.allgather(json.dumps(result)))) == 1


def test_what_is_sent_between_nodes_is_counted(comm, device, monkeypatch):
    """With one rank per node, or with the first two on a node."""
    several(comm)
    per_node = -(-comm.size // 2)
    monkeypatch.setenv(RANKS_PER_NODE, "5")
    names = ("mpi-p2p", "mpi-hierarchical")
    request = ExchangeRequest(
        transports=names, smallest=64, largest=64, repetitions=1, ranks_per_node=per_node
    )
    result = exchange.run(request, device, comm).result
    assert os.environ[RANKS_PER_NODE] == "5"
    assert result["nodes"] == 2
    whole = {row["transport"]: row for row in result["rows"] if row["pattern"] == "all-to-all"}
    for name, row in whole.items():
        others = comm.size // 2 if name == "mpi-hierarchical" else 1
        assert row["messages to other nodes"] == (1 if name == "mpi-hierarchical" else per_node)
        assert row["bytes to other nodes"] == 64 * others * per_node
    assert whole["mpi-p2p"]["messages within the node"] == per_node - 1
    assert whole["mpi-p2p"]["bytes within the node"] == 64 * (per_node - 1)


def test_transports_that_cannot_be_used_are_left_out_with_a_reason(comm, device):
    several(comm)
    made, skipped = usable_transports((), device, comm)
    assert {"mpi", "mpi-p2p"} <= set(made)
    if device.kind == "cpu":
        assert "nccl" in skipped
        with pytest.raises(InputError, match="no transport is usable"):
            usable_transports(("nccl",), device, comm)
    with pytest.raises(InputError, match="pigeon"):
        usable_transports(("pigeon",), device, comm)


def test_messages_larger_than_the_memory_are_refused_on_all_ranks(comm, device):
    several(comm)
    made, _ = usable_transports(("mpi",), device, comm)
    with pytest.raises(InputError, match="--largest"):
        ExchangeTimer(device, comm, made, 1 << 50)


@pytest.mark.parametrize("truncation", [None, "2/3"])
def test_figures_of_a_transform_are_consistent(comm, device, truncation):
    request = TransformRequest(shape=(8, 12, 10), truncation=truncation, repetitions=2)
    result = fft.measure_fft(request, device, comm)
    ranks = 1 if comm is None else comm.size
    assert result["ranks"] == ranks
    assert result["relative error, there and back"] < 1e-13
    assert any(name.startswith(("FFTW", "cuFFT")) for name in result["comparison"])
    if ranks > 1:
        bound = result["wire bound (s)"]
        rate = result["all-to-all alone (GB/s per rank)"] * 1e9
        assert bound * rate == pytest.approx(result["bytes off the rank, largest"])
        for way, seconds in result["seconds"].items():
            assert result["wire bound / time"][way] * seconds == pytest.approx(bound)
    if comm is not None:
        keys = ("seconds", "comparison", "host (s per call)", "copy bandwidth (GB/s)")
        same = json.dumps([result[key] for key in keys])
        assert len(set(comm.allgather(same))) == 1


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_bytes_on_the_wire_by_hand(comm, device, device_kind, dtype):
    """Each pair of ranks exchanges planes x columns; rows are padded where GPUs want them so."""
    ranks = 1 if comm is None else comm.size
    plan = make_plan(TransformRequest(shape=(12, 12, 6), dtype=dtype), device, comm)
    planes, columns = plan.input_box.shape[0], plan.output_box.shape[1]
    row = 4 if dtype == "float64" else 6
    expected = planes * (12 - columns) * row * plan.arguments.complex_dtype.itemsize
    if device_kind == "cpu":
        assert plan.wire_bytes == expected
    else:
        assert plan.wire_bytes >= expected
    assert plan.exchanges == 1 or ranks == 1


def test_data_do_not_depend_on_the_ranks(comm, device):
    fixed = FixedTransforms(make_plan(TransformRequest(shape=(8, 6, 10)), device, comm))
    alone = FixedTransforms(make_plan(TransformRequest(shape=(8, 6, 10)), device, None))
    mine = device.to_host(alone.points)[fixed.plan.input_box.slices()]
    np.testing.assert_array_equal(device.to_host(fixed.points), mine)
    assert fixed.error(comm) < 1e-13


def test_only_the_first_rank_acts(comm):
    calls = []
    first = comm is None or comm.rank == 0
    action = OnFirstRank((lambda: calls.append(None)) if first else None, comm)
    action()
    action()
    assert len(calls) == (2 if first else 0)
    assert action.seconds() >= 0


@pytest.mark.thorough
def test_a_way_that_one_rank_has_no_memory_for_is_left_out_on_all(comm, device, monkeypatch):
    monkeypatch.setattr(measured_rates, "_BUFFER", 1 << 16)
    last = comm is None or comm.rank == comm.size - 1
    allocate = SpectralSimulation._allocate

    def short_of_memory(simulation):
        allocate(simulation)
        if last and simulation.placement.streaming.streams == 2:
            raise InputError("too little")

    monkeypatch.setattr(SpectralSimulation, "_allocate", short_of_memory)

    def make(variant):
        options = {key: one for key, one in variant.streaming.of_step().items() if one is not None}
        case = make_case(
            "run.residency=host", f"run.schedule={variant.schedule}", "run.transport=mpi"
        )
        run = case.run.model_copy(update={"streaming": SpectralStreaming(**options)})
        return SpectralSimulation(case.model_copy(update={"run": run}), comm, device)

    # As asked and synchronous, 2 streams, and one after it.
    variants = step_variants(Streaming(), sweep=True)
    variants = [*variants[:2], *(one for one in variants if one.streaming.streams in (2, 4))]
    result = measure_streamed_step(make, variants, 1)
    assert list(result["left out"]) == ["2 streams"]
    assert len(result["rows"]) == len(variants) - 1 == 3
    with pytest.raises(InputError, match="too little"):
        measure_streamed_step(make, step_variants(Streaming(streams=2), sweep=False), 1)
