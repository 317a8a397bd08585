"""Cases of distributed transforms, drawn by Hypothesis alike on all ranks."""

import contextlib

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from slipstream.engine.decomposition import Box, factorisations, whole
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import TRANSPORTS, chosen_transport
from slipstream.engine.fft import truncate
from slipstream.engine.schedule import POLICIES
from slipstream.fft import DistributedFFT

DTYPES = ("float32", "float64", "complex64", "complex128")
# Lengths 1, primes, odd and even ones; where kernels are compiled for every length, only a few.
SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 18, 25)
TILED_SIZES = (1, 5, 12, 17)

# Hypothesis also draws constants that it finds in the modules imported so far, and ranks do not
# import the same ones. There is no setting for that; test_examples_are_alike watches it.
providers._get_local_constants = providers.Constants


def alike(examples):
    """Return settings with which all ranks draw, and shrink, the same examples."""
    return settings(
        max_examples=examples,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def together(comm, test, *arguments, **options):
    """Run a test on all ranks; if it fails on one, fail on all, so that they continue alike."""
    try:
        result, failure = test(*arguments, **options), None
    except Exception as error:
        result, failure = None, error
    failures = [failure is not None] if comm is None else comm.allgather(failure is not None)
    assert not any(failures), f"failed on {failures}: {failure!r}" if failure else failures
    return result


def usable_transports(comm, device):
    """Return the names of the transports that can be used here. Collective."""

    names = []
    for name in TRANSPORTS:
        with contextlib.suppress(InputError):
            chosen_transport(name, comm, device)
            names.append(name)
    return tuple(names)


@st.composite
def bricks(draw, shape, ranks):
    """Return `ranks` boxes that partition `shape`: cut anywhere, in any order, some empty."""
    boxes = [whole(shape)]
    while len(boxes) < ranks:
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        cut = draw(st.integers(box.start[axis], box.stop[axis]))
        middle = tuple(cut if i == axis else n for i, n in enumerate(box.stop))
        boxes.append(Box(box.start, middle))
        middle = tuple(cut if i == axis else n for i, n in enumerate(box.start))
        boxes.append(Box(middle, box.stop))
    return draw(st.permutations(boxes))


@st.composite
def transforms(draw, ranks, tiled=False):
    """Return shape, dtype, fields and truncation of a transform, and how it is divided."""
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)))
    if tiled and len(shape) == 3:
        shape = (*draw(st.tuples(*[st.sampled_from(TILED_SIZES)] * 2)), shape[2])
    dtype = draw(st.sampled_from(("float64", "complex64") if tiled else DTYPES))
    largest = st.tuples(*[st.integers(0, (n - 1) // 2) for n in shape])
    truncation = draw(st.one_of(st.sampled_from([None, "2/3", "nyquist"]), largest))
    case = {
        "shape": shape,
        "dtype": dtype,
        "truncation": truncation,
        "fields": draw(st.integers(1, 3)),
        "layout": draw(st.sampled_from(["slab", "pencil", "root"])),
        "order": draw(st.sampled_from(["transposed", "natural"])),
    }
    if case["layout"] == "pencil" and len(shape) == 3:
        case["process_grid"] = draw(st.sampled_from([None, *factorisations(ranks, 2)]))
    modes = tuple(m.count for m in truncate(shape, truncation, dtype.startswith("float")))
    for name, extent in (("input_boxes", shape), ("output_boxes", modes)):
        if draw(st.booleans()):
            case[name] = draw(bricks(extent, ranks))
    return case


def choices(ranks, transports):
    """Return a strategy for options that do not change the result of a transform."""
    return st.fixed_dictionaries(
        {
            "transport": st.sampled_from(("auto", *transports)),
            "schedule": st.sampled_from(POLICIES),
            "workers": st.one_of(st.none(), st.integers(1, ranks)),
        }
    )


def usual_transports(transports, device, exchange="host"):
    """Return the names of the transports that exchange from there."""
    if exchange == "device":
        return list(transports)
    usual = ("mpi", "mpi-p2p") if device.kind == "cuda" else ("mpi", "mpi-p2p", "peer")
    return [name for name in transports if name in usual]


def plan_on_host(comm, device, shape=(12, 10, 9), **options):
    """Return the plan of a transform of real arrays on the host."""
    return DistributedFFT(shape, "float64", comm=comm, device=device, residency="host", **options)
