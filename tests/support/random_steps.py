"""Steps of any operations and transfers on a small memory, and the same work as plain loops."""

import time

import numpy as np
from hypothesis import strategies as st

from fake_transfer import FakeTransfer
from slipstream.engine.schedule import StepGraph

SLOTS = 6
LENGTH = 8
SLICES = st.sampled_from([slice(None), slice(0, 4), slice(4, 8), slice(0, 8, 2), slice(1, 8, 2)])
VIEWS = st.tuples(st.integers(0, SLOTS - 1), SLICES)
OPERATIONS = st.fixed_dictionaries(
    {
        "reads": st.lists(VIEWS, max_size=3),
        "writes": st.lists(VIEWS, min_size=1, max_size=2, unique_by=lambda view: view[0]),
        "lane": st.sampled_from(["compute", "compute 1", "compute 2", "copy out"]),
        "pause": st.sampled_from([0, 0, 1e-4]),
    }
)
TRANSFERS = st.fixed_dictionaries(
    {
        "slots": st.permutations(range(SLOTS)),
        "where": SLICES,
        "polls": st.integers(0, 6),
        "ordered": st.booleans(),
    }
)


def mix(number, reads, writes, pause):
    """Return an operation whose result depends on all it reads and on what it overwrites."""

    def operation(stream):
        time.sleep(pause)  # lets other lanes and devices run ahead, if they do not wait
        total = sum((np.sin(a.sum()) for a in reads), start=float(number))
        for i, target in enumerate(writes):
            target *= 0.5
            target += np.cos(total + i)

    return operation


def build(home, recipes, memory, log=None):
    """Record the recipes on memory[slot, element]."""
    graph = StepGraph(home)
    for number, recipe in enumerate(recipes):
        if "slots" in recipe:
            source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
            pairs = [(source, target)]
            transfer = FakeTransfer(pairs, recipe["polls"], recipe["ordered"], log, number)
            graph.add_transfer(transfer, reads=[source], writes=[target], label=str(number))
            continue
        reads, writes = ([memory[view] for view in recipe[key]] for key in ("reads", "writes"))
        graph.add(
            mix(number, reads, writes, recipe["pause"]),
            reads=[*reads, *writes],
            writes=writes,
            label=str(number),
            category="compute",
            lane=recipe["lane"],
            device=recipe.get("device"),
        )
    return graph


def initial():
    return np.random.default_rng(0).standard_normal((SLOTS, LENGTH))


def in_order(recipes, runs, memory):
    """Return the memory after plain loops over the recipes: no graph, no policy, no device."""
    for _ in range(runs):
        for number, recipe in enumerate(recipes):
            if "slots" in recipe:
                source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
                target[...] = source
            else:
                reads, writes = ([memory[v] for v in recipe[key]] for key in ("reads", "writes"))
                mix(number, reads, writes, 0)(None)
    return memory
