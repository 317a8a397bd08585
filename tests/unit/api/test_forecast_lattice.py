"""Forecasts of flow through pores: counts agree with the division of an image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import status_of
from slipstream.api.forecast import forecast, lattice_counter, load_machine, step_time
from slipstream.api.forecast import noted_steps as module
from slipstream.case import changed_case, validate_case
from slipstream.engine.decomposition import Box
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import make_sample
from slipstream.lattice.domain_decomposition import crossing_links, divided_pores, percolating_pores
from slipstream.lattice.pore_step import stored_sites, unit_of
from slipstream.lattice.velocity_set import D3Q19, ENCODINGS

MACHINE = load_machine("summit")


def case_of(shape, partition="bisection", schedule="overlap", **image):
    image = image or {"sample": "sandstone", "radius": 5, "porosity": 0.3}
    return validate_case(
        {
            "solver": "lattice",
            "image": {"shape": shape, **image},
            "flow": {"axis": "z"},
            "time": {"end": 1000},
            "run": {"partition": partition, "schedule": schedule},
        }
    )


def pores_of(periodic):
    sample = make_sample("sandstone", (20, 24, 28), radius=5, porosity=0.3)
    domain = module.open_domain(case_of([28, 24, 20]).image, "z", None)
    assert domain.shape == sample.shape
    return percolating_pores(domain, periodic, (0,), "remove")


def links_between(pores, boxes, periodic):
    """Return how many populations each rank gets from each other one, voxel by voxel."""
    owner = np.empty(pores.shape, int)
    for rank, box in enumerate(boxes):
        owner[box.slices()] = rank
    actual = np.zeros((len(boxes), len(boxes)), int)
    for velocity in D3Q19.velocities[1:]:
        to = np.argwhere(pores)
        source = to - velocity
        inside = np.all(periodic | ((source >= 0) & (source < pores.shape)), axis=1)
        to, source = (tuple(one[inside].T) for one in (to, source % pores.shape))
        np.add.at(actual, (owner[to], owner[source]), pores[source].astype(int))
    np.fill_diagonal(actual, 0)
    return actual


def bytes_of_update(sites):
    """Return the bytes that the sites of a rank move per step, averaged over a pair of steps."""
    links = ENCODINGS["compact"].bytes_per_site(D3Q19)
    of_pair = module.Storage(layout="vector-collision").bytes_per_update(links)
    stored = stored_sites(sites, unit=unit_of(NotingDevice("cuda")))
    return stored * sum(of_pair) / 2


@pytest.mark.parametrize("partition", ["bisection", "cartesian"])
@pytest.mark.parametrize("periodic", [(True, True, True), (True, False, False)])
@pytest.mark.parametrize("ranks", [2, 5, 12])
def test_ranks_have_all_sites_and_the_links_between_them(ranks, periodic, partition):
    pores = pores_of(periodic)
    boxes = divided_pores(pores, partition, ranks)
    assert sum(np.count_nonzero(pores[box.slices()]) for box in boxes) == pores.sum()
    links = np.zeros((ranks, ranks), int)
    for rank in range(ranks):
        found = crossing_links(lambda box: pores[box.slices()], boxes, pores.shape, periodic, rank)
        links[rank, list(found)] = list(found.values())
    assert np.array_equal(links, links_between(pores, boxes, np.array(periodic)))


@pytest.mark.parametrize("ranks", [1, 4, 7])
def test_a_step_moves_the_sites_and_links_of_its_busiest_ranks(ranks):
    case = case_of([28, 24, 20])
    pores = pores_of((True, True, True))
    boxes = divided_pores(pores, "bisection", ranks)
    sites = max(np.count_nonzero(pores[box.slices()]) for box in boxes)
    links = links_between(pores, boxes, np.array([True] * 3)).sum(axis=1).max()
    counts = lattice_counter(case, MACHINE)(ranks)
    assert counts.in_node_bytes + counts.off_node_bytes == 8 * links
    # What others get is gathered and stored there, or packed on its way to another node; what comes
    # is put in its place. Each time an address is read.
    packings = 0 if ranks == 1 else 1 if ranks <= MACHINE.devices_per_node else 2
    packed = packings * (8 + 8 + 8) * links
    assert counts.memory_bytes == pytest.approx(bytes_of_update(sites) + packed)
    assert (counts.off_node_bytes > 0) == (ranks > MACHINE.devices_per_node)


@pytest.mark.parametrize("sample", ["sandstone", "random-pack"])
def test_a_sample_too_large_to_be_read_is_like_a_smaller_one(monkeypatch, sample):
    share = {"porosity": 0.3} if sample == "sandstone" else {"solid_fraction": 0.35}
    case = case_of([96, 80, 64], sample=sample, radius=4, **share)
    whole = lattice_counter(case, MACHINE)(12)
    monkeypatch.setattr(module, "_WHOLE", 2**18)
    monkeypatch.setattr(module, "_EDGE", 1)
    part = lattice_counter(case, MACHINE)(12)
    assert "smaller sample of their kind" in part.remark
    assert "smaller sample of their kind" not in whole.remark
    assert part.memory_bytes == pytest.approx(whole.memory_bytes, rel=0.1)
    sent = [one.in_node_bytes + one.off_node_bytes for one in (whole, part)]
    # Bisection cuts twelve parts otherwise.
    assert sent[1] == pytest.approx(sent[0], rel=0.5)


@given(st.data())
def test_a_tile_is_repeated_without_end(data):
    shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    tile = np.arange(np.prod(shape)).reshape(shape)
    starts = data.draw(st.tuples(*[st.integers(-9, 9)] * 3))
    sizes = data.draw(st.tuples(*[st.integers(0, 9)] * 3))
    box = Box(starts, tuple(a + n for a, n in zip(starts, sizes, strict=True)))
    actual = module._repeated(tile)(box)
    assert actual.shape == sizes
    for place in np.ndindex(sizes):
        assert (
            actual[place]
            == tile[tuple((a + i) % n for a, i, n in zip(starts, place, shape, strict=True))]
        )


def test_an_image_too_large_to_be_read_is_like_its_middle(monkeypatch):
    """Between walls normal to x every voxel is pore, so that all parts have the same links."""
    monkeypatch.setattr(module, "_WHOLE", 2**10)
    case = case_of([10, 40, 40], sample="channel", axis="x")
    counts = lattice_counter(case, MACHINE)(16)
    assert "like the box in the middle" in counts.remark
    # Of 10 x 10 rows of 8 sites, each of four faces has three directions of all sites, two of seven
    # in a row; at the four edges, rows have one direction that leaves by two faces.
    links = 4 * 10 * (3 * 8 + 2 * 7) - 4 * 8
    assert counts.in_node_bytes + counts.off_node_bytes == 8 * links
    assert counts.memory_bytes == pytest.approx(bytes_of_update(800) + 2 * (8 + 8 + 8) * links)
    # Of larger parts some planes tell all.
    monkeypatch.setattr(module, "_COUNTED", 2**9)
    assert lattice_counter(case, MACHINE)(16) == counts


def test_a_forecast_has_node_hours_to_the_end_and_what_does_not_fit(monkeypatch):
    machine = load_machine("h200-nvl8-ib")
    one, many = forecast(case_of([48, 48, 48]), machine, [1, 16])
    assert many.node_hours == pytest.approx(1000 * many.time.total * 16 / 3600)
    assert one.time.network == 0 < many.time.network and many.efficiency < 1
    small = machine.model_copy(
        update={"device": machine.device.model_copy(update={"memory_gib": 1e-3})}
    )
    (full,) = forecast(case_of([48, 48, 48]), small, [1])
    assert "GiB of the device" in full.obstacle


def test_overlap_hides_what_is_exchanged():
    serial, overlap = (
        step_time(lattice_counter(case_of([32, 32, 32], schedule=one), MACHINE)(12), MACHINE).total
        for one in ("serial", "overlap")
    )
    assert overlap < serial


def test_a_case_of_another_axis_or_a_closed_image_is_refused():
    with pytest.raises(InputError, match="no path leads through the pores along z"):
        forecast(case_of([8, 8, 8], sample="channel", axis="z"), MACHINE, [1])


def test_memory_of_a_rank_includes_the_vectors_for_which_there_is_room():
    case = case_of([32, 32, 32])

    def counted(**changes):
        changed = changed_case(case, {name.replace("_", "."): v for name, v in changes.items()})
        return lattice_counter(changed, MACHINE)(1)

    alone, whole = counted(convergence_vectors=0), counted()
    assert alone.remark == "" and "GiB for 10 vectors" in whole.remark
    middle = int(alone.fields_bytes + whole.fields_bytes) // 2
    part = counted(run_memory=middle)
    assert alone.fields_bytes < part.fields_bytes <= middle < whole.fields_bytes
    assert " of 10, as memory allows, vectors" in part.remark
    assert "too short for any" in counted(run_memory=int(alone.fields_bytes)).remark


def test_the_command_forecasts_one_device_of_a_node(tmp_path, capsys):
    case = tmp_path / "case.toml"
    case.write_text(case_of([24, 24, 24]).to_toml())
    printed = {}
    for devices in ("1", "8"):
        assert status_of("project", str(case), "--nodes", "1", "--devices", devices) == 0
        printed[devices] = capsys.readouterr().out
    assert " 1      1 " in printed["1"] and " 1      8 " in printed["8"]
    status_of("project", str(case), "--devices", "9")
    assert "--devices 9: a node of" in capsys.readouterr().err
