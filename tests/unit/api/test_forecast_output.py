"""`slipstream project` predicts the output that a run writes, at the rates of a storage."""

import json

import pytest

import lattice_flows
from flows import make_case
from refusals import status_of
from slipstream.api.forecast import (
    advection_counts,
    forecast,
    lattice_counter,
    load_machine,
    spectral_counts,
)
from slipstream.case import make_case as case_of
from slipstream.case import parse_case, validate_case
from slipstream.case.machine_description import Storage
from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError
from slipstream.files import FieldStore, write_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.output_writer import MANY_FILES, files_warning

DEVICE = open_device("cpu")
MACHINE = load_machine("h200-nvl8-ib")
CASES = {
    "spectral": make_case("grid.points=12"),
    "plane": make_case("grid.points=[12, 12, 1]", "initial.flow=formula"),
    "magnetic": validate_case(
        {
            "solver": "spectral",
            "grid": {"points": 12},
            "equation": {"model": "mhd", "viscosity": 0.1, "resistivity": 0.1},
            "initial": {"flow": "orszag-tang"},
            "time": {"end": 1.0, "step": 0.01},
        }
    ),
    "advection": case_of("advection", grid={"points": [12, 14, 16]}, time={"end": 1.0}),
    "lattice": parse_case(lattice_flows.CHANNEL),
}


def counts_of(case, ranks=1):
    if case.solver == "lattice":
        return lattice_counter(case, MACHINE)(ranks)
    counter = spectral_counts if case.solver == "spectral" else advection_counts
    return counter(case, MACHINE, ranks)


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_those_of_what_is_written(tmp_path, name):
    case = CASES[name]
    outputs = counts_of(case).outputs
    simulation = make_simulation(case, None, DEVICE)
    simulation.prepare()
    FieldStore(tmp_path / "fields.zarr").append(0.0, simulation.fields())
    state = write_checkpoint(tmp_path, simulation.checkpoint(), step=0, time=0.0, case="")
    for kind, path in (("fields", tmp_path / "fields.zarr"), ("checkpoint", state)):
        parts = {one: one.relative_to(path).parts for one in path.rglob("*") if one.is_file()}
        # The places of points and the times are there once.
        written = [
            one
            for one, (array, *rest) in parts.items()
            if "c" in rest and array not in ("time", *"xyz")
        ]
        assert outputs[kind].files == len(written)
        # For lattices the storage is the first candidate on GPUs.
        if case.solver != "lattice":
            assert outputs[kind].bytes == sum(one.stat().st_size for one in written)


def test_storage_grows_with_nodes_up_to_what_it_has():
    def rate(nodes, machine=MACHINE, **rates):
        return machine.model_copy(update={"storage": Storage(**rates)}).write_rate(nodes)

    assert rate(3, node_write_gb_per_s=2.0) == 6e9
    assert rate(3, node_write_gb_per_s=2.0, write_gb_per_s=5.0) == 5e9
    assert rate(2, write_gb_per_s=5000.0) == 2 * MACHINE.network.rate(1e9)
    alone = MACHINE.model_copy(update={"network": None})
    assert rate(2, alone, write_gb_per_s=5000.0) == 5e12
    assert MACHINE.write_rate(2) is None
    with pytest.raises(ValueError, match="give write_gb_per_s"):
        Storage(read_gb_per_s=1.0)


def turbulence(**output):
    return validate_case(
        {
            "solver": "spectral",
            "grid": {"points": 256},
            "equation": {"viscosity": 1e-3},
            "initial": {"flow": "taylor-green"},
            "time": {"end": 1.0, "step": 1e-3},
            "output": output,
        }
    )


def test_node_hours_have_the_time_of_snapshots_and_states():
    case = turbulence(fields_interval=0.1, checkpoint_interval=0.25, keep_checkpoints=3)
    storage = Storage(node_write_gb_per_s=2.0, file_ms=5.0)
    (silent,) = forecast(case, MACHINE, [2])
    (actual,) = forecast(case, MACHINE.model_copy(update={"storage": storage}), [2])
    assert silent.output_seconds is None and silent.outputs["fields"].seconds is None
    fields, states = actual.outputs["fields"], actual.outputs["checkpoint"]
    # At the start and the end, too.
    assert (fields.times, fields.kept, states.times, states.kept) == (11, 11, 5, 3)
    assert fields.bytes == 4 * 256**3 * 8
    assert states.bytes == 3 * 171 * 171 * 86 * 16
    for one in (fields, states):
        assert one.seconds == pytest.approx(one.bytes / 4e9 + 5e-3 * -(-one.files // actual.ranks))
    assert actual.output_seconds == pytest.approx(11 * fields.seconds + 5 * states.seconds)
    more = 2 * actual.output_seconds / 3600
    assert actual.node_hours == pytest.approx(silent.node_hours + more)
    assert actual.files == 11 * fields.files + 3 * states.files


def test_states_are_written_by_the_clock_too():
    slow = MACHINE.model_copy(update={"storage": Storage(write_gb_per_s=1.0)})
    (found,) = forecast(turbulence(checkpoint_minutes=0.01), slow, [1], steps=10_000)
    seconds = found.time.total * 10_000
    assert found.outputs["checkpoint"].times == 1 + int(seconds / 0.6) > 2
    (without,) = forecast(turbulence(checkpoint=False), slow, [1])
    assert "checkpoint" not in without.outputs


@pytest.mark.slow
def test_the_command_tells_of_output(tmp_path, capsys):
    settings = ("grid.points=4096", "output.fields_interval=0.05", "time.end=10.0")
    arguments = ["project", "taylor-green", "--machine", "summit", "--nodes", "64,512"]
    for setting in settings:
        arguments += ["--set", setting]
    assert not status_of(*arguments, "--steps", "4000", "--json", str(tmp_path / "found.json"))
    said = " ".join(capsys.readouterr().out.split())
    assert "snapshot of fields: 2048 GiB in 4096 files on 512 nodes" in said
    assert "the last 2 are kept" in said
    assert "hours include writing these" in said
    assert f"more than {MANY_FILES}" in said and "output.fields_interval" in said
    content = json.loads((tmp_path / "found.json").read_text())
    assert content["machine"]["storage"]["write_gb_per_s"] == 2500
    row = content["forecast"][1]
    assert row["outputs"]["fields"]["files"] == 4096
    assert row["output_seconds"] > 0


def test_few_files_need_no_warning():
    assert files_warning(MANY_FILES) == ""
    assert str(MANY_FILES + 1) in files_warning(MANY_FILES + 1)


def test_a_storage_without_rates_is_refused(tmp_path):
    text = load_machine("summit").model_dump(exclude_none=True)
    text["storage"] = {"file_ms": 1.0}
    from slipstream.case.toml_text import to_toml

    (tmp_path / "machine.toml").write_text(to_toml(text))
    with pytest.raises(InputError, match="storage.*write_gb_per_s"):
        load_machine(tmp_path / "machine.toml")
