"""Flow through divided images equals a dense method, and a single rank to the bit."""

import itertools

import numpy as np
import pytest

from fft_cases import together
from lattice_oracle import (
    Image,
    advanced,
    populations_of,
    random_populations,
    random_pores,
    set_populations,
    subdomain_of,
    velocity_and_density,
    wall_force,
)
from slipstream.engine.decomposition import whole
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import make_transport
from slipstream.engine.schedule import POLICIES
from slipstream.lattice import Fluid, PoreFlow, Storage, decompose, make_sample, permeability
from slipstream.lattice import domain_decomposition as division
from slipstream.lattice.convergence import sum_up
from slipstream.lattice.domain_decomposition import PARTITIONS
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.lattice.velocity_set import D3Q19

PERIODIC, JOINED_ONCE = (True, True, True), (False, True, False)
SLOW = Fluid(0.8, force=(1e-3, 2e-3, -1e-3))
DRIVEN = Fluid(0.7, 1 / 8, (1e-3, 0.0, 0.0), pressure_drop=(1e-3, -2e-3, 3e-3), inertia=True)
STORAGES = [
    ("aa", "stream", "raster", "compact"),
    ("two-lattice", "vector-bundle", "row-tiles", "wide"),
    ("aa", "stream", "raster", "strips"),
    ("two-lattice", "stream", "row-tiles", "strips"),
]


def one_side():
    """Return an image with pores in one corner only, through which a fluid can flow along z."""
    image = np.zeros((6, 12, 24), np.uint8)
    image[:, :4, :5] = random_pores((6, 4, 5), 0.8)
    image[:, 2, 2] = 1
    return image


def comb():
    """Return an image with one long pore that touches many small ones, in any division."""
    image = np.zeros((3, 12, 18), np.uint8)
    image[0] = 1
    image[1:, ::2, ::3] = 1
    return image


# Image, and an axis along which it percolates. The first has sites that wait for no other rank's.
IMAGES = {
    "random": (random_pores((48, 9, 12)), 2),
    "pores in a corner": (one_side(), 0),
    "fewer planes than ranks": (np.ones((1, 2, 9), np.uint8), 2),
    "fewer voxels than ranks": (np.ones((1, 1, 3), np.uint8), 2),
    "a comb": (comb(), 2),
}


def storage_for(device, names):
    """Return a storage; strips are for CPUs."""
    strips = names[3] == "strips" and device.kind != "cpu"
    return Storage(*names[:3], "compact") if strips else Storage(*names)


def run(subdomain, fluid, storage, device, transport, policy, image):
    flow = PoreFlow(subdomain, fluid, storage, device, transport, policy)
    set_populations(flow, random_populations(image))
    flow.advance(4)
    flow.advance(2)
    return flow


def reference(device, image, periodic, axis, partition, fluid):
    """Return results of a single rank, and populations by the dense method a step before."""
    alone = run(
        subdomain_of(image, periodic, None, partition, (axis,)),
        fluid,
        Storage(),
        device,
        None,
        "serial",
        image,
    )
    before = advanced(random_populations(image), image, fluid, periodic, 5)
    return populations_of(alone), alone.fields(), before


def check(comm, device, name, image, periodic, axis, partition, fluid, choices, expected):
    """Compare flows by any storage and policy with the dense method and with a single rank's."""
    bits, fields, before = expected
    dense = advanced(before, image, fluid, periodic, 1)
    subdomain = subdomain_of(image, periodic, comm, partition, (axis,))
    box = subdomain.box.slices()
    transport = make_transport(name, comm, device)
    results = []
    for names, policy in choices:
        storage = storage_for(device, names)
        flow = run(subdomain, fluid, storage, device, transport, policy, image)
        results.append((populations_of(flow), flow.fields(), sum_up(flow, comm)))
    # Who found a mistake earlier would leave the others waiting.
    total = velocity_and_density(dense, image, fluid)
    earlier = velocity_and_density(before, image, fluid)
    mean = (total + earlier)[:3].mean(axis=(1, 2, 3)) / 2
    more = total[:3].mean(axis=(1, 2, 3)) - mean
    drag = wall_force(dense, image, fluid, periodic)
    for populations, part, sums in results:
        np.testing.assert_allclose(populations, dense[:, *box], rtol=0, atol=1e-16)
        np.testing.assert_array_equal(populations, bits[:, *box])
        np.testing.assert_array_equal(part, fields[:, *box])
        np.testing.assert_allclose(
            sums.velocity, total[:3].mean(axis=(1, 2, 3)), rtol=1e-12, atol=1e-17
        )
        np.testing.assert_allclose(sums.alternation, more, rtol=1e-12, atol=1e-17)
        np.testing.assert_allclose(sums.wall_force, drag, rtol=0, atol=1e-15 * image.size)
        assert sums.mass == pytest.approx(dense.sum(), rel=1e-12, abs=1e-15)
        fastest = np.sqrt((total[:3] ** 2).sum(axis=0).max())
        assert sums.mach == pytest.approx(fastest * 3**0.5, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("periodic", "fluid"), [(PERIODIC, DRIVEN), (JOINED_ONCE, SLOW)])
def test_every_transport_storage_and_policy(comm, device, transports, periodic, fluid):
    image, axis = IMAGES["random"]
    case = (image, periodic, axis, "bisection", fluid)
    expected = reference(device, *case)
    choices = list(itertools.product(STORAGES, POLICIES))
    for name in transports:
        together(comm, check, comm, device, name, *case, choices, expected)


@pytest.mark.parametrize(("image", "axis"), IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_any_image_and_partition(comm, device, transports, image, axis, partition):
    """Some ranks have no pores, or no voxels, or the same neighbour on several sides."""
    choices = [(STORAGES[0], "overlap"), (STORAGES[3], "overlap")]
    for number, periodic in enumerate((PERIODIC, JOINED_ONCE)):
        name = transports[number % len(transports)]
        case = (image, periodic, axis, partition, DRIVEN)
        expected = reference(device, *case)
        together(comm, check, comm, device, name, *case, choices, expected)


# -- subdomains ------------------------------------------------------------------------------------


def crossing_links(image, periodic, boxes, rank):
    """Return the ends of all links between a rank and each other, by a look at every voxel."""
    owner = np.empty(image.shape, int)
    for number, box in enumerate(boxes):
        owner[box.slices()] = number
    sites, results = np.argwhere((owner == rank) & (image != 0)), {}
    for q in range(1, 19):
        upstream = sites - D3Q19.velocities[q]
        places = tuple((upstream % image.shape).T)
        beyond = (upstream // image.shape != 0)[:, ~np.array(periodic)].any(axis=1)
        crosses = ~beyond & (image[places] != 0) & (owner[places] != rank)
        peers = owner[places][crosses].tolist()
        for peer, site in zip(peers, sites[crosses].tolist(), strict=True):
            results.setdefault(peer, set()).add((*site, q))
    return results


def global_ends(subdomain):
    """Return our ends of links by voxel of the whole image, in the subdomain's order."""
    start = np.array([*subdomain.box.start, 0])
    return {
        peer: [tuple(end) for end in (ends + start).tolist()]
        for peer, ends in subdomain.neighbours.items()
    }


@pytest.mark.parametrize(("image", "axis"), IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("periodic", [PERIODIC, JOINED_ONCE])
def test_both_ends_know_the_same_links_in_the_same_order(
    comm, ranks, image, axis, partition, periodic
):
    subdomain = subdomain_of(image, periodic, comm, partition, (axis,))
    ours = global_ends(subdomain)
    theirs = [{0: ours}] if comm is None else comm.allgather(ours)

    def compare():
        rank = 0 if comm is None else comm.rank
        covered = np.zeros(image.shape, int)
        for box in subdomain.boxes:
            covered[box.slices()] += 1
        assert (covered == 1).all()
        assert (subdomain.rank, len(subdomain.boxes)) == (rank, ranks)
        assert subdomain.box == subdomain.boxes[rank]
        np.testing.assert_array_equal(
            subdomain.own[1:-1, 1:-1, 1:-1], image[subdomain.box.slices()]
        )
        assert list(ours) == sorted(ours)
        links = crossing_links(image, periodic, subdomain.boxes, rank)
        assert {peer: set(ends) for peer, ends in ours.items()} == links
        for peer, ends in ours.items():
            assert len(ends) == len(set(ends))
            velocities = D3Q19.velocities
            other = [
                (*np.subtract(end[:3], velocities[end[3]]) % image.shape, (end[3] - 1 ^ 1) + 1)
                for end in ends
            ]
            assert theirs[peer][rank] == other

    together(comm, compare)


def test_images_give_some_ranks_no_pores_and_some_several_neighbours(comm, ranks):
    if ranks == 1:
        pytest.skip("needs several ranks")
    image, axis = IMAGES["pores in a corner"]
    for partition in PARTITIONS:
        subdomain = subdomain_of(image, PERIODIC, comm, partition, (axis,))
        pores = comm.allgather(int(subdomain.own[1:-1, 1:-1, 1:-1].sum()))
        neighbours = comm.allgather(len(subdomain.neighbours))
        assert (min(pores) == 0) == (partition == "cartesian")
        if partition == "bisection":
            assert min(neighbours) > 0
            assert max(neighbours) >= min(ranks - 1, 2)


@pytest.mark.parametrize("isolated", ["keep", "remove"])
def test_images_through_which_nothing_flows_keep_all_their_pores(comm, isolated):
    image, _ = IMAGES["pores in a corner"]
    with pytest.raises(InputError, match="^the image has no pore voxel"):
        decompose(Image(0 * image), PERIODIC, [0], "bisection", comm, isolated)
    closed = decompose(Image(image), PERIODIC, [2], "bisection", comm, isolated)
    pores = int(closed.own[1:-1, 1:-1, 1:-1].sum())
    assert (pores if comm is None else comm.allreduce(pores)) == image.sum()
    assert not closed.connectivity.percolates[2] and closed.connectivity.kept == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_permeability_of_a_blocked_axis_is_zero_on_all_ranks(comm, device):
    image, axis = IMAGES["pores in a corner"]
    result = permeability(image, axis="all", comm=comm, device=device)
    for place, name in enumerate("xyz"):
        is_open = result.flows[name].ended != "no path"
        assert is_open == (axis == 2 - place)
        assert is_open == bool(result.tensor[:, place].any()) == bool(result.tensor[place].any())


def test_faces_match_that_differ_as_neighbouring_planes_do(comm):
    """A periodic medium is not told to be mirrored; half of it is, along the axis that was cut."""
    size, rng = 24, np.random.default_rng(3)
    waves = np.fft.fftfreq(size, 1 / size)
    squares = sum(w**2 for w in np.meshgrid(waves, waves, waves, indexing="ij"))
    noise = np.fft.fftn(rng.standard_normal((size,) * 3)) * np.exp(-squares / 12)
    medium = (np.fft.ifftn(noise).real > 0).astype(np.uint8)
    half = medium[: size // 2]
    for image, axis, matches in (
        (medium, 0, (True, True, True)),
        (half, 0, (False, True, True)),
        (medium.swapaxes(0, 2)[:, :, : size // 2].copy(), 2, (True, True, False)),
    ):
        unmatched = decompose(Image(image), PERIODIC, [axis], "bisection", comm).unmatched
        assert tuple(count == 0 for count in unmatched) == matches
        last = np.take(image, -1, axis)
        if not matches[axis]:
            assert unmatched[axis] == np.count_nonzero(np.take(image, 0, axis) != last)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("isolated", ["keep", "remove"])
def test_ranks_have_what_one_process_counts_of_as_many(comm, partition, isolated):
    """Forecasts divide an image, and count links, among ranks that are not there."""
    sample = make_sample("sandstone", (14, 10, 12), porosity=0.3, radius=3, seed=1)
    subdomain = decompose(sample, JOINED_ONCE, [1], partition, comm, isolated)
    ranks, rank = (1, 0) if comm is None else (comm.size, comm.rank)

    def compare():
        pores = division.percolating_pores(sample, JOINED_ONCE, [1], isolated)
        boxes = division.divided_pores(pores, partition, ranks)
        assert boxes == subdomain.boxes
        links = division.crossing_links(
            lambda box: pores[box.slices()], boxes, sample.shape, JOINED_ONCE, rank
        )
        assert links == {peer: len(ends) for peer, ends in subdomain.neighbours.items()}

    together(comm, compare)


# -- permeability --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["z", "all"])
def test_permeability_is_that_of_a_single_rank(comm, device, axis):
    sample = make_sample("sandstone", (14, 10, 12), porosity=0.4, radius=4, seed=1)
    settings = {"axis": axis, "relaxation_time": 2.0, "tolerance": 1e-5, "device": device}
    alone = permeability(sample.read(whole(sample.shape)), **settings)
    actual = permeability(sample, comm=comm, **settings)

    def compare():
        assert actual.k == pytest.approx(alone.k, rel=1e-12)
        assert actual.mach == pytest.approx(alone.mach, rel=1e-12)
        assert (actual.steps, actual.converged) == (alone.steps, True)
        assert (actual.porosity, actual.open_porosity) == (alone.porosity, alone.open_porosity)
        if axis == "all":
            scale = np.abs(alone.tensor).max()
            np.testing.assert_allclose(actual.tensor, alone.tensor, rtol=0, atol=1e-12 * scale)

    together(comm, compare)


def test_all_ranks_choose_the_same_storage(comm, device):
    """A rank without pores has a say too."""
    image, axis = IMAGES["pores in a corner"]
    subdomain = subdomain_of(image, PERIODIC, comm, "cartesian", (axis,))
    names = ("propagation", "layout", "order", "encoding", "precision")
    wishes = dict.fromkeys(names, "auto")
    storage, seconds = choose_storage(wishes, subdomain, device, comm, is_measured=True)
    everybody = [storage] if comm is None else comm.allgather(storage)
    assert everybody == [storage] * len(everybody)
    assert len(seconds) > 1
    assert seconds[storage] == min(seconds.values())


def test_timeline_tells_what_overlaps(comm, device, ranks):
    image, axis = IMAGES["random"]
    subdomain = subdomain_of(image, PERIODIC, comm, axes=(axis,))
    flow = PoreFlow(subdomain, SLOW, Storage(), device, make_transport("auto", comm, device))
    flow.advance(2)
    assert flow.timeline().entries == []
    flow.advance(2, profile=True)
    flow.synchronize()
    entries = flow.timeline(forget=True).entries
    labels = {entry.label for entry in entries}
    assert labels >= ({"edge sites", "inner sites"} if ranks > 1 else {"all sites"})
    assert [entry.start for entry in entries] == sorted(entry.start for entry in entries)
    assert flow.timeline().entries == []
